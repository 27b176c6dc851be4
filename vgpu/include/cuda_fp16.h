// Half precision (IEEE 754 binary16): __half, __half2 and CUDA's functions on them. In C only the
// bits.
//
// Trivial types: unions, shared memory and memcpy take them. Define __CUDA_NO_HALF_CONVERSIONS__ or
// __CUDA_NO_HALF_OPERATORS__ to leave out the implicit conversions or the operators, as with CUDA.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_CUDA_FP16_H
#define VGPU_CUDA_FP16_H

#include "vector_functions.h"

typedef struct __attribute__((aligned(2))) __half_raw {
    unsigned short x;
} __half_raw;
typedef struct __attribute__((aligned(4))) __half2_raw {
    unsigned short x, y;
} __half2_raw;

#ifdef __cplusplus
#include "vgpu/float16_support.h"

extern "C++" {

#define VGPU_F16            __half
#define VGPU_F16_RAW        __half_raw
#define VGPU_F16x2          __half2
#define VGPU_F16x2_RAW      __half2_raw
#define VGPU_F16_NAME       half
#define VGPU_F16_FORMAT     vgpu_format_half
#define VGPU_F16_FROM_FLOAT vgpu_float_to_half
#define VGPU_F16_TO_FLOAT   vgpu_half_to_float
#define VGPU_F16_OTHER      __nv_bfloat16
#ifdef __CUDA_NO_HALF_CONVERSIONS__
#define VGPU_F16_NO_CONVERSIONS 1
#else
#define VGPU_F16_NO_CONVERSIONS 0
#endif
#ifdef __CUDA_NO_HALF_OPERATORS__
#define VGPU_F16_NO_OPERATORS 1
#else
#define VGPU_F16_NO_OPERATORS 0
#endif
#include "vgpu/float16.h"

} // extern "C++"

// Numbers by name.
#define CUDART_ZERO_FP16       __ushort_as_half(0x0000)
#define CUDART_NEG_ZERO_FP16   __ushort_as_half(0x8000)
#define CUDART_ONE_FP16        __ushort_as_half(0x3c00)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half(0x0001)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half(0x7bff)
#define CUDART_INF_FP16        __ushort_as_half(0x7c00)
#define CUDART_NAN_FP16        __ushort_as_half(0x7fff)

#ifndef CUDA_NO_HALF
typedef __half half;
typedef __half2 half2;
typedef __half nv_half;
typedef __half2 nv_half2;
#endif
typedef __half __nv_half;
typedef __half2 __nv_half2;
#else
typedef __half_raw __half;
typedef __half2_raw __half2;
#endif
typedef __half_raw __nv_half_raw;
typedef __half2_raw __nv_half2_raw;

#endif
