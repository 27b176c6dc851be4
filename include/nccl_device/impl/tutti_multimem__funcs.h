// Bodies of tutti_multimem.h: which instruction adds which type. Vectors that the hardware does not
// add at once (double, integers) are added piece by piece. SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_TUTTI_MULTIMEM__FUNCS_H_
#define NCCL_DEVICE_TUTTI_MULTIMEM__FUNCS_H_

#include "../tutti_multimem.h"

#if NCCL_CHECK_CUDACC
namespace nccl
{
namespace utility
{

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// One 32-bit word of packed elements; 2 and 4 words at once.
#define TUTTI_MULTIMEM_PACKED(function, instruction, type)                                         \
    NCCL_DEVICE_INLINE void function(uint32_t *value, const char *address, SizeTag<1>)             \
    {                                                                                              \
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add" instruction type " %0, [%1];"     \
                     : "=r"(value[0])                                                              \
                     : "l"(address)                                                                \
                     : "memory");                                                                  \
    }                                                                                              \
    NCCL_DEVICE_INLINE void function(uint32_t *value, const char *address, SizeTag<2>)             \
    {                                                                                              \
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add" instruction ".v2" type            \
                     " {%0, %1}, [%2];"                                                            \
                     : "=r"(value[0]), "=r"(value[1])                                              \
                     : "l"(address)                                                                \
                     : "memory");                                                                  \
    }                                                                                              \
    NCCL_DEVICE_INLINE void function(uint32_t *value, const char *address, SizeTag<4>)             \
    {                                                                                              \
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add" instruction ".v4" type            \
                     " {%0, %1, %2, %3}, [%4];"                                                    \
                     : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3])              \
                     : "l"(address)                                                                \
                     : "memory");                                                                  \
    }

template <int words> struct SizeTag {
};

TUTTI_MULTIMEM_PACKED(multimemSumHalf, ".acc::f32", ".f16x2")
TUTTI_MULTIMEM_PACKED(multimemSumBfloat16, ".acc::f32", ".bf16x2")
#if TUTTI_MULTIMEM_FP8 && defined(__CUDA_ARCH__)
TUTTI_MULTIMEM_PACKED(multimemSumE4m3, ".acc::f16", ".e4m3x4")
TUTTI_MULTIMEM_PACKED(multimemSumE5m2, ".acc::f16", ".e5m2x4")
#endif
#undef TUTTI_MULTIMEM_PACKED

NCCL_DEVICE_INLINE void multimemSumFloat(uint32_t *value, const char *address, SizeTag<1>)
{
    float sum;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];"
                 : "=f"(sum)
                 : "l"(address)
                 : "memory");
    memcpy(value, &sum, 4);
}
NCCL_DEVICE_INLINE void multimemSumFloat(uint32_t *value, const char *address, SizeTag<2>)
{
    float sum[2];
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v2.f32 {%0, %1}, [%2];"
                 : "=f"(sum[0]), "=f"(sum[1])
                 : "l"(address)
                 : "memory");
    memcpy(value, sum, 8);
}
NCCL_DEVICE_INLINE void multimemSumFloat(uint32_t *value, const char *address, SizeTag<4>)
{
    float sum[4];
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
                 : "l"(address)
                 : "memory");
    memcpy(value, sum, 16);
}
NCCL_DEVICE_INLINE void multimemSumDouble(uint32_t *value, const char *address)
{
    double sum;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f64 %0, [%1];"
                 : "=d"(sum)
                 : "l"(address)
                 : "memory");
    memcpy(value, &sum, 8);
}
// Two's complement: one instruction serves signed and unsigned integers.
NCCL_DEVICE_INLINE void multimemSumInteger32(uint32_t *value, const char *address)
{
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.u32 %0, [%1];"
                 : "=r"(*value)
                 : "l"(address)
                 : "memory");
}
NCCL_DEVICE_INLINE void multimemSumInteger64(uint32_t *value, const char *address)
{
    unsigned long long sum;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.u64 %0, [%1];"
                 : "=l"(sum)
                 : "l"(address)
                 : "memory");
    memcpy(value, &sum, 8);
}
#endif

template <typename Element, int words>
NCCL_DEVICE_INLINE void multimemSumWords(uint32_t *value, const char *address)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if NCCL_IF_CONSTEXPR (SameType<Element, float>::value) {
        multimemSumFloat(value, address, SizeTag<words>());
    } else if NCCL_IF_CONSTEXPR (SameType<Element, __half>::value) {
        multimemSumHalf(value, address, SizeTag<words>());
    } else if NCCL_IF_CONSTEXPR (SameType<Element, __nv_bfloat16>::value) {
        multimemSumBfloat16(value, address, SizeTag<words>());
#if TUTTI_MULTIMEM_FP8 && defined(__CUDA_ARCH__)
    } else if NCCL_IF_CONSTEXPR (SameType<Element, __nv_fp8_e4m3>::value) {
        multimemSumE4m3(value, address, SizeTag<words>());
    } else if NCCL_IF_CONSTEXPR (SameType<Element, __nv_fp8_e5m2>::value) {
        multimemSumE5m2(value, address, SizeTag<words>());
#endif
    } else if NCCL_IF_CONSTEXPR (SameType<Element, double>::value) {
#pragma unroll
        for (int i = 0; i < words; i += 2) {
            multimemSumDouble(value + i, address + 4 * i);
        }
    } else if NCCL_IF_CONSTEXPR (isIntegerOf<Element>(8)) {
#pragma unroll
        for (int i = 0; i < words; i += 2) {
            multimemSumInteger64(value + i, address + 4 * i);
        }
    } else if NCCL_IF_CONSTEXPR (isIntegerOf<Element>(4)) {
#pragma unroll
        for (int i = 0; i < words; i++) {
            multimemSumInteger32(value + i, address + 4 * i);
        }
    }
#else
    (void)value;
    (void)address;
#endif
}

} // namespace utility
} // namespace nccl
#endif

#endif
