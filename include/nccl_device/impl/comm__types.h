// Layout of ncclDevComm and of the table that ncclFindWindow searches.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_COMM__TYPES_H_
#define NCCL_DEVICE_COMM__TYPES_H_

#include "core__types.h"
#include "gin__types.h"
#include "gin_barrier__types.h"
#include "ll_a2a__types.h"
#include "lsa_barrier__types.h"

struct ncclDevCommWindowEntry {
    uintptr_t base; // 0: empty
    uintptr_t size;
    ncclWindow_t window;
};
struct ncclDevCommWindowTable {
    struct ncclDevCommWindowEntry entries[32];
    struct ncclDevCommWindowTable *next;
};
typedef struct ncclDevCommWindowTable *ncclDevCommWindowTable_t;

// At most 240 bytes, so that it stays cheap as a kernel parameter. The *_rcp32 fields are
// floor((2^32 - 1) / x), plus one where x is a power of two, for divisions by multiplication.
struct ncclDevComm {
    unsigned int magic;
    unsigned int version;
    int rank, nRanks;
    uint32_t nRanks_rcp32;
    int lsaRank, lsaSize;
    uint32_t lsaSize_rcp32;

    ncclDevCommWindowTable_t windowTable;
    ncclWindow_t resourceWindow;
    ncclWindow_vidmem_t resourceWindow_inlined; // a copy, to spare a load

    ncclMultimemHandle_t lsaMultimem; // mcBasePtr NULL: none
    ncclLsaBarrierHandle_t lsaBarrier;
    ncclGinBarrierHandle_t railGinBarrier;
    ncclGinBarrierHandle_t worldGinBarrier;
    ncclGinBarrierHandle_t hybridWorldGinBarrier;
    ncclGinBarrierHandle_t hybridRailGinBarrier;
    ncclLsaBarrierHandle_t hybridLsaBarrier;

    void *ginHandles[NCCL_GIN_MAX_CONNECTIONS];
    uint64_t *ginSignalShadows;
    int ginSignalCount;
    int ginCounterCount;
    uint32_t ginContextCount;
    uint8_t ginConnectionCount;
    uint8_t ginNetDeviceTypes[NCCL_GIN_MAX_CONNECTIONS];
    bool ginConnectionsRailed;
    bool ginContextsRailed;
    bool ginStrongLegacySignals;

    // Always set. The word is 0 while the communicator works, 1 once it is aborted or has failed,
    // NCCL_ABORT_FLAG_DEATH + r once rank r has died. Behind it stands a bit for each LSA rank
    // below NCCL_LEFT_RANKS: 1 once it has destroyed the communicator.
    uint32_t *abortFlag;
};
enum { NCCL_ABORT_FLAG_DEATH = 2, NCCL_ABORT_FLAG_WORDS = 32 };
enum { NCCL_LEFT_RANKS = 32 * (NCCL_ABORT_FLAG_WORDS - 1) };

#ifdef __cplusplus
static_assert(sizeof(ncclDevComm) <= 240, "ncclDevComm is passed by value to kernels");
#else
_Static_assert(sizeof(struct ncclDevComm) <= 240, "ncclDevComm is passed by value to kernels");
#endif

#endif
