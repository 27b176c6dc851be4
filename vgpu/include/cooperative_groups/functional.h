// The operations that groups reduce and scan with. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_COOPERATIVE_GROUPS_FUNCTIONAL_H
#define VGPU_COOPERATIVE_GROUPS_FUNCTIONAL_H

#include "../cooperative_groups.h"

#if defined(__cplusplus) && defined(__CUDACC__)
extern "C++" {
namespace cooperative_groups
{

// Also called with arguments of another type than Value, in that type.
#define VGPU_GROUP_OPERATION(name, expression)                                                     \
    template <class Value = void> struct name {                                                    \
        template <class Other> Other operator()(const Other &a, const Other &b) const              \
        {                                                                                          \
            return static_cast<Other>(expression);                                                 \
        }                                                                                          \
    };
VGPU_GROUP_OPERATION(plus, a + b)
VGPU_GROUP_OPERATION(less, b < a ? b : a)
VGPU_GROUP_OPERATION(greater, a < b ? b : a)
VGPU_GROUP_OPERATION(bit_and, a &b)
VGPU_GROUP_OPERATION(bit_or, a | b)
VGPU_GROUP_OPERATION(bit_xor, a ^ b)
#undef VGPU_GROUP_OPERATION

namespace vgpu_detail
{
// *destination = combine(*destination, value), atomically; the old value. Destination: cuda::atomic
// or cuda::atomic_ref.
template <class Destination, class Value, class Function>
inline Value atomic_combine(Destination &destination, const Value &value, Function &combine)
{
    typedef typename std::decay<decltype(destination.load())>::type held;
    held old = destination.load();
    while (!destination.compare_exchange_weak(
        old, static_cast<held>(combine(static_cast<Value>(old), value)))) {
    }
    return static_cast<Value>(old);
}
} // namespace vgpu_detail

} // namespace cooperative_groups
} // extern "C++"
#endif
#endif
