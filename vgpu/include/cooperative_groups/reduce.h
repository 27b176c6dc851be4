// cooperative_groups::reduce: combines one value per thread of a tile; every thread gets the
// result. The value is combined along a binary tree over ranks, the same in every run.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_COOPERATIVE_GROUPS_REDUCE_H
#define VGPU_COOPERATIVE_GROUPS_REDUCE_H

#include "../cooperative_groups.h"

#if defined(__cplusplus) && defined(__CUDACC__)
extern "C++" {
namespace cooperative_groups
{

#define VGPU_GROUP_OPERATION(name, expression)                                                     \
    template <class Value = void> struct name {                                                    \
        Value operator()(Value a, Value b) const                                                   \
        {                                                                                          \
            return static_cast<Value>(expression);                                                 \
        }                                                                                          \
    };
VGPU_GROUP_OPERATION(plus, a + b)
VGPU_GROUP_OPERATION(less, b < a ? b : a)
VGPU_GROUP_OPERATION(greater, a < b ? b : a)
VGPU_GROUP_OPERATION(bit_and, a &b)
VGPU_GROUP_OPERATION(bit_or, a | b)
VGPU_GROUP_OPERATION(bit_xor, a ^ b)
#undef VGPU_GROUP_OPERATION

template <unsigned Size, class Parent, class Value, class Function>
inline Value reduce(const thread_block_tile<Size, Parent> &tile, Value value, Function combine)
{
    // The lower rank's value is the left operand, so that all threads compute the same expression.
    for (unsigned distance = 1; distance < Size; distance *= 2) {
        Value other = tile.shfl_xor(value, distance);
        value =
            (tile.thread_rank() & distance) != 0 ? combine(other, value) : combine(value, other);
    }
    return value;
}

} // namespace cooperative_groups
} // extern "C++"
#endif
#endif
