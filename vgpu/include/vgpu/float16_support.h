// What the 16- and 8-bit float types need beyond small_float.h: exact sums and integers as doubles
// that round safely again.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_FLOAT16_SUPPORT_H
#define VGPU_FLOAT16_SUPPORT_H

#include "device/conversions.h"
#include "small_float.h"
#ifdef __CUDACC__
#include "device/atomics.h"
#endif

extern "C++" {
namespace vgpu
{

template <class Value> struct small;

// `sum` is the nearest double to an exact value and `error` the sign of what it misses: the double
// that is odd where it is inexact, so that rounding it to a shorter format is the same as rounding
// the exact value.
inline double make_odd(double sum, double error)
{
    uint64_t bits = vgpu_double_bits(sum);
    if (error == 0 || (bits & 1) != 0 || !std::isfinite(sum))
        return sum;
    if (sum == 0)
        return error > 0 ? vgpu_bits_double(1) : -vgpu_bits_double(1);
    return vgpu_bits_double((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

// a * b + c of short floats (at most 24 significant bits, so that the product is exact).
inline double odd_fma(float a, float b, float c)
{
    double product = static_cast<double>(a) * b;
    double sum = product + c;
    return make_odd(sum, std::isfinite(sum) ? sum_error<double>(product, c, sum) : 0.0);
}

// An integer as a double that rounds to a shorter format like the integer itself.
template <class Integer> inline double odd_double(Integer x)
{
    double nearest = static_cast<double>(x);
    __int128 error = static_cast<__int128>(x) - static_cast<__int128>(nearest);
    return make_odd(nearest, error > 0 ? 1.0 : error < 0 ? -1.0 : 0.0);
}

} // namespace vgpu
}
#endif
