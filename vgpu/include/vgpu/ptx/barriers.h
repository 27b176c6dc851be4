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
template <class Bytes> inline void barrier_init(mbarrier::word *at, Bytes count)
{
    mbarrier::init(at, get<u32>(count));
}
inline void barrier_end(mbarrier::word *at)
{
    __atomic_store_n(at, 0, __ATOMIC_RELAXED);
}
template <class Bytes> inline void barrier_expect(mbarrier::word *at, Bytes bytes)
{
    (void)mbarrier::change(at, 0, 0, get<s32>(bytes));
}
template <class Bytes> inline void barrier_complete(mbarrier::word *at, Bytes bytes)
{
    (void)mbarrier::change(at, 0, 0, -get<s32>(bytes));
}
template <class Bytes> inline u64 arrive(mbarrier::word *at, Bytes count)
{
    return mbarrier::change(at, get<u32>(count), 0, 0);
}
template <class Bytes> inline u64 arrive_drop(mbarrier::word *at, Bytes count)
{
    return mbarrier::change(at, get<u32>(count), get<u32>(count), 0);
}
template <class Bytes> inline u64 arrive_expect(mbarrier::word *at, Bytes bytes)
{
    return mbarrier::change(at, 1, 0, get<s32>(bytes));
}
template <class Bytes> inline u64 arrive_drop_expect(mbarrier::word *at, Bytes bytes)
{
    return mbarrier::change(at, 1, 1, get<s32>(bytes));
}
template <class Bytes> inline bool is_over(const mbarrier::word *at, Bytes state)
{
    return mbarrier::is_over(at, mbarrier::parity(get<u64>(state)));
}
template <class Bytes> inline bool is_over_parity(const mbarrier::word *at, Bytes parity)
{
    return mbarrier::is_over(at, get<u32>(parity));
}
template <class Bytes> inline u32 pending_count(Bytes state)
{
    return mbarrier::pending(get<u64>(state));
}

// ---- Bulk reductions ---------------------------------------------------------------------------

enum class reducing { add, min, max, inc, dec, bit_and, bit_or, bit_xor };

template <class Value, reducing r> struct reduce_one;
#define VGPU_PTX_REDUCE(name, function)                                                            \
    template <class Value> struct reduce_one<Value, reducing::name> {                              \
        static void at(char *to, Value value)                                                      \
        {                                                                                          \
            (void)function<Value, order::relaxed>(to, value);                                      \
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

template <class Value, reducing r, class Bytes>
inline void reduce_copy(char *to, const char *from, Bytes bytes)
{
    for (u32 i = 0; i + sizeof(Value) <= get<u32>(bytes); i += sizeof(Value)) {
        Value value;
        memcpy(static_cast<void *>(&value), from + i, sizeof(Value));
        reduce_one<Value, r>::at(to + i, value);
    }
}

// ---- The cluster, which is the block -----------------------------------------------------------

template <class First, class Register> inline First map_shared(First address, Register rank)
{
    (void)__cluster_map_shared_rank(nullptr, get<u32>(rank));
    return address;
}
template <class First> inline bool is_space(enum vgpu_space space, First address)
{
    return vgpu_memory_space(reinterpret_cast<const void *>(get<u64>(address))) == space;
}

} // namespace ptx
} // namespace vgpu
} // extern "C++"
#endif
#endif
