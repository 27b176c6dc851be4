// The communicator: what every part may know of it, and its life.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_COMM_H
#define TT_COMM_H

#include "nccl.h"
#include "nccl_device.h"
#include "topology/peer.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tt_bootstrap;
struct tt_local;
struct tt_windows;

enum tt_comm_state { TT_COMM_INIT, TT_COMM_READY, TT_COMM_FINALIZED, TT_COMM_FAILED };

struct ncclComm {
    uint64_t magic_start;           // TT_COMM_MAGIC while alive
    int rank, nranks;
    int cuda_device;
    ncclConfig_t config;            // negotiated
    char name[64];                  // config.commName or "comm-<hash>"
    uint64_t hash;                  // identifies the communicator, equal on all its ranks
    _Atomic int state;              // enum tt_comm_state
    _Atomic int async_error;        // ncclResult_t
    // Abort: the host flag that waits watch, and the same word in memory that kernels read (mapped pinned memory).
    _Atomic uint32_t *abort_flag;   // host address
    uint32_t *abort_flag_device;    // device address of the same word
    struct tt_peer *peers;          // [nranks]
    // LSA team: consecutive ranks, size the gcd of ranks per host (NCCL_LSA_TEAM_SIZE overrides).
    int lsa_rank, lsa_size;         // this rank's place; team's first world rank is rank - lsa_rank
    bool peer_access;               // every member of the team can map every other's memory
    struct tt_bootstrap *bootstrap;
    struct tt_local *local;         // ranks of this communicator in this process, and descriptors to other processes
    struct tt_windows *windows;     // owned by src/window; NULL until the first window
    uint64_t magic_end;
};

#define TT_COMM_MAGIC UINT64_C(0x7475747469636f6d)

// ncclInvalidArgument where `comm` is NULL, freed or overwritten; the failed or unfinished state's error where it is not
// ready. `call` names the function for the message.
ncclResult_t tt_comm_check(const struct ncclComm *comm, const char *call);

#endif
