// The forms of tutti_multimem.h that take a window: the multicast instruction where there is one,
// else a loop over the members of the LSA team, in rank order.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_TUTTI_MULTIMEM__TEAM_H_
#define NCCL_DEVICE_TUTTI_MULTIMEM__TEAM_H_

#include "core__funcs.h"
#include "tutti_multimem__reduce.h"

#if NCCL_CHECK_CUDACC
namespace nccl
{
namespace utility
{

// What elements are combined in, and how they get there and back. step: after each combination.
template <typename Element> struct TeamElement {
    using Acc = Element;
    static NCCL_DEVICE_INLINE Acc widen(Element value)
    {
        return value;
    }
    static NCCL_DEVICE_INLINE Acc step(Acc value)
    {
        return value;
    }
    static NCCL_DEVICE_INLINE Element narrow(Acc value)
    {
        return value;
    }
};
template <> struct TeamElement<__half> {
    using Acc = float;
    static NCCL_DEVICE_INLINE float widen(__half value)
    {
        return __half2float(value);
    }
    static NCCL_DEVICE_INLINE float step(float value)
    {
        return value;
    }
    static NCCL_DEVICE_INLINE __half narrow(float value)
    {
        return __float2half_rn(value);
    }
};
template <> struct TeamElement<__nv_bfloat16> {
    using Acc = float;
    static NCCL_DEVICE_INLINE float widen(__nv_bfloat16 value)
    {
        return __bfloat162float(value);
    }
    static NCCL_DEVICE_INLINE float step(float value)
    {
        return value;
    }
    static NCCL_DEVICE_INLINE __nv_bfloat16 narrow(float value)
    {
        return __float2bfloat16_rn(value);
    }
};
// 8-bit floats: half, carried in a float; out of range becomes the largest value.
template <typename Element> struct TeamFp8 {
    using Acc = float;
    static NCCL_DEVICE_INLINE float widen(Element value)
    {
        return static_cast<float>(value);
    }
    static NCCL_DEVICE_INLINE float step(float value)
    {
        return __half2float(__float2half_rn(value));
    }
    static NCCL_DEVICE_INLINE Element narrow(float value)
    {
        return Element(value);
    }
};
template <> struct TeamElement<__nv_fp8_e4m3> : TeamFp8<__nv_fp8_e4m3> {
};
template <> struct TeamElement<__nv_fp8_e5m2> : TeamFp8<__nv_fp8_e5m2> {
};

template <typename First> NCCL_HOST_DEVICE_INLINE constexpr bool isFloating()
{
    return SameType<First, float>::value || SameType<First, double>::value;
}

// The number of a number and a NaN; -0 is below +0.
template <bool larger, typename First> NCCL_DEVICE_INLINE First chooseByOrder(First a, First b)
{
    if NCCL_IF_CONSTEXPR (isFloating<First>()) {
        if (a != a) {
            return b;
        }
        if (b != b) {
            return a;
        }
        if (a == b) {
            return (signbit(a) != 0) == larger ? b : a;
        }
    }
    return (a < b) == larger ? b : a;
}

// Integers are added and multiplied without sign: they wrap.
template <typename First> NCCL_DEVICE_INLINE First combineOf(tuttiSum, First a, First b)
{
    if NCCL_IF_CONSTEXPR (isFloating<First>()) {
        return a + b;
    } else {
        return (First)((unsigned long long)a + (unsigned long long)b);
    }
}
template <typename First> NCCL_DEVICE_INLINE First combineOf(tuttiProd, First a, First b)
{
    if NCCL_IF_CONSTEXPR (isFloating<First>()) {
        return a * b;
    } else {
        return (First)((unsigned long long)a * (unsigned long long)b);
    }
}
template <typename First> NCCL_DEVICE_INLINE First combineOf(tuttiMin, First a, First b)
{
    return chooseByOrder<false>(a, b);
}
template <typename First> NCCL_DEVICE_INLINE First combineOf(tuttiMax, First a, First b)
{
    return chooseByOrder<true>(a, b);
}
template <typename First> NCCL_DEVICE_INLINE First combineOf(tuttiAnd, First a, First b)
{
    return (First)(a & b);
}
template <typename First> NCCL_DEVICE_INLINE First combineOf(tuttiOr, First a, First b)
{
    return (First)(a | b);
}
template <typename First> NCCL_DEVICE_INLINE First combineOf(tuttiXor, First a, First b)
{
    return (First)(a ^ b);
}

template <typename Element> NCCL_HOST_DEVICE_INLINE constexpr bool isElement()
{
    return canMultimemSum<Element>() || isByteInteger<Element>() ||
           SameType<Element, short>::value || SameType<Element, unsigned short>::value;
}
template <typename Op, typename Value> NCCL_HOST_DEVICE_INLINE constexpr bool checkTeamTypes()
{
    using Element = typename MultimemElement<Value>::Type;
    static_assert(isElement<Element>(),
                  "tuttiMultimem: elements are float, double, __half, __nv_bfloat16, fp8 and "
                  "integers of 1, 2, 4 and 8 bytes");
    static_assert(!isBitwise<Op>() ||
                      !(isFloating<Element>() || isHalfword<Element>() || isFp8<Element>()),
                  "tuttiMultimem: and, or and xor are for integers");
    static_assert(sizeof(Value) <= 16, "tuttiMultimem: a value has at most 16 bytes");
    return true;
}

// Whether the multicast instruction serves: there is one, the target has it, the team has the view.
template <bool possible> NCCL_DEVICE_INLINE bool useMultimem(ncclDevComm const &comm)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    return possible && comm.lsaMultimem.mcBasePtr != nullptr;
#else
    (void)comm;
    return false;
#endif
}

template <typename Value>
NCCL_DEVICE_INLINE Value *memberElement(ncclWindow_t w, size_t offset, int member)
{
#if NCCL_DEVICE_CHECKED
    checkWindow(w, offset, member);
    if (offset % sizeof(Value) != 0 || sizeof(Value) > w->size - offset) {
        vgpu_fault(offset % sizeof(Value) != 0 ? cudaErrorMisalignedAddress
                                               : cudaErrorIllegalAddress,
                   "window %d of rank %d has %zu bytes; %zu bytes at offset %zu do not fit, or are "
                   "not aligned to their size",
                   w->number, w->worldRank, w->size, sizeof(Value), offset);
    }
#endif
    return static_cast<Value *>(memberAddress(w, offset, member));
}

// One element of a member combined with `value`, atomically: as its own word, or inside the 32-bit
// word that holds it.
template <typename Op, typename Element>
NCCL_DEVICE_INLINE void updateElement(char *address, Element value)
{
    using Word = typename MultimemIf<(sizeof(Element) == 8), uint64_t, uint32_t>::Type;
    using Rules = TeamElement<Element>;
    unsigned byte = sizeof(Element) < 4 ? (unsigned)((uintptr_t)address % 4) : 0;
    cuda::atomic_ref<Word, cuda::thread_scope_system> word(
        *reinterpret_cast<Word *>(address - byte));
    Word old = word.load(cuda::memory_order_relaxed);
    Word wanted;
    do {
        Element element;
        memcpy(static_cast<void *>(&element), reinterpret_cast<char *>(&old) + byte,
               sizeof(Element));
        element =
            Rules::narrow(Rules::step(combineOf(Op(), Rules::widen(element), Rules::widen(value))));
        wanted = old;
        memcpy(reinterpret_cast<char *>(&wanted) + byte, &element, sizeof(Element));
    } while (!word.compare_exchange_weak(old, wanted, cuda::memory_order_relaxed));
}

} // namespace utility
} // namespace nccl

template <typename Op, typename Value>
NCCL_DEVICE_INLINE Value tuttiMultimemLoadReduce(ncclWindow_t window, size_t offset,
                                                 ncclDevComm const &comm)
{
    static_assert(nccl::utility::checkTeamTypes<Op, Value>(), "");
    using Element = typename nccl::utility::MultimemElement<Value>::Type;
    using Rules = nccl::utility::TeamElement<Element>;
    constexpr bool possible = nccl::utility::canMultimemLoad<Op, Element>(sizeof(Value));
    constexpr int count = (int)(sizeof(Value) / sizeof(Element));
    (void)nccl::utility::memberElement<Value>(window, offset, 0); // checks
    if (nccl::utility::useMultimem<possible>(comm)) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
        if NCCL_IF_CONSTEXPR (possible) {
            return tuttiMultimemLoadReduce<Op>(
                static_cast<Value const *>(ncclGetLsaMultimemPointer(window, offset, comm)));
        }
#endif
    }
    Element element[count];
    typename Rules::Acc total[count];
    for (int member = 0; member < comm.lsaSize; member++) {
        Value value = *nccl::utility::memberElement<Value>(window, offset, member);
        memcpy(static_cast<void *>(element), &value, sizeof(Value));
#pragma unroll
        for (int i = 0; i < count; i++) {
            auto next = Rules::widen(element[i]);
            total[i] =
                member == 0 ? next : Rules::step(nccl::utility::combineOf(Op(), total[i], next));
        }
    }
#pragma unroll
    for (int i = 0; i < count; i++) {
        element[i] = Rules::narrow(total[i]);
    }
    Value result;
    memcpy(static_cast<void *>(&result), element, sizeof(Value));
    return result;
}

template <typename Value>
NCCL_DEVICE_INLINE void tuttiMultimemStore(ncclWindow_t window, size_t offset,
                                           ncclDevComm const &comm, Value value)
{
    constexpr bool possible = sizeof(Value) == 4 || sizeof(Value) == 8 || sizeof(Value) == 16;
    static_assert(possible || sizeof(Value) == 1 || sizeof(Value) == 2,
                  "tuttiMultimemStore: a value has 1, 2, 4, 8 or 16 bytes");
    (void)nccl::utility::memberElement<Value>(window, offset, 0); // checks
    if (nccl::utility::useMultimem<possible>(comm)) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
        if NCCL_IF_CONSTEXPR (possible) {
            tuttiMultimemStore(
                static_cast<Value *>(ncclGetLsaMultimemPointer(window, offset, comm)), value);
            return;
        }
#endif
    }
    for (int i = 0; i < comm.lsaSize; i++) { // each rank begins with itself
        int member =
            comm.lsaRank + i < comm.lsaSize ? comm.lsaRank + i : comm.lsaRank + i - comm.lsaSize;
        *nccl::utility::memberElement<Value>(window, offset, member) = value;
    }
}

template <typename Op, typename Value>
NCCL_DEVICE_INLINE void tuttiMultimemRed(ncclWindow_t window, size_t offset,
                                         ncclDevComm const &comm, Value value)
{
    static_assert(nccl::utility::checkTeamTypes<Op, Value>(), "");
    using Element = typename nccl::utility::MultimemElement<Value>::Type;
    constexpr bool possible = nccl::utility::canMultimemRed<Op, Element>(sizeof(Value));
    (void)nccl::utility::memberElement<Value>(window, offset, 0); // checks
    if (nccl::utility::useMultimem<possible>(comm)) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
        if NCCL_IF_CONSTEXPR (possible) {
            tuttiMultimemRed<Op>(
                static_cast<Value *>(ncclGetLsaMultimemPointer(window, offset, comm)), value);
            return;
        }
#endif
    }
    Element element[sizeof(Value) / sizeof(Element)];
    memcpy(static_cast<void *>(element), &value, sizeof(Value));
    for (int i = 0; i < comm.lsaSize; i++) {
        int member =
            comm.lsaRank + i < comm.lsaSize ? comm.lsaRank + i : comm.lsaRank + i - comm.lsaSize;
        char *address =
            reinterpret_cast<char *>(nccl::utility::memberElement<Value>(window, offset, member));
#pragma unroll
        for (int e = 0; e < (int)(sizeof(Value) / sizeof(Element)); e++) {
            nccl::utility::updateElement<Op>(address + e * (int)sizeof(Element), element[e]);
        }
    }
}
#endif

#endif
