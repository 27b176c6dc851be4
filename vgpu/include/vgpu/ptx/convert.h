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

template <class Function> inline Function rounded(Function x, rounding mode)
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
template <class To, class Function> inline To float_to_integer(Function x, rounding mode)
{
    if (x != x)
        return 0;
    Function whole = rounded(x, mode);
    if (whole <= static_cast<Function>(std::numeric_limits<To>::min()))
        return std::numeric_limits<To>::min();
    if (whole >= static_cast<Function>(std::numeric_limits<To>::max()))
        return std::numeric_limits<To>::max();
    return static_cast<To>(whole);
}

// The conversions that C++ does as PTX does: integer to integer, integer to float, float to float,
// to nearest.
template <class To, class From, class First> inline To convert(First a)
{
    return static_cast<To>(get<From>(a));
}
template <class To, class From, rounding mode, class First> inline To convert_to_integer(First a)
{
    return float_to_integer<To>(get<From>(a), mode);
}
template <class From, rounding mode, class First> inline From round_to_integer(First a)
{
    return rounded(get<From>(a), mode);
}

template <class First> inline f32 half_to_float(First a)
{
    return vgpu_half_to_float(get<u16>(a));
}
template <class First> inline f32 bfloat16_to_float(First a)
{
    return vgpu_bfloat16_to_float(get<u16>(a));
}
template <class First> inline u16 float_to_half(First a)
{
    return vgpu_float_to_half(get<f32>(a));
}
template <class First> inline u16 float_to_bfloat16(First a)
{
    return vgpu_float_to_bfloat16(get<f32>(a));
}
// Two floats in one register, the first in the upper half.
template <class First, class Second> inline u32 floats_to_halves(First a, Second b)
{
    return static_cast<u32>(float_to_half(a)) << 16 | float_to_half(b);
}
template <class First, class Second> inline u32 floats_to_bfloat16s(First a, Second b)
{
    return static_cast<u32>(float_to_bfloat16(a)) << 16 | float_to_bfloat16(b);
}

} // namespace ptx
} // namespace vgpu
} // extern "C++"
#endif
