// Barriers of the world: inside the LSA teams by loads and stores, between them over the network.
//
// In this version the world must be one LSA team (or the outer team one rank): the part over the
// network then has nothing to do. Elsewhere making a session ends the kernel with a text; between
// LSA teams there is no barrier yet. The barriers are those of ncclDevCommRequirements::
// barrierCount, which lsaBarrierCount does not share: index i of the one and of the other may be in
// use at once.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_BARRIER_H_
#define NCCL_DEVICE_BARRIER_H_

#include "gin_barrier.h"
#include "impl/barrier__types.h"
#include "lsa_barrier.h"

#if NCCL_CHECK_CUDACC
template <typename Coop> struct ncclBarrierSession : ncclBarrierSession_internal<Coop> {
    // Of any two teams, with handles from ncclLsaBarrierCreateRequirement (innerTeam, inside the
    // LSA team) and ncclGinBarrierCreateRequirement (outerTeam). multimem: as
    // ncclLsaBarrierSession's.
    NCCL_DEVICE_INLINE ncclBarrierSession(Coop coop, ncclTeam innerTeam, ncclTeam outerTeam,
                                          ncclGin gin, ncclLsaBarrierHandle innerBarHandle,
                                          ncclGinBarrierHandle outerBarHandle, uint32_t index,
                                          bool multimem = false,
                                          ncclMultimemHandle innerMmHandle = {});
    // Of all ranks; of the LSA team; of the ranks at this rank's place in each LSA team.
    NCCL_DEVICE_INLINE ncclBarrierSession(Coop coop, ncclTeamTagWorld, ncclGin gin, uint32_t index,
                                          bool multimem = false);
    NCCL_DEVICE_INLINE ncclBarrierSession(Coop coop, ncclTeamTagLsa, ncclDevComm const &comm,
                                          uint32_t index, bool multimem = false);
    NCCL_DEVICE_INLINE ncclBarrierSession(Coop coop, ncclTeamTagRail, ncclGin gin, uint32_t index);
    ncclBarrierSession(ncclBarrierSession const &) = delete;

    // The parts, for a barrier of only one of them. A session of TagRail has no LSA part, one of
    // TagLsa no GIN part: asking for it ends the kernel on virtual GPUs.
    NCCL_DEVICE_INLINE ncclLsaBarrierSession<Coop> &lsaBarrier();
    NCCL_DEVICE_INLINE ncclGinBarrierSession<Coop> &ginBarrier();

    // fence: which operations over the network are complete afterwards.
    NCCL_DEVICE_INLINE void sync(Coop coop, cuda::memory_order order,
                                 ncclGinFenceLevel fence = Put | Get);
    // ncclTimeout as from ncclLsaBarrierSession::sync.
    NCCL_DEVICE_INLINE ncclResult_t sync(Coop coop, cuda::memory_order order,
                                         ncclGinFenceLevel fence, uint64_t timeoutCycles);
};

// A barrier without a session.
template <typename Coop>
NCCL_DEVICE_INLINE void ncclBarrier(Coop coop, ncclTeamTagWorld tag, ncclGin gin, uint32_t index,
                                    cuda::memory_order order = cuda::memory_order_acq_rel,
                                    ncclGinFenceLevel fence = Put | Get, bool multimem = false)
{
    ncclBarrierSession<Coop> session(coop, tag, gin, index, multimem);
    session.sync(coop, order, fence);
}
template <typename Coop>
NCCL_DEVICE_INLINE void ncclBarrier(Coop coop, ncclTeamTagRail tag, ncclGin gin, uint32_t index,
                                    cuda::memory_order order = cuda::memory_order_acq_rel,
                                    ncclGinFenceLevel fence = Put | Get)
{
    ncclBarrierSession<Coop> session(coop, tag, gin, index);
    session.sync(coop, order, fence);
}
#endif

#endif
