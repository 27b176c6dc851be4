// Barriers over the network. In this version only those of one rank, which have nothing to wait for
// (the rail team where the world is one LSA team); making another one ends the kernel with a text.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_GIN_BARRIER_H_
#define NCCL_DEVICE_GIN_BARRIER_H_

#include "gin.h"
#include "impl/gin_barrier__types.h"

// Host: describes nBarriers barriers of `team`. Device communicators without GIN refuse the
// requirement.
NCCL_EXTERN_C __host__ ncclResult_t ncclGinBarrierCreateRequirement(
    ncclComm_t comm, ncclTeam_t team, int nBarriers, ncclGinBarrierHandle_t *outHandle,
    ncclDevResourceRequirements_t *outReq);

#if NCCL_CHECK_CUDACC
// What is complete after the barrier besides the barrier itself: nothing; the others' puts to this
// rank; this rank's gets.
enum ncclGinFenceLevel : uint32_t { None = 0, Put = 1, Get = 2, Relaxed = 0 };
NCCL_HOST_DEVICE_INLINE constexpr ncclGinFenceLevel operator|(ncclGinFenceLevel a,
                                                              ncclGinFenceLevel b)
{
    return (ncclGinFenceLevel)((uint32_t)a | (uint32_t)b);
}
NCCL_HOST_DEVICE_INLINE constexpr ncclGinFenceLevel operator&(ncclGinFenceLevel a,
                                                              ncclGinFenceLevel b)
{
    return (ncclGinFenceLevel)((uint32_t)a & (uint32_t)b);
}

// In place of one context: the fence covers all.
struct ncclGinAllContexts {
    ncclDevComm const &comm;
    NCCL_HOST_DEVICE_INLINE constexpr ncclGinAllContexts(ncclDevComm const &comm) : comm(comm) {}
};

template <typename Coop> struct ncclGinBarrierSession {
    Coop coop;

    NCCL_DEVICE_INLINE ncclGinBarrierSession(Coop, ncclGin, ncclTeam, ncclGinBarrierHandle,
                                             uint32_t index);
    NCCL_DEVICE_INLINE ncclGinBarrierSession(Coop, ncclGin, ncclTeamTagRail, uint32_t index);
    NCCL_DEVICE_INLINE ncclGinBarrierSession(Coop, ncclGin, ncclTeamTagWorld, uint32_t index);
    NCCL_DEVICE_INLINE ncclGinBarrierSession(Coop, ncclGinAllContexts, ncclTeam,
                                             ncclGinBarrierHandle, uint32_t index);
    NCCL_DEVICE_INLINE ncclGinBarrierSession(Coop, ncclGinAllContexts, ncclTeamTagRail,
                                             uint32_t index);
    NCCL_DEVICE_INLINE ncclGinBarrierSession(Coop, ncclGinAllContexts, ncclTeamTagWorld,
                                             uint32_t index);
    NCCL_DEVICE_INLINE ~ncclGinBarrierSession();
    ncclGinBarrierSession(ncclGinBarrierSession const &) = delete;

    NCCL_DEVICE_INLINE void sync(Coop, cuda::memory_order, ncclGinFenceLevel fence = Put | Get);
    NCCL_DEVICE_INLINE ncclResult_t sync(Coop, cuda::memory_order, ncclGinFenceLevel fence,
                                         uint64_t timeoutCycles);
};

// A barrier without a session. Contexts: ncclGin or ncclGinAllContexts.
template <typename Coop, typename Contexts>
NCCL_DEVICE_INLINE void ncclGinBarrier(Coop coop, Contexts contexts, ncclTeam team,
                                       ncclGinBarrierHandle handle, uint32_t index,
                                       cuda::memory_order order = cuda::memory_order_acq_rel,
                                       ncclGinFenceLevel fence = Put | Get)
{
    ncclGinBarrierSession<Coop>(coop, contexts, team, handle, index).sync(coop, order, fence);
}
template <typename Coop, typename Contexts>
NCCL_DEVICE_INLINE void ncclGinBarrier(Coop coop, Contexts contexts, ncclTeamTagRail tag,
                                       uint32_t index,
                                       cuda::memory_order order = cuda::memory_order_acq_rel,
                                       ncclGinFenceLevel fence = Put | Get)
{
    ncclGinBarrierSession<Coop>(coop, contexts, tag, index).sync(coop, order, fence);
}
template <typename Coop, typename Contexts>
NCCL_DEVICE_INLINE void ncclGinBarrier(Coop coop, Contexts contexts, ncclTeamTagWorld tag,
                                       uint32_t index,
                                       cuda::memory_order order = cuda::memory_order_acq_rel,
                                       ncclGinFenceLevel fence = Put | Get)
{
    ncclGinBarrierSession<Coop>(coop, contexts, tag, index).sync(coop, order, fence);
}
#endif

#endif
