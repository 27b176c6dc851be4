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
template <typename E> struct TeamElement {
    using Acc = E;
    static NCCL_DEVICE_INLINE Acc widen(E value)
    {
        return value;
    }
    static NCCL_DEVICE_INLINE Acc step(Acc value)
    {
        return value;
    }
    static NCCL_DEVICE_INLINE E narrow(Acc value)
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
template <typename E> struct TeamFp8 {
    using Acc = float;
    static NCCL_DEVICE_INLINE float widen(E value)
    {
        return static_cast<float>(value);
    }
    static NCCL_DEVICE_INLINE float step(float value)
    {
        return __half2float(__float2half_rn(value));
    }
    static NCCL_DEVICE_INLINE E narrow(float value)
    {
        return E(value);
    }
};
template <> struct TeamElement<__nv_fp8_e4m3> : TeamFp8<__nv_fp8_e4m3> {
};
template <> struct TeamElement<__nv_fp8_e5m2> : TeamFp8<__nv_fp8_e5m2> {
};

template <typename A> NCCL_HOST_DEVICE_INLINE constexpr bool isFloating()
{
    return SameType<A, float>::value || SameType<A, double>::value;
}

// The number of a number and a NaN; -0 is below +0.
template <bool larger, typename A> NCCL_DEVICE_INLINE A chooseByOrder(A a, A b)
{
    if NCCL_IF_CONSTEXPR (isFloating<A>()) {
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
template <typename A> NCCL_DEVICE_INLINE A combineOf(tuttiSum, A a, A b)
{
    if NCCL_IF_CONSTEXPR (isFloating<A>()) {
        return a + b;
    } else {
        return (A)((unsigned long long)a + (unsigned long long)b);
    }
}
template <typename A> NCCL_DEVICE_INLINE A combineOf(tuttiProd, A a, A b)
{
    if NCCL_IF_CONSTEXPR (isFloating<A>()) {
        return a * b;
    } else {
        return (A)((unsigned long long)a * (unsigned long long)b);
    }
}
template <typename A> NCCL_DEVICE_INLINE A combineOf(tuttiMin, A a, A b)
{
    return chooseByOrder<false>(a, b);
}
template <typename A> NCCL_DEVICE_INLINE A combineOf(tuttiMax, A a, A b)
{
    return chooseByOrder<true>(a, b);
}
template <typename A> NCCL_DEVICE_INLINE A combineOf(tuttiAnd, A a, A b)
{
    return (A)(a & b);
}
template <typename A> NCCL_DEVICE_INLINE A combineOf(tuttiOr, A a, A b)
{
    return (A)(a | b);
}
template <typename A> NCCL_DEVICE_INLINE A combineOf(tuttiXor, A a, A b)
{
    return (A)(a ^ b);
}

template <typename E> NCCL_HOST_DEVICE_INLINE constexpr bool isElement()
{
    return canMultimemSum<E>() || isByteInteger<E>() || SameType<E, short>::value ||
           SameType<E, unsigned short>::value;
}
template <typename Op, typename T> NCCL_HOST_DEVICE_INLINE constexpr bool checkTeamTypes()
{
    using E = typename MultimemElement<T>::Type;
    static_assert(isElement<E>(),
                  "tuttiMultimem: elements are float, double, __half, __nv_bfloat16, fp8 and "
                  "integers of 1, 2, 4 and 8 bytes");
    static_assert(!isBitwise<Op>() || !(isFloating<E>() || isHalfword<E>() || isFp8<E>()),
                  "tuttiMultimem: and, or and xor are for integers");
    static_assert(sizeof(T) <= 16, "tuttiMultimem: a value has at most 16 bytes");
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

template <typename T> NCCL_DEVICE_INLINE T *memberElement(ncclWindow_t w, size_t offset, int member)
{
#if NCCL_DEVICE_CHECKED
    checkWindow(w, offset, member);
    if (offset % sizeof(T) != 0 || sizeof(T) > w->size - offset) {
        vgpu_fault(offset % sizeof(T) != 0 ? cudaErrorMisalignedAddress : cudaErrorIllegalAddress,
                   "window %d of rank %d has %zu bytes; %zu bytes at offset %zu do not fit, or are "
                   "not aligned to their size",
                   w->number, w->worldRank, w->size, sizeof(T), offset);
    }
#endif
    return static_cast<T *>(memberAddress(w, offset, member));
}

// One element of a member combined with `value`, atomically: as its own word, or inside the 32-bit
// word that holds it.
template <typename Op, typename E> NCCL_DEVICE_INLINE void updateElement(char *address, E value)
{
    using Word = typename MultimemIf<(sizeof(E) == 8), uint64_t, uint32_t>::Type;
    using Rules = TeamElement<E>;
    unsigned byte = sizeof(E) < 4 ? (unsigned)((uintptr_t)address % 4) : 0;
    cuda::atomic_ref<Word, cuda::thread_scope_system> word(
        *reinterpret_cast<Word *>(address - byte));
    Word old = word.load(cuda::memory_order_relaxed);
    Word wanted;
    do {
        E element;
        memcpy(static_cast<void *>(&element), reinterpret_cast<char *>(&old) + byte, sizeof(E));
        element =
            Rules::narrow(Rules::step(combineOf(Op(), Rules::widen(element), Rules::widen(value))));
        wanted = old;
        memcpy(reinterpret_cast<char *>(&wanted) + byte, &element, sizeof(E));
    } while (!word.compare_exchange_weak(old, wanted, cuda::memory_order_relaxed));
}

} // namespace utility
} // namespace nccl

template <typename Op, typename T>
NCCL_DEVICE_INLINE T tuttiMultimemLoadReduce(ncclWindow_t window, size_t offset,
                                             ncclDevComm const &comm)
{
    static_assert(nccl::utility::checkTeamTypes<Op, T>(), "");
    using E = typename nccl::utility::MultimemElement<T>::Type;
    using Rules = nccl::utility::TeamElement<E>;
    constexpr bool possible = nccl::utility::canMultimemLoad<Op, E>(sizeof(T));
    constexpr int count = (int)(sizeof(T) / sizeof(E));
    (void)nccl::utility::memberElement<T>(window, offset, 0); // checks
    if (nccl::utility::useMultimem<possible>(comm)) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
        if NCCL_IF_CONSTEXPR (possible) {
            return tuttiMultimemLoadReduce<Op>(
                static_cast<T const *>(ncclGetLsaMultimemPointer(window, offset, comm)));
        }
#endif
    }
    E element[count];
    typename Rules::Acc total[count];
    for (int member = 0; member < comm.lsaSize; member++) {
        T value = *nccl::utility::memberElement<T>(window, offset, member);
        memcpy(static_cast<void *>(element), &value, sizeof(T));
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
    T result;
    memcpy(static_cast<void *>(&result), element, sizeof(T));
    return result;
}

template <typename T>
NCCL_DEVICE_INLINE void tuttiMultimemStore(ncclWindow_t window, size_t offset,
                                           ncclDevComm const &comm, T value)
{
    constexpr bool possible = sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16;
    static_assert(possible || sizeof(T) == 1 || sizeof(T) == 2,
                  "tuttiMultimemStore: a value has 1, 2, 4, 8 or 16 bytes");
    (void)nccl::utility::memberElement<T>(window, offset, 0); // checks
    if (nccl::utility::useMultimem<possible>(comm)) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
        if NCCL_IF_CONSTEXPR (possible) {
            tuttiMultimemStore(static_cast<T *>(ncclGetLsaMultimemPointer(window, offset, comm)),
                               value);
            return;
        }
#endif
    }
    for (int i = 0; i < comm.lsaSize; i++) { // each rank begins with itself
        int member =
            comm.lsaRank + i < comm.lsaSize ? comm.lsaRank + i : comm.lsaRank + i - comm.lsaSize;
        *nccl::utility::memberElement<T>(window, offset, member) = value;
    }
}

template <typename Op, typename T>
NCCL_DEVICE_INLINE void tuttiMultimemRed(ncclWindow_t window, size_t offset,
                                         ncclDevComm const &comm, T value)
{
    static_assert(nccl::utility::checkTeamTypes<Op, T>(), "");
    using E = typename nccl::utility::MultimemElement<T>::Type;
    constexpr bool possible = nccl::utility::canMultimemRed<Op, E>(sizeof(T));
    (void)nccl::utility::memberElement<T>(window, offset, 0); // checks
    if (nccl::utility::useMultimem<possible>(comm)) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
        if NCCL_IF_CONSTEXPR (possible) {
            tuttiMultimemRed<Op>(static_cast<T *>(ncclGetLsaMultimemPointer(window, offset, comm)),
                                 value);
            return;
        }
#endif
    }
    E element[sizeof(T) / sizeof(E)];
    memcpy(static_cast<void *>(element), &value, sizeof(T));
    for (int i = 0; i < comm.lsaSize; i++) {
        int member =
            comm.lsaRank + i < comm.lsaSize ? comm.lsaRank + i : comm.lsaRank + i - comm.lsaSize;
        char *address =
            reinterpret_cast<char *>(nccl::utility::memberElement<T>(window, offset, member));
#pragma unroll
        for (int e = 0; e < (int)(sizeof(T) / sizeof(E)); e++) {
            nccl::utility::updateElement<Op>(address + e * (int)sizeof(E), element[e]);
        }
    }
}
#endif

#endif
