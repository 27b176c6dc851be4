// Atomic functions on 16 bytes (any such type) and on vectors of floats, in all scopes.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_WIDE_ATOMICS_H
#define VGPU_DEVICE_WIDE_ATOMICS_H

#include "../atomic16.h"
#include "atomics.h"

#ifdef __cplusplus
#include <type_traits>
extern "C++" {

namespace vgpu
{

template <class Value>
using if_wide = typename std::enable_if<sizeof(Value) == 16 && alignof(Value) >= 16 &&
                                            std::is_trivially_copyable<Value>::value,
                                        Value>::type;

template <class Value>
inline Value compare_exchange_wide(Value *address, Value expected, const Value &value)
{
    bool stored = compare_exchange16(address, &expected, &value);
    poll(!stored || memcmp(&expected, &value, 16) == 0);
    return expected;
}
template <class Value> inline Value exchange_wide(Value *address, const Value &value)
{
    Value old;
    load16(address, &old, __ATOMIC_RELAXED);
    while (!compare_exchange16(address, &old, &value)) {
    }
    poll(memcmp(&old, &value, 16) == 0);
    return old;
}

} // namespace vgpu

#define VGPU_ATOMIC_WIDE(scope)                                                                    \
    template <class Value>                                                                         \
    inline vgpu::if_wide<Value> atomicCAS##scope(Value *address, Value expected, Value value)      \
    {                                                                                              \
        return vgpu::compare_exchange_wide(address, expected, value);                              \
    }                                                                                              \
    template <class Value>                                                                         \
    inline vgpu::if_wide<Value> atomicExch##scope(Value *address, Value value)                     \
    {                                                                                              \
        return vgpu::exchange_wide(address, value);                                                \
    }                                                                                              \
    /* Each component on its own is atomic, as on a GPU. */                                        \
    VGPU_FUNCTION float2 atomicAdd##scope(float2 *address, float2 value)                           \
    {                                                                                              \
        float2 old;                                                                                \
        old.x = atomicAdd(&address->x, value.x);                                                   \
        old.y = atomicAdd(&address->y, value.y);                                                   \
        return old;                                                                                \
    }                                                                                              \
    VGPU_FUNCTION float4 atomicAdd##scope(float4 *address, float4 value)                           \
    {                                                                                              \
        float4 old;                                                                                \
        old.x = atomicAdd(&address->x, value.x);                                                   \
        old.y = atomicAdd(&address->y, value.y);                                                   \
        old.z = atomicAdd(&address->z, value.z);                                                   \
        old.w = atomicAdd(&address->w, value.w);                                                   \
        return old;                                                                                \
    }
VGPU_ATOMIC_WIDE()
VGPU_ATOMIC_WIDE(_block)
VGPU_ATOMIC_WIDE(_system)
#undef VGPU_ATOMIC_WIDE

} // extern "C++"
#endif
#endif
