// Bodies of ll_a2a.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_LL_A2A__FUNCS_H_
#define NCCL_DEVICE_LL_A2A__FUNCS_H_

#include "../ll_a2a.h"
#include "core__funcs.h"

#if NCCL_CHECK_CUDACC
namespace nccl
{
namespace utility
{

// A value as pieces of two 32-bit words, the last one filled up with zeros.
template <typename Value> struct LLPieces {
    static constexpr int count = (int)((sizeof(Value) + 7) / 8);
    uint32_t word[count][2];

    NCCL_DEVICE_INLINE void take(Value const &value)
    {
        word[count - 1][0] = word[count - 1][1] = 0;
        memcpy(word, &value, sizeof(Value));
    }
    NCCL_DEVICE_INLINE void give(Value *value) const
    {
        memcpy(static_cast<void *>(value), word, sizeof(Value));
    }
};

// A piece with its epoch, as it lies in a slot.
NCCL_DEVICE_INLINE uint64_t stampWord(uint32_t word, uint32_t epoch)
{
    return (uint64_t)epoch << 32 | word;
}
NCCL_DEVICE_INLINE void storeLine(char *line, uint64_t first, uint64_t second)
{
#if NCCL_DEVICE_CHECKED
    uint64_t *word = reinterpret_cast<uint64_t *>(line);
    cuda::atomic_ref<uint64_t, cuda::thread_scope_system>(word[0]).store(
        first, cuda::memory_order_relaxed);
    cuda::atomic_ref<uint64_t, cuda::thread_scope_system>(word[1]).store(
        second, cuda::memory_order_relaxed);
#else
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};"
                 :
                 : "l"(line), "l"(first), "l"(second)
                 : "memory");
#endif
}
NCCL_DEVICE_INLINE void loadLine(char *line, uint64_t *first, uint64_t *second)
{
#if NCCL_DEVICE_CHECKED
    uint64_t *word = reinterpret_cast<uint64_t *>(line);
    *first = cuda::atomic_ref<uint64_t, cuda::thread_scope_system>(word[0]).load(
        cuda::memory_order_relaxed);
    *second = cuda::atomic_ref<uint64_t, cuda::thread_scope_system>(word[1]).load(
        cuda::memory_order_relaxed);
#else
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(*first), "=l"(*second)
                 : "l"(line)
                 : "memory");
#endif
}
// The same to all members of a multicast address, word by word: each is written at once.
NCCL_DEVICE_INLINE void storeLineToAll(char *line, uint64_t first, uint64_t second)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("multimem.st.relaxed.sys.global.b64 [%0], %1;"
                 :
                 : "l"(line), "l"(first)
                 : "memory");
    asm volatile("multimem.st.relaxed.sys.global.b64 [%0], %1;"
                 :
                 : "l"(line + 8), "l"(second)
                 : "memory");
#else
    (void)line;
    (void)first;
    (void)second;
#endif
}

} // namespace utility
} // namespace nccl

template <typename Coop>
NCCL_DEVICE_INLINE size_t ncclLLA2ASession_internal<Coop>::stateOffset() const
{
    return ncclLLA2ABytes((size_t)block, handle.nSlots);
}
template <typename Coop>
NCCL_DEVICE_INLINE size_t ncclLLA2ASession_internal<Coop>::slotOffset(int slot) const
{
    size_t line = 1 + (size_t)(epoch % 2) * handle.nSlots + (size_t)slot;
    return stateOffset() + line * NCCL_LL_A2A_LINE;
}
template <typename Coop>
NCCL_DEVICE_INLINE uint32_t *ncclLLA2ASession_internal<Coop>::stateWord(int word) const
{
    char *buffer = (char *)ncclGetResourceBufferLocalPointer(comm, handle.bufHandle);
    return reinterpret_cast<uint32_t *>(buffer + stateOffset()) + word;
}

template <typename Coop>
NCCL_DEVICE_INLINE void ncclLLA2ASession_internal<Coop>::checkSlot(int slot, int pieces) const
{
#if NCCL_DEVICE_CHECKED
    if (slot < 0 || slot >= pitch || (size_t)slot + (size_t)(pieces - 1) * pitch >= handle.nSlots) {
        vgpu_fault(cudaErrorInvalidValue,
                   "ncclLLA2ASession of rank %d: slot %d for a value of %d pieces of 8 bytes; the "
                   "session has slots 0 to %d (maxElts) and %u lines (nSlots; see "
                   "ncclLLA2ACalcSlots)",
                   comm.rank, slot, pieces, pitch - 1, handle.nSlots);
    }
#else
    (void)slot;
    (void)pieces;
#endif
}

#if NCCL_DEVICE_CHECKED
// Whose value is missing is not known, so that a departure alone is no proof.
template <typename Coop>
NCCL_DEVICE_INLINE void ncclLLA2ASession_internal<Coop>::checkPeers(int slot, uint64_t &since) const
{
    int gone = 0;
    while (gone < team.nRanks &&
           !nccl::utility::hasLeft(comm, comm.lsaRank + (gone - team.rank) * team.stride)) {
        gone++;
    }
    if (gone == team.nRanks) {
        return;
    }
    uint64_t now = vgpu_global_timer();
    since = since == 0 ? now : since;
    if (now - since > NCCL_LL_A2A_PATIENCE_NS) {
        vgpu_fault(cudaErrorLaunchFailure,
                   "rank %d waits in ncclLLA2ASession::recv of block %d for slot %d; rank %d has "
                   "destroyed the communicator and will not send",
                   comm.rank, block, slot, comm.rank + (gone - team.rank) * team.stride);
    }
}
#endif

template <typename Coop> NCCL_DEVICE_INLINE void ncclLLA2ASession_internal<Coop>::open()
{
#if NCCL_DEVICE_CHECKED
    if (coop.thread_rank() == 0) {
        nccl::utility::checkDeviceComm(comm);
    }
    if (block < 0 || (unsigned)block >= handle.nBlocks) {
        vgpu_fault(cudaErrorInvalidValue,
                   "ncclLLA2ASession of rank %d: block %d, expected 0 to %d (nBlocks of the "
                   "requirement)",
                   comm.rank, block, (int)handle.nBlocks - 1);
    }
    if (coop.thread_rank() == 0) {
        uint32_t mine = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        uint32_t other = cuda::atomic_ref<uint32_t, cuda::thread_scope_device>(*stateWord(1))
                             .exchange(mine + 1, cuda::memory_order_acquire);
        if (other != 0) {
            vgpu_fault(cudaErrorInvalidValue,
                       "ncclLLA2ASession of rank %d: block %d is used by blocks %u and %u of the "
                       "grid at once: give each group its own",
                       comm.rank, block, other - 1, mine);
        }
    }
    coop.sync();
#endif
    epoch = *stateWord(0) + NCCL_LL_A2A_FIRST_EPOCH;
}

template <typename Coop> NCCL_DEVICE_INLINE void ncclLLA2ASession_internal<Coop>::close()
{
#if NCCL_DEVICE_CHECKED
    uint32_t steps = 63; // look at the flag now
    if (sent && !nccl::utility::testAbort(comm.abortFlag, steps)) {
        vgpu_fault(cudaErrorInvalidValue,
                   "ncclLLA2ASession of rank %d: block %d ends the session inside an epoch; call "
                   "endEpoch after the last values",
                   comm.rank, block);
    }
#endif
    coop.sync();
    if (coop.thread_rank() == 0) {
        *stateWord(0) = epoch - NCCL_LL_A2A_FIRST_EPOCH;
#if NCCL_DEVICE_CHECKED
        cuda::atomic_ref<uint32_t, cuda::thread_scope_device>(*stateWord(1))
            .store(0, cuda::memory_order_release);
#endif
    }
    coop.sync();
}

template <typename Coop>
NCCL_DEVICE_INLINE
ncclLLA2ASession<Coop>::ncclLLA2ASession(Coop coop, ncclDevComm const &comm, ncclTeam team,
                                         ncclLLA2AHandle handle, uint32_t block, int maxElts,
                                         bool multimem, ncclMultimemHandle mmHandle)
    : ncclLLA2ASession_internal<Coop>{coop,    comm,  team,     handle, (int)block,
                                      maxElts, false, mmHandle, 0,      false}
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    this->multimem = multimem && mmHandle.mcBasePtr != nullptr;
#else
    (void)multimem;
#endif
    this->open();
}

template <typename Coop> NCCL_DEVICE_INLINE ncclLLA2ASession<Coop>::~ncclLLA2ASession()
{
    this->close();
}

template <typename Coop>
template <typename Value>
NCCL_DEVICE_INLINE void ncclLLA2ASession<Coop>::send(int peer, int slot, Value data)
{
    using Pieces = nccl::utility::LLPieces<Value>;
    this->checkSlot(slot, Pieces::count);
#if NCCL_DEVICE_CHECKED
    if (peer < 0 || peer >= this->team.nRanks) {
        vgpu_fault(cudaErrorInvalidValue,
                   "ncclLLA2ASession::send of rank %d: peer %d, the team has ranks 0 to %d",
                   this->comm.rank, peer, this->team.nRanks - 1);
    }
#endif
    Pieces pieces;
    pieces.take(data);
    char *line = (char *)ncclGetResourceBufferPeerPointer(this->comm, this->handle.bufHandle,
                                                          this->team, peer) +
                 this->slotOffset(slot);
#pragma unroll
    for (int i = 0; i < Pieces::count; i++) {
        nccl::utility::storeLine(line + (size_t)i * this->pitch * NCCL_LL_A2A_LINE,
                                 nccl::utility::stampWord(pieces.word[i][0], this->epoch),
                                 nccl::utility::stampWord(pieces.word[i][1], this->epoch));
    }
    this->sent = true;
}

template <typename Coop>
template <typename Value>
NCCL_DEVICE_INLINE void ncclLLA2ASession<Coop>::bcast(int slot, Value data)
{
    using Pieces = nccl::utility::LLPieces<Value>;
    if (!this->multimem) {
        // Each rank begins with itself, so that not all write to one member at once.
        for (int i = 0; i < this->team.nRanks; i++) {
            int peer = this->team.rank + i;
            send(peer < this->team.nRanks ? peer : peer - this->team.nRanks, slot, data);
        }
        return;
    }
    this->checkSlot(slot, Pieces::count);
    Pieces pieces;
    pieces.take(data);
    char *line = (char *)ncclGetResourceBufferMultimemPointer(this->comm, this->handle.bufHandle,
                                                              this->mmHandle) +
                 this->slotOffset(slot);
#pragma unroll
    for (int i = 0; i < Pieces::count; i++) {
        nccl::utility::storeLineToAll(line + (size_t)i * this->pitch * NCCL_LL_A2A_LINE,
                                      nccl::utility::stampWord(pieces.word[i][0], this->epoch),
                                      nccl::utility::stampWord(pieces.word[i][1], this->epoch));
    }
    this->sent = true;
}

template <typename Coop>
template <typename Value>
NCCL_DEVICE_INLINE Value ncclLLA2ASession<Coop>::recv(int slot)
{
    Value value[1];
    this->template recvUnrolled<1, 1>(slot, 1, 0, value);
    return value[0];
}

template <typename Coop>
template <int MinEltCount, int MaxEltCount, typename Value>
NCCL_DEVICE_INLINE void ncclLLA2ASession<Coop>::recvUnrolled(int eltStart, int eltCount,
                                                             int eltStride,
                                                             Value (&vals)[MaxEltCount])
{
    static_assert(MinEltCount <= MaxEltCount, "recvUnrolled: MinEltCount is above MaxEltCount");
    using Pieces = nccl::utility::LLPieces<Value>;
#if NCCL_DEVICE_CHECKED
    if (eltCount < MinEltCount || eltCount > MaxEltCount) {
        vgpu_fault(cudaErrorInvalidValue,
                   "ncclLLA2ASession::recvUnrolled of rank %d: %d values, expected %d to %d",
                   this->comm.rank, eltCount, MinEltCount, MaxEltCount);
    }
    for (int e = 0; e < eltCount; e++) {
        this->checkSlot(eltStart + e * eltStride, Pieces::count);
    }
#endif
    char *first = (char *)ncclGetResourceBufferLocalPointer(this->comm, this->handle.bufHandle) +
                  this->slotOffset(eltStart);
    Pieces got[MaxEltCount];
    uint32_t steps = 0;
    bool arrived = false;
#if NCCL_DEVICE_CHECKED
    uint64_t since = 0; // when a member was seen to have left
#endif
    while (!arrived) {
        arrived = true;
#pragma unroll
        for (int e = 0; e < MaxEltCount; e++) {
#pragma unroll
            for (int i = 0; i < Pieces::count; i++) {
                if (e < MinEltCount || e < eltCount) {
                    ptrdiff_t lines = (ptrdiff_t)e * eltStride + (ptrdiff_t)i * this->pitch;
                    uint64_t low, high;
                    nccl::utility::loadLine(first + lines * NCCL_LL_A2A_LINE, &low, &high);
                    arrived = arrived && (uint32_t)(low >> 32) == this->epoch &&
                              (uint32_t)(high >> 32) == this->epoch;
                    got[e].word[i][0] = (uint32_t)low;
                    got[e].word[i][1] = (uint32_t)high;
                }
            }
        }
        if (!arrived && nccl::utility::testAbort(this->comm.abortFlag, steps)) {
#if NCCL_DEVICE_CHECKED
            nccl::utility::failOfDeath(this->comm, "ncclLLA2ASession::recv of block", this->block);
#endif
            memset(got, 0, sizeof got);
            break;
        }
#if NCCL_DEVICE_CHECKED
        if (!arrived && steps % 64 == 0) {
            this->checkPeers(eltStart, since);
        }
#endif
    }
#pragma unroll
    for (int e = 0; e < MaxEltCount; e++) {
        if (e < MinEltCount || e < eltCount) {
            got[e].give(&vals[e]);
        }
    }
}

template <typename Coop>
template <int Unroll, typename Elt, typename EltToAcc, typename Reduce>
NCCL_DEVICE_INLINE auto ncclLLA2ASession<Coop>::recvReduce(int eltStart, int eltCount,
                                                           int eltStride, EltToAcc eltToAcc,
                                                           Reduce red)
    -> decltype(eltToAcc(*(Elt *)nullptr))
{
    using Acc = decltype(eltToAcc(*(Elt *)nullptr));
    Acc total{};
    Elt got[Unroll];
    for (int done = 0; done < eltCount; done += Unroll) {
        int count = eltCount - done < Unroll ? eltCount - done : Unroll;
        int start = eltStart + done * eltStride;
        if (count == Unroll) {
            this->template recvUnrolled<Unroll, Unroll>(start, count, eltStride, got);
        } else {
            this->template recvUnrolled<1, Unroll>(start, count, eltStride, got);
        }
#pragma unroll
        for (int i = 0; i < Unroll; i++) {
            if (i < count) {
                Acc next = eltToAcc(got[i]);
                total = done + i == 0 ? next : red(total, next);
            }
        }
    }
    return total;
}

// Epochs are 32-bit numbers from 2 on. The last two before they begin anew leave their slots empty,
// so that no value of long ago is taken for one of the new numbers.
template <typename Coop> NCCL_DEVICE_INLINE void ncclLLA2ASession<Coop>::endEpoch(Coop)
{
    this->coop.sync();
    if (this->epoch >= UINT32_MAX - 1) {
        char *slots =
            (char *)ncclGetResourceBufferLocalPointer(this->comm, this->handle.bufHandle) +
            this->slotOffset(0);
        for (uint32_t i = (uint32_t)this->coop.thread_rank(); i < this->handle.nSlots;
             i += (uint32_t)this->coop.size()) {
            nccl::utility::storeLine(slots + (size_t)i * NCCL_LL_A2A_LINE, 0, 0);
        }
        this->coop.sync();
    }
    this->epoch = this->epoch == UINT32_MAX ? NCCL_LL_A2A_FIRST_EPOCH : this->epoch + 1;
    this->sent = false;
}
#endif

#endif
