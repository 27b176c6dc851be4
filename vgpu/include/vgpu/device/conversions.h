// Conversions between float, double and integers with a stated rounding, and between a number and
// its bits.
//
// To an integer, values out of range become the nearest end of the range. A NaN becomes 0, except
// that from double, or to a 64-bit integer, it becomes the value with only the top bit set, as PTX
// says.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_CONVERSIONS_H
#define VGPU_DEVICE_CONVERSIONS_H

#include "common.h"
#include "rounding.h"

#ifdef __cplusplus
#include <limits>
extern "C++" {

namespace vgpu
{

template <class Function> inline Function round_to_integral(Function x, rounding m)
{
    switch (m) {
    case rounding::zero:
        return std::trunc(x);
    case rounding::up:
        return std::ceil(x);
    case rounding::down:
        return std::floor(x);
    default: {
        // Half to even, whatever the processor's mode: floor or ceiling, the nearer; the even one
        // where both are near.
        Function low = std::floor(x), above = x - low;
        if (above < Function(0.5))
            return low;
        if (above > Function(0.5))
            return low + Function(1);
        return std::fmod(low, Function(2)) == 0 ? low : low + Function(1);
    }
    }
}

template <class Integer, class Function> inline Integer to_integer(Function x, rounding m)
{
    typedef std::numeric_limits<Integer> limits;
    if (x != x) {
        if (sizeof(Function) == 8 || sizeof(Integer) == 8)
            return static_cast<Integer>(1ull << (8 * sizeof(Integer) - 1));
        return 0;
    }
    Function whole = round_to_integral(x, m);
    const Function end = std::ldexp(Function(1), limits::digits); // the first value too large
    if (whole >= end)
        return limits::max();
    if (whole < (limits::is_signed ? -end : Function(0)))
        return limits::min();
    return static_cast<Integer>(whole);
}

template <class Function, class Integer> inline Function from_integer(Integer x, rounding m)
{
    Function nearest = static_cast<Function>(x);
    typedef __int128 wide;
    wide difference = static_cast<wide>(x) - static_cast<wide>(nearest);
    return adjust(nearest, (difference > 0) - (difference < 0), m);
}

inline float to_float(double x, rounding m)
{
    float nearest = static_cast<float>(x);
    if (!std::isfinite(x))
        return nearest;
    return adjust(nearest, error_sign<float, double>(x, 0.0, nearest), m);
}

} // namespace vgpu

#ifdef __CUDACC__
#define VGPU_CONVERT(name, from, to, function)                                                     \
    VGPU_FUNCTION to name##_rn(from x)                                                             \
    {                                                                                              \
        return vgpu::function(x, vgpu::rounding::nearest);                                         \
    }                                                                                              \
    VGPU_FUNCTION to name##_rz(from x)                                                             \
    {                                                                                              \
        return vgpu::function(x, vgpu::rounding::zero);                                            \
    }                                                                                              \
    VGPU_FUNCTION to name##_ru(from x)                                                             \
    {                                                                                              \
        return vgpu::function(x, vgpu::rounding::up);                                              \
    }                                                                                              \
    VGPU_FUNCTION to name##_rd(from x)                                                             \
    {                                                                                              \
        return vgpu::function(x, vgpu::rounding::down);                                            \
    }
VGPU_CONVERT(__float2int, float, int, to_integer<int>)
VGPU_CONVERT(__float2uint, float, unsigned int, to_integer<unsigned int>)
VGPU_CONVERT(__float2ll, float, long long, to_integer<long long>)
VGPU_CONVERT(__float2ull, float, unsigned long long, to_integer<unsigned long long>)
VGPU_CONVERT(__double2int, double, int, to_integer<int>)
VGPU_CONVERT(__double2uint, double, unsigned int, to_integer<unsigned int>)
VGPU_CONVERT(__double2ll, double, long long, to_integer<long long>)
VGPU_CONVERT(__double2ull, double, unsigned long long, to_integer<unsigned long long>)
VGPU_CONVERT(__double2float, double, float, to_float)
VGPU_CONVERT(__int2float, int, float, from_integer<float>)
VGPU_CONVERT(__uint2float, unsigned int, float, from_integer<float>)
VGPU_CONVERT(__ll2float, long long, float, from_integer<float>)
VGPU_CONVERT(__ull2float, unsigned long long, float, from_integer<float>)
VGPU_CONVERT(__ll2double, long long, double, from_integer<double>)
VGPU_CONVERT(__ull2double, unsigned long long, double, from_integer<double>)
#undef VGPU_CONVERT

VGPU_FUNCTION double __int2double_rn(int x)
{
    return x;
}
VGPU_FUNCTION double __uint2double_rn(unsigned int x)
{
    return x;
}

VGPU_FUNCTION int __float_as_int(float x)
{
    return vgpu::bit_cast<int>(x);
}
VGPU_FUNCTION unsigned int __float_as_uint(float x)
{
    return vgpu::bit_cast<unsigned int>(x);
}
VGPU_FUNCTION float __int_as_float(int x)
{
    return vgpu::bit_cast<float>(x);
}
VGPU_FUNCTION float __uint_as_float(unsigned int x)
{
    return vgpu::bit_cast<float>(x);
}
VGPU_FUNCTION long long __double_as_longlong(double x)
{
    return vgpu::bit_cast<long long>(x);
}
VGPU_FUNCTION double __longlong_as_double(long long x)
{
    return vgpu::bit_cast<double>(x);
}
VGPU_FUNCTION int __double2hiint(double x)
{
    return static_cast<int>(vgpu::bit_cast<unsigned long long>(x) >> 32);
}
VGPU_FUNCTION int __double2loint(double x)
{
    return static_cast<int>(vgpu::bit_cast<unsigned long long>(x));
}
VGPU_FUNCTION double __hiloint2double(int hi, int lo)
{
    return vgpu::bit_cast<double>(static_cast<unsigned long long>(static_cast<unsigned>(hi)) << 32 |
                                  static_cast<unsigned>(lo));
}
#endif // __CUDACC__

} // extern "C++"
#endif
#endif
