// Atomic functions: atomicAdd and its relatives, with block, device and system scope (one and the
// same here).
//
// All are relaxed, as CUDA's are. One that can only be a poll (it changed nothing, or could not
// have) lets other threads run, so that spin locks and flags make progress.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_ATOMICS_H
#define VGPU_DEVICE_ATOMICS_H

#include "common.h"

#ifdef __cplusplus
extern "C++" {

namespace vgpu
{

template <int bytes> struct bits_of;
template <> struct bits_of<2> {
    typedef uint16_t type;
};
template <> struct bits_of<4> {
    typedef uint32_t type;
};
template <> struct bits_of<8> {
    typedef uint64_t type;
};

// *address = f(*address), atomically; returns the old value. Value: 2, 4 or 8 bytes.
template <class Value, class Function> inline Value atomic_update(Value *address, Function f)
{
    typedef typename bits_of<sizeof(Value)>::type bits;
    typedef bits __attribute__((may_alias)) aliasing_bits;
    aliasing_bits *word = reinterpret_cast<aliasing_bits *>(address);
    bits old = __atomic_load_n(word, __ATOMIC_RELAXED);
    for (;;) {
        Value value = bit_cast<Value>(old);
        bits wanted = bit_cast<bits>(static_cast<Value>(f(value)));
        if (__atomic_compare_exchange_n(word, &old, wanted, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            return value;
    }
}

// A read-modify-write that left memory as it was is a poll.
inline void poll(bool unchanged)
{
    if (unchanged)
        vgpu_yield();
}

template <class Value> inline Value atomic_add(Value *address, Value value)
{
    Value old = __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
    poll(value == 0);
    return old;
}
template <class Value> inline Value atomic_exchange(Value *address, Value value)
{
    Value old = __atomic_exchange_n(address, value, __ATOMIC_RELAXED);
    poll(old == value);
    return old;
}
template <class Value>
inline Value atomic_compare_exchange(Value *address, Value expected, Value value)
{
    Value old = expected;
    bool stored = __atomic_compare_exchange_n(address, &old, value, false, __ATOMIC_RELAXED,
                                              __ATOMIC_RELAXED);
    poll(!stored || expected == value);
    return old;
}
template <class Value> inline Value atomic_min(Value *address, Value value)
{
    Value old = atomic_update(address, [value](Value x) { return value < x ? value : x; });
    poll(!(value < old));
    return old;
}
template <class Value> inline Value atomic_max(Value *address, Value value)
{
    Value old = atomic_update(address, [value](Value x) { return x < value ? value : x; });
    poll(!(old < value));
    return old;
}

} // namespace vgpu

// One function in its three scopes: name, name_block, name_system.
#define VGPU_ATOMIC(name, type, expression)                                                        \
    VGPU_FUNCTION type name(type *address, type value)                                             \
    {                                                                                              \
        return expression;                                                                         \
    }                                                                                              \
    VGPU_FUNCTION type name##_block(type *address, type value)                                     \
    {                                                                                              \
        return expression;                                                                         \
    }                                                                                              \
    VGPU_FUNCTION type name##_system(type *address, type value)                                    \
    {                                                                                              \
        return expression;                                                                         \
    }

VGPU_ATOMIC(atomicAdd, int, vgpu::atomic_add(address, value))
VGPU_ATOMIC(atomicAdd, unsigned int, vgpu::atomic_add(address, value))
VGPU_ATOMIC(atomicAdd, unsigned long long, vgpu::atomic_add(address, value))
VGPU_ATOMIC(atomicAdd, float, vgpu::atomic_update(address, [value](float x) { return x + value; }))
VGPU_ATOMIC(atomicAdd, double,
            vgpu::atomic_update(address, [value](double x) { return x + value; }))
VGPU_ATOMIC(atomicSub, int,
            vgpu::atomic_add(address, static_cast<int>(0u - static_cast<unsigned>(value))))
VGPU_ATOMIC(atomicSub, unsigned int, vgpu::atomic_add(address, 0u - value))
VGPU_ATOMIC(atomicSub, unsigned long long, vgpu::atomic_add(address, 0ull - value))
VGPU_ATOMIC(atomicExch, int, vgpu::atomic_exchange(address, value))
VGPU_ATOMIC(atomicExch, unsigned int, vgpu::atomic_exchange(address, value))
VGPU_ATOMIC(atomicExch, unsigned long long, vgpu::atomic_exchange(address, value))
VGPU_ATOMIC(atomicExch, float,
            vgpu::bit_cast<float>(vgpu::atomic_exchange(reinterpret_cast<unsigned *>(address),
                                                        vgpu::bit_cast<unsigned>(value))))
VGPU_ATOMIC(atomicMin, int, vgpu::atomic_min(address, value))
VGPU_ATOMIC(atomicMin, unsigned int, vgpu::atomic_min(address, value))
VGPU_ATOMIC(atomicMin, long long, vgpu::atomic_min(address, value))
VGPU_ATOMIC(atomicMin, unsigned long long, vgpu::atomic_min(address, value))
VGPU_ATOMIC(atomicMax, int, vgpu::atomic_max(address, value))
VGPU_ATOMIC(atomicMax, unsigned int, vgpu::atomic_max(address, value))
VGPU_ATOMIC(atomicMax, long long, vgpu::atomic_max(address, value))
VGPU_ATOMIC(atomicMax, unsigned long long, vgpu::atomic_max(address, value))
// Counters that wrap: up from `value` to 0, down from 0 (or above `value`) to `value`.
VGPU_ATOMIC(atomicInc, unsigned int,
            vgpu::atomic_update(address, [value](unsigned x) { return x >= value ? 0u : x + 1u; }))
VGPU_ATOMIC(atomicDec, unsigned int, vgpu::atomic_update(address, [value](unsigned x) {
                return x == 0u || x > value ? value : x - 1u;
            }))

namespace vgpu
{

template <class Value> inline Value atomic_and(Value *address, Value value)
{
    Value old = __atomic_fetch_and(address, value, __ATOMIC_RELAXED);
    poll((old & value) == old);
    return old;
}
template <class Value> inline Value atomic_or(Value *address, Value value)
{
    Value old = __atomic_fetch_or(address, value, __ATOMIC_RELAXED);
    poll((old | value) == old);
    return old;
}
template <class Value> inline Value atomic_xor(Value *address, Value value)
{
    Value old = __atomic_fetch_xor(address, value, __ATOMIC_RELAXED);
    poll(value == 0);
    return old;
}

} // namespace vgpu

#define VGPU_ATOMIC_BITS(type)                                                                     \
    VGPU_ATOMIC(atomicAnd, type, vgpu::atomic_and(address, value))                                 \
    VGPU_ATOMIC(atomicOr, type, vgpu::atomic_or(address, value))                                   \
    VGPU_ATOMIC(atomicXor, type, vgpu::atomic_xor(address, value))
VGPU_ATOMIC_BITS(int)
VGPU_ATOMIC_BITS(unsigned int)
VGPU_ATOMIC_BITS(unsigned long long)
#undef VGPU_ATOMIC_BITS

#define VGPU_ATOMIC_CAS(name, type)                                                                \
    VGPU_FUNCTION type name(type *address, type expected, type value)                              \
    {                                                                                              \
        return vgpu::atomic_compare_exchange(address, expected, value);                            \
    }
#define VGPU_ATOMIC_CAS_SCOPES(type)                                                               \
    VGPU_ATOMIC_CAS(atomicCAS, type)                                                               \
    VGPU_ATOMIC_CAS(atomicCAS_block, type)                                                         \
    VGPU_ATOMIC_CAS(atomicCAS_system, type)
VGPU_ATOMIC_CAS_SCOPES(int)
VGPU_ATOMIC_CAS_SCOPES(unsigned int)
VGPU_ATOMIC_CAS_SCOPES(unsigned long long)
VGPU_ATOMIC_CAS_SCOPES(unsigned short)
#undef VGPU_ATOMIC_CAS_SCOPES
#undef VGPU_ATOMIC_CAS

// Each component on its own is atomic, as on a GPU.
VGPU_FUNCTION float2 atomicAdd(float2 *address, float2 value)
{
    float2 old;
    old.x = atomicAdd(&address->x, value.x);
    old.y = atomicAdd(&address->y, value.y);
    return old;
}
VGPU_FUNCTION float4 atomicAdd(float4 *address, float4 value)
{
    float4 old;
    old.x = atomicAdd(&address->x, value.x);
    old.y = atomicAdd(&address->y, value.y);
    old.z = atomicAdd(&address->z, value.z);
    old.w = atomicAdd(&address->w, value.w);
    return old;
}

} // extern "C++"
#endif
#endif
