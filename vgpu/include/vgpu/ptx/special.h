// Special registers, barriers, warp instructions and the rest of inline PTX that is neither
// computing nor memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_PTX_SPECIAL_H
#define VGPU_PTX_SPECIAL_H

#include "../device/barriers.h"
#include "../device/warp.h"
#include "registers.h"

extern "C++" {
namespace vgpu
{
namespace ptx
{

#define VGPU_PTX_SPECIAL(name, type, expression)                                                   \
    inline type special_##name()                                                                   \
    {                                                                                              \
        return expression;                                                                         \
    }
#ifdef __CUDACC__
VGPU_PTX_SPECIAL(tid_x, u32, threadIdx.x)
VGPU_PTX_SPECIAL(tid_y, u32, threadIdx.y)
VGPU_PTX_SPECIAL(tid_z, u32, threadIdx.z)
VGPU_PTX_SPECIAL(ntid_x, u32, blockDim.x)
VGPU_PTX_SPECIAL(ntid_y, u32, blockDim.y)
VGPU_PTX_SPECIAL(ntid_z, u32, blockDim.z)
VGPU_PTX_SPECIAL(ctaid_x, u32, blockIdx.x)
VGPU_PTX_SPECIAL(ctaid_y, u32, blockIdx.y)
VGPU_PTX_SPECIAL(ctaid_z, u32, blockIdx.z)
VGPU_PTX_SPECIAL(nctaid_x, u32, gridDim.x)
VGPU_PTX_SPECIAL(nctaid_y, u32, gridDim.y)
VGPU_PTX_SPECIAL(nctaid_z, u32, gridDim.z)
// The thread's number in its block decides lane and warp.
inline u32 linear_thread()
{
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
VGPU_PTX_SPECIAL(laneid, u32, linear_thread() % 32u)
VGPU_PTX_SPECIAL(warpid, u32, linear_thread() / 32u)
VGPU_PTX_SPECIAL(nwarpid, u32, (blockDim.x * blockDim.y * blockDim.z + 31u) / 32u)
VGPU_PTX_SPECIAL(lanemask_eq, u32, 1u << special_laneid())
VGPU_PTX_SPECIAL(lanemask_lt, u32, (1u << special_laneid()) - 1u)
VGPU_PTX_SPECIAL(lanemask_le, u32, special_lanemask_lt() | special_lanemask_eq())
VGPU_PTX_SPECIAL(lanemask_gt, u32, ~special_lanemask_le())
VGPU_PTX_SPECIAL(lanemask_ge, u32, ~special_lanemask_lt())
// A cluster is a block.
VGPU_PTX_SPECIAL(clusterid_x, u32, blockIdx.x)
VGPU_PTX_SPECIAL(clusterid_y, u32, blockIdx.y)
VGPU_PTX_SPECIAL(clusterid_z, u32, blockIdx.z)
VGPU_PTX_SPECIAL(nclusterid_x, u32, gridDim.x)
VGPU_PTX_SPECIAL(nclusterid_y, u32, gridDim.y)
VGPU_PTX_SPECIAL(nclusterid_z, u32, gridDim.z)
VGPU_PTX_SPECIAL(cluster_ctaid_x, u32, 0u)
VGPU_PTX_SPECIAL(cluster_ctaid_y, u32, 0u)
VGPU_PTX_SPECIAL(cluster_ctaid_z, u32, 0u)
VGPU_PTX_SPECIAL(cluster_nctaid_x, u32, 1u)
VGPU_PTX_SPECIAL(cluster_nctaid_y, u32, 1u)
VGPU_PTX_SPECIAL(cluster_nctaid_z, u32, 1u)
VGPU_PTX_SPECIAL(cluster_ctarank, u32, 0u)
VGPU_PTX_SPECIAL(cluster_nctarank, u32, 1u)
VGPU_PTX_SPECIAL(dynamic_smem_size, u32, static_cast<u32>(vgpu_shared_bytes(false)))
VGPU_PTX_SPECIAL(total_smem_size, u32, static_cast<u32>(vgpu_shared_bytes(true)))
#endif
// A virtual device does not say on which multiprocessor a block runs: one of one.
VGPU_PTX_SPECIAL(smid, u32, 0u)
VGPU_PTX_SPECIAL(nsmid, u32, 1u)
VGPU_PTX_SPECIAL(gridid, u64, 0u)
VGPU_PTX_SPECIAL(clock64, u64, static_cast<u64>(vgpu_clock()))
VGPU_PTX_SPECIAL(clock, u32, static_cast<u32>(vgpu_clock()))
VGPU_PTX_SPECIAL(clock_hi, u32, static_cast<u32>(static_cast<u64>(vgpu_clock()) >> 32))
VGPU_PTX_SPECIAL(globaltimer, u64, vgpu_global_timer())
VGPU_PTX_SPECIAL(globaltimer_lo, u32, static_cast<u32>(vgpu_global_timer()))
VGPU_PTX_SPECIAL(globaltimer_hi, u32, static_cast<u32>(vgpu_global_timer() >> 32))
#undef VGPU_PTX_SPECIAL

inline void trap()
{
    vgpu_fault(cudaErrorLaunchFailure, "the PTX instruction trap was executed");
}
inline void nanosleep()
{
    vgpu_yield();
}
template <class First, class Second>
__forceinline__ u32 barrier_popc(bool p, First id, Second threads, char = VGPU_LINE_OF_CALL)
{
    unsigned arrived;
    return static_cast<u32>(
        vgpu_barrier_count(static_cast<int>(get<u32>(id)), get<u32>(threads), p, &arrived));
}
template <class First, class Second>
__forceinline__ bool barrier_and(bool p, First id, Second threads, char = VGPU_LINE_OF_CALL)
{
    unsigned arrived;
    int count = vgpu_barrier_count(static_cast<int>(get<u32>(id)), get<u32>(threads), p, &arrived);
    return count == static_cast<int>(arrived);
}
template <class First, class Second>
__forceinline__ bool barrier_or(bool p, First id, Second threads, char = VGPU_LINE_OF_CALL)
{
    return barrier_popc(p, id, threads) > 0;
}

// ---- Warps -------------------------------------------------------------------------------------

template <class Mask> __forceinline__ u32 vote_ballot(bool p, Mask mask)
{
    return __ballot_sync(get<u32>(mask), p);
}
template <class Mask> __forceinline__ bool vote_any(bool p, Mask mask)
{
    return __any_sync(get<u32>(mask), p) != 0;
}
template <class Mask> __forceinline__ bool vote_all(bool p, Mask mask)
{
    return __all_sync(get<u32>(mask), p) != 0;
}
template <class Mask> __forceinline__ bool vote_uni(bool p, Mask mask)
{
    return __uni_sync(get<u32>(mask), p) != 0;
}
__attribute__((always_inline)) inline u32 active_mask(unsigned line = __builtin_LINE())
{
    return vgpu_active_mask(line);
}
template <class Value, class First, class Mask> __forceinline__ u32 match_any(First a, Mask mask)
{
    return __match_any_sync(get<u32>(mask), get<Value>(a));
}
#ifdef __CUDACC__
enum class shuffle_mode { idx, up, down, bfly };

// shfl.sync: b selects the source, c holds the clamp (low 5 bits) and the segment mask (bits 8 to
// 12). *inside: whether the source lay in range.
template <shuffle_mode mode, class First, class Second, class Third, class Mask>
__forceinline__ u32 shuffle_sync(First a, Second b, Third c, Mask mask, bool *inside)
{
    u32 lane = special_laneid(), select = get<u32>(b) & 31u, clamp = get<u32>(c) & 31u;
    u32 segment = get<u32>(c) >> 8 & 31u;
    u32 first = lane & segment, last = first | (clamp & ~segment);
    s32 source = 0;
    bool good = false;
    switch (mode) {
    case shuffle_mode::up:
        source = static_cast<s32>(lane) - static_cast<s32>(select);
        good = source >= static_cast<s32>(last);
        break;
    case shuffle_mode::down:
        source = static_cast<s32>(lane + select);
        good = source <= static_cast<s32>(last);
        break;
    case shuffle_mode::bfly:
        source = static_cast<s32>(lane ^ select);
        good = source <= static_cast<s32>(last);
        break;
    default:
        source = static_cast<s32>(first | (select & ~segment));
        good = source <= static_cast<s32>(last);
        break;
    }
    *inside = good;
    return __shfl_sync(get<u32>(mask), get<u32>(a), good ? source : static_cast<s32>(lane));
}
// The lowest lane of the mask is elected.
template <class Mask> __forceinline__ u32 elect_sync(Mask mask, bool *elected)
{
    u32 lanes = get<u32>(mask);
    u32 leader = lanes ? static_cast<u32>(__builtin_ctz(lanes)) : 0;
    vgpu_syncwarp(lanes);
    *elected = special_laneid() == leader;
    return leader;
}
#endif
#define VGPU_PTX_REDUX(name, function)                                                             \
    template <class Value, class First, class Mask> inline Value redux_##name(First a, Mask mask)  \
    {                                                                                              \
        return function(get<u32>(mask), get<Value>(a));                                            \
    }
VGPU_PTX_REDUX(add, __reduce_add_sync)
VGPU_PTX_REDUX(min, __reduce_min_sync)
VGPU_PTX_REDUX(max, __reduce_max_sync)
VGPU_PTX_REDUX(and, __reduce_and_sync)
VGPU_PTX_REDUX(or, __reduce_or_sync)
VGPU_PTX_REDUX(xor, __reduce_xor_sync)
#undef VGPU_PTX_REDUX

} // namespace ptx
} // namespace vgpu
} // extern "C++"
#endif
