// The hybrid barrier in this version: each use is refused by the compiler.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_BARRIER__FUNCS_H_
#define NCCL_DEVICE_BARRIER__FUNCS_H_

#include "../barrier.h"
#include "gin__funcs.h"

#if NCCL_CHECK_CUDACC
#define NCCL_NOT_IMPLEMENTED_BARRIER(...)                                                          \
    template <typename Coop>                                                                       \
    NCCL_DEVICE_INLINE ncclBarrierSession<Coop>::ncclBarrierSession(__VA_ARGS__)                   \
    {                                                                                              \
        NCCL_NOT_IMPLEMENTED(                                                                      \
            Coop, "ncclBarrierSession (inside one LSA team use ncclLsaBarrierSession)");           \
    }
NCCL_NOT_IMPLEMENTED_BARRIER(Coop, ncclTeam, ncclTeam, ncclGin, ncclLsaBarrierHandle,
                             ncclGinBarrierHandle, uint32_t, bool, ncclMultimemHandle)
NCCL_NOT_IMPLEMENTED_BARRIER(Coop, ncclTeamTagWorld, ncclGin, uint32_t, bool)
NCCL_NOT_IMPLEMENTED_BARRIER(Coop, ncclTeamTagLsa, ncclDevComm const &, uint32_t, bool)
NCCL_NOT_IMPLEMENTED_BARRIER(Coop, ncclTeamTagRail, ncclGin, uint32_t)
#undef NCCL_NOT_IMPLEMENTED_BARRIER

template <typename Coop>
NCCL_DEVICE_INLINE ncclLsaBarrierSession<Coop> &ncclBarrierSession<Coop>::lsaBarrier()
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclBarrierSession::lsaBarrier");
}
template <typename Coop>
NCCL_DEVICE_INLINE ncclGinBarrierSession<Coop> &ncclBarrierSession<Coop>::ginBarrier()
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclBarrierSession::ginBarrier");
}
template <typename Coop>
NCCL_DEVICE_INLINE void ncclBarrierSession<Coop>::sync(Coop, cuda::memory_order, ncclGinFenceLevel)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclBarrierSession::sync");
}
template <typename Coop>
NCCL_DEVICE_INLINE ncclResult_t ncclBarrierSession<Coop>::sync(Coop, cuda::memory_order,
                                                               ncclGinFenceLevel, uint64_t)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclBarrierSession::sync");
    return ncclInvalidUsage;
}
#endif

#endif
