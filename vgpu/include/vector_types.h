// CUDA's short vectors (float4, uint3, ...) and dim3, in C and C++.
//
// Sizes and alignments are the GPU's: two and four components are aligned to their size, 16 bytes
// at most (the _16a and _32a names choose the alignment of 32-byte vectors); three components align
// as one. All are trivial: unions, shared memory and memcpy take them, and a copy of an aligned
// 16-byte vector is one instruction when optimised. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_VECTOR_TYPES_H
#define VGPU_VECTOR_TYPES_H

#include "crt/host_defines.h"

#define VGPU_VECTOR1(name, type)                                                                   \
    typedef struct name {                                                                          \
        type x;                                                                                    \
    } name;
#define VGPU_VECTOR2(name, type, alignment)                                                        \
    typedef struct __attribute__((aligned(alignment))) name {                                      \
        type x, y;                                                                                 \
    } name;
#define VGPU_VECTOR3(name, type)                                                                   \
    typedef struct name {                                                                          \
        type x, y, z;                                                                              \
    } name;
#define VGPU_VECTOR4(name, type, alignment)                                                        \
    typedef struct __attribute__((aligned(alignment))) name {                                      \
        type x, y, z, w;                                                                           \
    } name;

VGPU_VECTOR1(char1, signed char)
VGPU_VECTOR2(char2, signed char, 2)
VGPU_VECTOR3(char3, signed char)
VGPU_VECTOR4(char4, signed char, 4)
VGPU_VECTOR1(uchar1, unsigned char)
VGPU_VECTOR2(uchar2, unsigned char, 2)
VGPU_VECTOR3(uchar3, unsigned char)
VGPU_VECTOR4(uchar4, unsigned char, 4)
VGPU_VECTOR1(short1, short)
VGPU_VECTOR2(short2, short, 4)
VGPU_VECTOR3(short3, short)
VGPU_VECTOR4(short4, short, 8)
VGPU_VECTOR1(ushort1, unsigned short)
VGPU_VECTOR2(ushort2, unsigned short, 4)
VGPU_VECTOR3(ushort3, unsigned short)
VGPU_VECTOR4(ushort4, unsigned short, 8)
VGPU_VECTOR1(int1, int)
VGPU_VECTOR2(int2, int, 8)
VGPU_VECTOR3(int3, int)
VGPU_VECTOR4(int4, int, 16)
VGPU_VECTOR1(uint1, unsigned int)
VGPU_VECTOR2(uint2, unsigned int, 8)
VGPU_VECTOR3(uint3, unsigned int)
VGPU_VECTOR4(uint4, unsigned int, 16)
VGPU_VECTOR1(long1, long)
VGPU_VECTOR2(long2, long, 16)
VGPU_VECTOR3(long3, long)
VGPU_VECTOR4(long4, long, 16)
VGPU_VECTOR4(long4_16a, long, 16)
VGPU_VECTOR4(long4_32a, long, 32)
VGPU_VECTOR1(ulong1, unsigned long)
VGPU_VECTOR2(ulong2, unsigned long, 16)
VGPU_VECTOR3(ulong3, unsigned long)
VGPU_VECTOR4(ulong4, unsigned long, 16)
VGPU_VECTOR4(ulong4_16a, unsigned long, 16)
VGPU_VECTOR4(ulong4_32a, unsigned long, 32)
VGPU_VECTOR1(longlong1, long long)
VGPU_VECTOR2(longlong2, long long, 16)
VGPU_VECTOR3(longlong3, long long)
VGPU_VECTOR4(longlong4, long long, 16)
VGPU_VECTOR4(longlong4_16a, long long, 16)
VGPU_VECTOR4(longlong4_32a, long long, 32)
VGPU_VECTOR1(ulonglong1, unsigned long long)
VGPU_VECTOR2(ulonglong2, unsigned long long, 16)
VGPU_VECTOR3(ulonglong3, unsigned long long)
VGPU_VECTOR4(ulonglong4, unsigned long long, 16)
VGPU_VECTOR4(ulonglong4_16a, unsigned long long, 16)
VGPU_VECTOR4(ulonglong4_32a, unsigned long long, 32)
VGPU_VECTOR1(float1, float)
VGPU_VECTOR2(float2, float, 8)
VGPU_VECTOR3(float3, float)
VGPU_VECTOR4(float4, float, 16)
VGPU_VECTOR1(double1, double)
VGPU_VECTOR2(double2, double, 16)
VGPU_VECTOR3(double3, double)
VGPU_VECTOR4(double4, double, 16)
VGPU_VECTOR4(double4_16a, double, 16)
VGPU_VECTOR4(double4_32a, double, 32)

#undef VGPU_VECTOR1
#undef VGPU_VECTOR2
#undef VGPU_VECTOR3
#undef VGPU_VECTOR4

// Extents of a grid or a block. In C++ missing components are 1 and a single number converts.
struct dim3 {
    unsigned int x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1)
        : x(vx), y(vy), z(vz)
    {
    }
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const
    {
        return uint3{x, y, z};
    }
#endif
};
typedef struct dim3 dim3;

#endif
