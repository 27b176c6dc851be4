// Loads and stores with a cache hint (__ldg, __ldcg, __stwt, ...): the hint means nothing here, the
// width does. A volatile load (__ldcv) is also a place where other threads may run, since programs
// poll with it.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_CACHE_ACCESS_H
#define VGPU_DEVICE_CACHE_ACCESS_H

#include "common.h"

#ifdef __cplusplus
extern "C++" {

#define VGPU_LOAD(name)                                                                            \
    template <class T> inline T name(const T *address)                                             \
    {                                                                                              \
        return vgpu::load(address);                                                                \
    }
#define VGPU_STORE(name)                                                                           \
    template <class T> inline void name(T *address, T value)                                       \
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
template <class T, bool is_small = (sizeof(T) <= 8 && (sizeof(T) & (sizeof(T) - 1)) == 0)>
struct volatile_access {
    static T load(const T *address)
    {
        T value;
        __atomic_load(const_cast<T *>(address), &value, __ATOMIC_RELAXED);
        return value;
    }
};
template <class T> struct volatile_access<T, false> {
    static T load(const T *address)
    {
        return vgpu::load(address);
    }
};

} // namespace vgpu

template <class T> inline T __ldcv(const T *address)
{
    T value = vgpu::volatile_access<T>::load(address);
    vgpu_yield();
    return value;
}

} // extern "C++"
#endif
#endif
