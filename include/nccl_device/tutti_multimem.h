// Loads, stores and updates of all LSA team members' copies at once. An extension: NCCL programs
// write the PTX themselves.
//
// Value is an element (float, double, __half, __nv_bfloat16, __nv_fp8_e4m3, __nv_fp8_e5m2, integers
// of 1 to 8 bytes), float2, float4, __half2, __nv_bfloat162, or tuttiVector<E, n>: n elements that
// move together. Op is tuttiSum, tuttiProd, tuttiMin, tuttiMax, tuttiAnd, tuttiOr, tuttiXor (the
// last three for integers).
//
// By address: what the hardware's multicast instructions do, checked by the compiler. `address`
// comes from ncclGetLsaMultimemPointer or ncclGetMultimemPointer. Needs compute capability 9.0.
//   Value tuttiMultimemLoadSum(const Value *address)              the sum of all members' values
//   Value tuttiMultimemLoadReduce<Op>(const Value *address)       combined by Op
//   void tuttiMultimemStore(Value *address, Value value)          the value to all members
//   void tuttiMultimemRed<Op>(Value *address, Value value)        each member's value combined with
//   it
// By window: every type and operator, on every machine. The hardware's instruction where there is
// one and the device communicator has lsaMultimem; else, in a loop over the LSA team's members,
// loads, stores and atomic updates of their memory.
//   Value tuttiMultimemLoadReduce<Op, Value>(window, offset, comm)
//   void tuttiMultimemStore(window, offset, comm, value)
//   void tuttiMultimemRed<Op>(window, offset, comm, value)
//
// What both have in common: addresses and offsets are aligned to the size of the value, of 1 to 16
// bytes; accesses are relaxed and order nothing: use a barrier. Half and bfloat16 are combined in
// float and rounded once per element, fp8 in half; integers wrap; the smaller or larger of a number
// and a NaN is the number. A red updates each element of each member atomically, and is not one
// step for all members: a reader may see some of them updated. On real GPUs the hardware's order of
// additions is its own; everywhere else it is rank order.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_TUTTI_MULTIMEM_H_
#define NCCL_DEVICE_TUTTI_MULTIMEM_H_

#include "comm.h"
#include "utility.h"

#if NCCL_CHECK_CUDACC
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <string.h>

// `count` elements that are loaded and stored together.
template <typename Element, int count> struct alignas(sizeof(Element) * count) tuttiVector {
    static_assert(
        sizeof(Element) * count == 2 || sizeof(Element) * count == 4 ||
            sizeof(Element) * count == 8 || sizeof(Element) * count == 16,
        "tuttiVector: multicast accesses have 4, 8 or 16 bytes, loops over members also 2");
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

// Operators.
struct tuttiSum {
};
struct tuttiProd {
};
struct tuttiMin {
};
struct tuttiMax {
};
struct tuttiAnd {
};
struct tuttiOr {
};
struct tuttiXor {
};

namespace nccl
{
namespace utility
{

// What a value consists of.
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
template <bool condition, typename First, typename Second> struct MultimemIf {
    using Type = First;
};
template <typename First, typename Second> struct MultimemIf<false, First, Second> {
    using Type = Second;
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
        "ncclGetLsaPointer and add (tuttiMultimemLoadReduce with a window does), or use 32-bit "
        "integers");
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
    static_assert(
        sizeof(Value) == 4 || sizeof(Value) == 8 || sizeof(Value) == 16,
        "tuttiMultimemStore: multicast accesses have 4, 8 or 16 bytes; store smaller "
        "values to each member through ncclGetLsaPointer: tuttiMultimemStore with window, "
        "offset and device communicator does");
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

// See the head of this file. What the hardware has: sums of what tuttiMultimemLoadSum takes; min
// and max of 32- and 64-bit integers and of pairs of __half and __nv_bfloat16; and, or, xor of 32-
// and 64-bit integers.
template <typename Op, typename Value>
NCCL_DEVICE_INLINE Value tuttiMultimemLoadReduce(Value const *address);
template <typename Op, typename Value>
NCCL_DEVICE_INLINE Value tuttiMultimemLoadReduce(ncclWindow_t window, size_t offset,
                                                 ncclDevComm const &comm);

template <typename Value>
NCCL_DEVICE_INLINE void tuttiMultimemStore(ncclWindow_t window, size_t offset,
                                           ncclDevComm const &comm, Value value);

// What the hardware has: sums of float, double, pairs of __half and __nv_bfloat16, 32- and 64-bit
// integers; min, max, and, or, xor of 32- and 64-bit integers.
template <typename Op, typename Value>
NCCL_DEVICE_INLINE void tuttiMultimemRed(Value *address, Value value);
template <typename Op, typename Value>
NCCL_DEVICE_INLINE void tuttiMultimemRed(ncclWindow_t window, size_t offset,
                                         ncclDevComm const &comm, Value value);

#include "impl/tutti_multimem__funcs.h"
#include "impl/tutti_multimem__reduce.h"
#include "impl/tutti_multimem__team.h"
#endif

#endif
