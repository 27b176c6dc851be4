// GIN and its barrier in this version. A context can be made (hybrid barriers take one), and a
// barrier of a single rank has nothing to do; whatever needs the network ends the kernel, with the
// name of the function. SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_GIN__FUNCS_H_
#define NCCL_DEVICE_GIN__FUNCS_H_

#include "../gin.h"
#include "../gin_barrier.h"
#include "core__funcs.h"

#if NCCL_CHECK_CUDACC
#include <stdio.h>

namespace nccl
{
namespace utility
{
// Ends the kernel: `name` needs the network.
__device__ __noinline__ inline void refuseGin(char const *name)
{
#if NCCL_DEVICE_CHECKED
    vgpu_fault(cudaErrorNotSupported,
               "not implemented yet: %s (device-initiated networking); inside one LSA team use "
               "ncclGetLsaPointer and ncclLsaBarrierSession",
               name);
#else
    printf("tutti: not implemented yet: %s (device-initiated networking); inside one LSA team use "
           "ncclGetLsaPointer and ncclLsaBarrierSession\n",
           name);
    __trap();
#endif
}
} // namespace utility
} // namespace nccl
#define NCCL_NOT_IMPLEMENTED_GIN(name) nccl::utility::refuseGin("ncclGin" name)

template <unsigned backendMask>
NCCL_DEVICE_INLINE ncclGin_BackendMask<backendMask>::ncclGin_BackendMask(
    ncclDevComm const &comm, int contextIndex, ncclGinResourceSharingMode resourceSharingMode)
    : comm(comm), nConnections(comm.ginConnectionCount), connectionId(0), _ginBackend(0),
      contextId((uint32_t)contextIndex), resourceSharingMode(resourceSharingMode),
      _ginHandle(nullptr), _signalShadows(comm.ginSignalShadows)
{
}

template <unsigned backendMask>
template <typename RemoteAction, typename LocalAction, typename Coop, typename DescriptorSmem,
          typename SegmentType>
NCCL_DEVICE_INLINE void ncclGin_BackendMask<backendMask>::put(
    ncclTeam, int, ncclWindow_t, size_t, ncclWindow_t, size_t, size_t, RemoteAction, LocalAction,
    Coop, DescriptorSmem, cuda::thread_scope, cuda::thread_scope, uint32_t, SegmentType) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::put");
}
template <unsigned backendMask>
template <typename Value, typename RemoteAction, typename LocalAction, typename Coop,
          typename DescriptorSmem, typename SegmentType>
NCCL_DEVICE_INLINE void ncclGin_BackendMask<backendMask>::put(
    ncclTeam, int, ncclSymPtr<Value>, ncclSymPtr<Value>, size_t, RemoteAction, LocalAction, Coop,
    DescriptorSmem, cuda::thread_scope, cuda::thread_scope, uint32_t, SegmentType) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::put");
}
template <unsigned backendMask>
template <typename Value, typename RemoteAction, typename Coop, typename DescriptorSmem>
NCCL_DEVICE_INLINE void
ncclGin_BackendMask<backendMask>::putValue(ncclTeam, int, ncclWindow_t, size_t, Value, RemoteAction,
                                           Coop, DescriptorSmem, cuda::thread_scope,
                                           cuda::thread_scope, uint32_t) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::putValue");
}
template <unsigned backendMask>
template <typename Value, typename RemoteAction, typename Coop, typename DescriptorSmem>
NCCL_DEVICE_INLINE void
ncclGin_BackendMask<backendMask>::putValue(ncclTeam, int, ncclSymPtr<Value>, Value, RemoteAction,
                                           Coop, DescriptorSmem, cuda::thread_scope,
                                           cuda::thread_scope, uint32_t) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::putValue");
}
template <unsigned backendMask>
template <typename RemoteAction, typename Coop, typename DescriptorSmem>
NCCL_DEVICE_INLINE void ncclGin_BackendMask<backendMask>::signal(ncclTeam, int, RemoteAction, Coop,
                                                                 DescriptorSmem, cuda::thread_scope,
                                                                 cuda::thread_scope, uint32_t) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::signal");
}
template <unsigned backendMask>
template <typename Coop, typename DescriptorSmem, typename SegmentType>
NCCL_DEVICE_INLINE void
ncclGin_BackendMask<backendMask>::get(ncclTeam, int, ncclWindow_t, size_t, ncclWindow_t, size_t,
                                      size_t, Coop, DescriptorSmem, uint32_t, SegmentType) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::get");
}
template <unsigned backendMask>
template <typename Coop, typename DescriptorSmem>
NCCL_DEVICE_INLINE void ncclGin_BackendMask<backendMask>::flush(Coop, cuda::memory_order,
                                                                DescriptorSmem) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::flush");
}
template <unsigned backendMask>
template <typename Coop, typename DescriptorSmem>
NCCL_DEVICE_INLINE void ncclGin_BackendMask<backendMask>::flushAsync(ncclTeam, uint32_t,
                                                                     ncclGinRequest_t *, Coop,
                                                                     uint32_t, DescriptorSmem) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::flushAsync");
}
template <unsigned backendMask>
template <typename Coop, typename DescriptorSmem>
NCCL_DEVICE_INLINE void ncclGin_BackendMask<backendMask>::wait(ncclGinRequest_t &, Coop,
                                                               DescriptorSmem,
                                                               cuda::memory_order) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::wait");
}
template <unsigned backendMask>
NCCL_DEVICE_INLINE uint64_t ncclGin_BackendMask<backendMask>::readSignal(ncclGinSignal_t, int,
                                                                         cuda::memory_order) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::readSignal");
    return 0;
}
template <unsigned backendMask>
NCCL_DEVICE_INLINE uint64_t ncclGin_BackendMask<backendMask>::readSignal(ncclWindow_t, size_t, int,
                                                                         cuda::memory_order) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::readSignal");
    return 0;
}
template <unsigned backendMask>
template <typename Coop>
NCCL_DEVICE_INLINE void ncclGin_BackendMask<backendMask>::waitSignal(Coop, ncclGinSignal_t,
                                                                     uint64_t, int,
                                                                     cuda::memory_order) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::waitSignal");
}
template <unsigned backendMask>
template <typename Coop>
NCCL_DEVICE_INLINE void ncclGin_BackendMask<backendMask>::waitSignal(Coop, ncclWindow_t, size_t,
                                                                     uint64_t, int,
                                                                     cuda::memory_order) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::waitSignal");
}
template <unsigned backendMask>
template <typename Coop>
NCCL_DEVICE_INLINE void
ncclGin_BackendMask<backendMask>::waitSignalMeetShadow(Coop, ncclGinSignal_t, int,
                                                       cuda::memory_order) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::waitSignalMeetShadow");
}
template <unsigned backendMask>
template <typename Coop, typename Uint>
NCCL_DEVICE_INLINE void
ncclGin_BackendMask<backendMask>::waitSignalFollowShadow(Coop, ncclGinSignal_t, Uint, Uint *,
                                                         Uint *, int, cuda::memory_order) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::waitSignalFollowShadow");
}
template <unsigned backendMask>
NCCL_DEVICE_INLINE uint64_t *
ncclGin_BackendMask<backendMask>::getSignalShadowPtr(ncclGinSignal_t) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::getSignalShadowPtr");
    return nullptr;
}
template <unsigned backendMask>
NCCL_DEVICE_INLINE void ncclGin_BackendMask<backendMask>::increaseSignalShadow(ncclGinSignal_t,
                                                                               uint64_t) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::increaseSignalShadow");
}
template <unsigned backendMask>
NCCL_DEVICE_INLINE void ncclGin_BackendMask<backendMask>::resetSignal(ncclGinSignal_t) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::resetSignal");
}
template <unsigned backendMask>
NCCL_DEVICE_INLINE void ncclGin_BackendMask<backendMask>::resetSignal(ncclWindow_t, size_t) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::resetSignal");
}
template <unsigned backendMask>
NCCL_DEVICE_INLINE uint64_t ncclGin_BackendMask<backendMask>::readCounter(ncclGinCounter_t, int,
                                                                          cuda::memory_order) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::readCounter");
    return 0;
}
template <unsigned backendMask>
template <typename Coop>
NCCL_DEVICE_INLINE void ncclGin_BackendMask<backendMask>::waitCounter(Coop, ncclGinCounter_t,
                                                                      uint64_t, int,
                                                                      cuda::memory_order) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::waitCounter");
}
template <unsigned backendMask>
NCCL_DEVICE_INLINE void ncclGin_BackendMask<backendMask>::resetCounter(ncclGinCounter_t) const
{
    NCCL_NOT_IMPLEMENTED_GIN("::resetCounter");
}

NCCL_DEVICE_INLINE ncclGin_C::ncclGin_C(ncclDevComm const &comm, unsigned backendMask,
                                        int contextIndex,
                                        ncclGinResourceSharingMode resourceSharingMode)
    : comm(comm), nConnections(comm.ginConnectionCount), connectionId(0), _ginBackend(0),
      contextId((uint32_t)contextIndex), resourceSharingMode(resourceSharingMode),
      _ginHandle(nullptr), _signalShadows(comm.ginSignalShadows), backendMask(backendMask)
{
}
NCCL_IR_EXTERN_C NCCL_DEVICE_INLINE void
ncclGin_C_initWithResourceSharingMode(ncclGin_C *net, unsigned backendMask, ncclDevComm const &comm,
                                      int contextIndex,
                                      ncclGinResourceSharingMode resourceSharingMode)
{
    new (static_cast<void *>(net)) ncclGin_C(comm, backendMask, contextIndex, resourceSharingMode);
}
NCCL_IR_EXTERN_C NCCL_DEVICE_INLINE void ncclGin_C_init(ncclGin_C *net, unsigned backendMask,
                                                        ncclDevComm const &comm, int contextIndex)
{
    ncclGin_C_initWithResourceSharingMode(net, backendMask, comm, contextIndex,
                                          NCCL_GIN_RESOURCE_SHARING_GPU);
}

NCCL_IR_EXTERN_C NCCL_DEVICE_INLINE void
ncclGinPut(ncclGin_C *, ncclTeam, int, ncclWindow_t, size_t, ncclWindow_t, size_t, size_t, bool,
           ncclGinSignal_t, ncclGinSignalOp_t, uint64_t, bool, ncclGinCounter_t, ncclCoopAny, bool,
           ncclGinDescriptorSmem *, cuda::thread_scope, cuda::thread_scope)
{
    nccl::utility::refuseGin("ncclGinPut");
}
NCCL_IR_EXTERN_C NCCL_DEVICE_INLINE void
ncclGinPut_v2(ncclGin_C *, ncclTeam, int, ncclWindow_t, size_t, ncclWindow_t, size_t, size_t, bool,
              ncclGinSignal_t, ncclGinSignalOp_t, uint64_t, bool, ncclGinCounter_t, ncclCoopAny,
              bool, ncclGinDescriptorSmem *, cuda::thread_scope, cuda::thread_scope, uint32_t)
{
    nccl::utility::refuseGin("ncclGinPut_v2");
}
NCCL_IR_EXTERN_C NCCL_DEVICE_INLINE void
ncclGinPutValue(ncclGin_C *, ncclTeam, int, ncclWindow_t, size_t, uint64_t, size_t, bool,
                ncclGinSignal_t, ncclGinSignalOp_t, uint64_t, ncclCoopAny, bool,
                ncclGinDescriptorSmem *, cuda::thread_scope, cuda::thread_scope)
{
    nccl::utility::refuseGin("ncclGinPutValue");
}
NCCL_IR_EXTERN_C NCCL_DEVICE_INLINE void
ncclGinPutValue_v2(ncclGin_C *, ncclTeam, int, ncclWindow_t, size_t, uint64_t, size_t, bool,
                   ncclGinSignal_t, ncclGinSignalOp_t, uint64_t, ncclCoopAny, bool,
                   ncclGinDescriptorSmem *, cuda::thread_scope, cuda::thread_scope, uint32_t)
{
    nccl::utility::refuseGin("ncclGinPutValue_v2");
}
NCCL_IR_EXTERN_C NCCL_DEVICE_INLINE void ncclGinSignal(ncclGin_C *, ncclTeam, int, bool,
                                                       ncclGinSignal_t, ncclGinSignalOp_t, uint64_t,
                                                       ncclCoopAny, bool, ncclGinDescriptorSmem *,
                                                       cuda::thread_scope, cuda::thread_scope)
{
    nccl::utility::refuseGin("ncclGinSignal");
}
NCCL_IR_EXTERN_C NCCL_DEVICE_INLINE void
ncclGinSignal_v2(ncclGin_C *, ncclTeam, int, bool, ncclGinSignal_t, ncclGinSignalOp_t, uint64_t,
                 ncclCoopAny, bool, ncclGinDescriptorSmem *, cuda::thread_scope, cuda::thread_scope,
                 uint32_t)
{
    nccl::utility::refuseGin("ncclGinSignal_v2");
}
NCCL_IR_EXTERN_C NCCL_DEVICE_INLINE void ncclGinFlush(ncclGin_C *, ncclCoopAny, cuda::memory_order)
{
    nccl::utility::refuseGin("ncclGinFlush");
}
NCCL_IR_EXTERN_C NCCL_DEVICE_INLINE uint64_t ncclGinReadCounter(ncclGin_C *, ncclGinCounter_t, int,
                                                                cuda::memory_order)
{
    nccl::utility::refuseGin("ncclGinReadCounter");
    return 0;
}
NCCL_IR_EXTERN_C NCCL_DEVICE_INLINE void
ncclGinWaitCounter(ncclGin_C *, ncclCoopAny, ncclGinCounter_t, uint64_t, int, cuda::memory_order)
{
    nccl::utility::refuseGin("ncclGinWaitCounter");
}
NCCL_IR_EXTERN_C NCCL_DEVICE_INLINE uint64_t ncclGinReadSignal(ncclGin_C *, ncclGinSignal_t, int,
                                                               cuda::memory_order)
{
    nccl::utility::refuseGin("ncclGinReadSignal");
    return 0;
}
NCCL_IR_EXTERN_C NCCL_DEVICE_INLINE void
ncclGinWaitSignal(ncclGin_C *, ncclCoopAny, ncclGinSignal_t, uint64_t, int, cuda::memory_order)
{
    nccl::utility::refuseGin("ncclGinWaitSignal");
}
NCCL_IR_EXTERN_C NCCL_DEVICE_INLINE void ncclGinResetCounter(ncclGin_C *, ncclGinCounter_t)
{
    nccl::utility::refuseGin("ncclGinResetCounter");
}
NCCL_IR_EXTERN_C NCCL_DEVICE_INLINE void ncclGinResetSignal(ncclGin_C *, ncclGinSignal_t)
{
    nccl::utility::refuseGin("ncclGinResetSignal");
}
NCCL_IR_EXTERN_C NCCL_DEVICE_INLINE uint64_t *ncclGinGetSignalShadowPtr(ncclGin_C *,
                                                                        ncclGinSignal_t)
{
    nccl::utility::refuseGin("ncclGinGetSignalShadowPtr");
    return nullptr;
}

// ---- The barrier over the network
// -----------------------------------------------------------------------------------------------
// A barrier of one rank is met; others need the network.
template <typename Coop>
NCCL_DEVICE_INLINE
ncclGinBarrierSession<Coop>::ncclGinBarrierSession(Coop coop, ncclGin, ncclTeam team,
                                                   ncclGinBarrierHandle, uint32_t)
    : coop(coop)
{
    if (team.nRanks != 1) {
        nccl::utility::refuseGin("ncclGinBarrierSession of more than one rank");
    }
}
template <typename Coop>
NCCL_DEVICE_INLINE ncclGinBarrierSession<Coop>::ncclGinBarrierSession(Coop coop, ncclGin gin,
                                                                      ncclTeamTagRail,
                                                                      uint32_t index)
    : ncclGinBarrierSession(coop, gin, ncclTeamRail(gin.comm), gin.comm.railGinBarrier, index)
{
}
template <typename Coop>
NCCL_DEVICE_INLINE ncclGinBarrierSession<Coop>::ncclGinBarrierSession(Coop coop, ncclGin gin,
                                                                      ncclTeamTagWorld,
                                                                      uint32_t index)
    : ncclGinBarrierSession(coop, gin, ncclTeamWorld(gin.comm), gin.comm.worldGinBarrier, index)
{
}
template <typename Coop>
NCCL_DEVICE_INLINE
ncclGinBarrierSession<Coop>::ncclGinBarrierSession(Coop coop, ncclGinAllContexts contexts,
                                                   ncclTeam team, ncclGinBarrierHandle handle,
                                                   uint32_t index)
    : ncclGinBarrierSession(coop, ncclGin(contexts.comm, 0), team, handle, index)
{
}
template <typename Coop>
NCCL_DEVICE_INLINE
ncclGinBarrierSession<Coop>::ncclGinBarrierSession(Coop coop, ncclGinAllContexts contexts,
                                                   ncclTeamTagRail tag, uint32_t index)
    : ncclGinBarrierSession(coop, ncclGin(contexts.comm, 0), tag, index)
{
}
template <typename Coop>
NCCL_DEVICE_INLINE
ncclGinBarrierSession<Coop>::ncclGinBarrierSession(Coop coop, ncclGinAllContexts contexts,
                                                   ncclTeamTagWorld tag, uint32_t index)
    : ncclGinBarrierSession(coop, ncclGin(contexts.comm, 0), tag, index)
{
}

template <typename Coop> NCCL_DEVICE_INLINE ncclGinBarrierSession<Coop>::~ncclGinBarrierSession() {}
template <typename Coop>
NCCL_DEVICE_INLINE void ncclGinBarrierSession<Coop>::sync(Coop, cuda::memory_order,
                                                          ncclGinFenceLevel)
{
    coop.sync();
}
template <typename Coop>
NCCL_DEVICE_INLINE ncclResult_t ncclGinBarrierSession<Coop>::sync(Coop, cuda::memory_order,
                                                                  ncclGinFenceLevel, uint64_t)
{
    coop.sync();
    return ncclSuccess;
}
#undef NCCL_NOT_IMPLEMENTED_GIN
#endif

#endif
