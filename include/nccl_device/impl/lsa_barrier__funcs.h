// Bodies of lsa_barrier.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_LSA_BARRIER__FUNCS_H_
#define NCCL_DEVICE_LSA_BARRIER__FUNCS_H_

#include "../lsa_barrier.h"
#include "core__funcs.h"

#if NCCL_CHECK_CUDACC
namespace nccl
{
namespace utility
{
// Whether `late` is set in any thread of the group; the same answer in all. Groups that have no way
// of their own (ncclCoopAny, types of the user) agree through `word`.
template <typename Coop> NCCL_DEVICE_INLINE bool anyLate(Coop coop, bool late, uint32_t *word)
{
    cuda::atomic_ref<uint32_t, cuda::thread_scope_device> shared(*word);
    coop.sync();
    if (coop.thread_rank() == 0) {
        shared.store(0, cuda::memory_order_relaxed);
    }
    coop.sync();
    if (late) {
        shared.store(1, cuda::memory_order_relaxed);
    }
    coop.sync();
    return shared.load(cuda::memory_order_relaxed) != 0;
}
template <int nThreads>
NCCL_DEVICE_INLINE bool anyLate(ncclCoopTile<nThreads> coop, bool late, uint32_t *)
{
    return coopAny(coop, late);
}
NCCL_DEVICE_INLINE bool anyLate(ncclCoopLanes coop, bool late, uint32_t *)
{
    return coopAny(coop, late);
}
NCCL_DEVICE_INLINE bool anyLate(ncclCoopCta coop, bool late, uint32_t *)
{
    return coopAny(coop, late);
}
} // namespace utility
} // namespace nccl

template <typename Coop>
NCCL_DEVICE_INLINE uint32_t *ncclLsaBarrierSession_internal<Coop>::stateWord(int rank,
                                                                             int word) const
{
    uint32_t *records =
        (uint32_t *)ncclGetResourceBufferPeerPointer(comm, handle.bufHandle, team, rank);
    return records + (size_t)index * ncclLsaBarrierWords(team.nRanks) + word;
}

template <typename Coop>
NCCL_DEVICE_INLINE uint32_t *ncclLsaBarrierSession_internal<Coop>::multicastWord(int word) const
{
    uint32_t *records =
        (uint32_t *)ncclGetResourceBufferMultimemPointer(comm, handle.bufHandle, mmHandle);
    return records + (size_t)index * ncclLsaBarrierWords(team.nRanks) + word;
}

#if NCCL_DEVICE_CHECKED
template <typename Coop>
NCCL_DEVICE_INLINE vgpu_barrier_use ncclLsaBarrierSession_internal<Coop>::describe(bool timed) const
{
    vgpu_barrier_use use = {};
    use.kind = "LSA barrier";
    use.record = stateWord(0, 0);
    use.index = index;
    use.rank = comm.rank;
    use.member = team.rank;
    use.members = team.nRanks;
    use.rank_step = team.stride;
    use.round = rounds;
    use.inbox = stateWord(team.rank, multimem ? multicastInbox() : NCCL_LSA_BARRIER_INBOX);
    use.target = arrivalTarget();
    use.counts = multimem;
    use.timed = timed;
    return use;
}

template <typename Coop>
NCCL_DEVICE_INLINE void ncclLsaBarrierSession_internal<Coop>::tell(vgpu_barrier_step step) const
{
    if (__builtin_expect(vgpu_checking, 0) && coop.thread_rank() == 0) {
        vgpu_barrier_use use = describe(false);
        vgpu_check_barrier(step, &use);
    }
}
#endif

template <typename Coop> NCCL_DEVICE_INLINE void ncclLsaBarrierSession_internal<Coop>::open()
{
#if NCCL_DEVICE_CHECKED
    if (coop.thread_rank() == 0) {
        nccl::utility::checkDeviceComm(comm);
    }
    if (index < 0 || index >= handle.nBarriers) {
        vgpu_fault(
            cudaErrorInvalidValue,
            "LSA barrier %d of rank %d: only %d barriers were asked for (lsaBarrierCount, or "
            "nBarriers of the requirement)",
            index, comm.rank, handle.nBarriers);
    }
    tell(VGPU_BARRIER_OPENED);
    if (coop.thread_rank() == 0) {
        uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        uint32_t *owner = stateWord(team.rank, NCCL_LSA_BARRIER_OWNER);
        uint32_t other = cuda::atomic_ref<uint32_t, cuda::thread_scope_device>(*owner).exchange(
            block + 1, cuda::memory_order_acquire);
        if (other != 0) {
            vgpu_fault(
                cudaErrorInvalidValue,
                "LSA barrier %d of rank %d is used by block %u and by block %u at once: give "
                "each group its own index",
                index, comm.rank, other - 1, block);
        }
    }
    coop.sync();
#endif
    if (multimem) {
        rounds =
            *reinterpret_cast<uint64_t *>(stateWord(team.rank, NCCL_LSA_BARRIER_MULTICAST_ROUNDS));
    } else {
        rounds = *stateWord(team.rank, NCCL_LSA_BARRIER_ROUNDS);
    }
}

template <typename Coop> NCCL_DEVICE_INLINE void ncclLsaBarrierSession_internal<Coop>::close()
{
    coop.sync();
    if (coop.thread_rank() == 0) {
        if (multimem) {
            *reinterpret_cast<uint64_t *>(stateWord(team.rank, NCCL_LSA_BARRIER_MULTICAST_ROUNDS)) =
                rounds;
        } else {
            *stateWord(team.rank, NCCL_LSA_BARRIER_ROUNDS) = (uint32_t)rounds;
        }
#if NCCL_DEVICE_CHECKED
        tell(VGPU_BARRIER_CLOSED);
        uint32_t *owner = stateWord(team.rank, NCCL_LSA_BARRIER_OWNER);
        cuda::atomic_ref<uint32_t, cuda::thread_scope_device>(*owner).store(
            0, cuda::memory_order_release);
#endif
    }
    coop.sync();
}

// Which counter the running round's arrivals go to.
template <typename Coop>
NCCL_DEVICE_INLINE int ncclLsaBarrierSession_internal<Coop>::multicastInbox() const
{
    return NCCL_LSA_BARRIER_MULTICAST_INBOX + (int)(rounds % 2);
}

// What the running round's arrivals bring the counters to. Of multicast, each counter serves every
// second round and grows by nRanks in it.
template <typename Coop>
NCCL_DEVICE_INLINE uint32_t ncclLsaBarrierSession_internal<Coop>::arrivalTarget() const
{
    return (uint32_t)(multimem ? (rounds / 2 + 1) * (uint64_t)team.nRanks : rounds + 1);
}

#if NCCL_DEVICE_CHECKED
// Whether member `peer` of the team has left the communicator: what it had to announce is
// announced.
template <typename Coop>
NCCL_DEVICE_INLINE bool ncclLsaBarrierSession_internal<Coop>::hasLeft(int peer) const
{
    return nccl::utility::hasLeft(comm, comm.lsaRank + (peer - team.rank) * team.stride);
}

// A wait that cannot end is an error of the kernel: a member died, or left without coming here.
// peer: whose word it is, -1: all members count in it; then it is only certain after a while.
template <typename Coop>
NCCL_DEVICE_INLINE void ncclLsaBarrierSession_internal<Coop>::checkPeers(uint32_t *word,
                                                                         uint32_t target, int peer,
                                                                         uint64_t &since) const
{
    cuda::atomic_ref<uint32_t, cuda::thread_scope_system> announced(*word);
    int first = peer >= 0 ? peer : 0, last = peer >= 0 ? peer : team.nRanks - 1;
    for (int p = first; p <= last; p++) {
        if (!hasLeft(p) || (int32_t)(announced.load(cuda::memory_order_acquire) - target) >= 0) {
            continue;
        }
        uint64_t now = vgpu_global_timer();
        since = since == 0 ? now : since;
        if (peer >= 0 || now - since > NCCL_LSA_BARRIER_PATIENCE_NS) {
            vgpu_fault(cudaErrorLaunchFailure,
                       "rank %d waits in LSA barrier %d for rank %d, which has destroyed the "
                       "communicator and will not come",
                       comm.rank, index, comm.rank + (p - team.rank) * team.stride);
        }
    }
}
#endif

// True once *word has reached `target`, or the communicator is aborted; false at the deadline.
template <typename Coop>
template <bool withTimeout>
NCCL_DEVICE_INLINE bool ncclLsaBarrierSession_internal<Coop>::waitWord(
    uint32_t *word, uint32_t target, cuda::memory_order order, uint64_t deadline, int peer) const
{
    cuda::atomic_ref<uint32_t, cuda::thread_scope_system> announced(*word);
    uint32_t steps = 0;
#if NCCL_DEVICE_CHECKED
    uint64_t since = 0; // when a member was seen to have left
#else
    (void)peer;
#endif
    while ((int32_t)(announced.load(order) - target) < 0) {
        if (nccl::utility::testAbort(comm.abortFlag, steps)) {
#if NCCL_DEVICE_CHECKED
            nccl::utility::failOfDeath(comm, "LSA barrier", index);
#endif
            return true;
        }
        if (withTimeout && (int64_t)((uint64_t)clock64() - deadline) >= 0) {
            return false;
        }
#if NCCL_DEVICE_CHECKED
        if (!withTimeout && steps % 64 == 0) {
            checkPeers(word, target, peer, since);
        }
#endif
    }
    return true;
}

// Waits for every other member; the group shares them. The round is then done, unless a member was
// late for the deadline: then false, in all threads of the group, and the round can be waited for
// again.
template <typename Coop>
template <bool withTimeout>
NCCL_DEVICE_INLINE bool ncclLsaBarrierSession_internal<Coop>::waitAll(cuda::memory_order order,
                                                                      uint64_t timeoutCycles)
{
    uint64_t deadline = withTimeout ? (uint64_t)clock64() + timeoutCycles : 0;
    cuda::memory_order acquire = nccl::utility::acquireOrderOf(order);
    uint32_t target = arrivalTarget();
    bool late = false;
#if NCCL_DEVICE_CHECKED
    vgpu_barrier_use use;
    bool polls = coop.thread_rank() < (multimem ? 1 : team.nRanks - 1);
    if (__builtin_expect(vgpu_checking, 0) && polls) {
        use = describe(withTimeout);
        vgpu_check_wait(&use);
    }
#endif
    if (multimem) {
        if (coop.thread_rank() == 0) {
            uint32_t *word = stateWord(team.rank, multicastInbox());
            late = !this->template waitWord<withTimeout>(word, target, acquire, deadline, -1);
        }
    } else {
        for (int i = coop.thread_rank() + 1; i < team.nRanks && !late; i += coop.size()) {
            int peer = team.rank + i < team.nRanks ? team.rank + i : team.rank + i - team.nRanks;
            uint32_t *word = stateWord(team.rank, NCCL_LSA_BARRIER_INBOX + peer);
            late = !this->template waitWord<withTimeout>(word, target, acquire, deadline, peer);
        }
    }
#if NCCL_DEVICE_CHECKED
    if (__builtin_expect(vgpu_checking, 0) && polls) {
        vgpu_check_wait(nullptr);
    }
#endif
    if (withTimeout) {
        late = nccl::utility::anyLate(coop, late, stateWord(team.rank, NCCL_LSA_BARRIER_LATE));
    }
    coop.sync();
    if (!late) {
        rounds++;
    }
    return !late;
}

template <typename Coop>
NCCL_DEVICE_INLINE ncclLsaBarrierSession<Coop>::ncclLsaBarrierSession(
    Coop coop, ncclDevComm const &comm, ncclTeam team, ncclLsaBarrierHandle handle, uint32_t index,
    bool multimem, ncclMultimemHandle mmHandle)
    : ncclLsaBarrierSession_internal<Coop>{coop, comm, team, handle, (int)index, false, mmHandle, 0}
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    this->multimem = multimem && mmHandle.mcBasePtr != nullptr;
#if NCCL_DEVICE_CHECKED
    if (__builtin_expect(vgpu_checking, 0) && multimem && !this->multimem) {
        vgpu_fault(cudaErrorInvalidValue,
                   "LSA barrier %d of rank %d: multimem was asked for, but the multimem handle is "
                   "empty; ask for lsaMultimem in ncclDevCommRequirements (without the checking "
                   "mode the barrier uses stores instead)",
                   (int)index, comm.rank);
    }
#endif
#else
    (void)multimem;
#endif
    this->open();
}

template <typename Coop>
NCCL_DEVICE_INLINE
ncclLsaBarrierSession<Coop>::ncclLsaBarrierSession(Coop coop, ncclDevComm const &comm,
                                                   ncclTeamTagLsa, uint32_t index, bool multimem)
    : ncclLsaBarrierSession(coop, comm, ncclTeamLsa(comm), comm.lsaBarrier, index, multimem,
                            comm.lsaMultimem)
{
}

template <typename Coop> NCCL_DEVICE_INLINE ncclLsaBarrierSession<Coop>::~ncclLsaBarrierSession()
{
    this->close();
}

template <typename Coop>
NCCL_DEVICE_INLINE void ncclLsaBarrierSession<Coop>::arrive(Coop, cuda::memory_order order)
{
    bool release = nccl::utility::releaseOrderOf(order) == cuda::memory_order_release;
    this->coop.sync();
#if NCCL_DEVICE_CHECKED
    this->tell(VGPU_BARRIER_ARRIVED);
#endif
    if (this->multimem) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
        if (this->coop.thread_rank() == 0) {
            uint32_t *inbox = this->multicastWord(this->multicastInbox());
            if (release) {
                asm volatile("multimem.red.release.sys.global.add.u32 [%0], %1;"
                             :
                             : "l"(inbox), "r"(1)
                             : "memory");
            } else {
                asm volatile("multimem.red.relaxed.sys.global.add.u32 [%0], %1;"
                             :
                             : "l"(inbox), "r"(1)
                             : "memory");
            }
        }
#endif
        return;
    }
    for (int i = this->coop.thread_rank() + 1; i < this->team.nRanks; i += this->coop.size()) {
        int rank = this->team.rank;
        int peer = rank + i < this->team.nRanks ? rank + i : rank + i - this->team.nRanks;
        uint32_t *word = this->stateWord(peer, NCCL_LSA_BARRIER_INBOX + rank);
        cuda::atomic_ref<uint32_t, cuda::thread_scope_system>(*word).store(
            (uint32_t)(this->rounds + 1),
            release ? cuda::memory_order_release : cuda::memory_order_relaxed);
    }
}

template <typename Coop>
NCCL_DEVICE_INLINE void ncclLsaBarrierSession<Coop>::wait(Coop, cuda::memory_order order)
{
    this->template waitAll<false>(order, 0);
}

template <typename Coop>
NCCL_DEVICE_INLINE ncclResult_t ncclLsaBarrierSession<Coop>::wait(Coop, cuda::memory_order order,
                                                                  uint64_t timeoutCycles)
{
    return this->template waitAll<true>(order, timeoutCycles) ? ncclSuccess : ncclTimeout;
}

template <typename Coop>
NCCL_DEVICE_INLINE void ncclLsaBarrierSession<Coop>::sync(Coop coop, cuda::memory_order order)
{
    arrive(coop, order);
    wait(coop, order);
}

template <typename Coop>
NCCL_DEVICE_INLINE ncclResult_t ncclLsaBarrierSession<Coop>::sync(Coop coop,
                                                                  cuda::memory_order order,
                                                                  uint64_t timeoutCycles)
{
    arrive(coop, order);
    return wait(coop, order, timeoutCycles);
}
#endif

#endif
