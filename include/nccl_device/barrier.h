// Barriers of the world: inside the LSA teams by stores, between them over the network. Declared
// for source compatibility; using one in this version does not compile ("not implemented yet"): use
// ncclLsaBarrierSession where all ranks are in one LSA team. SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_BARRIER_H_
#define NCCL_DEVICE_BARRIER_H_

#include "gin_barrier.h"
#include "lsa_barrier.h"

#if NCCL_CHECK_CUDACC
template <typename Coop> struct ncclBarrierSession {
    NCCL_DEVICE_INLINE ncclBarrierSession(Coop, ncclTeam innerTeam, ncclTeam outerTeam, ncclGin,
                                          ncclLsaBarrierHandle innerBarHandle,
                                          ncclGinBarrierHandle outerBarHandle, uint32_t index,
                                          bool multimem = false,
                                          ncclMultimemHandle innerMmHandle = {});
    NCCL_DEVICE_INLINE ncclBarrierSession(Coop, ncclTeamTagWorld, ncclGin, uint32_t index,
                                          bool multimem = false);
    NCCL_DEVICE_INLINE ncclBarrierSession(Coop, ncclTeamTagLsa, ncclDevComm const &, uint32_t index,
                                          bool multimem = false);
    NCCL_DEVICE_INLINE ncclBarrierSession(Coop, ncclTeamTagRail, ncclGin, uint32_t index);
    ncclBarrierSession(ncclBarrierSession const &) = delete;

    NCCL_DEVICE_INLINE ncclLsaBarrierSession<Coop> &lsaBarrier();
    NCCL_DEVICE_INLINE ncclGinBarrierSession<Coop> &ginBarrier();
    NCCL_DEVICE_INLINE void sync(Coop, cuda::memory_order, ncclGinFenceLevel fence = Put | Get);
    NCCL_DEVICE_INLINE ncclResult_t sync(Coop, cuda::memory_order, ncclGinFenceLevel fence,
                                         uint64_t timeoutCycles);
};

// A barrier without a session.
template <typename Coop>
NCCL_DEVICE_INLINE void ncclBarrier(Coop coop, ncclTeamTagWorld tag, ncclGin gin, uint32_t index,
                                    cuda::memory_order order = cuda::memory_order_acq_rel,
                                    ncclGinFenceLevel fence = Put | Get, bool multimem = false)
{
    ncclBarrierSession<Coop>(coop, tag, gin, index, multimem).sync(coop, order, fence);
}
template <typename Coop>
NCCL_DEVICE_INLINE void ncclBarrier(Coop coop, ncclTeamTagRail tag, ncclGin gin, uint32_t index,
                                    cuda::memory_order order = cuda::memory_order_acq_rel,
                                    ncclGinFenceLevel fence = Put | Get)
{
    ncclBarrierSession<Coop>(coop, tag, gin, index).sync(coop, order, fence);
}
#endif

#endif
