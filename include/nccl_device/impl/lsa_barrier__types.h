// State of LSA barriers. Each index has its own record of 32-bit words, records at distances of
// whole 64-byte lines:
//   0, 1   rounds done with multicast, a 64-bit number
//   2      rounds done with stores
//   3      the block that uses it, plus one
//   4, 5   multicast arrivals of even rounds, of odd rounds
//   6      whether a thread of the group ran out of time
//   8 + r  the round that team rank r has announced by a store
// A multicast add reaches the members one after the other, so a member that is quick may add for
// the next round where an add for this one has yet to arrive. Two counters in turn keep them apart:
// the round after the next cannot begin before this one has ended everywhere.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_LSA_BARRIER__TYPES_H_
#define NCCL_DEVICE_LSA_BARRIER__TYPES_H_

#include "../core.h"
#include "core__types.h"

struct ncclLsaBarrierHandle {
    ncclDevResourceHandle_t bufHandle;
    int nBarriers;
};

enum {
    NCCL_LSA_BARRIER_MULTICAST_ROUNDS = 0,
    NCCL_LSA_BARRIER_ROUNDS = 2,
    NCCL_LSA_BARRIER_OWNER = 3,
    NCCL_LSA_BARRIER_MULTICAST_INBOX = 4,
    NCCL_LSA_BARRIER_LATE = 6,
    NCCL_LSA_BARRIER_INBOX = 8,
};
// How long the others may take after a member has left, where all count in one word.
#define NCCL_LSA_BARRIER_PATIENCE_NS UINT64_C(10000000000)

// Words of one record for a team of nRanks.
NCCL_HOST_DEVICE_INLINE size_t ncclLsaBarrierWords(int nRanks)
{
    return ((size_t)nRanks + NCCL_LSA_BARRIER_INBOX + 15) / 16 * 16;
}

#if NCCL_CHECK_CUDACC
template <typename Coop> struct ncclLsaBarrierSession_internal {
    Coop coop;
    ncclDevComm const &comm;
    ncclTeam team;
    ncclLsaBarrierHandle handle;
    int index;
    bool multimem;
    ncclMultimemHandle mmHandle;
    uint64_t rounds; // done so far

    // Word `word` of this barrier's record on team rank `rank`; of all ranks at once.
    NCCL_DEVICE_INLINE uint32_t *stateWord(int rank, int word) const;
    NCCL_DEVICE_INLINE uint32_t *multicastWord(int word) const;
#if NCCL_DEVICE_CHECKED
    // For the checking mode: this use of the barrier, in words of the runtime; one step of it.
    NCCL_DEVICE_INLINE vgpu_barrier_use describe(bool timed) const;
    NCCL_DEVICE_INLINE void tell(vgpu_barrier_step step) const;
#endif
    NCCL_DEVICE_INLINE void open();
    NCCL_DEVICE_INLINE void close();
    NCCL_DEVICE_INLINE int multicastInbox() const;
    NCCL_DEVICE_INLINE uint32_t arrivalTarget() const;
    template <bool withTimeout>
    NCCL_DEVICE_INLINE bool waitWord(uint32_t *word, uint32_t target, cuda::memory_order order,
                                     uint64_t deadline, int peer) const;
#if NCCL_DEVICE_CHECKED
    NCCL_DEVICE_INLINE bool hasLeft(int peer) const;
    NCCL_DEVICE_INLINE void checkPeers(uint32_t *word, uint32_t target, int peer,
                                       uint64_t &since) const;
#endif
    template <bool withTimeout>
    NCCL_DEVICE_INLINE bool waitAll(cuda::memory_order order, uint64_t timeoutCycles);
};
#endif

#endif
