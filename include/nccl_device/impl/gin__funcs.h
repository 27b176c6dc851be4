// GIN and its barrier in this version: each use is refused by the compiler, with the name of what
// was used. SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_GIN__FUNCS_H_
#define NCCL_DEVICE_GIN__FUNCS_H_

#include "../gin.h"
#include "../gin_barrier.h"

#if NCCL_CHECK_CUDACC
// Body of a template that only has its declaration so far. The dependent type makes the refusal
// wait for a use.
#define NCCL_NOT_IMPLEMENTED(dependent_type, name)                                                 \
    static_assert(nccl::utility::always_false<dependent_type>::value, "not implemented "           \
                                                                      "yet: " name)

namespace nccl
{
namespace utility
{
template <unsigned value> struct UnsignedAsType {
};
} // namespace utility
} // namespace nccl
#define NCCL_NOT_IMPLEMENTED_GIN(name)                                                             \
    NCCL_NOT_IMPLEMENTED(nccl::utility::UnsignedAsType<backendMask>, "ncclGin" name)

template <unsigned backendMask>
NCCL_DEVICE_INLINE
ncclGin_BackendMask<backendMask>::ncclGin_BackendMask(ncclDevComm const &dev_comm, int,
                                                      ncclGinResourceSharingMode)
    : comm(dev_comm)
{
    NCCL_NOT_IMPLEMENTED_GIN(" (device-initiated networking)");
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

template <typename Mode>
NCCL_DEVICE_INLINE ncclGin_C::ncclGin_C(ncclDevComm const &dev_comm, unsigned, int, Mode)
    : comm(dev_comm)
{
    NCCL_NOT_IMPLEMENTED(Mode, "ncclGin_C");
}

// Functions on ncclGin_C: any arguments, always refused.
#define NCCL_NOT_IMPLEMENTED_GIN_C(result, name)                                                   \
    template <typename... Arguments> NCCL_DEVICE_INLINE result name(ncclGin_C *, Arguments...)     \
    {                                                                                              \
        static_assert(sizeof...(Arguments) > 1000, "not implemented yet: " #name);                 \
    }
NCCL_NOT_IMPLEMENTED_GIN_C(void, ncclGin_C_init)
NCCL_NOT_IMPLEMENTED_GIN_C(void, ncclGin_C_initWithResourceSharingMode)
NCCL_NOT_IMPLEMENTED_GIN_C(void, ncclGinPut)
NCCL_NOT_IMPLEMENTED_GIN_C(void, ncclGinPut_v2)
NCCL_NOT_IMPLEMENTED_GIN_C(void, ncclGinPutValue)
NCCL_NOT_IMPLEMENTED_GIN_C(void, ncclGinPutValue_v2)
NCCL_NOT_IMPLEMENTED_GIN_C(void, ncclGinSignal)
NCCL_NOT_IMPLEMENTED_GIN_C(void, ncclGinSignal_v2)
NCCL_NOT_IMPLEMENTED_GIN_C(void, ncclGinGet)
NCCL_NOT_IMPLEMENTED_GIN_C(void, ncclGinFlush)
NCCL_NOT_IMPLEMENTED_GIN_C(uint64_t, ncclGinReadSignal)
NCCL_NOT_IMPLEMENTED_GIN_C(void, ncclGinWaitSignal)
NCCL_NOT_IMPLEMENTED_GIN_C(void, ncclGinResetSignal)
NCCL_NOT_IMPLEMENTED_GIN_C(uint64_t, ncclGinReadCounter)
NCCL_NOT_IMPLEMENTED_GIN_C(void, ncclGinWaitCounter)
NCCL_NOT_IMPLEMENTED_GIN_C(void, ncclGinResetCounter)
NCCL_NOT_IMPLEMENTED_GIN_C(uint64_t *, ncclGinGetSignalShadowPtr)
#undef NCCL_NOT_IMPLEMENTED_GIN_C

// ---- The barrier over the network
// -----------------------------------------------------------------------------------------------
#define NCCL_NOT_IMPLEMENTED_BARRIER(...)                                                          \
    template <typename Coop>                                                                       \
    NCCL_DEVICE_INLINE ncclGinBarrierSession<Coop>::ncclGinBarrierSession(__VA_ARGS__)             \
    {                                                                                              \
        NCCL_NOT_IMPLEMENTED(Coop, "ncclGinBarrierSession");                                       \
    }
NCCL_NOT_IMPLEMENTED_BARRIER(Coop, ncclGin, ncclTeam, ncclGinBarrierHandle, uint32_t)
NCCL_NOT_IMPLEMENTED_BARRIER(Coop, ncclGin, ncclTeamTagRail, uint32_t)
NCCL_NOT_IMPLEMENTED_BARRIER(Coop, ncclGin, ncclTeamTagWorld, uint32_t)
NCCL_NOT_IMPLEMENTED_BARRIER(Coop, ncclGinAllContexts, ncclTeam, ncclGinBarrierHandle, uint32_t)
NCCL_NOT_IMPLEMENTED_BARRIER(Coop, ncclGinAllContexts, ncclTeamTagRail, uint32_t)
NCCL_NOT_IMPLEMENTED_BARRIER(Coop, ncclGinAllContexts, ncclTeamTagWorld, uint32_t)
#undef NCCL_NOT_IMPLEMENTED_BARRIER

template <typename Coop> NCCL_DEVICE_INLINE ncclGinBarrierSession<Coop>::~ncclGinBarrierSession() {}
template <typename Coop>
NCCL_DEVICE_INLINE void ncclGinBarrierSession<Coop>::sync(Coop, cuda::memory_order,
                                                          ncclGinFenceLevel)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclGinBarrierSession::sync");
}
template <typename Coop>
NCCL_DEVICE_INLINE ncclResult_t ncclGinBarrierSession<Coop>::sync(Coop, cuda::memory_order,
                                                                  ncclGinFenceLevel, uint64_t)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclGinBarrierSession::sync");
    return ncclInvalidUsage;
}
#endif

#endif
