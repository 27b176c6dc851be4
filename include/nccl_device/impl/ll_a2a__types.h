// State of an all-to-all exchange of small values, in lines of 16 bytes. A block has 1 + 2 * nSlots
// of them:
//   line 0              word 0: epochs done; word 1: the block that uses it, plus one
//   1 + slot            slots of even epochs
//   1 + nSlots + slot   slots of odd epochs
// A slot is two 64-bit words, each 32 bits of the value below the epoch: a word is written at once,
// so a reader that sees the epoch has the value. The slots of an epoch are written again two epochs
// later, when every member has sent, and so has done reading, in the epoch between.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_LL_A2A__TYPES_H_
#define NCCL_DEVICE_LL_A2A__TYPES_H_

#include "../core.h"
#include "core__types.h"

struct ncclLLA2AHandle {
    ncclDevResourceHandle_t bufHandle;
    uint32_t nSlots;
    uint32_t nBlocks;
};

// How long a value may take after a member of the team has left the communicator.
#ifndef NCCL_LL_A2A_PATIENCE_NS
#define NCCL_LL_A2A_PATIENCE_NS UINT64_C(10000000000)
#endif

enum { NCCL_LL_A2A_LINE = 16, NCCL_LL_A2A_FIRST_EPOCH = 2 };

// Bytes of `blocks` blocks of `slots` slots.
NCCL_HOST_DEVICE_INLINE size_t ncclLLA2ABytes(size_t blocks, size_t slots)
{
    return blocks * (1 + 2 * slots) * NCCL_LL_A2A_LINE;
}

#if NCCL_CHECK_CUDACC
template <typename Coop> struct ncclLLA2ASession_internal {
    Coop coop;
    ncclDevComm const &comm;
    ncclTeam team;
    ncclLLA2AHandle handle;
    int block;
    int pitch; // slots from one piece of a value to the next
    bool multimem;
    ncclMultimemHandle mmHandle;
    uint32_t epoch;
    bool sent; // this thread has sent in this epoch

    // Byte offset in the buffer of this block's line 0, and of a slot in this epoch.
    NCCL_DEVICE_INLINE size_t stateOffset() const;
    NCCL_DEVICE_INLINE size_t slotOffset(int slot) const;
    NCCL_DEVICE_INLINE uint32_t *stateWord(int word) const;
    // Ends the kernel, on virtual devices, where a value of `pieces` pieces does not fit `slot`.
    NCCL_DEVICE_INLINE void checkSlot(int slot, int pieces) const;
    // The same where a value has not come for long since a member left; since: when that was seen.
    NCCL_DEVICE_INLINE void checkPeers(int slot, uint64_t &since) const;
    NCCL_DEVICE_INLINE void open();
    NCCL_DEVICE_INLINE void close();
};
#endif

#endif
