// Inverse error functions, Bessel functions, norms: what CUDA's mathematics has beyond the C
// library's.
//
// Double results come from the C library's erf and erfc, or from series in which all terms have one
// sign; float results are the double ones rounded. The inverse functions solve f(x) = y by Halley's
// method, which triples the right digits each time.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_SPECIAL_MATH_H
#define VGPU_DEVICE_SPECIAL_MATH_H

#include "common.h"

#ifdef __cplusplus
#include <cmath>
extern "C++" {

namespace vgpu
{

const double TWO_BY_ROOT_PI = 1.12837916709551257390;
const double ROOT_TWO = 1.41421356237309504880;

// The x with erf(x) = y, |y| <= 0.5.
inline double inverse_erf_small(double y)
{
    double x = y / TWO_BY_ROOT_PI * (1.0 + 0.26179938779914943654 * y * y); // error below 0.003
    for (int i = 0; i < 3; i++) {
        double step = (std::erf(x) - y) / (TWO_BY_ROOT_PI * std::exp(-x * x));
        x -= step / (1.0 + x * step);
    }
    return y == 0.0 || std::fabs(y) < 1e-300 ? y / TWO_BY_ROOT_PI : x;
}

// The x with erfc(x) = y, 0 < y <= 0.5. The start is formula 26.2.22 of Abramowitz and Stegun.
inline double inverse_erfc_small(double y)
{
    double t = std::sqrt(-2.0 * std::log(0.5 * y));
    double x = (t - (2.30753 + 0.27061 * t) / (1.0 + (0.99229 + 0.04481 * t) * t)) / ROOT_TWO;
    for (int i = 0; i < 5; i++) { // the start is off by 0.02 at the far end
        double slope = TWO_BY_ROOT_PI * std::exp(-x * x);
        double step = slope > 0.0 ? (std::erfc(x) - y) / slope : 0.0;
        x += step / (1.0 + x * step);
    }
    return x;
}

inline double inverse_erfc(double y)
{
    if (!(y >= 0.0 && y <= 2.0))
        return std::nan("");
    if (y == 0.0 || y == 2.0)
        return y == 0.0 ? HUGE_VAL : -HUGE_VAL;
    if (y > 0.5 && y < 1.5)
        return inverse_erf_small(1.0 - y);
    return y <= 0.5 ? inverse_erfc_small(y) : -inverse_erfc_small(2.0 - y);
}

inline double inverse_erf(double y)
{
    if (std::fabs(y) <= 0.5)
        return inverse_erf_small(y);
    return y > 0.0 ? inverse_erfc(1.0 - y) : -inverse_erfc(1.0 + y);
}

// exp(x^2) * erfc(x)
inline double scaled_erfc(double x)
{
    if (x < 26.0) {
        double square = x * x, lost = std::fma(x, x, -square);
        double scale = std::exp(square);
        return std::isinf(scale) ? 2.0 * scale : (scale + scale * lost) * std::erfc(x);
    }
    double t = 0.5 / (x * x), sum = 1.0, term = 1.0; // the asymptotic series
    for (int i = 1; i <= 7; i++) {
        term *= -(2.0 * i - 1.0) * t;
        sum += term;
    }
    return 0.5 * TWO_BY_ROOT_PI / x * sum;
}

// The modified Bessel function of the first kind, order 0 or 1, of x >= 0.
inline double bessel_i(int order, double x)
{
    if (std::isinf(x) || x != x)
        return x;
    double sum = 1.0, term = 1.0;
    if (x < 20.0) { // the power series
        for (int k = 1; term > 1e-17 * sum; k++) {
            term *= 0.25 * x * x / (static_cast<double>(k) * (k + order));
            sum += term;
        }
        return order == 0 ? sum : 0.5 * x * sum;
    }
    for (int k = 1; k < 40 && std::fabs(term) > 1e-17; k++) { // the asymptotic one
        double odd = 2.0 * k - 1.0;
        term *= (odd * odd - 4.0 * order) / (8.0 * k * x);
        sum += term;
    }
    double half = std::exp(0.5 * x); // exp(x) overflows before the result does
    return half * (half / std::sqrt(6.28318530717958647693 * x)) * sum;
}

// The square root of a sum of squares, or its reciprocal. An infinite component counts more than a
// NaN. Value: float or double; sums in a type of greater range.
template <class Value> struct euclid {
    long double sum = 0;
    bool infinite = false;
    void add(Value x)
    {
        infinite |= std::isinf(x);
        sum += static_cast<long double>(x) * x;
    }
    Value norm() const
    {
        return infinite ? static_cast<Value>(HUGE_VAL) : static_cast<Value>(std::sqrt(sum));
    }
    Value reciprocal() const
    {
        return infinite ? Value(0) : static_cast<Value>(1.0L / std::sqrt(sum));
    }
};

template <class Value, class... More> inline euclid<Value> euclid_of(Value first, More... more)
{
    euclid<Value> e;
    const Value all[] = {first, more...};
    for (Value x : all)
        e.add(x);
    return e;
}
template <class Value> inline euclid<Value> euclid_of_array(int count, const Value *values)
{
    euclid<Value> e;
    for (int i = 0; i < count; i++)
        e.add(values[i]);
    return e;
}

} // namespace vgpu

// A function of one number in both types, and the overload for float of the name without f.
#define VGPU_SPECIAL(name, function)                                                               \
    VGPU_FUNCTION double name(double x)                                                            \
    {                                                                                              \
        return function;                                                                           \
    }                                                                                              \
    VGPU_FUNCTION float name##f(float single)                                                      \
    {                                                                                              \
        const double x = static_cast<double>(single);                                              \
        return static_cast<float>(function);                                                       \
    }                                                                                              \
    VGPU_FUNCTION float name(float x)                                                              \
    {                                                                                              \
        return name##f(x);                                                                         \
    }
VGPU_SPECIAL(erfinv, vgpu::inverse_erf(x))
VGPU_SPECIAL(erfcinv, vgpu::inverse_erfc(x))
VGPU_SPECIAL(normcdfinv, -vgpu::ROOT_TWO *vgpu::inverse_erfc(2.0 * x))
VGPU_SPECIAL(erfcx, vgpu::scaled_erfc(x))
VGPU_SPECIAL(cyl_bessel_i0, vgpu::bessel_i(0, std::fabs(x)))
VGPU_SPECIAL(cyl_bessel_i1, std::copysign(vgpu::bessel_i(1, std::fabs(x)), x))
#undef VGPU_SPECIAL

// Norms of three, four and n components, and their reciprocals. f: the suffix of type's functions.
#define VGPU_NORMS(type, f)                                                                        \
    VGPU_FUNCTION type norm3d##f(type a, type b, type c)                                           \
    {                                                                                              \
        return vgpu::euclid_of<type>(a, b, c).norm();                                              \
    }                                                                                              \
    VGPU_FUNCTION type rnorm3d##f(type a, type b, type c)                                          \
    {                                                                                              \
        return vgpu::euclid_of<type>(a, b, c).reciprocal();                                        \
    }                                                                                              \
    VGPU_FUNCTION type norm4d##f(type a, type b, type c, type d)                                   \
    {                                                                                              \
        return vgpu::euclid_of<type>(a, b, c, d).norm();                                           \
    }                                                                                              \
    VGPU_FUNCTION type rnorm4d##f(type a, type b, type c, type d)                                  \
    {                                                                                              \
        return vgpu::euclid_of<type>(a, b, c, d).reciprocal();                                     \
    }                                                                                              \
    VGPU_FUNCTION type norm##f(int count, const type *values)                                      \
    {                                                                                              \
        return vgpu::euclid_of_array(count, values).norm();                                        \
    }                                                                                              \
    VGPU_FUNCTION type rnorm##f(int count, const type *values)                                     \
    {                                                                                              \
        return vgpu::euclid_of_array(count, values).reciprocal();                                  \
    }
VGPU_NORMS(double, )
VGPU_NORMS(float, f)
#undef VGPU_NORMS

VGPU_FUNCTION double fdivide(double x, double y)
{
    return x / y;
}

// The smaller and larger integer under the names that say their type.
#define VGPU_MIN_MAX_NAMED(prefix, type)                                                           \
    VGPU_FUNCTION type prefix##min(type a, type b)                                                 \
    {                                                                                              \
        return a < b ? a : b;                                                                      \
    }                                                                                              \
    VGPU_FUNCTION type prefix##max(type a, type b)                                                 \
    {                                                                                              \
        return a < b ? b : a;                                                                      \
    }
VGPU_MIN_MAX_NAMED(u, unsigned int)
VGPU_MIN_MAX_NAMED(ll, long long)
VGPU_MIN_MAX_NAMED(ull, unsigned long long)
#undef VGPU_MIN_MAX_NAMED

} // extern "C++"
#endif
#endif
