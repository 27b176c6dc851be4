// Multicast accesses of 16 bytes, as PTX: a load returns the sum over all ranks, a store writes to
// all of them. Half and bfloat16 are added in float and rounded once by the load itself. Needs
// compute capability 9.0; the order of the hardware's additions is its own, on virtual GPUs it is
// rank order.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_MULTIMEM_CUH
#define TUTTI_KERNELS_MULTIMEM_CUH

#include "elements.cuh"

namespace tutti
{

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__device__ __forceinline__ pack<float> multimem_sum(const float *address)
{
    pack<float> sum;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(sum.element[0]), "=f"(sum.element[1]), "=f"(sum.element[2]),
                   "=f"(sum.element[3])
                 : "l"(address)
                 : "memory");
    return sum;
}

__device__ __forceinline__ pack<__half> multimem_sum(const __half *address)
{
    unsigned bits[4];
    asm volatile(
        "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 {%0, %1, %2, %3}, [%4];"
        : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3])
        : "l"(address)
        : "memory");
    pack<__half> sum;
    memcpy(&sum, bits, sizeof sum);
    return sum;
}

__device__ __forceinline__ pack<__nv_bfloat16> multimem_sum(const __nv_bfloat16 *address)
{
    unsigned bits[4];
    asm volatile(
        "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 {%0, %1, %2, %3}, [%4];"
        : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3])
        : "l"(address)
        : "memory");
    pack<__nv_bfloat16> sum;
    memcpy(&sum, bits, sizeof sum);
    return sum;
}

template <typename T> __device__ __forceinline__ void multimem_store(T *address, pack<T> value)
{
    float bits[4];
    memcpy(bits, &value, sizeof bits);
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(address), "f"(bits[0]), "f"(bits[1]), "f"(bits[2]), "f"(bits[3])
                 : "memory");
}
#else
// Kernels for older targets compile, but must not be launched: the host checks multimemSupport.
template <typename T> __device__ __forceinline__ pack<T> multimem_sum(const T *)
{
    __trap();
    return pack<T>();
}
template <typename T> __device__ __forceinline__ void multimem_store(T *, pack<T>)
{
    __trap();
}
#endif

} // namespace tutti
#endif
