// Elements of rows: conversion to float and back, and accesses of 16 bytes. One source for nvcc and
// tutticc.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_ELEMENTS_CUH
#define TUTTI_KERNELS_ELEMENTS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <string.h>

// Unrolls the loop that follows.
#ifdef VGPU_DEVICE_RUNTIME_H
#define TUTTI_UNROLL _Pragma("GCC unroll 32")
#else
#define TUTTI_UNROLL _Pragma("unroll")
#endif

namespace tutti
{

__host__ __device__ __forceinline__ float to_float(float value)
{
    return value;
}
__host__ __device__ __forceinline__ float to_float(__half value)
{
    return __half2float(value);
}
__host__ __device__ __forceinline__ float to_float(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}

// Rounds to the nearest, once.
__host__ __device__ __forceinline__ void from_float(float *to, float value)
{
    *to = value;
}
__host__ __device__ __forceinline__ void from_float(__half *to, float value)
{
    *to = __float2half_rn(value);
}
__host__ __device__ __forceinline__ void from_float(__nv_bfloat16 *to, float value)
{
    *to = __float2bfloat16_rn(value);
}

// Elements in 16 bytes.
template <typename T> constexpr int pack_size = 16 / (int)sizeof(T);

// What one access of 16 bytes moves.
template <typename T> struct alignas(16) pack {
    T element[pack_size<T>];
};

template <typename T> __device__ __forceinline__ pack<T> load_pack(const T *from)
{
    float4 bits = *reinterpret_cast<const float4 *>(from);
    pack<T> value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <typename T> __device__ __forceinline__ void store_pack(T *to, pack<T> value)
{
    float4 bits;
    memcpy(&bits, &value, sizeof bits);
    *reinterpret_cast<float4 *>(to) = bits;
}

// Whether all of several addresses are aligned to 16 bytes.
__device__ __forceinline__ bool is_pack_aligned(size_t combined_addresses)
{
    return combined_addresses % 16 == 0;
}

} // namespace tutti
#endif
