// cvt: conversions between integers, floats and 16-bit floats.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_PTX_CONVERT_H
#define VGPU_PTX_CONVERT_H

#include "../small_float.h"
#include "registers.h"

#include <cmath>
#include <limits>

extern "C++" {
namespace vgpu
{
namespace ptx
{

enum class rounding { nearest, zero, down, up };

template <class F> inline F rounded(F x, rounding mode)
{
    switch (mode) {
    case rounding::nearest:
        return std::nearbyint(x);
    case rounding::zero:
        return std::trunc(x);
    case rounding::down:
        return std::floor(x);
    default:
        return std::ceil(x);
    }
}

// A float as an integer: out of range becomes the nearest integer there is, a NaN zero.
template <class To, class F> inline To float_to_integer(F x, rounding mode)
{
    if (x != x)
        return 0;
    F whole = rounded(x, mode);
    if (whole <= static_cast<F>(std::numeric_limits<To>::min()))
        return std::numeric_limits<To>::min();
    if (whole >= static_cast<F>(std::numeric_limits<To>::max()))
        return std::numeric_limits<To>::max();
    return static_cast<To>(whole);
}

// The conversions that C++ does as PTX does: integer to integer, integer to float, float to float,
// to nearest.
template <class To, class From, class A> inline To convert(A a)
{
    return static_cast<To>(get<From>(a));
}
template <class To, class From, rounding mode, class A> inline To convert_to_integer(A a)
{
    return float_to_integer<To>(get<From>(a), mode);
}
template <class From, rounding mode, class A> inline From round_to_integer(A a)
{
    return rounded(get<From>(a), mode);
}

template <class A> inline f32 half_to_float(A a)
{
    return vgpu_half_to_float(get<u16>(a));
}
template <class A> inline f32 bfloat16_to_float(A a)
{
    return vgpu_bfloat16_to_float(get<u16>(a));
}
template <class A> inline u16 float_to_half(A a)
{
    return vgpu_float_to_half(get<f32>(a));
}
template <class A> inline u16 float_to_bfloat16(A a)
{
    return vgpu_float_to_bfloat16(get<f32>(a));
}
// Two floats in one register, the first in the upper half.
template <class A, class B> inline u32 floats_to_halves(A a, B b)
{
    return static_cast<u32>(float_to_half(a)) << 16 | float_to_half(b);
}
template <class A, class B> inline u32 floats_to_bfloat16s(A a, B b)
{
    return static_cast<u32>(float_to_bfloat16(a)) << 16 | float_to_bfloat16(b);
}

} // namespace ptx
} // namespace vgpu
} // extern "C++"
#endif
