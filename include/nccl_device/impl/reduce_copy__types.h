// What the reductions of reduce_copy.h consist of: the sum, the type in which it is carried out,
// conversions between that and the elements, and the ways to name several arrays.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_REDUCE_COPY__TYPES_H_
#define NCCL_DEVICE_REDUCE_COPY__TYPES_H_

#include "../core.h"
#include "../ptr.h"
#include "../utility.h"

#if NCCL_CHECK_CUDACC
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <string.h>
#include <type_traits>

namespace nccl
{
namespace utility
{

// ---- Conversions -----------------------------------------------------------------------------

// Rounds to nearest; fp8 saturates.
template <typename To, typename From> struct Conversion;
template <typename Value> struct Conversion<Value, Value> {
    static NCCL_DEVICE_INLINE Value of(Value value)
    {
        return value;
    }
};
template <> struct Conversion<float, __half> {
    static NCCL_DEVICE_INLINE float of(__half value)
    {
        return __half2float(value);
    }
};
template <> struct Conversion<__half, float> {
    static NCCL_DEVICE_INLINE __half of(float value)
    {
        return __float2half_rn(value);
    }
};
template <> struct Conversion<float, __nv_bfloat16> {
    static NCCL_DEVICE_INLINE float of(__nv_bfloat16 value)
    {
        return __bfloat162float(value);
    }
};
template <> struct Conversion<__nv_bfloat16, float> {
    static NCCL_DEVICE_INLINE __nv_bfloat16 of(float value)
    {
        return __float2bfloat16_rn(value);
    }
};
template <> struct Conversion<__half, __nv_fp8_e4m3> {
    static NCCL_DEVICE_INLINE __half of(__nv_fp8_e4m3 value)
    {
        return __half(__nv_cvt_fp8_to_halfraw(value.__x, __NV_E4M3));
    }
};
template <> struct Conversion<__half, __nv_fp8_e5m2> {
    static NCCL_DEVICE_INLINE __half of(__nv_fp8_e5m2 value)
    {
        return __half(__nv_cvt_fp8_to_halfraw(value.__x, __NV_E5M2));
    }
};
template <> struct Conversion<__nv_fp8_e4m3, __half> {
    static NCCL_DEVICE_INLINE __nv_fp8_e4m3 of(__half value)
    {
        __nv_fp8_e4m3 result;
        result.__x = __nv_cvt_halfraw_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
        return result;
    }
};
template <> struct Conversion<__nv_fp8_e5m2, __half> {
    static NCCL_DEVICE_INLINE __nv_fp8_e5m2 of(__half value)
    {
        __nv_fp8_e5m2 result;
        result.__x = __nv_cvt_halfraw_to_fp8(value, __NV_SATFINITE, __NV_E5M2);
        return result;
    }
};

// ---- The sum and other operators --------------------------------------------------------------

// Integers wrap.
template <typename Value> NCCL_DEVICE_INLINE Value addValues(Value a, Value b)
{
    if NCCL_IF_CONSTEXPR (std::is_integral<Value>::value) {
        using Wide = unsigned long long;
        return static_cast<Value>(static_cast<Wide>(a) + static_cast<Wide>(b));
    } else {
        return a + b;
    }
}
NCCL_DEVICE_INLINE __half addValues(__half a, __half b)
{
    return __hadd(a, b);
}
NCCL_DEVICE_INLINE __nv_bfloat16 addValues(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __hadd(a, b);
}
NCCL_DEVICE_INLINE __nv_fp8_e4m3 addValues(__nv_fp8_e4m3 a, __nv_fp8_e4m3 b)
{
    return Conversion<__nv_fp8_e4m3, __half>::of(
        __hadd(Conversion<__half, __nv_fp8_e4m3>::of(a), Conversion<__half, __nv_fp8_e4m3>::of(b)));
}
NCCL_DEVICE_INLINE __nv_fp8_e5m2 addValues(__nv_fp8_e5m2 a, __nv_fp8_e5m2 b)
{
    return Conversion<__nv_fp8_e5m2, __half>::of(
        __hadd(Conversion<__half, __nv_fp8_e5m2>::of(a), Conversion<__half, __nv_fp8_e5m2>::of(b)));
}

// The operator that the functions with "Sum" in their names use, and an example of one: it has the
// element's type as EltType and combines two values of it.
template <typename Value> struct OpSum {
    using EltType = Value;
    NCCL_DEVICE_INLINE Value operator()(Value const &a, Value const &b) const
    {
        return addValues(a, b);
    }
};

// How operator Red is applied to elements of type Value: the type of the partial results, and one
// step.
template <typename Red, typename Value> struct Accumulation {
    using Type = Value;
    static NCCL_DEVICE_INLINE Value step(Red const &red, Value const &sum, Value const &value)
    {
        return red(sum, value);
    }
};
template <typename Wide, typename Value> struct WideSum {
    using Type = Wide;
    static NCCL_DEVICE_INLINE Wide step(OpSum<Value> const &, Wide sum, Wide value)
    {
        return addValues(sum, value);
    }
};
template <> struct Accumulation<OpSum<__half>, __half> : WideSum<float, __half> {
};
template <>
struct Accumulation<OpSum<__nv_bfloat16>, __nv_bfloat16> : WideSum<float, __nv_bfloat16> {
};
template <>
struct Accumulation<OpSum<__nv_fp8_e4m3>, __nv_fp8_e4m3> : WideSum<__half, __nv_fp8_e4m3> {
};
template <>
struct Accumulation<OpSum<__nv_fp8_e5m2>, __nv_fp8_e5m2> : WideSum<__half, __nv_fp8_e5m2> {
};

// ---- The same on arrays, pairs and words at once where the machine has instructions for it -----

template <typename To, typename From> struct ArrayConversion {
    template <int n> static NCCL_DEVICE_INLINE void run(To (&to)[n], From const (&from)[n])
    {
#pragma unroll
        for (int i = 0; i < n; i++) {
            to[i] = Conversion<To, From>::of(from[i]);
        }
    }
};
template <typename Fp8, __nv_fp8_interpretation_t kind> struct Fp8Arrays {
    template <int n> static NCCL_DEVICE_INLINE void run(__half (&to)[n], Fp8 const (&from)[n])
    {
#pragma unroll
        for (int i = 0; i + 1 < n; i += 2) {
            __nv_fp8x2_storage_t pair;
            memcpy(&pair, from + i, 2);
            __half2_raw wide = __nv_cvt_fp8x2_to_halfraw2(pair, kind);
            memcpy(to + i, &wide, 4);
        }
        if NCCL_IF_CONSTEXPR (n % 2 != 0) {
            to[n - 1] = Conversion<__half, Fp8>::of(from[n - 1]);
        }
    }
    template <int n> static NCCL_DEVICE_INLINE void run(Fp8 (&to)[n], __half const (&from)[n])
    {
#pragma unroll
        for (int i = 0; i + 1 < n; i += 2) {
            __half2_raw wide;
            memcpy(&wide, from + i, 4);
            __nv_fp8x2_storage_t pair = __nv_cvt_halfraw2_to_fp8x2(wide, __NV_SATFINITE, kind);
            memcpy(to + i, &pair, 2);
        }
        if NCCL_IF_CONSTEXPR (n % 2 != 0) {
            to[n - 1] = Conversion<Fp8, __half>::of(from[n - 1]);
        }
    }
};
template <> struct ArrayConversion<__half, __nv_fp8_e4m3> : Fp8Arrays<__nv_fp8_e4m3, __NV_E4M3> {
};
template <> struct ArrayConversion<__nv_fp8_e4m3, __half> : Fp8Arrays<__nv_fp8_e4m3, __NV_E4M3> {
};
template <> struct ArrayConversion<__half, __nv_fp8_e5m2> : Fp8Arrays<__nv_fp8_e5m2, __NV_E5M2> {
};
template <> struct ArrayConversion<__nv_fp8_e5m2, __half> : Fp8Arrays<__nv_fp8_e5m2, __NV_E5M2> {
};

// sum[i] = red(sum[i], value[i]).
template <typename Red, typename Value> struct ArrayAccumulation {
    template <typename Sum, int n>
    static NCCL_DEVICE_INLINE void run(Red const &red, Sum (&sum)[n], Sum const (&value)[n])
    {
#pragma unroll
        for (int i = 0; i < n; i++) {
            sum[i] = Accumulation<Red, Value>::step(red, sum[i], value[i]);
        }
    }
};
template <typename Value> struct PairSums {
    template <int n>
    static NCCL_DEVICE_INLINE void run(OpSum<Value> const &, __half (&sum)[n],
                                       __half const (&value)[n])
    {
#pragma unroll
        for (int i = 0; i + 1 < n; i += 2) {
            __half2 pair =
                __hadd2(__halves2half2(sum[i], sum[i + 1]), __halves2half2(value[i], value[i + 1]));
            sum[i] = __low2half(pair);
            sum[i + 1] = __high2half(pair);
        }
        if NCCL_IF_CONSTEXPR (n % 2 != 0) {
            sum[n - 1] = __hadd(sum[n - 1], value[n - 1]);
        }
    }
};
template <>
struct ArrayAccumulation<OpSum<__nv_fp8_e4m3>, __nv_fp8_e4m3> : PairSums<__nv_fp8_e4m3> {
};
template <>
struct ArrayAccumulation<OpSum<__nv_fp8_e5m2>, __nv_fp8_e5m2> : PairSums<__nv_fp8_e5m2> {
};
// Integers of 8 and 16 bits: four and two in a word.
template <typename Value> struct WordSums {
    template <int n>
    static NCCL_DEVICE_INLINE void run(OpSum<Value> const &, Value (&sum)[n],
                                       Value const (&value)[n])
    {
        constexpr int perWord = 4 / (int)sizeof(Value);
#pragma unroll
        for (int i = 0; i + perWord <= n; i += perWord) {
            unsigned int a, b;
            memcpy(&a, sum + i, 4);
            memcpy(&b, value + i, 4);
            a = sizeof(Value) == 1 ? __vadd4(a, b) : __vadd2(a, b);
            memcpy(sum + i, &a, 4);
        }
#pragma unroll
        for (int i = n - n % perWord; i < n; i++) {
            sum[i] = addValues(sum[i], value[i]);
        }
    }
};
template <> struct ArrayAccumulation<OpSum<int8_t>, int8_t> : WordSums<int8_t> {
};
template <> struct ArrayAccumulation<OpSum<uint8_t>, uint8_t> : WordSums<uint8_t> {
};
template <> struct ArrayAccumulation<OpSum<char>, char> : WordSums<char> {
};
template <> struct ArrayAccumulation<OpSum<int16_t>, int16_t> : WordSums<int16_t> {
};
template <> struct ArrayAccumulation<OpSum<uint16_t>, uint16_t> : WordSums<uint16_t> {
};

// ---- Several arrays ----------------------------------------------------------------------------
//
// Each has count(), operator()(i), the address of array i, and differences(base): bits 0 to 3 are
// those in which the address of any array differs from `base`. isOne: the type says count() is 1.

// As the caller's function says. Pointer: Value * or Value const *.
template <typename Pointer, typename Function> struct FunctionArrays {
    static constexpr bool isOne = false;
    Function function;
    int number;

    NCCL_DEVICE_INLINE int count() const
    {
        return number;
    }
    NCCL_DEVICE_INLINE Pointer operator()(int i) const
    {
        Function call = function; // the caller's may be mutable
        return (Pointer)call(i);
    }
    NCCL_DEVICE_INLINE uintptr_t differences(uintptr_t base) const
    {
        uintptr_t bits = 0;
        for (int i = 0; i < number; i++) {
            bits |= (uintptr_t)(*this)(i) ^ base;
        }
        return bits;
    }
};

// At equal distances, in bytes.
template <typename Pointer> struct StridedArrays {
    static constexpr bool isOne = false;
    Pointer first;
    size_t distance;
    int number;

    NCCL_DEVICE_INLINE int count() const
    {
        return number;
    }
    NCCL_DEVICE_INLINE Pointer operator()(int i) const
    {
        return (Pointer)((char *)first + (size_t)i * distance);
    }
    NCCL_DEVICE_INLINE uintptr_t differences(uintptr_t base) const
    {
        return ((uintptr_t)first ^ base) | (number > 1 ? distance : 0);
    }
};

template <typename Pointer> struct OneArray {
    static constexpr bool isOne = true;
    Pointer only;

    NCCL_DEVICE_INLINE int count() const
    {
        return 1;
    }
    NCCL_DEVICE_INLINE Pointer operator()(int) const
    {
        return only;
    }
    NCCL_DEVICE_INLINE uintptr_t differences(uintptr_t base) const
    {
        return (uintptr_t)only ^ base;
    }
};

// Whether something that stands where a lambda may stand is a place in memory.
template <typename Function> struct IsPlace {
    static constexpr bool value =
        std::is_pointer<Function>::value &&
        !std::is_function<typename std::remove_pointer<Function>::type>::value;
};
template <typename Value> struct IsPlace<ncclSymPtr<Value>> {
    static constexpr bool value = true;
};

template <typename Pointer, typename Function>
NCCL_DEVICE_INLINE FunctionArrays<Pointer, Function> functionArrays(Function function, int number)
{
    static_assert(!IsPlace<Function>::value,
                  "a window and an offset need one more argument: pass a team or a device "
                  "communicator (or, for multimem, a handle); the form without takes lambdas");
    return FunctionArrays<Pointer, Function>{function, number};
}
template <typename Value> NCCL_DEVICE_INLINE OneArray<Value *> oneArray(Value *only)
{
    return OneArray<Value *>{only};
}
template <typename Value>
NCCL_DEVICE_INLINE StridedArrays<Value *> stridedArrays(Value *first, size_t elements, int number)
{
    return StridedArrays<Value *>{first, elements * sizeof(Value), number};
}

// The team's copies of a window's elements. On virtual devices both ends are checked against the
// window, for the first and the last member, before anything is touched.
template <typename Value, typename IntCount>
NCCL_DEVICE_INLINE StridedArrays<Value *> memberArrays(ncclSymPtr<Value> place, ncclTeam team,
                                                       IntCount count)
{
    if (team.nRanks < 1) {
        return StridedArrays<Value *>{nullptr, 0, team.nRanks};
    }
    Value *first = place.peerPtr(team, 0);
    size_t distance = 0;
    if (team.nRanks > 1) {
        distance = (uintptr_t)place.peerPtr(team, 1) - (uintptr_t)first;
    }
#if NCCL_DEVICE_CHECKED
    if (count > 0) {
        (void)(place + count).peerPtr(team, team.nRanks - 1);
    }
#else
    (void)count;
#endif
    return StridedArrays<Value *>{first, distance, team.nRanks};
}

// All members' copies at once.
template <typename Value, typename IntCount>
NCCL_DEVICE_INLINE OneArray<Value *> multimemArray(ncclSymPtr<Value> place,
                                                   ncclMultimemHandle multimem, IntCount count)
{
#if NCCL_DEVICE_CHECKED
    if (count > 0) {
        (void)(place + count).multimemPtr(multimem);
    }
#else
    (void)count;
#endif
    return OneArray<Value *>{place.multimemPtr(multimem)};
}

} // namespace utility
} // namespace nccl
#endif

#endif
