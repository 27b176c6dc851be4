// bfloat16 (the upper half of a float): __nv_bfloat16, __nv_bfloat162 and CUDA's functions on them.
// In C only the bits.
//
// Trivial types, as in cuda_fp16.h; __CUDA_NO_BFLOAT16_CONVERSIONS__ and
// __CUDA_NO_BFLOAT16_OPERATORS__ likewise.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_CUDA_BF16_H
#define VGPU_CUDA_BF16_H

#include "cuda_fp16.h"

typedef struct __attribute__((aligned(2))) __nv_bfloat16_raw {
    unsigned short x;
} __nv_bfloat16_raw;
typedef struct __attribute__((aligned(4))) __nv_bfloat162_raw {
    unsigned short x, y;
} __nv_bfloat162_raw;

#ifdef __cplusplus
extern "C++" {

#define VGPU_F16            __nv_bfloat16
#define VGPU_F16_RAW        __nv_bfloat16_raw
#define VGPU_F16x2          __nv_bfloat162
#define VGPU_F16x2_RAW      __nv_bfloat162_raw
#define VGPU_F16_NAME       bfloat16
#define VGPU_F16_FORMAT     vgpu_format_bfloat16
#define VGPU_F16_FROM_FLOAT vgpu_float_to_bfloat16
#define VGPU_F16_TO_FLOAT   vgpu_bfloat16_to_float
#define VGPU_F16_OTHER      __half
#ifdef __CUDA_NO_BFLOAT16_CONVERSIONS__
#define VGPU_F16_NO_CONVERSIONS 1
#else
#define VGPU_F16_NO_CONVERSIONS 0
#endif
#ifdef __CUDA_NO_BFLOAT16_OPERATORS__
#define VGPU_F16_NO_OPERATORS 1
#else
#define VGPU_F16_NO_OPERATORS 0
#endif
#include "vgpu/float16.h"

inline __half::__half(__nv_bfloat16 other)
    : __x(vgpu_float_to_half(vgpu_bfloat16_to_float(other.__x)))
{
}
inline __nv_bfloat16::__nv_bfloat16(__half other)
    : __x(vgpu_float_to_bfloat16(vgpu_half_to_float(other.__x)))
{
}

} // extern "C++"

// Numbers by name.
#define CUDART_ZERO_BF16       __ushort_as_bfloat16(0x0000)
#define CUDART_NEG_ZERO_BF16   __ushort_as_bfloat16(0x8000)
#define CUDART_ONE_BF16        __ushort_as_bfloat16(0x3f80)
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16(0x0001)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16(0x7f7f)
#define CUDART_INF_BF16        __ushort_as_bfloat16(0x7f80)
#define CUDART_NAN_BF16        __ushort_as_bfloat16(0x7fff)

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
#else
typedef __nv_bfloat16_raw __nv_bfloat16;
typedef __nv_bfloat162_raw __nv_bfloat162;
#endif

#endif
