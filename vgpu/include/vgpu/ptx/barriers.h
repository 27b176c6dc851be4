// Barrier objects, bulk reductions and addresses across a cluster, for inline PTX.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_PTX_BARRIERS_H
#define VGPU_PTX_BARRIERS_H

#include "../device/clusters.h"
#include "../mbarrier.h"
#include "memory.h"
#include "registers.h"

#ifdef __CUDACC__
extern "C++" {
namespace vgpu
{
namespace ptx
{

// ---- Barrier objects ---------------------------------------------------------------------------

inline mbarrier::word *barrier_at(char *address)
{
    if (reinterpret_cast<uintptr_t>(address) % 8 != 0)
        vgpu_fault(cudaErrorMisalignedAddress, "a barrier object at %p: must be a multiple of 8",
                   static_cast<void *>(address));
    return reinterpret_cast<mbarrier::word *>(address);
}
template <class N> inline void barrier_init(mbarrier::word *at, N count)
{
    mbarrier::init(at, get<u32>(count));
}
inline void barrier_end(mbarrier::word *at)
{
    __atomic_store_n(at, 0, __ATOMIC_RELAXED);
}
template <class N> inline void barrier_expect(mbarrier::word *at, N bytes)
{
    (void)mbarrier::change(at, 0, 0, get<s32>(bytes));
}
template <class N> inline void barrier_complete(mbarrier::word *at, N bytes)
{
    (void)mbarrier::change(at, 0, 0, -get<s32>(bytes));
}
template <class N> inline u64 arrive(mbarrier::word *at, N count)
{
    return mbarrier::change(at, get<u32>(count), 0, 0);
}
template <class N> inline u64 arrive_drop(mbarrier::word *at, N count)
{
    return mbarrier::change(at, get<u32>(count), get<u32>(count), 0);
}
template <class N> inline u64 arrive_expect(mbarrier::word *at, N bytes)
{
    return mbarrier::change(at, 1, 0, get<s32>(bytes));
}
template <class N> inline u64 arrive_drop_expect(mbarrier::word *at, N bytes)
{
    return mbarrier::change(at, 1, 1, get<s32>(bytes));
}
template <class N> inline bool is_over(const mbarrier::word *at, N state)
{
    return mbarrier::is_over(at, mbarrier::parity(get<u64>(state)));
}
template <class N> inline bool is_over_parity(const mbarrier::word *at, N parity)
{
    return mbarrier::is_over(at, get<u32>(parity));
}
template <class N> inline u32 pending_count(N state)
{
    return mbarrier::pending(get<u64>(state));
}

// ---- Bulk reductions ---------------------------------------------------------------------------

enum class reducing { add, min, max, inc, dec, bit_and, bit_or, bit_xor };

template <class T, reducing r> struct reduce_one;
#define VGPU_PTX_REDUCE(name, function)                                                            \
    template <class T> struct reduce_one<T, reducing::name> {                                      \
        static void at(char *to, T value)                                                          \
        {                                                                                          \
            (void)function<T, order::relaxed>(to, value);                                          \
        }                                                                                          \
    };
VGPU_PTX_REDUCE(add, atom_add)
VGPU_PTX_REDUCE(min, atom_min)
VGPU_PTX_REDUCE(max, atom_max)
VGPU_PTX_REDUCE(inc, atom_inc)
VGPU_PTX_REDUCE(dec, atom_dec)
VGPU_PTX_REDUCE(bit_and, atom_and)
VGPU_PTX_REDUCE(bit_or, atom_or)
VGPU_PTX_REDUCE(bit_xor, atom_xor)
#undef VGPU_PTX_REDUCE

template <class T, reducing r, class N> inline void reduce_copy(char *to, const char *from, N bytes)
{
    for (u32 i = 0; i + sizeof(T) <= get<u32>(bytes); i += sizeof(T)) {
        T value;
        memcpy(static_cast<void *>(&value), from + i, sizeof(T));
        reduce_one<T, r>::at(to + i, value);
    }
}

// ---- The cluster, which is the block -----------------------------------------------------------

inline void cluster_arrive()
{
    __cluster_barrier_arrive();
}
inline void cluster_wait()
{
    __cluster_barrier_wait();
}
template <class A, class R> inline A map_shared(A address, R rank)
{
    (void)__cluster_map_shared_rank(nullptr, get<u32>(rank));
    return address;
}
template <class A> inline bool is_space(enum vgpu_space space, A address)
{
    return vgpu_memory_space(reinterpret_cast<const void *>(get<u64>(address))) == space;
}

} // namespace ptx
} // namespace vgpu
} // extern "C++"
#endif
#endif
