// Device-initiated networking: put, get, signal and counters from kernels. Declared for source
// compatibility; calling a member in this version does not compile ("not implemented yet").
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_GIN_H_
#define NCCL_DEVICE_GIN_H_

#include "comm.h"
#include "core.h"
#include "impl/gin__types.h"
#include "ptr.h"

#if NCCL_CHECK_CUDACC
// ---- Actions that end an operation
// ------------------------------------------------------------------------------------------ On the
// peer: raise a signal by one (Inc) or by value (Add). Strong: once the signal is seen, this and
// all earlier puts to that peer on the context have arrived; Weak: this put has. VA: the signal is
// a word of a window. The names without either word are the older form. On this rank: count the
// operation as done with its source.
struct ncclGin_None {
};
struct ncclGin_StrongSignalInc {
    ncclGinSignal_t signal;
};
struct ncclGin_WeakSignalInc {
    ncclGinSignal_t signal;
};
struct ncclGin_SignalInc {
    ncclGinSignal_t signal;
};
struct ncclGin_StrongSignalAdd {
    ncclGinSignal_t signal;
    uint64_t value;
};
struct ncclGin_WeakSignalAdd {
    ncclGinSignal_t signal;
    uint64_t value;
};
struct ncclGin_SignalAdd {
    ncclGinSignal_t signal;
    uint64_t value;
};
struct ncclGin_StrongVASignalInc {
    ncclWindow_t signalWindow;
    size_t signalOffset;
};
struct ncclGin_WeakVASignalInc {
    ncclWindow_t signalWindow;
    size_t signalOffset;
};
struct ncclGin_VASignalInc {
    ncclWindow_t signalWindow;
    size_t signalOffset;
};
struct ncclGin_StrongVASignalAdd {
    ncclWindow_t signalWindow;
    size_t signalOffset;
    uint64_t value;
};
struct ncclGin_WeakVASignalAdd {
    ncclWindow_t signalWindow;
    size_t signalOffset;
    uint64_t value;
};
struct ncclGin_VASignalAdd {
    ncclWindow_t signalWindow;
    size_t signalOffset;
    uint64_t value;
};
struct ncclGin_CounterInc {
    ncclGinCounter_t counter;
};
struct ncclGin_WeakCounterInc {
    ncclGinCounter_t counter;
};
struct ncclGin_DescriptorSmem {
    ncclGinDescriptorSmem *descriptor;
};

// What a buffer's memory is made of: device memory, host memory, both.
struct ncclGin_SegmentDevice {
};
struct ncclGin_SegmentHostNuma {
};
struct ncclGin_SegmentMixed {
};

// ---- A context
// ------------------------------------------------------------------------------------------------------------
template <unsigned backendMask> struct ncclGin_BackendMask;
template <ncclNetDeviceType backend>
using ncclGin_BackendOne = ncclGin_BackendMask<(1u << (unsigned)backend)>;
using ncclGin = ncclGin_BackendMask<NCCL_GIN_BACKEND_MASK_ALL>;

// One of the device communicator's contexts. givenRelease: the scope at which the caller has
// already released what it wrote; requiredRelease: the scope at which it must be.
template <unsigned backendMask> struct ncclGin_BackendMask {
    ncclDevComm const &comm;
    uint32_t nConnections : 8, connectionId : 8, _ginBackend : 8;
    uint32_t contextId;
    ncclGinResourceSharingMode resourceSharingMode;
    void *_ginHandle;
    uint64_t *_signalShadows;

    NCCL_DEVICE_INLINE ncclGin_BackendMask(
        ncclDevComm const &comm, int contextIndex,
        ncclGinResourceSharingMode resourceSharingMode = NCCL_GIN_RESOURCE_SHARING_GPU);

    template <typename RemoteAction = ncclGin_None, typename LocalAction = ncclGin_None,
              typename Coop = ncclCoopThread, typename DescriptorSmem = ncclGin_None,
              typename SegmentType = ncclGin_SegmentDevice>
    NCCL_DEVICE_INLINE void
    put(ncclTeam team, int peer, ncclWindow_t dstWnd, size_t dstOffset, ncclWindow_t srcWnd,
        size_t srcOffset, size_t bytes, RemoteAction remoteAction = ncclGin_None{},
        LocalAction localAction = ncclGin_None{}, Coop coop = ncclCoopThread{},
        DescriptorSmem descriptor = ncclGin_None{},
        cuda::thread_scope givenRelease = cuda::thread_scope_thread,
        cuda::thread_scope requiredRelease = cuda::thread_scope_device,
        uint32_t optFlags = ncclGinOptFlagsDefault,
        SegmentType bufType = ncclGin_SegmentDevice{}) const;
    template <typename Value, typename RemoteAction = ncclGin_None,
              typename LocalAction = ncclGin_None, typename Coop = ncclCoopThread,
              typename DescriptorSmem = ncclGin_None, typename SegmentType = ncclGin_SegmentDevice>
    NCCL_DEVICE_INLINE void
    put(ncclTeam team, int peer, ncclSymPtr<Value> dstElts, ncclSymPtr<Value> srcElts, size_t nElts,
        RemoteAction remoteAction = ncclGin_None{}, LocalAction localAction = ncclGin_None{},
        Coop coop = ncclCoopThread{}, DescriptorSmem descriptor = ncclGin_None{},
        cuda::thread_scope givenRelease = cuda::thread_scope_thread,
        cuda::thread_scope requiredRelease = cuda::thread_scope_device,
        uint32_t optFlags = ncclGinOptFlagsDefault,
        SegmentType bufType = ncclGin_SegmentDevice{}) const;
    // Values of at most 8 bytes.
    template <typename Value, typename RemoteAction = ncclGin_None, typename Coop = ncclCoopThread,
              typename DescriptorSmem = ncclGin_None>
    NCCL_DEVICE_INLINE void putValue(ncclTeam team, int peer, ncclWindow_t dstWnd, size_t dstOffset,
                                     Value value, RemoteAction remoteAction = ncclGin_None{},
                                     Coop coop = ncclCoopThread{},
                                     DescriptorSmem descriptor = ncclGin_None{},
                                     cuda::thread_scope givenRelease = cuda::thread_scope_thread,
                                     cuda::thread_scope requiredRelease = cuda::thread_scope_device,
                                     uint32_t optFlags = ncclGinOptFlagsDefault) const;
    template <typename Value, typename RemoteAction = ncclGin_None, typename Coop = ncclCoopThread,
              typename DescriptorSmem = ncclGin_None>
    NCCL_DEVICE_INLINE void putValue(ncclTeam team, int peer, ncclSymPtr<Value> dst, Value value,
                                     RemoteAction remoteAction = ncclGin_None{},
                                     Coop coop = ncclCoopThread{},
                                     DescriptorSmem descriptor = ncclGin_None{},
                                     cuda::thread_scope givenRelease = cuda::thread_scope_thread,
                                     cuda::thread_scope requiredRelease = cuda::thread_scope_device,
                                     uint32_t optFlags = ncclGinOptFlagsDefault) const;
    template <typename RemoteAction, typename Coop = ncclCoopThread,
              typename DescriptorSmem = ncclGin_None>
    NCCL_DEVICE_INLINE void signal(ncclTeam team, int peer, RemoteAction remoteAction,
                                   Coop coop = ncclCoopThread(),
                                   DescriptorSmem descriptor = ncclGin_None{},
                                   cuda::thread_scope givenRelease = cuda::thread_scope_thread,
                                   cuda::thread_scope requiredRelease = cuda::thread_scope_device,
                                   uint32_t optFlags = ncclGinOptFlagsDefault) const;
    template <typename Coop = ncclCoopThread, typename DescriptorSmem = ncclGin_None,
              typename SegmentType = ncclGin_SegmentDevice>
    NCCL_DEVICE_INLINE void
    get(ncclTeam team, int peer, ncclWindow_t remoteWnd, size_t remoteOffset, ncclWindow_t localWnd,
        size_t localOffset, size_t bytes, Coop coop = ncclCoopThread{},
        DescriptorSmem descriptor = ncclGin_None{}, uint32_t optFlags = ncclGinOptFlagsDefault,
        SegmentType bufType = ncclGin_SegmentDevice{}) const;

    // Sources of this group's puts may be written again, and its gets have arrived; for all peers,
    // or for one in two steps.
    template <typename Coop, typename DescriptorSmem = ncclGin_None>
    NCCL_DEVICE_INLINE void flush(Coop coop, cuda::memory_order ord = cuda::memory_order_acquire,
                                  DescriptorSmem descriptor = ncclGin_None{}) const;
    template <typename Coop = ncclCoopThread, typename DescriptorSmem = ncclGin_None>
    NCCL_DEVICE_INLINE void flushAsync(ncclTeam team, uint32_t peer, ncclGinRequest_t *outRequest,
                                       Coop coop = ncclCoopThread{},
                                       uint32_t optFlags = ncclGinOptFlagsDefault,
                                       DescriptorSmem descriptor = ncclGin_None{}) const;
    template <typename Coop = ncclCoopThread, typename DescriptorSmem = ncclGin_None>
    NCCL_DEVICE_INLINE void wait(ncclGinRequest_t &outRequest, Coop coop = ncclCoopThread{},
                                 DescriptorSmem descriptor = ncclGin_None{},
                                 cuda::memory_order ord = cuda::memory_order_acquire) const;

    // Signals and counters: compared modulo 2^bits.
    NCCL_DEVICE_INLINE uint64_t
    readSignal(ncclGinSignal_t signal, int bits = 64,
               cuda::memory_order ord = cuda::memory_order_acquire) const;
    NCCL_DEVICE_INLINE uint64_t
    readSignal(ncclWindow_t signalWindow, size_t signalOffset, int bits = 64,
               cuda::memory_order ord = cuda::memory_order_acquire) const;
    template <typename Coop>
    NCCL_DEVICE_INLINE void waitSignal(Coop coop, ncclGinSignal_t signal, uint64_t least,
                                       int bits = 64,
                                       cuda::memory_order ord = cuda::memory_order_acquire) const;
    template <typename Coop>
    NCCL_DEVICE_INLINE void waitSignal(Coop coop, ncclWindow_t signalWindow, size_t signalOffset,
                                       uint64_t least, int bits = 64,
                                       cuda::memory_order ord = cuda::memory_order_acquire) const;
    template <typename Coop>
    NCCL_DEVICE_INLINE void
    waitSignalMeetShadow(Coop coop, ncclGinSignal_t signal, int bits = 64,
                         cuda::memory_order ord = cuda::memory_order_acquire) const;
    template <typename Coop, typename Uint>
    NCCL_DEVICE_INLINE void
    waitSignalFollowShadow(Coop coop, ncclGinSignal_t signal, Uint leastDelta, Uint *before,
                           Uint *delta, int bits = 64,
                           cuda::memory_order ord = cuda::memory_order_acquire) const;
    NCCL_DEVICE_INLINE uint64_t *getSignalShadowPtr(ncclGinSignal_t signal) const;
    NCCL_DEVICE_INLINE void increaseSignalShadow(ncclGinSignal_t signal, uint64_t delta) const;
    NCCL_DEVICE_INLINE void resetSignal(ncclGinSignal_t signal) const;
    NCCL_DEVICE_INLINE void resetSignal(ncclWindow_t signalWindow, size_t signalOffset) const;
    NCCL_DEVICE_INLINE uint64_t
    readCounter(ncclGinCounter_t counter, int bits = 56,
                cuda::memory_order ord = cuda::memory_order_acquire) const;
    template <typename Coop>
    NCCL_DEVICE_INLINE void waitCounter(Coop coop, ncclGinCounter_t counter, uint64_t least,
                                        int bits = 56,
                                        cuda::memory_order ord = cuda::memory_order_acquire) const;
    NCCL_DEVICE_INLINE void resetCounter(ncclGinCounter_t counter) const;
};

// ---- The same without templates
// -------------------------------------------------------------------------------------------------
struct ncclGin_C {
    ncclDevComm const &comm;
    uint32_t nConnections : 8, connectionId : 8, _ginBackend : 8;
    uint32_t contextId;
    ncclGinResourceSharingMode resourceSharingMode;
    void *_ginHandle;
    uint64_t *_signalShadows;
    unsigned backendMask;

    template <typename Mode = ncclGinResourceSharingMode>
    NCCL_DEVICE_INLINE ncclGin_C(ncclDevComm const &comm, unsigned backendMask, int contextIndex,
                                 Mode resourceSharingMode = NCCL_GIN_RESOURCE_SHARING_GPU);
};
#endif

#endif
