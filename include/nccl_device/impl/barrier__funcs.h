// Bodies of barrier.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_BARRIER__FUNCS_H_
#define NCCL_DEVICE_BARRIER__FUNCS_H_

#include "../barrier.h"
#include "core__funcs.h"
#include "gin__funcs.h"
#include "lsa_barrier__funcs.h"

#if NCCL_CHECK_CUDACC
namespace nccl
{
namespace utility
{
// The index, where so many barriers were asked for.
NCCL_DEVICE_INLINE uint32_t hybridBarrier(ncclDevComm const &comm, uint32_t index)
{
#if NCCL_DEVICE_CHECKED
    if (index >= (uint32_t)comm.hybridLsaBarrier.nBarriers || comm.magic != NCCL_API_MAGIC) {
        checkDeviceComm(comm);
        vgpu_fault(cudaErrorInvalidValue,
                   "ncclBarrierSession of rank %d: barrier %d, but %d barriers were asked for "
                   "(barrierCount of ncclDevCommRequirements)",
                   comm.rank, (int)index, comm.hybridLsaBarrier.nBarriers);
    }
#else
    (void)comm;
#endif
    return index;
}
} // namespace utility
} // namespace nccl

template <typename Coop>
NCCL_DEVICE_INLINE
ncclBarrierSession<Coop>::ncclBarrierSession(Coop coop, ncclTeam innerTeam, ncclTeam outerTeam,
                                             ncclGin gin, ncclLsaBarrierHandle innerBarHandle,
                                             ncclGinBarrierHandle outerBarHandle, uint32_t index,
                                             bool multimem, ncclMultimemHandle innerMmHandle)
    : ncclBarrierSession_internal<Coop>{
          coop,
          {nccl::utility::Present(), coop, gin.comm, innerTeam, innerBarHandle, index, multimem,
           innerMmHandle},
          {nccl::utility::Present(), coop, gin, outerTeam, outerBarHandle, index}}
{
}

template <typename Coop>
NCCL_DEVICE_INLINE ncclBarrierSession<Coop>::ncclBarrierSession(Coop coop, ncclTeamTagWorld,
                                                                ncclGin gin, uint32_t index,
                                                                bool multimem)
    : ncclBarrierSession(coop, ncclTeamLsa(gin.comm), ncclTeamRail(gin.comm), gin,
                         gin.comm.hybridLsaBarrier, gin.comm.hybridRailGinBarrier,
                         nccl::utility::hybridBarrier(gin.comm, index), multimem,
                         gin.comm.lsaMultimem)
{
}

template <typename Coop>
NCCL_DEVICE_INLINE ncclBarrierSession<Coop>::ncclBarrierSession(Coop coop, ncclTeamTagLsa,
                                                                ncclDevComm const &comm,
                                                                uint32_t index, bool multimem)
    : ncclBarrierSession_internal<Coop>{
          coop,
          {nccl::utility::Present(), coop, comm, ncclTeamLsa(comm), comm.hybridLsaBarrier,
           nccl::utility::hybridBarrier(comm, index), multimem, comm.lsaMultimem},
          {nccl::utility::Absent()}}
{
}

template <typename Coop>
NCCL_DEVICE_INLINE ncclBarrierSession<Coop>::ncclBarrierSession(Coop coop, ncclTeamTagRail,
                                                                ncclGin gin, uint32_t index)
    : ncclBarrierSession_internal<Coop>{coop,
                                        {nccl::utility::Absent()},
                                        {nccl::utility::Present(), coop, gin,
                                         ncclTeamRail(gin.comm), gin.comm.hybridRailGinBarrier,
                                         index}}
{
}

template <typename Coop>
NCCL_DEVICE_INLINE ncclLsaBarrierSession<Coop> &ncclBarrierSession<Coop>::lsaBarrier()
{
#if NCCL_DEVICE_CHECKED
    if (!this->inner.present) {
        vgpu_fault(cudaErrorInvalidValue,
                   "ncclBarrierSession::lsaBarrier: a session of ncclTeamTagRail has no LSA part");
    }
#endif
    return this->inner.thing;
}

template <typename Coop>
NCCL_DEVICE_INLINE ncclGinBarrierSession<Coop> &ncclBarrierSession<Coop>::ginBarrier()
{
#if NCCL_DEVICE_CHECKED
    if (!this->outer.present) {
        vgpu_fault(cudaErrorInvalidValue,
                   "ncclBarrierSession::ginBarrier: a session of ncclTeamTagLsa has no GIN part");
    }
#endif
    return this->outer.thing;
}

// The outer barrier, where there is one, is of one rank: the inner one carries the whole order.
template <typename Coop>
NCCL_DEVICE_INLINE void ncclBarrierSession<Coop>::sync(Coop, cuda::memory_order order,
                                                       ncclGinFenceLevel fence)
{
    if (this->inner.present) {
        this->inner.thing.sync(this->coop, order);
    }
    if (this->outer.present) {
        this->outer.thing.sync(this->coop, order, fence);
    }
}

template <typename Coop>
NCCL_DEVICE_INLINE ncclResult_t ncclBarrierSession<Coop>::sync(Coop, cuda::memory_order order,
                                                               ncclGinFenceLevel fence,
                                                               uint64_t timeoutCycles)
{
    ncclResult_t result = ncclSuccess;
    if (this->inner.present) {
        result = this->inner.thing.sync(this->coop, order, timeoutCycles);
    }
    if (result == ncclSuccess && this->outer.present) {
        result = this->outer.thing.sync(this->coop, order, fence, timeoutCycles);
    }
    return result;
}
#endif

#endif
