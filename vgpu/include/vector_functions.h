// make_float4 and its relatives: one constructor function for each vector type.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_VECTOR_FUNCTIONS_H
#define VGPU_VECTOR_FUNCTIONS_H

#include "vector_types.h"

#define VGPU_MAKE_VECTORS(name, type)                                                              \
    static inline __attribute__((unused)) name##1 make_##name##1(type x)                           \
    {                                                                                              \
        name##1 v = {x};                                                                           \
        return v;                                                                                  \
    }                                                                                              \
    static inline __attribute__((unused)) name##2 make_##name##2(type x, type y)                   \
    {                                                                                              \
        name##2 v = {x, y};                                                                        \
        return v;                                                                                  \
    }                                                                                              \
    static inline __attribute__((unused)) name##3 make_##name##3(type x, type y, type z)           \
    {                                                                                              \
        name##3 v = {x, y, z};                                                                     \
        return v;                                                                                  \
    }                                                                                              \
    VGPU_MAKE_VECTOR4(name##4, type)
#define VGPU_MAKE_VECTOR4(name, type)                                                              \
    static inline __attribute__((unused)) name make_##name(type x, type y, type z, type w)         \
    {                                                                                              \
        name v = {x, y, z, w};                                                                     \
        return v;                                                                                  \
    }

VGPU_MAKE_VECTORS(char, signed char)
VGPU_MAKE_VECTORS(uchar, unsigned char)
VGPU_MAKE_VECTORS(short, short)
VGPU_MAKE_VECTORS(ushort, unsigned short)
VGPU_MAKE_VECTORS(int, int)
VGPU_MAKE_VECTORS(uint, unsigned int)
VGPU_MAKE_VECTORS(long, long)
VGPU_MAKE_VECTORS(ulong, unsigned long)
VGPU_MAKE_VECTORS(longlong, long long)
VGPU_MAKE_VECTORS(ulonglong, unsigned long long)
VGPU_MAKE_VECTORS(float, float)
VGPU_MAKE_VECTORS(double, double)
VGPU_MAKE_VECTOR4(long4_16a, long)
VGPU_MAKE_VECTOR4(long4_32a, long)
VGPU_MAKE_VECTOR4(ulong4_16a, unsigned long)
VGPU_MAKE_VECTOR4(ulong4_32a, unsigned long)
VGPU_MAKE_VECTOR4(longlong4_16a, long long)
VGPU_MAKE_VECTOR4(longlong4_32a, long long)
VGPU_MAKE_VECTOR4(ulonglong4_16a, unsigned long long)
VGPU_MAKE_VECTOR4(ulonglong4_32a, unsigned long long)
VGPU_MAKE_VECTOR4(double4_16a, double)
VGPU_MAKE_VECTOR4(double4_32a, double)
#undef VGPU_MAKE_VECTORS
#undef VGPU_MAKE_VECTOR4

#endif
