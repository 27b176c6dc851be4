// Multicast instructions other than sums and stores: min, max and bitwise loads, and reds. Vectors
// that an instruction does not take at once go piece by piece.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_TUTTI_MULTIMEM__REDUCE_H_
#define NCCL_DEVICE_TUTTI_MULTIMEM__REDUCE_H_

#include "tutti_multimem__funcs.h"

#if NCCL_CHECK_CUDACC
namespace nccl
{
namespace utility
{

template <typename Element> NCCL_HOST_DEVICE_INLINE constexpr bool isWholeNumber()
{
    return isIntegerOf<Element>(4) || isIntegerOf<Element>(8);
}
template <typename Op> NCCL_HOST_DEVICE_INLINE constexpr bool isOrder()
{
    return SameType<Op, tuttiMin>::value || SameType<Op, tuttiMax>::value;
}
template <typename Op> NCCL_HOST_DEVICE_INLINE constexpr bool isBitwise()
{
    return SameType<Op, tuttiAnd>::value || SameType<Op, tuttiOr>::value ||
           SameType<Op, tuttiXor>::value;
}
// Whether there is an instruction for values of `bytes` bytes of elements E.
template <typename Op, typename Element>
NCCL_HOST_DEVICE_INLINE constexpr bool canMultimemLoad(size_t bytes)
{
    return (bytes == 4 || bytes == 8 || bytes == 16) &&
           (SameType<Op, tuttiSum>::value
                ? canMultimemSum<Element>() && (TUTTI_MULTIMEM_FP8 || !isFp8<Element>())
                : (isOrder<Op>() && (isWholeNumber<Element>() || isHalfword<Element>())) ||
                      (isBitwise<Op>() && isWholeNumber<Element>()));
}
template <typename Op, typename Element>
NCCL_HOST_DEVICE_INLINE constexpr bool canMultimemRed(size_t bytes)
{
    return (bytes == 4 || bytes == 8 || bytes == 16) &&
           (SameType<Op, tuttiSum>::value
                ? canMultimemSum<Element>() && !isFp8<Element>()
                : (isOrder<Op>() || isBitwise<Op>()) && isWholeNumber<Element>());
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
template <typename Op, typename Element> struct MultimemWord;

// Loads and reds of one integer. load, red: the instruction's operator and type.
#define TUTTI_MULTIMEM_INTEGER(Op, Element, load, red, constraint)                                 \
    template <> struct MultimemWord<Op, Element> {                                                 \
        static NCCL_DEVICE_INLINE Element get(const char *address)                                 \
        {                                                                                          \
            Element value;                                                                         \
            asm volatile("multimem.ld_reduce.relaxed.sys.global." load " %0, [%1];"                \
                         : "=" constraint(value)                                                   \
                         : "l"(address)                                                            \
                         : "memory");                                                              \
            return value;                                                                          \
        }                                                                                          \
        static NCCL_DEVICE_INLINE void put(char *address, Element value)                           \
        {                                                                                          \
            asm volatile("multimem.red.relaxed.sys.global." red " [%0], %1;"                       \
                         :                                                                         \
                         : "l"(address), constraint(value)                                         \
                         : "memory");                                                              \
        }                                                                                          \
    };
#define TUTTI_MULTIMEM_INTEGERS(Op, op, bits)                                                      \
    TUTTI_MULTIMEM_INTEGER(Op, int32_t, op bits "32", op bits "32", "r")                           \
    TUTTI_MULTIMEM_INTEGER(Op, uint32_t, op bits "32", op bits "32", "r")                          \
    TUTTI_MULTIMEM_INTEGER(Op, int64_t, op bits "64", op bits "64", "l")                           \
    TUTTI_MULTIMEM_INTEGER(Op, uint64_t, op bits "64", op bits "64", "l")
TUTTI_MULTIMEM_INTEGERS(tuttiSum, "add", ".u")
TUTTI_MULTIMEM_INTEGERS(tuttiAnd, "and", ".b")
TUTTI_MULTIMEM_INTEGERS(tuttiOr, "or", ".b")
TUTTI_MULTIMEM_INTEGERS(tuttiXor, "xor", ".b")
#define TUTTI_MULTIMEM_ORDER(Op, op)                                                               \
    TUTTI_MULTIMEM_INTEGER(Op, int32_t, op ".s32", op ".s32", "r")                                 \
    TUTTI_MULTIMEM_INTEGER(Op, uint32_t, op ".u32", op ".u32", "r")                                \
    TUTTI_MULTIMEM_INTEGER(Op, int64_t, op ".s64", op ".s64", "l")                                 \
    TUTTI_MULTIMEM_INTEGER(Op, uint64_t, op ".u64", op ".u64", "l")
TUTTI_MULTIMEM_ORDER(tuttiMin, "min")
TUTTI_MULTIMEM_ORDER(tuttiMax, "max")
#undef TUTTI_MULTIMEM_ORDER
#undef TUTTI_MULTIMEM_INTEGERS
#undef TUTTI_MULTIMEM_INTEGER

// The 4- or 8-byte integer whose instruction serves E.
template <typename Element> struct FixedWidth {
    using Type = typename MultimemIf<
        sizeof(Element) == 4,
        typename MultimemIf<((Element)-1 < (Element)1), int32_t, uint32_t>::Type,
        typename MultimemIf<((Element)-1 < (Element)1), int64_t, uint64_t>::Type>::Type;
};

TUTTI_MULTIMEM_PACKED(multimemMinHalf, "min", ".f16x2")
TUTTI_MULTIMEM_PACKED(multimemMaxHalf, "max", ".f16x2")
TUTTI_MULTIMEM_PACKED(multimemMinBfloat16, "min", ".bf16x2")
TUTTI_MULTIMEM_PACKED(multimemMaxBfloat16, "max", ".bf16x2")
#undef TUTTI_MULTIMEM_PACKED

// 1, 2 and 4 words added to floats, or to pairs of 16-bit floats.
#define TUTTI_MULTIMEM_RED(function, type, Third, constraint, from)                                \
    NCCL_DEVICE_INLINE void function(char *address, const uint32_t *w, SizeTag<1>)                 \
    {                                                                                              \
        asm volatile("multimem.red.relaxed.sys.global.add" type " [%0], %1;"                       \
                     :                                                                             \
                     : "l"(address), constraint((Third)from(w[0]))                                 \
                     : "memory");                                                                  \
    }                                                                                              \
    NCCL_DEVICE_INLINE void function(char *address, const uint32_t *w, SizeTag<2>)                 \
    {                                                                                              \
        asm volatile("multimem.red.relaxed.sys.global.add.v2" type " [%0], {%1, %2};"              \
                     :                                                                             \
                     : "l"(address), constraint((Third)from(w[0])), constraint((Third)from(w[1]))  \
                     : "memory");                                                                  \
    }                                                                                              \
    NCCL_DEVICE_INLINE void function(char *address, const uint32_t *w, SizeTag<4>)                 \
    {                                                                                              \
        asm volatile("multimem.red.relaxed.sys.global.add.v4" type " [%0], {%1, %2, %3, %4};"      \
                     :                                                                             \
                     : "l"(address), constraint((Third)from(w[0])), constraint((Third)from(w[1])), \
                       constraint((Third)from(w[2])), constraint((Third)from(w[3]))                \
                     : "memory");                                                                  \
    }
TUTTI_MULTIMEM_RED(multimemRedFloat, ".f32", float, "f", __uint_as_float)
TUTTI_MULTIMEM_RED(multimemRedHalf, ".f16x2", uint32_t, "r", uint32_t)
TUTTI_MULTIMEM_RED(multimemRedBfloat16, ".bf16x2", uint32_t, "r", uint32_t)
#undef TUTTI_MULTIMEM_RED
NCCL_DEVICE_INLINE void multimemRedDouble(char *address, double value)
{
    asm volatile("multimem.red.relaxed.sys.global.add.f64 [%0], %1;"
                 :
                 : "l"(address), "d"(value)
                 : "memory");
}

template <typename Op, typename Element, int words>
NCCL_DEVICE_INLINE void multimemLoadWords(uint32_t *value, const char *address)
{
    if NCCL_IF_CONSTEXPR (isWholeNumber<Element>()) {
        using Word = typename FixedWidth<Element>::Type;
#pragma unroll
        for (int i = 0; i < words; i += (int)sizeof(Word) / 4) {
            Word word = MultimemWord<Op, Word>::get(address + 4 * i);
            memcpy(value + i, &word, sizeof word);
        }
    } else if NCCL_IF_CONSTEXPR (SameType<Op, tuttiSum>::value) {
        multimemSumWords<Element, words>(value, address);
    } else if NCCL_IF_CONSTEXPR (SameType<Element, __half>::value) {
        if NCCL_IF_CONSTEXPR (SameType<Op, tuttiMin>::value) {
            multimemMinHalf(value, address, SizeTag<words>());
        } else {
            multimemMaxHalf(value, address, SizeTag<words>());
        }
    } else {
        if NCCL_IF_CONSTEXPR (SameType<Op, tuttiMin>::value) {
            multimemMinBfloat16(value, address, SizeTag<words>());
        } else {
            multimemMaxBfloat16(value, address, SizeTag<words>());
        }
    }
}
template <typename Op, typename Element, int words>
NCCL_DEVICE_INLINE void multimemRedWords(char *address, const uint32_t *value)
{
    if NCCL_IF_CONSTEXPR (isWholeNumber<Element>()) {
        using Word = typename FixedWidth<Element>::Type;
#pragma unroll
        for (int i = 0; i < words; i += (int)sizeof(Word) / 4) {
            Word word;
            memcpy(&word, value + i, sizeof word);
            MultimemWord<Op, Word>::put(address + 4 * i, word);
        }
    } else if NCCL_IF_CONSTEXPR (SameType<Element, double>::value) {
#pragma unroll
        for (int i = 0; i < words; i += 2) {
            double word;
            memcpy(&word, value + i, sizeof word);
            multimemRedDouble(address + 4 * i, word);
        }
    } else if NCCL_IF_CONSTEXPR (SameType<Element, float>::value) {
        multimemRedFloat(address, value, SizeTag<words>());
    } else if NCCL_IF_CONSTEXPR (SameType<Element, __half>::value) {
        multimemRedHalf(address, value, SizeTag<words>());
    } else {
        multimemRedBfloat16(address, value, SizeTag<words>());
    }
}
#endif

} // namespace utility
} // namespace nccl

template <typename Op, typename Value>
NCCL_DEVICE_INLINE Value tuttiMultimemLoadReduce(Value const *address)
{
    using Element = typename nccl::utility::MultimemElement<Value>::Type;
    constexpr bool possible = nccl::utility::canMultimemLoad<Op, Element>(sizeof(Value));
    static_assert(possible,
                  "tuttiMultimemLoadReduce: the hardware does not combine this type by this "
                  "operator; use the form with window, offset and device communicator");
#ifdef __CUDA_ARCH__
    static_assert(
        __CUDA_ARCH__ >= 900 || nccl::utility::always_false<Value>::value,
        "tuttiMultimemLoadReduce: multicast needs compute capability 9.0 (sm_90); use the "
        "form with window, offset and device communicator");
#endif
    uint32_t word[(sizeof(Value) + 3) / 4] = {};
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if NCCL_IF_CONSTEXPR (possible) {
        nccl::utility::multimemLoadWords<Op, Element, (int)(sizeof(Value) / 4)>(
            word, reinterpret_cast<const char *>(address));
    }
#else
    (void)address;
#endif
    Value value;
    memcpy(static_cast<void *>(&value), word, sizeof(Value));
    return value;
}

template <typename Op, typename Value>
NCCL_DEVICE_INLINE void tuttiMultimemRed(Value *address, Value value)
{
    using Element = typename nccl::utility::MultimemElement<Value>::Type;
    constexpr bool possible = nccl::utility::canMultimemRed<Op, Element>(sizeof(Value));
    static_assert(possible, "tuttiMultimemRed: the hardware does not combine this type by this "
                            "operator; use the form with window, offset and device communicator");
#ifdef __CUDA_ARCH__
    static_assert(__CUDA_ARCH__ >= 900 || nccl::utility::always_false<Value>::value,
                  "tuttiMultimemRed: multicast needs compute capability 9.0 (sm_90); use the form "
                  "with window, offset and device communicator");
#endif
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if NCCL_IF_CONSTEXPR (possible) {
        uint32_t word[(sizeof(Value) + 3) / 4] = {};
        memcpy(word, &value, sizeof(Value));
        nccl::utility::multimemRedWords<Op, Element, (int)(sizeof(Value) / 4)>(
            reinterpret_cast<char *>(address), word);
    }
#else
    (void)address;
    (void)value;
#endif
}
#endif

#endif
