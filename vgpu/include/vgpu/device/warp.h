// Warp functions: shuffles, votes, matches and reductions. All of them rest on one exchange of the
// runtime, in which every named lane gives a value and receives everybody's.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_WARP_H
#define VGPU_DEVICE_WARP_H

#include "common.h"

#if defined(__cplusplus) && defined(__CUDACC__)
extern "C++" {

namespace vgpu
{

// The number of the running thread in its block, and its lane in its warp.
inline unsigned thread_rank()
{
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}
inline unsigned lane()
{
    return thread_rank() & 31u;
}

// Everybody's values after an exchange; lanes that took no part are zero.
template <class Value> struct warp_values {
    static_assert(sizeof(Value) <= 16, "a warp exchange carries at most 16 bytes a lane");
    alignas(16) unsigned char slot[32][16];
    unsigned present;

    warp_values(unsigned mask, const Value &value)
    {
        present = vgpu_warp_exchange(mask, &value, sizeof(Value), slot);
    }
    Value operator[](unsigned lane) const
    {
        Value value;
        memcpy(static_cast<void *>(&value), slot[lane & 31u], sizeof(Value));
        return value;
    }
    bool has(unsigned lane) const
    {
        return present >> lane & 1u;
    }
};

// The first and last lane of the calling thread's segment of `width` lanes.
inline unsigned segment_begin(int width)
{
    return lane() & ~(static_cast<unsigned>(width) - 1u);
}
inline unsigned segment_end(int width)
{
    return segment_begin(width) + static_cast<unsigned>(width) - 1u;
}

inline void check_width(int width)
{
    if (width < 1 || width > 32 || (width & (width - 1)) != 0)
        vgpu_fault(cudaErrorLaunchFailure, "shuffle width %d: must be 1, 2, 4, 8, 16 or 32", width);
}

template <class Value>
inline Value shuffle(unsigned mask, const Value &value, unsigned source, bool inside)
{
    warp_values<Value> values(mask, value);
    return inside ? values[source] : value;
}

} // namespace vgpu

// Value: any type of at most 16 bytes that CUDA shuffles; a source outside the segment gives the
// caller's own value.
template <class Value>
inline Value __shfl_sync(unsigned mask, Value value, int source, int width = 32)
{
    vgpu::check_width(width);
    unsigned w = static_cast<unsigned>(width);
    return vgpu::shuffle(
        mask, value, vgpu::segment_begin(width) + (static_cast<unsigned>(source) & (w - 1u)), true);
}
template <class Value>
inline Value __shfl_up_sync(unsigned mask, Value value, unsigned delta, int width = 32)
{
    vgpu::check_width(width);
    unsigned lane = vgpu::lane();
    bool inside = delta <= lane && lane - delta >= vgpu::segment_begin(width);
    return vgpu::shuffle(mask, value, lane - delta, inside);
}
template <class Value>
inline Value __shfl_down_sync(unsigned mask, Value value, unsigned delta, int width = 32)
{
    vgpu::check_width(width);
    unsigned lane = vgpu::lane();
    bool inside = delta < 32u && lane + delta <= vgpu::segment_end(width);
    return vgpu::shuffle(mask, value, lane + delta, inside);
}
template <class Value>
inline Value __shfl_xor_sync(unsigned mask, Value value, int lane_mask, int width = 32)
{
    vgpu::check_width(width);
    unsigned source = vgpu::lane() ^ static_cast<unsigned>(lane_mask);
    return vgpu::shuffle(mask, value, source, source <= vgpu::segment_end(width));
}

VGPU_FUNCTION unsigned __activemask(void)
{
    return vgpu_active_mask();
}
VGPU_FUNCTION unsigned __ballot_sync(unsigned mask, int predicate)
{
    unsigned char vote = predicate != 0;
    vgpu::warp_values<unsigned char> votes(mask, vote);
    unsigned result = 0;
    for (unsigned i = 0; i < 32; i++)
        result |= static_cast<unsigned>(votes.slot[i][0]) << i;
    return result & votes.present;
}
VGPU_FUNCTION int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
VGPU_FUNCTION int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate == 0) == 0;
}
VGPU_FUNCTION int __uni_sync(unsigned mask, int predicate)
{
    unsigned char vote = predicate != 0;
    vgpu::warp_values<unsigned char> votes(mask, vote);
    for (unsigned i = 0; i < 32; i++)
        if (votes.has(i) && votes.slot[i][0] != vote)
            return 0;
    return 1;
}

// The lanes whose value is the caller's, bit for bit.
template <class Value> inline unsigned __match_any_sync(unsigned mask, Value value)
{
    vgpu::warp_values<Value> values(mask, value);
    unsigned result = 0;
    for (unsigned i = 0; i < 32; i++)
        if (values.has(i) && memcmp(values.slot[i], &value, sizeof(Value)) == 0)
            result |= 1u << i;
    return result;
}
template <class Value> inline unsigned __match_all_sync(unsigned mask, Value value, int *predicate)
{
    vgpu::warp_values<Value> values(mask, value);
    *predicate = 1;
    for (unsigned i = 0; i < 32; i++)
        if (values.has(i) && memcmp(values.slot[i], &value, sizeof(Value)) != 0)
            *predicate = 0;
    return *predicate ? values.present : 0u;
}

namespace vgpu
{

template <class Value, class Function>
inline Value warp_reduce(unsigned mask, Value value, Function combine)
{
    warp_values<Value> values(mask, value);
    bool first = true;
    Value result = value;
    for (unsigned i = 0; i < 32; i++) {
        if (!values.has(i))
            continue;
        result = first ? values[i] : combine(result, values[i]);
        first = false;
    }
    return result;
}

} // namespace vgpu

#define VGPU_WARP_REDUCE(name, type, expression)                                                   \
    VGPU_FUNCTION type name(unsigned mask, type value)                                             \
    {                                                                                              \
        return vgpu::warp_reduce(mask, value, [](type a, type b) { return (type)(expression); });  \
    }
VGPU_WARP_REDUCE(__reduce_add_sync, unsigned, a + b)
VGPU_WARP_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
VGPU_WARP_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
VGPU_WARP_REDUCE(__reduce_add_sync, int, (unsigned)a + (unsigned)b)
VGPU_WARP_REDUCE(__reduce_min_sync, int, a < b ? a : b)
VGPU_WARP_REDUCE(__reduce_max_sync, int, a > b ? a : b)
VGPU_WARP_REDUCE(__reduce_and_sync, unsigned, a &b)
VGPU_WARP_REDUCE(__reduce_or_sync, unsigned, a | b)
VGPU_WARP_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef VGPU_WARP_REDUCE

} // extern "C++"
#endif
#endif
