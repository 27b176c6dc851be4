// Bodies of core.h and comm.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_CORE__FUNCS_H_
#define NCCL_DEVICE_CORE__FUNCS_H_

#include "../comm.h"
#include "../ptr.h"
#include "comm__types.h"

// ---- Teams
// --------------------------------------------------------------------------------------------------------------

// World distance from the calling rank to rank bRank of b, in steps of team a; *exact_out: whether
// it is a whole number.
NCCL_HOST_DEVICE_INLINE int ncclTeamSteps(ncclTeam_t a, ncclTeam_t b, int bRank, bool *exact_out)
{
    int distance = (bRank - b.rank) * b.stride;
    *exact_out = distance % a.stride == 0;
    return distance / a.stride;
}

NCCL_HOST_DEVICE_INLINE bool ncclTeamRankIsMember(ncclTeam_t a, ncclTeam_t b, int bRank)
{
    bool exact;
    int aRank = a.rank + ncclTeamSteps(a, b, bRank, &exact);
    return exact && aRank >= 0 && aRank < a.nRanks;
}

NCCL_HOST_DEVICE_INLINE int ncclTeamRankToTeam(ncclTeam_t a, ncclTeam_t b, int bRank)
{
    bool exact;
    return a.rank + ncclTeamSteps(a, b, bRank, &exact);
}

NCCL_HOST_DEVICE_INLINE ncclTeam_t ncclTeamInnerFactor(ncclTeam_t parent, int innerSize)
{
    ncclTeam_t inner = {innerSize, parent.rank % innerSize, parent.stride};
    return inner;
}

NCCL_HOST_DEVICE_INLINE ncclTeam_t ncclTeamOuterFactor(ncclTeam_t parent, int innerSize)
{
    ncclTeam_t outer = {parent.nRanks / innerSize, parent.rank / innerSize,
                        parent.stride * innerSize};
    return outer;
}

NCCL_HOST_DEVICE_INLINE int ncclTeamRankInDifference(ncclTeam_t parent, ncclTeam_t subset,
                                                     int index)
{
    // The subset's members in the parent's numbers: first, first + step, ..., first + (nRanks - 1)
    // * step.
    int step = subset.stride / parent.stride;
    int first = parent.rank - subset.rank * step;
    if (step < 0) {
        first += (subset.nRanks - 1) * step;
        step = -step;
    }
    int past = index -
               first; // how many of the difference's members lie above `first`, before the index-th
    if (past < 0) {
        return index;
    }
    int gap = step - 1; // members of the difference between two neighbours of the subset
    int gaps = subset.nRanks - 1;
    int skipped = gap > 0 && past / gap < gaps ? past / gap : gaps;
    return index + 1 + skipped;
}

NCCL_HOST_DEVICE_INLINE size_t ncclGetResourceBufferOffset(ncclDevResourceHandle_t h)
{
    return (size_t)h << 7;
}

#ifdef __cplusplus
NCCL_HOST_DEVICE_INLINE ncclTeam ncclTeamWorld(ncclDevComm const &comm)
{
    return ncclTeam{comm.nRanks, comm.rank, 1};
}
NCCL_HOST_DEVICE_INLINE ncclTeam ncclTeamLsa(ncclDevComm const &comm)
{
    return ncclTeam{comm.lsaSize, comm.lsaRank, 1};
}
NCCL_HOST_DEVICE_INLINE ncclTeam ncclTeamRail(ncclDevComm const &comm)
{
    return ncclTeamOuterFactor(ncclTeamWorld(comm), comm.lsaSize);
}
NCCL_HOST_DEVICE_INLINE int ncclTeamRankToWorld(ncclDevComm const &comm, ncclTeam team, int rank)
{
    return comm.rank + team.stride * (rank - team.rank);
}
NCCL_HOST_DEVICE_INLINE int ncclTeamRankToLsa(ncclDevComm const &comm, ncclTeam team, int rank)
{
    return comm.lsaRank + team.stride * (rank - team.rank);
}
#endif

// ---- Windows
// ------------------------------------------------------------------------------------------------------------

#if NCCL_CHECK_CUDACC
namespace nccl
{
namespace utility
{

#if NCCL_DEVICE_CHECKED
// Ends the kernel where byte `offset` of member `member`'s copy cannot be addressed. One past the
// end can.
__device__ inline void windowFault(ncclWindow_t w, size_t offset, int member)
{
    if (w == nullptr) {
        vgpu_fault(cudaErrorIllegalAddress,
                   "the window is NULL: its registration failed or was not supported here");
    }
    int first = w->worldRank - w->lsaRank;
    if (w->lsaSize == 0) {
        vgpu_fault(cudaErrorIllegalAddress, "window %d of rank %d was deregistered", w->number,
                   w->worldRank);
    }
    if (member < 0 || member >= w->lsaSize) {
        vgpu_fault(cudaErrorIllegalAddress,
                   "window %d of rank %d: rank %d is outside its LSA team (world ranks %d to %d), "
                   "so its memory cannot be "
                   "addressed",
                   w->number, w->worldRank, first + member, first, first + w->lsaSize - 1);
    }
    vgpu_fault(cudaErrorIllegalAddress,
               "window %d of rank %d has %zu bytes, offset %zu is beyond its end", w->number,
               first + member, w->size, offset);
}
NCCL_DEVICE_INLINE void checkWindow(ncclWindow_t w, size_t offset, int member)
{
    if (__builtin_expect(
            w == nullptr || offset > w->size || (unsigned)member >= (unsigned)w->lsaSize, 0)) {
        windowFault(w, offset, member);
    }
}
#else
NCCL_DEVICE_INLINE void checkWindow(ncclWindow_t, size_t, int) {}
#endif

#if NCCL_DEVICE_CHECKED
__device__ inline void multimemFault(ncclMultimemHandle handle, int number, int worldRank)
{
    if (handle.mcBasePtr == nullptr) {
        vgpu_fault(cudaErrorIllegalAddress,
                   "window %d of rank %d: the multimem handle is empty; ask for lsaMultimem in "
                   "ncclDevCommRequirements, or use ncclGetLsaPointer",
                   number, worldRank);
    }
    vgpu_fault(cudaErrorIllegalAddress,
               "window %d of rank %d: the multimem handle %p is not one of its communicator's",
               number, worldRank, handle.mcBasePtr);
}
#endif

// Address of byte 0 of a window in the multicast view that the handle names. mcOffset: of the
// window w.
NCCL_DEVICE_INLINE uintptr_t multimemAddress(ncclWindow_t w, size_t mcOffset,
                                             ncclMultimemHandle handle)
{
    uintptr_t base = (uintptr_t)handle.mcBasePtr;
#if NCCL_DEVICE_CHECKED
    uintptr_t above = base - NCCL_MULTIMEM_ANCHOR;
    if (__builtin_expect(above > NCCL_MULTIMEM_VIEWS * NCCL_MULTIMEM_VIEW_STEP ||
                             above % NCCL_MULTIMEM_VIEW_STEP != 0,
                         0)) {
        multimemFault(handle, w->number, w->worldRank);
    }
#endif
    if (base <= NCCL_MULTIMEM_ANCHOR) {
        return base + mcOffset;
    }
    unsigned view = (unsigned)(base - NCCL_MULTIMEM_ANCHOR) / NCCL_MULTIMEM_VIEW_STEP - 1;
    uint64_t address = loadConst(reinterpret_cast<uint64_t const *>(w + 1) + view);
#if NCCL_DEVICE_CHECKED
    if (address == 0) {
        multimemFault(handle, w->number, w->worldRank);
    }
#endif
    return (uintptr_t)address;
}

NCCL_DEVICE_INLINE void *memberAddress(ncclWindow_t w, size_t offset, int member)
{
    checkWindow(w, offset, member);
    return loadConst(&w->lsaFlatBase) + (size_t)(unsigned)member * loadConst(&w->stride) + offset;
}

#if NCCL_DEVICE_CHECKED
__device__ inline void deviceCommFault(ncclDevComm const &comm)
{
    if (comm.magic == 0) {
        vgpu_fault(cudaErrorInvalidValue,
                   "the device communicator is empty: ncclDevCommCreate has not filled it in, or "
                   "failed");
    }
    if (comm.magic != NCCL_API_MAGIC) {
        vgpu_fault(cudaErrorInvalidValue,
                   "this is no device communicator (magic 0x%x, expected 0x%x): pass what "
                   "ncclDevCommCreate filled in, by value",
                   comm.magic, NCCL_API_MAGIC);
    }
    vgpu_fault(cudaErrorInvalidValue, "the device communicator of rank %d was destroyed",
               comm.rank);
}
// Ends the kernel where `comm` is none, or no longer one: what is left of its resource window then
// has no members.
NCCL_DEVICE_INLINE void checkDeviceComm(ncclDevComm const &comm)
{
    if (__builtin_expect(
            comm.magic != NCCL_API_MAGIC || loadConst(&comm.resourceWindow->lsaSize) == 0, 0)) {
        deviceCommFault(comm);
    }
}
// Whether LSA member `member` has destroyed the communicator: what it had to send is sent.
NCCL_DEVICE_INLINE bool hasLeft(ncclDevComm const &comm, int member)
{
    if (comm.abortFlag == nullptr || member < 0 || member >= NCCL_LEFT_RANKS) {
        return false;
    }
    cuda::atomic_ref<uint32_t, cuda::thread_scope_system> word(comm.abortFlag[1 + member / 32]);
    return (word.load(cuda::memory_order_acquire) >> member % 32 & 1) != 0;
}
// A wait ends because of the abort flag: that is an error of the kernel where a rank has died.
__device__ inline void failOfDeath(ncclDevComm const &comm, char const *what, int number)
{
    uint32_t flag = cuda::atomic_ref<uint32_t, cuda::thread_scope_system>(*comm.abortFlag)
                        .load(cuda::memory_order_acquire);
    if (flag >= (uint32_t)NCCL_ABORT_FLAG_DEATH) {
        vgpu_fault(cudaErrorLaunchFailure, "rank %u died while rank %d waited in %s %d",
                   flag - (uint32_t)NCCL_ABORT_FLAG_DEATH, comm.rank, what, number);
    }
}
#endif

// The same for the copy of the resource window inside a device communicator, whose bounds are known
// to hold.
NCCL_DEVICE_INLINE void *resourceAddress(ncclDevComm const &comm, ncclDevResourceHandle h,
                                         int member)
{
    ncclWindow_vidmem const &w = comm.resourceWindow_inlined;
#if NCCL_DEVICE_CHECKED
    if (__builtin_expect(vgpu_checking, 0)) {
        checkDeviceComm(comm);
    }
    checkWindow(const_cast<ncclWindow_vidmem *>(&w), ncclGetResourceBufferOffset(h), member);
#endif
    return w.lsaFlatBase + (size_t)(unsigned)member * w.stride + ncclGetResourceBufferOffset(h);
}

} // namespace utility
} // namespace nccl

NCCL_DEVICE_INLINE void *ncclGetLocalPointer(ncclWindow_t w, size_t offset)
{
    nccl::utility::checkWindow(w, offset, 0);
    return nccl::utility::memberAddress(w, offset, nccl::utility::loadConst(&w->lsaRank));
}
NCCL_DEVICE_INLINE void *ncclGetLsaPointer(ncclWindow_t w, size_t offset, int peer)
{
    return nccl::utility::memberAddress(w, offset, peer);
}
NCCL_DEVICE_INLINE void *ncclGetPeerPointer(ncclWindow_t w, size_t offset, int peer)
{
    nccl::utility::checkWindow(w, offset, 0);
    int distance = peer - nccl::utility::loadConst(&w->worldRank);
    return nccl::utility::memberAddress(w, offset,
                                        nccl::utility::loadConst(&w->lsaRank) + distance);
}
NCCL_DEVICE_INLINE void *ncclGetPeerPointer(ncclWindow_t w, size_t offset, ncclTeam team, int peer)
{
    nccl::utility::checkWindow(w, offset, 0);
    int distance = (peer - team.rank) * team.stride;
    return nccl::utility::memberAddress(w, offset,
                                        nccl::utility::loadConst(&w->lsaRank) + distance);
}
NCCL_DEVICE_INLINE void *ncclGetMultimemPointer(ncclWindow_t w, size_t offset,
                                                ncclMultimemHandle mmHandle)
{
    nccl::utility::checkWindow(w, offset, 0);
    size_t mcOffset = nccl::utility::loadConst(&w->mcOffset);
    return (void *)(nccl::utility::multimemAddress(w, mcOffset, mmHandle) + offset);
}
NCCL_DEVICE_INLINE void *ncclGetLsaMultimemPointer(ncclWindow_t w, size_t offset,
                                                   ncclDevComm const &comm)
{
    return ncclGetMultimemPointer(w, offset, comm.lsaMultimem);
}

NCCL_DEVICE_INLINE ncclSymPtr<char> ncclGetResourceBuffer(ncclDevComm const &comm,
                                                          ncclDevResourceHandle h)
{
    return ncclSymPtr<char>(comm.resourceWindow, ncclGetResourceBufferOffset(h));
}
NCCL_DEVICE_INLINE void *ncclGetResourceBufferLocalPointer(ncclDevComm const &comm,
                                                           ncclDevResourceHandle h)
{
    return nccl::utility::resourceAddress(comm, h, comm.lsaRank);
}
NCCL_DEVICE_INLINE void *ncclGetResourceBufferLsaPointer(ncclDevComm const &comm,
                                                         ncclDevResourceHandle h, int peer)
{
    return nccl::utility::resourceAddress(comm, h, peer);
}
NCCL_DEVICE_INLINE void *ncclGetResourceBufferPeerPointer(ncclDevComm const &comm,
                                                          ncclDevResourceHandle h, ncclTeam team,
                                                          int peer)
{
    return nccl::utility::resourceAddress(comm, h, ncclTeamRankToLsa(comm, team, peer));
}
NCCL_DEVICE_INLINE void *ncclGetResourceBufferMultimemPointer(ncclDevComm const &comm,
                                                              ncclDevResourceHandle h,
                                                              ncclMultimemHandle mmHandle)
{
    uintptr_t base = nccl::utility::multimemAddress(comm.resourceWindow,
                                                    comm.resourceWindow_inlined.mcOffset, mmHandle);
    return (void *)(base + ncclGetResourceBufferOffset(h));
}
NCCL_DEVICE_INLINE void *ncclGetResourceBufferLsaMultimemPointer(ncclDevComm const &comm,
                                                                 ncclDevResourceHandle h)
{
    return ncclGetResourceBufferMultimemPointer(comm, h, comm.lsaMultimem);
}

template <typename Coop>
NCCL_DEVICE_INLINE ncclWindow_t ncclFindWindow(Coop, ncclDevComm const &comm, void const *ptr)
{
    uintptr_t address = (uintptr_t)ptr;
    for (ncclDevCommWindowTable *table = comm.windowTable; table != nullptr; table = table->next) {
        for (ncclDevCommWindowEntry const &entry : table->entries) {
            if (address - entry.base < entry.size) {
                return entry.window;
            }
            if (entry.window != nullptr) {
                ncclWindow_vidmem const &w = *entry.window;
                uintptr_t flat = (uintptr_t)(w.lsaFlatBase + (size_t)w.lsaRank * w.stride);
                if (address - flat < w.size) {
                    return entry.window;
                }
            }
        }
    }
    return nullptr;
}
#endif

#endif
