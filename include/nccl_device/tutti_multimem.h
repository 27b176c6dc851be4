// Multicast loads and stores with the hardware's limits checked by the compiler. An extension: NCCL
// programs write the PTX themselves.
//
// addresses come from ncclGetLsaMultimemPointer or ncclGetMultimemPointer and are aligned to the
// size of the value.
//   Value tuttiMultimemLoadSum(const Value *address)            the sum of all members' values
//   void tuttiMultimemStore(Value *address, Value value)        the value to all members
// Value: float, double, int32_t, uint32_t, int64_t, uint64_t, __half2, __nv_bfloat162, float2,
// float4, and tuttiVector<E, n>: n elements of one of those types or of __half, __nv_bfloat16 or,
// where the target has them, fp8, of 4, 8 or 16 bytes in all. Half and bfloat16 are added in float
// and rounded once per element, fp8 in half. On real GPUs the order of the additions is the
// hardware's; on virtual ones it is rank order. Needs compute capability 9.0.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_TUTTI_MULTIMEM_H_
#define NCCL_DEVICE_TUTTI_MULTIMEM_H_

#include "utility.h"

#if NCCL_CHECK_CUDACC
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <string.h>

// `count` elements that are loaded and stored together.
template <typename Element, int count> struct alignas(sizeof(Element) * count) tuttiVector {
    static_assert(sizeof(Element) * count == 4 || sizeof(Element) * count == 8 ||
                      sizeof(Element) * count == 16,
                  "tuttiVector: multicast accesses have 4, 8 or 16 bytes");
    Element element[count];

    NCCL_HOST_DEVICE_INLINE Element &operator[](int i)
    {
        return element[i];
    }
    NCCL_HOST_DEVICE_INLINE Element const &operator[](int i) const
    {
        return element[i];
    }
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM100_ALL) ||                              \
    defined(__CUDA_ARCH_FEAT_SM101_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL) ||                  \
    defined(__CUDA_ARCH_FEAT_SM110_ALL) || defined(__CUDA_ARCH_FEAT_SM120_ALL) ||                  \
    defined(__CUDA_ARCH_FEAT_SM121_ALL) ||                                                         \
    (defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1000)
#define TUTTI_MULTIMEM_FP8 1
#else
#define TUTTI_MULTIMEM_FP8 0
#endif

namespace nccl
{
namespace utility
{

// What a value consists of. sum: how the hardware can add it.
enum class MultimemSum { none, byteInteger, halfword, fp8, possible };
template <typename Value> struct MultimemElement {
    using Type = Value;
};
template <> struct MultimemElement<float2> {
    using Type = float;
};
template <> struct MultimemElement<float4> {
    using Type = float;
};
template <> struct MultimemElement<__half2> {
    using Type = __half;
};
template <> struct MultimemElement<__nv_bfloat162> {
    using Type = __nv_bfloat16;
};
template <typename Element, int count>
struct MultimemElement<tuttiVector<Element, count>> : MultimemElement<Element> {
};

template <typename First, typename Second> struct SameType {
    static constexpr bool value = false;
};
template <typename First> struct SameType<First, First> {
    static constexpr bool value = true;
};
template <typename Element> NCCL_HOST_DEVICE_INLINE constexpr bool isIntegerOf(size_t bytes)
{
    return sizeof(Element) == bytes &&
           (SameType<Element, int>::value || SameType<Element, unsigned>::value ||
            SameType<Element, long>::value || SameType<Element, unsigned long>::value ||
            SameType<Element, long long>::value || SameType<Element, unsigned long long>::value);
}
template <typename Element> NCCL_HOST_DEVICE_INLINE constexpr bool isByteInteger()
{
    return SameType<Element, char>::value || SameType<Element, signed char>::value ||
           SameType<Element, unsigned char>::value;
}
template <typename Element> NCCL_HOST_DEVICE_INLINE constexpr bool isFp8()
{
    return SameType<Element, __nv_fp8_e4m3>::value || SameType<Element, __nv_fp8_e5m2>::value;
}
template <typename Element> NCCL_HOST_DEVICE_INLINE constexpr bool isHalfword()
{
    return SameType<Element, __half>::value || SameType<Element, __nv_bfloat16>::value;
}
template <typename Element> NCCL_HOST_DEVICE_INLINE constexpr bool canMultimemSum()
{
    return SameType<Element, float>::value || SameType<Element, double>::value ||
           isHalfword<Element>() || isFp8<Element>() || isIntegerOf<Element>(4) ||
           isIntegerOf<Element>(8);
}

// `words` 32-bit words of elements of type E from all members, added.
template <typename Element, int words>
NCCL_DEVICE_INLINE void multimemSumWords(uint32_t *value, const char *address);

} // namespace utility
} // namespace nccl

template <typename Value> NCCL_DEVICE_INLINE Value tuttiMultimemLoadSum(Value const *address)
{
    using Element = typename nccl::utility::MultimemElement<Value>::Type;
#ifdef __CUDA_ARCH__
    static_assert(__CUDA_ARCH__ >= 900 || nccl::utility::always_false<Value>::value,
                  "tuttiMultimemLoadSum: multicast needs compute capability 9.0 (sm_90); below, "
                  "load each member through "
                  "ncclGetLsaPointer and add");
#endif
    static_assert(
        !nccl::utility::isByteInteger<Element>(),
        "tuttiMultimemLoadSum: the hardware does not add 8-bit integers; load each member through "
        "ncclGetLsaPointer and add, or use 32-bit integers");
    static_assert(nccl::utility::isByteInteger<Element>() ||
                      nccl::utility::canMultimemSum<Element>(),
                  "tuttiMultimemLoadSum: the hardware adds float, double, __half, __nv_bfloat16, "
                  "fp8 and 32- and 64-bit "
                  "integers; load other types through ncclGetLsaPointer");
    static_assert(TUTTI_MULTIMEM_FP8 || !nccl::utility::isFp8<Element>(),
                  "tuttiMultimemLoadSum: only architecture-specific targets from sm_100a on add "
                  "fp8; keep the values in "
                  "__half, or load each member through ncclGetLsaPointer");
    static_assert(sizeof(Value) >= 4 || !nccl::utility::isHalfword<Element>(),
                  "tuttiMultimemLoadSum: a multicast access has at least 4 bytes; use __half2 or "
                  "__nv_bfloat162");
    static_assert(
        sizeof(Value) >= 4 || !nccl::utility::isFp8<Element>(),
        "tuttiMultimemLoadSum: a multicast access has at least 4 bytes; use tuttiVector<E, 4>");
    uint32_t word[(sizeof(Value) + 3) / 4];
    nccl::utility::multimemSumWords<Element, (int)(sizeof(Value) / 4)>(
        word, reinterpret_cast<const char *>(address));
    Value value;
    memcpy(&value, word, sizeof(Value));
    return value;
}

template <typename Value> NCCL_DEVICE_INLINE void tuttiMultimemStore(Value *address, Value value)
{
#ifdef __CUDA_ARCH__
    static_assert(__CUDA_ARCH__ >= 900 || nccl::utility::always_false<Value>::value,
                  "tuttiMultimemStore: multicast needs compute capability 9.0 (sm_90); below, "
                  "store to each member through "
                  "ncclGetLsaPointer");
#endif
    static_assert(sizeof(Value) == 4 || sizeof(Value) == 8 || sizeof(Value) == 16,
                  "tuttiMultimemStore: multicast accesses have 4, 8 or 16 bytes; store smaller "
                  "values to each member "
                  "through ncclGetLsaPointer");
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    uint32_t word[4] = {};
    memcpy(word, &value, sizeof(Value) <= 16 ? sizeof(Value) : 16);
    if NCCL_IF_CONSTEXPR (sizeof(Value) == 4) {
        asm volatile("multimem.st.relaxed.sys.global.b32 [%0], %1;"
                     :
                     : "l"(address), "r"(word[0])
                     : "memory");
    } else if NCCL_IF_CONSTEXPR (sizeof(Value) == 8) {
        unsigned long long bits;
        memcpy(&bits, word, 8);
        asm volatile("multimem.st.relaxed.sys.global.b64 [%0], %1;"
                     :
                     : "l"(address), "l"(bits)
                     : "memory");
    } else {
        asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};"
                     :
                     : "l"(address), "f"(__uint_as_float(word[0])), "f"(__uint_as_float(word[1])),
                       "f"(__uint_as_float(word[2])), "f"(__uint_as_float(word[3]))
                     : "memory");
    }
#endif
}

#include "impl/tutti_multimem__funcs.h"
#endif

#endif
