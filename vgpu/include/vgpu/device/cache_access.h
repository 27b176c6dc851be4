// Loads and stores with a cache hint (__ldg, __ldcg, __stwt, ...): the hint means nothing here, the
// width does. A volatile load (__ldcv) is also a place where other threads may run, since programs
// poll with it. Address-space questions too.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_CACHE_ACCESS_H
#define VGPU_DEVICE_CACHE_ACCESS_H

#include "common.h"

#ifdef __cplusplus
extern "C++" {

#define VGPU_LOAD(name)                                                                            \
    template <class Value> inline Value name(const Value *address)                                 \
    {                                                                                              \
        return vgpu::load(address);                                                                \
    }
#define VGPU_STORE(name)                                                                           \
    template <class Value> inline void name(Value *address, Value value)                           \
    {                                                                                              \
        vgpu::store(address, value);                                                               \
    }
VGPU_LOAD(__ldg)
VGPU_LOAD(__ldca)
VGPU_LOAD(__ldcg)
VGPU_LOAD(__ldcs)
VGPU_LOAD(__ldlu)
VGPU_STORE(__stwb)
VGPU_STORE(__stcg)
VGPU_STORE(__stcs)
VGPU_STORE(__stwt)
#undef VGPU_LOAD
#undef VGPU_STORE

namespace vgpu
{

// One to eight bytes as one relaxed atomic access; wider ones are naturally aligned vectors.
template <class Value,
          bool is_small = (sizeof(Value) <= 8 && (sizeof(Value) & (sizeof(Value) - 1)) == 0)>
struct volatile_access {
    static Value load(const Value *address)
    {
        Value value;
        __atomic_load(const_cast<Value *>(address), &value, __ATOMIC_RELAXED);
        return value;
    }
};
template <class Value> struct volatile_access<Value, false> {
    static Value load(const Value *address)
    {
        return vgpu::load(address);
    }
};

} // namespace vgpu

template <class Value> inline Value __ldcv(const Value *address)
{
    Value value = vgpu::volatile_access<Value>::load(address);
    vgpu_yield();
    return value;
}

// One address space: every conversion keeps the address. So an address of shared memory needs 64
// bits here; a program that keeps only 32 of them loses it.
VGPU_FUNCTION size_t __cvta_generic_to_global(const void *pointer)
{
    return reinterpret_cast<size_t>(pointer);
}
namespace vgpu
{
// The last address that the thread of the machine converted; 0: none yet.
inline uintptr_t &last_shared_address()
{
    static thread_local uintptr_t address;
    return address;
}
} // namespace vgpu
VGPU_FUNCTION size_t __cvta_generic_to_shared(const void *pointer)
{
    vgpu::last_shared_address() = reinterpret_cast<uintptr_t>(pointer);
    return reinterpret_cast<size_t>(pointer);
}
VGPU_FUNCTION size_t __cvta_generic_to_constant(const void *pointer)
{
    return reinterpret_cast<size_t>(pointer);
}
VGPU_FUNCTION size_t __cvta_generic_to_local(const void *pointer)
{
    return reinterpret_cast<size_t>(pointer);
}
VGPU_FUNCTION void *__cvta_global_to_generic(size_t address)
{
    return reinterpret_cast<void *>(address);
}
VGPU_FUNCTION void *__cvta_shared_to_generic(size_t address)
{
    return reinterpret_cast<void *>(address);
}

} // extern "C++"
#endif
#endif
