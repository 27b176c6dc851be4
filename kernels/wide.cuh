// The floats of a pack, which are computed with together. On real GPUs single operations; on
// virtual ones vectors, since a compiler for CPUs does not make them of single operations reliably.
// The same operations, each rounded once.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_WIDE_CUH
#define TUTTI_KERNELS_WIDE_CUH

#include "elements.cuh"
#ifdef VGPU_DEVICE_RUNTIME_H
#include <vgpu/float16_vectors.h>
#endif

namespace tutti
{

#ifdef VGPU_DEVICE_RUNTIME_H

template <int n> struct wide {
    typename vgpu::vectors_of<n>::floats value;
};

template <int n> __device__ __forceinline__ wide<n> add(wide<n> a, wide<n> b)
{
    return {a.value + b.value};
}
template <int n> __device__ __forceinline__ wide<n> multiply(wide<n> a, wide<n> b)
{
    return {a.value * b.value};
}
template <int n> __device__ __forceinline__ wide<n> multiply(wide<n> a, float factor)
{
    return {a.value * factor};
}
template <int n> __device__ __forceinline__ wide<n> load_wide(const float *from)
{
    wide<n> all;
    memcpy(&all, from, sizeof all);
    return all;
}
template <int n> __device__ __forceinline__ void store_wide(float *to, wide<n> all)
{
    memcpy(to, &all, sizeof all);
}

// partial[j] += the squares of x[4 * j .. 4 * j + 3], one after the other, for j = 0 .. 3.
__device__ __forceinline__ void add_squares_of_four(float *partial, const float *x)
{
    typedef vgpu::vectors_of<4>::floats floats;
    typedef vgpu::vectors_of<4>::ints ints;
    floats a = load_wide<4>(x).value, b = load_wide<4>(x + 4).value;
    floats c = load_wide<4>(x + 8).value, d = load_wide<4>(x + 12).value;
    a *= a;
    b *= b;
    c *= c;
    d *= d;
    // Element k of every group into one vector.
    floats ab_low = __builtin_shuffle(a, b, ints{0, 4, 1, 5});
    floats ab_high = __builtin_shuffle(a, b, ints{2, 6, 3, 7});
    floats cd_low = __builtin_shuffle(c, d, ints{0, 4, 1, 5});
    floats cd_high = __builtin_shuffle(c, d, ints{2, 6, 3, 7});
    floats sum = load_wide<4>(partial).value;
    sum += __builtin_shuffle(ab_low, cd_low, ints{0, 1, 4, 5});
    sum += __builtin_shuffle(ab_low, cd_low, ints{2, 3, 6, 7});
    sum += __builtin_shuffle(ab_high, cd_high, ints{0, 1, 4, 5});
    sum += __builtin_shuffle(ab_high, cd_high, ints{2, 3, 6, 7});
    store_wide<4>(partial, wide<4>{sum});
}

__device__ __forceinline__ wide<4> widen(pack<float> value)
{
    return load_wide<4>(value.element);
}
__device__ __forceinline__ wide<8> widen(pack<__half> value)
{
    vgpu::vectors_of<8>::halves bits;
    wide<8> all;
    memcpy(&bits, &value, sizeof bits);
    vgpu::half_vectors::widen<8>(all.value, bits);
    return all;
}
__device__ __forceinline__ wide<8> widen(pack<__nv_bfloat16> value)
{
    vgpu::vectors_of<8>::halves bits;
    wide<8> all;
    memcpy(&bits, &value, sizeof bits);
    vgpu::bfloat16_vectors::widen<8>(all.value, bits);
    return all;
}

__device__ __forceinline__ void narrow(pack<float> *to, wide<4> all)
{
    store_wide<4>(to->element, all);
}
__device__ __forceinline__ void narrow(pack<__half> *to, wide<8> all)
{
    vgpu::vectors_of<8>::halves bits = vgpu::half_vectors::narrow<8>(all.value);
    memcpy(to, &bits, sizeof bits);
}
__device__ __forceinline__ void narrow(pack<__nv_bfloat16> *to, wide<8> all)
{
    vgpu::vectors_of<8>::halves bits = vgpu::bfloat16_vectors::narrow<8>(all.value);
    memcpy(to, &bits, sizeof bits);
}

#else

template <int n> struct wide {
    float value[n];
};

template <int n> __device__ __forceinline__ wide<n> add(wide<n> a, wide<n> b)
{
    TUTTI_UNROLL
    for (int k = 0; k < n; k++) {
        a.value[k] = __fadd_rn(a.value[k], b.value[k]);
    }
    return a;
}
template <int n> __device__ __forceinline__ wide<n> multiply(wide<n> a, wide<n> b)
{
    TUTTI_UNROLL
    for (int k = 0; k < n; k++) {
        a.value[k] = __fmul_rn(a.value[k], b.value[k]);
    }
    return a;
}
template <int n> __device__ __forceinline__ wide<n> multiply(wide<n> a, float factor)
{
    TUTTI_UNROLL
    for (int k = 0; k < n; k++) {
        a.value[k] = __fmul_rn(a.value[k], factor);
    }
    return a;
}
template <int n> __device__ __forceinline__ wide<n> load_wide(const float *from)
{
    wide<n> all;
    TUTTI_UNROLL
    for (int k = 0; k < n; k++) {
        all.value[k] = from[k];
    }
    return all;
}
template <int n> __device__ __forceinline__ void store_wide(float *to, wide<n> all)
{
    TUTTI_UNROLL
    for (int k = 0; k < n; k++) {
        to[k] = all.value[k];
    }
}

// Two elements of 16 bits from a word, and back, rounded to the nearest once.
__device__ __forceinline__ void widen_two(float *to, __half2 two)
{
    float2 value = __half22float2(two);
    to[0] = value.x;
    to[1] = value.y;
}
__device__ __forceinline__ void widen_two(float *to, __nv_bfloat162 two)
{
    unsigned bits;
    memcpy(&bits, &two, sizeof bits);
    to[0] = __uint_as_float(bits << 16);
    to[1] = __uint_as_float(bits & 0xffff0000u);
}
__device__ __forceinline__ void narrow_two(__half2 *to, const float *two)
{
    *to = __floats2half2_rn(two[0], two[1]);
}
__device__ __forceinline__ void narrow_two(__nv_bfloat162 *to, const float *two)
{
    *to = __floats2bfloat162_rn(two[0], two[1]);
}

template <typename T> struct pair_of;
template <> struct pair_of<__half> {
    typedef __half2 type;
};
template <> struct pair_of<__nv_bfloat16> {
    typedef __nv_bfloat162 type;
};

__device__ __forceinline__ wide<4> widen(const pack<float> &value)
{
    return load_wide<4>(value.element);
}
template <typename T> __device__ __forceinline__ wide<8> widen(const pack<T> &value)
{
    typename pair_of<T>::type two[4];
    wide<8> all;
    memcpy(two, &value, sizeof two);
    TUTTI_UNROLL
    for (int k = 0; k < 4; k++) {
        widen_two(all.value + 2 * k, two[k]);
    }
    return all;
}
__device__ __forceinline__ void narrow(pack<float> *to, const wide<4> &all)
{
    store_wide<4>(to->element, all);
}
template <typename T> __device__ __forceinline__ void narrow(pack<T> *to, const wide<8> &all)
{
    typename pair_of<T>::type two[4];
    TUTTI_UNROLL
    for (int k = 0; k < 4; k++) {
        narrow_two(&two[k], all.value + 2 * k);
    }
    memcpy(to, two, sizeof two);
}

#endif

} // namespace tutti
#endif
