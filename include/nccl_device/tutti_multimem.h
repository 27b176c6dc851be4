// Loads, stores and updates of all LSA team members' copies at once. An extension: NCCL programs
// write the PTX themselves.
//
// T is an element (float, double, __half, __nv_bfloat16, __nv_fp8_e4m3, __nv_fp8_e5m2, integers of
// 1 to 8 bytes), float2, float4, __half2, __nv_bfloat162, or tuttiVector<E, n>: n elements that
// move together. Op is tuttiSum, tuttiProd, tuttiMin, tuttiMax, tuttiAnd, tuttiOr, tuttiXor (the
// last three for integers).
//
// By address: what the hardware's multicast instructions do, checked by the compiler. `address`
// comes from ncclGetLsaMultimemPointer or ncclGetMultimemPointer. Needs compute capability 9.0.
//   T tuttiMultimemLoadSum(const T *address)              the sum of all members' values
//   T tuttiMultimemLoadReduce<Op>(const T *address)       combined by Op
//   void tuttiMultimemStore(T *address, T value)          the value to all members
//   void tuttiMultimemRed<Op>(T *address, T value)        each member's value combined with it
// By window: every type and operator, on every machine. The hardware's instruction where there is
// one and the device communicator has lsaMultimem; else, in a loop over the LSA team's members,
// loads, stores and atomic updates of their memory.
//   T tuttiMultimemLoadReduce<Op, T>(window, offset, comm)
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
template <typename E, int count> struct alignas(sizeof(E) * count) tuttiVector {
    static_assert(
        sizeof(E) * count == 2 || sizeof(E) * count == 4 || sizeof(E) * count == 8 ||
            sizeof(E) * count == 16,
        "tuttiVector: multicast accesses have 4, 8 or 16 bytes, loops over members also 2");
    E element[count];

    NCCL_HOST_DEVICE_INLINE E &operator[](int i)
    {
        return element[i];
    }
    NCCL_HOST_DEVICE_INLINE E const &operator[](int i) const
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
template <typename T> struct MultimemElement {
    using Type = T;
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
template <typename E, int count>
struct MultimemElement<tuttiVector<E, count>> : MultimemElement<E> {
};

template <typename A, typename B> struct SameType {
    static constexpr bool value = false;
};
template <typename A> struct SameType<A, A> {
    static constexpr bool value = true;
};
template <bool condition, typename A, typename B> struct MultimemIf {
    using Type = A;
};
template <typename A, typename B> struct MultimemIf<false, A, B> {
    using Type = B;
};
template <typename E> NCCL_HOST_DEVICE_INLINE constexpr bool isIntegerOf(size_t bytes)
{
    return sizeof(E) == bytes &&
           (SameType<E, int>::value || SameType<E, unsigned>::value || SameType<E, long>::value ||
            SameType<E, unsigned long>::value || SameType<E, long long>::value ||
            SameType<E, unsigned long long>::value);
}
template <typename E> NCCL_HOST_DEVICE_INLINE constexpr bool isByteInteger()
{
    return SameType<E, char>::value || SameType<E, signed char>::value ||
           SameType<E, unsigned char>::value;
}
template <typename E> NCCL_HOST_DEVICE_INLINE constexpr bool isFp8()
{
    return SameType<E, __nv_fp8_e4m3>::value || SameType<E, __nv_fp8_e5m2>::value;
}
template <typename E> NCCL_HOST_DEVICE_INLINE constexpr bool isHalfword()
{
    return SameType<E, __half>::value || SameType<E, __nv_bfloat16>::value;
}
template <typename E> NCCL_HOST_DEVICE_INLINE constexpr bool canMultimemSum()
{
    return SameType<E, float>::value || SameType<E, double>::value || isHalfword<E>() ||
           isFp8<E>() || isIntegerOf<E>(4) || isIntegerOf<E>(8);
}

// `words` 32-bit words of elements of type E from all members, added.
template <typename E, int words>
NCCL_DEVICE_INLINE void multimemSumWords(uint32_t *value, const char *address);

} // namespace utility
} // namespace nccl

template <typename T> NCCL_DEVICE_INLINE T tuttiMultimemLoadSum(T const *address)
{
    using E = typename nccl::utility::MultimemElement<T>::Type;
#ifdef __CUDA_ARCH__
    static_assert(__CUDA_ARCH__ >= 900 || nccl::utility::always_false<T>::value,
                  "tuttiMultimemLoadSum: multicast needs compute capability 9.0 (sm_90); below, "
                  "load each member through "
                  "ncclGetLsaPointer and add");
#endif
    static_assert(
        !nccl::utility::isByteInteger<E>(),
        "tuttiMultimemLoadSum: the hardware does not add 8-bit integers; load each member through "
        "ncclGetLsaPointer and add (tuttiMultimemLoadReduce with a window does), or use 32-bit "
        "integers");
    static_assert(nccl::utility::isByteInteger<E>() || nccl::utility::canMultimemSum<E>(),
                  "tuttiMultimemLoadSum: the hardware adds float, double, __half, __nv_bfloat16, "
                  "fp8 and 32- and 64-bit "
                  "integers; load other types through ncclGetLsaPointer");
    static_assert(TUTTI_MULTIMEM_FP8 || !nccl::utility::isFp8<E>(),
                  "tuttiMultimemLoadSum: only architecture-specific targets from sm_100a on add "
                  "fp8; keep the values in "
                  "__half, or load each member through ncclGetLsaPointer");
    static_assert(sizeof(T) >= 4 || !nccl::utility::isHalfword<E>(),
                  "tuttiMultimemLoadSum: a multicast access has at least 4 bytes; use __half2 or "
                  "__nv_bfloat162");
    static_assert(
        sizeof(T) >= 4 || !nccl::utility::isFp8<E>(),
        "tuttiMultimemLoadSum: a multicast access has at least 4 bytes; use tuttiVector<E, 4>");
    uint32_t word[(sizeof(T) + 3) / 4];
    nccl::utility::multimemSumWords<E, (int)(sizeof(T) / 4)>(
        word, reinterpret_cast<const char *>(address));
    T value;
    memcpy(&value, word, sizeof(T));
    return value;
}

template <typename T> NCCL_DEVICE_INLINE void tuttiMultimemStore(T *address, T value)
{
#ifdef __CUDA_ARCH__
    static_assert(__CUDA_ARCH__ >= 900 || nccl::utility::always_false<T>::value,
                  "tuttiMultimemStore: multicast needs compute capability 9.0 (sm_90); below, "
                  "store to each member through "
                  "ncclGetLsaPointer");
#endif
    static_assert(
        sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16,
        "tuttiMultimemStore: multicast accesses have 4, 8 or 16 bytes; store smaller "
        "values to each member through ncclGetLsaPointer: tuttiMultimemStore with window, "
        "offset and device communicator does");
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    uint32_t word[4] = {};
    memcpy(word, &value, sizeof(T) <= 16 ? sizeof(T) : 16);
    if NCCL_IF_CONSTEXPR (sizeof(T) == 4) {
        asm volatile("multimem.st.relaxed.sys.global.b32 [%0], %1;"
                     :
                     : "l"(address), "r"(word[0])
                     : "memory");
    } else if NCCL_IF_CONSTEXPR (sizeof(T) == 8) {
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
template <typename Op, typename T> NCCL_DEVICE_INLINE T tuttiMultimemLoadReduce(T const *address);
template <typename Op, typename T>
NCCL_DEVICE_INLINE T tuttiMultimemLoadReduce(ncclWindow_t window, size_t offset,
                                             ncclDevComm const &comm);

template <typename T>
NCCL_DEVICE_INLINE void tuttiMultimemStore(ncclWindow_t window, size_t offset,
                                           ncclDevComm const &comm, T value);

// What the hardware has: sums of float, double, pairs of __half and __nv_bfloat16, 32- and 64-bit
// integers; min, max, and, or, xor of 32- and 64-bit integers.
template <typename Op, typename T> NCCL_DEVICE_INLINE void tuttiMultimemRed(T *address, T value);
template <typename Op, typename T>
NCCL_DEVICE_INLINE void tuttiMultimemRed(ncclWindow_t window, size_t offset,
                                         ncclDevComm const &comm, T value);

#include "impl/tutti_multimem__funcs.h"
#include "impl/tutti_multimem__reduce.h"
#include "impl/tutti_multimem__team.h"
#endif

#endif
