// The window as kernels read it. Its fields are private: use the functions of core.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_CORE__TYPES_H_
#define NCCL_DEVICE_CORE__TYPES_H_

#include "../core.h"

// Byte x of LSA member m's copy is at lsaFlatBase + m * stride + x; the team's multicast view of it
// is at multimem.mcBasePtr + mcOffset + x (modulo 2^64). In device memory NCCL_MULTIMEM_VIEWS
// 64-bit addresses follow the structure: where byte 0 is in the multicast views of other teams; 0:
// none. mcBasePtr of the LSA team is the anchor, an address that is never mapped; that of view v
// lies (v + 1) steps above it.
enum { NCCL_MULTIMEM_VIEWS = 8, NCCL_MULTIMEM_ANCHOR = 4096, NCCL_MULTIMEM_VIEW_STEP = 16 };
struct ncclWindow_vidmem {
    void *winHost; // the library's own record
    char *lsaFlatBase;
    size_t stride; // bytes
    size_t size;   // bytes, as registered
    size_t mcOffset;
    int lsaRank; // this rank's place in its LSA team
    int worldRank;
    int lsaSize;
    int number; // n-th window of its communicator, from 1; 0: the resource window
};

#endif
