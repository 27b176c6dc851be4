// Groups of threads that call a function together: one thread, part of a warp, warps, a block.
// Each has thread_rank(), size(), num_threads() (the same) and sync().
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_COOP_H_
#define NCCL_DEVICE_COOP_H_

#include "utility.h"

#if NCCL_CHECK_CUDACC
#include <new>
#include <string.h>

// An aligned run of a power of two (1 to 32) threads of a warp.
template <int nThreadsPow2> struct ncclCoopTile {
    static_assert(nccl::utility::isPow2(nThreadsPow2) && nThreadsPow2 <= 32,
                  "a tile has 1, 2, 4, 8, 16 or 32 threads");

    NCCL_DEVICE_INLINE int thread_rank() const
    {
        return nThreadsPow2 == 1 ? 0 : nccl::utility::lane() % nThreadsPow2;
    }
    NCCL_DEVICE_INLINE constexpr int size() const
    {
        return nThreadsPow2;
    }
    NCCL_DEVICE_INLINE constexpr int num_threads() const
    {
        return nThreadsPow2;
    }
    NCCL_DEVICE_INLINE uint32_t laneMask() const
    {
        uint32_t low = nThreadsPow2 == 32 ? ~0u : (1u << (nThreadsPow2 % 32)) - 1;
        return low << (nccl::utility::lane() / nThreadsPow2 * nThreadsPow2);
    }
    NCCL_DEVICE_INLINE void sync(NCCL_LINE_OF_CALL)
    {
        if (nThreadsPow2 != 1) {
            __syncwarp(laneMask());
        }
    }
};
typedef ncclCoopTile<1> ncclCoopThread;
typedef ncclCoopTile<32> ncclCoopWarp;

// The lanes of the warp that are set in lmask.
struct ncclCoopLanes {
    uint32_t lmask;

    NCCL_DEVICE_INLINE constexpr ncclCoopLanes(uint32_t lmask = 0xffffffffu) : lmask(lmask) {}
    NCCL_DEVICE_INLINE int thread_rank() const
    {
        return __popc(nccl::utility::lanemask_lt() & lmask);
    }
    NCCL_DEVICE_INLINE int size() const
    {
        return __popc(lmask);
    }
    NCCL_DEVICE_INLINE int num_threads() const
    {
        return size();
    }
    NCCL_DEVICE_INLINE void sync(NCCL_LINE_OF_CALL)
    {
        __syncwarp(lmask);
    }
};

// nWarps consecutive warps of a one-dimensional block from warp0 on. id (0 to 15) tells spans apart
// that meet at the same time: named barrier 1 + id of the block belongs to them. A block has 16
// barriers, so id 15 uses the one of __syncthreads: not while other threads of the block wait
// there, or at an ncclCoopCta.
struct ncclCoopWarpSpan {
    uint32_t warp0 : 8, nWarps : 8, id : 8;

    NCCL_DEVICE_INLINE constexpr ncclCoopWarpSpan(int warp0, int nWarps, int id)
        : warp0((uint32_t)warp0), nWarps((uint32_t)nWarps), id((uint32_t)id)
    {
    }
    NCCL_DEVICE_INLINE int thread_rank() const
    {
        return (int)threadIdx.x - (int)(warp0 * 32);
    }
    NCCL_DEVICE_INLINE int size() const
    {
        return (int)(nWarps * 32);
    }
    NCCL_DEVICE_INLINE int num_threads() const
    {
        return size();
    }
    NCCL_DEVICE_INLINE void sync(NCCL_LINE_OF_CALL)
    {
        uint32_t barrier = (id + 1) % 16;
#if NCCL_DEVICE_CHECKED
        if (id > 15 || threadIdx.x - warp0 * 32 >= nWarps * 32) {
            vgpu_fault(cudaErrorInvalidValue,
                       "ncclCoopWarpSpan: thread %u, span of warps %u to %u, id %u; expected a "
                       "thread of the span and an id of 0 to 15",
                       threadIdx.x, (unsigned)warp0, (unsigned)(warp0 + nWarps) - 1, (unsigned)id);
        }
        vgpu_barrier_sync((int)barrier, nWarps * 32);
#else
        asm volatile("barrier.sync %0, %1;" : : "r"(barrier), "r"(nWarps * 32) : "memory");
#endif
    }
};

// All threads of a one-dimensional block.
struct ncclCoopCta {
    NCCL_DEVICE_INLINE int thread_rank() const
    {
        return (int)threadIdx.x;
    }
    NCCL_DEVICE_INLINE int size() const
    {
        return (int)blockDim.x;
    }
    NCCL_DEVICE_INLINE int num_threads() const
    {
        return size();
    }
    NCCL_DEVICE_INLINE void sync(NCCL_LINE_OF_CALL)
    {
        __syncthreads();
    }
};

// Any of the above behind one type, for interfaces that cannot be templates.
struct ncclCoopAny {
    struct Storage {
        alignas(void *) char space[16];
    };
    struct VTable {
        int (*thread_rank)(void const *);
        int (*size)(void const *);
        void (*sync)(void *);
    };
    Storage storage;
    VTable const *vtable;

    ncclCoopAny() = default;
    ncclCoopAny(ncclCoopAny const &) = default;
    ncclCoopAny(ncclCoopAny &&) = default;
    template <typename Impl> __device__ ncclCoopAny(Impl impl)
    {
        static_assert(sizeof(Impl) <= sizeof(Storage) && alignof(Impl) <= alignof(Storage),
                      "the group is too large");
        new (static_cast<void *>(storage.space)) Impl(impl);
        vtable = get_vtable<Impl>();
    }

    __device__ int thread_rank() const
    {
        return vtable->thread_rank(storage.space);
    }
    __device__ int size() const
    {
        return vtable->size(storage.space);
    }
    __device__ int num_threads() const
    {
        return vtable->size(storage.space);
    }
    __device__ void sync()
    {
        vtable->sync(storage.space);
    }

    template <typename Impl> __device__ static int thread_rank(void const *group)
    {
        return static_cast<Impl const *>(group)->thread_rank();
    }
    template <typename Impl> __device__ static int size(void const *group)
    {
        return static_cast<Impl const *>(group)->size();
    }
    template <typename Impl> __device__ static void sync(void *group)
    {
        static_cast<Impl *>(group)->sync();
    }
    template <typename Impl> __device__ static VTable const *get_vtable()
    {
        static constexpr VTable table = {&thread_rank<Impl>, &size<Impl>, &sync<Impl>};
        return &table;
    }
};

// Lanes of the calling thread's warp that belong to the group.
template <int nThreads> NCCL_DEVICE_INLINE uint32_t ncclCoopGetLaneMask(ncclCoopTile<nThreads> coop)
{
    return coop.laneMask();
}
NCCL_DEVICE_INLINE uint32_t ncclCoopGetLaneMask(ncclCoopLanes coop)
{
    return coop.lmask;
}
NCCL_DEVICE_INLINE uint32_t ncclCoopGetLaneMask(ncclCoopWarpSpan)
{
    return 0xffffffffu;
}
NCCL_DEVICE_INLINE uint32_t ncclCoopGetLaneMask(ncclCoopCta)
{
    return 0xffffffffu;
}

// Whether the type alone says that the group is one thread; that it lies within a warp.
template <int nThreads> NCCL_DEVICE_INLINE constexpr bool ncclCoopIsThread(ncclCoopTile<nThreads>)
{
    return nThreads == 1;
}
NCCL_DEVICE_INLINE constexpr bool ncclCoopIsThread(ncclCoopLanes)
{
    return false;
}
NCCL_DEVICE_INLINE constexpr bool ncclCoopIsThread(ncclCoopWarpSpan)
{
    return false;
}
NCCL_DEVICE_INLINE constexpr bool ncclCoopIsThread(ncclCoopCta)
{
    return false;
}
template <int nThreads> NCCL_DEVICE_INLINE constexpr bool ncclCoopWithinWarp(ncclCoopTile<nThreads>)
{
    return true;
}
NCCL_DEVICE_INLINE constexpr bool ncclCoopWithinWarp(ncclCoopLanes)
{
    return true;
}
NCCL_DEVICE_INLINE constexpr bool ncclCoopWithinWarp(ncclCoopWarpSpan)
{
    return false;
}
NCCL_DEVICE_INLINE constexpr bool ncclCoopWithinWarp(ncclCoopCta)
{
    return false;
}

// Threads of the calling warp that may act together: those that run now; those that are in `coop`.
NCCL_DEVICE_INLINE ncclCoopLanes ncclCoopCoalesced()
{
    return ncclCoopLanes(__activemask());
}
template <typename Coop> NCCL_DEVICE_INLINE ncclCoopWarp ncclCoopCoalesced(Coop)
{
    return ncclCoopWarp();
}
NCCL_DEVICE_INLINE ncclCoopLanes ncclCoopCoalesced(ncclCoopLanes coop)
{
    return coop;
}
template <int nThreads>
NCCL_DEVICE_INLINE ncclCoopTile<nThreads> ncclCoopCoalesced(ncclCoopTile<nThreads> coop)
{
    return coop;
}

namespace nccl
{
namespace utility
{
// Lane `source` of the group's warp gives its value, word by word.
template <typename Value>
NCCL_DEVICE_INLINE Value shuffleValue(uint32_t mask, Value value, int source)
{
    constexpr int words = (int)((sizeof(Value) + 3) / 4);
    uint32_t word[words] = {};
    memcpy(word, &value, sizeof(Value));
#pragma unroll
    for (int i = 0; i < words; i++) {
        word[i] = __shfl_sync(mask, word[i], source);
    }
    memcpy(&value, word, sizeof(Value));
    return value;
}

// Where the warps of a block pass values: place 1 + id of a span, place 0 of the block.
struct alignas(16) CoopStash {
    char bytes[16];
};
NCCL_DEVICE_INLINE CoopStash *coopStash()
{
    __shared__ CoopStash stash[17];
    return stash;
}
template <typename Coop, typename Value>
NCCL_DEVICE_INLINE Value passValue(Coop coop, CoopStash *place, Value value, int root,
                                   bool entrySync)
{
    static_assert(sizeof(Value) <= sizeof(CoopStash),
                  "ncclCoopBcast passes at most 16 bytes between warps");
    if (entrySync) {
        coop.sync();
    }
    if (coop.thread_rank() == root) {
        memcpy(place->bytes, &value, sizeof(Value));
    }
    coop.sync();
    memcpy(&value, place->bytes, sizeof(Value));
    return value;
}
} // namespace utility
} // namespace nccl

// Gives every thread of the group the value of its thread `root`. entrySync false: the caller knows
// that all threads are done with an earlier broadcast of the group.
template <int nThreads, typename Value>
NCCL_DEVICE_INLINE Value ncclCoopBcast(ncclCoopTile<nThreads> coop, Value value, int root,
                                       bool entrySync = true)
{
    (void)entrySync;
    if (nThreads == 1) {
        return value;
    }
    int first = nccl::utility::lane() / nThreads * nThreads;
    return nccl::utility::shuffleValue(coop.laneMask(), value, first + root);
}
template <typename Value>
NCCL_DEVICE_INLINE Value ncclCoopBcast(ncclCoopLanes coop, Value value, int root,
                                       bool entrySync = true)
{
    (void)entrySync;
    return nccl::utility::shuffleValue(coop.lmask, value, (int)__fns(coop.lmask, 0, root + 1));
}
template <typename Value>
NCCL_DEVICE_INLINE Value ncclCoopBcast(ncclCoopWarpSpan coop, Value value, int root,
                                       bool entrySync = true)
{
    return nccl::utility::passValue(coop, &nccl::utility::coopStash()[coop.id + 1], value, root,
                                    entrySync);
}
template <typename Value>
NCCL_DEVICE_INLINE Value ncclCoopBcast(ncclCoopCta coop, Value value, int root,
                                       bool entrySync = true)
{
    return nccl::utility::passValue(coop, &nccl::utility::coopStash()[0], value, root, entrySync);
}

namespace nccl
{
namespace utility
{
// Whether `flag` is set in any thread of the group; the same answer in all. Synchronises the group.
template <int nThreads> NCCL_DEVICE_INLINE bool coopAny(ncclCoopTile<nThreads> coop, bool flag)
{
    return nThreads == 1 ? flag : __any_sync(coop.laneMask(), flag) != 0;
}
NCCL_DEVICE_INLINE bool coopAny(ncclCoopLanes coop, bool flag)
{
    return __any_sync(coop.lmask, flag) != 0;
}
NCCL_DEVICE_INLINE bool coopAny(ncclCoopCta, bool flag)
{
    return __syncthreads_or(flag) != 0;
}
} // namespace utility
} // namespace nccl
#endif

#endif
