// Float and double arithmetic with a stated rounding: to nearest even (_rn), to zero (_rz), up
// (_ru), down (_rd).
//
// The processor's rounding mode is never touched. An operation is done to nearest; the sign of its
// exact error (from a wider type, in which the error is exact) then says whether the neighbour is
// the right answer. Subnormals, overflow and signed zeros follow IEEE 754.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_ROUNDING_H
#define VGPU_DEVICE_ROUNDING_H

#include "common.h"

#ifdef __cplusplus
#include <cmath>
extern "C++" {

namespace vgpu
{

enum class rounding { nearest, zero, up, down };

#ifdef __SIZEOF_FLOAT128__
typedef __float128 quad;
#else
typedef long double quad;
static_assert(sizeof(long double) == 16, "a 113-bit floating-point type is needed");
#endif

// The neighbour of x above (up) or below, infinities included.
inline float next(float x, bool up)
{
    return std::nextafter(x, up ? HUGE_VALF : -HUGE_VALF);
}
inline double next(double x, bool up)
{
    return std::nextafter(x, up ? HUGE_VAL : -HUGE_VAL);
}

// `nearest` is an exact result rounded to nearest and `error` the sign of (exact - nearest): the
// result in mode m.
template <class Value> inline Value adjust(Value nearest, int error, rounding m)
{
    if (error == 0 || m == rounding::nearest || nearest != nearest)
        return nearest;
    bool exact_negative = nearest < 0 || (nearest == 0 && (error < 0));
    bool want_up = m == rounding::up || (m == rounding::zero && exact_negative);
    if (error > 0 && want_up)
        return next(nearest, true);
    if (error < 0 && !want_up)
        return next(nearest, false);
    return nearest;
}

// An exact zero has the sign that its rounding mode gives it: the sum of x and -x is -0 only when
// rounding down.
template <class Value> inline Value exact_zero(Value a, Value b, rounding m)
{
    if (std::signbit(a) == std::signbit(b))
        return std::signbit(a) ? -Value(0) : Value(0);
    return m == rounding::down ? -Value(0) : Value(0);
}

template <class Wide> inline int sign_of(Wide x)
{
    return (x > 0) - (x < 0);
}

// The sign of (hi + lo - rounded), where |lo| is at most half a unit of hi's last place.
template <class Value, class Wide> inline int error_sign(Wide hi, Wide lo, Value rounded)
{
    if (std::isinf(rounded))
        return rounded > 0 ? -1 : 1;
    Wide difference = hi - static_cast<Wide>(rounded);
    return difference != 0 ? sign_of(difference) : sign_of(lo);
}

// The exact error of s = a + b.
template <class Wide> inline Wide sum_error(Wide a, Wide b, Wide s)
{
    Wide bb = s - a;
    return (a - (s - bb)) + (b - bb);
}

// Wide: a type whose products of two Value are exact and whose range holds all of them.
template <class Value> struct wide_of;
template <> struct wide_of<float> {
    typedef double type;
};
template <> struct wide_of<double> {
    typedef quad type;
};

// hi + lo, rounded once to Value. To nearest, too: hi is first made odd where it is inexact, so
// that rounding twice is harmless.
template <class Value, class Wide> inline Value round_sum(Wide hi, Wide lo, rounding m)
{
    Value nearest = static_cast<Value>(hi);
    if (lo != 0 && !std::isinf(nearest)) {
        // Only where hi lies exactly half way between two Value does lo decide the nearest.
        Value other = next(nearest, static_cast<Wide>(nearest) < hi);
        if (static_cast<Wide>(nearest) != hi && !std::isinf(other) &&
            hi - static_cast<Wide>(nearest) == static_cast<Wide>(other) - hi &&
            (lo > 0) == (static_cast<Wide>(other) > hi))
            nearest = other;
    }
    return adjust(nearest, error_sign(hi, lo, nearest), m);
}

template <class Value> inline Value add(Value a, Value b, rounding m)
{
    Value s = a + b;
    if (m == rounding::nearest || !std::isfinite(a) || !std::isfinite(b))
        return s;
    if (s == 0)
        return a == 0 ? exact_zero(a, b, m) : exact_zero(a, -a, m);
    typedef typename wide_of<Value>::type Wide;
    Wide hi = static_cast<Wide>(a) + static_cast<Wide>(b);
    return adjust(s, error_sign(hi, sum_error<Wide>(a, b, hi), s), m);
}

template <class Value> inline Value multiply(Value a, Value b, rounding m)
{
    Value p = a * b;
    if (m == rounding::nearest || !std::isfinite(a) || !std::isfinite(b))
        return p;
    typedef typename wide_of<Value>::type Wide;
    return adjust(p, error_sign<Value, Wide>(static_cast<Wide>(a) * static_cast<Wide>(b), 0, p), m);
}

template <class Value> inline Value divide(Value a, Value b, rounding m)
{
    Value q = a / b;
    if (m == rounding::nearest || !std::isfinite(a) || !std::isfinite(b) || b == 0 || a == 0)
        return q;
    typedef typename wide_of<Value>::type Wide;
    int error;
    if (std::isinf(q)) {
        error = q > 0 ? -1 : 1;
    } else {
        // exact - q has the sign of (a - q*b) / b.
        Wide residual = static_cast<Wide>(a) - static_cast<Wide>(q) * static_cast<Wide>(b);
        error = sign_of(residual) * (b < 0 ? -1 : 1);
        // A quotient that vanished keeps its sign through the operands.
        if (q == 0)
            error = std::signbit(a) == std::signbit(b) ? 1 : -1;
    }
    return adjust(q, error, m);
}

// The square root by the processor's instruction: the library's function would also look after
// errno.
#ifdef __SSE2__
inline float nearest_root(float a)
{
    typedef float four __attribute__((vector_size(16)));
    four v = {a};
    return __builtin_ia32_sqrtss(v)[0];
}
inline double nearest_root(double a)
{
    typedef double two __attribute__((vector_size(16)));
    two v = {a};
    return __builtin_ia32_sqrtpd(v)[0];
}
#else
inline float nearest_root(float a)
{
    return std::sqrt(a);
}
inline double nearest_root(double a)
{
    return std::sqrt(a);
}
#endif

template <class Value> inline Value square_root(Value a, rounding m)
{
    Value r = nearest_root(a);
    if (m == rounding::nearest || !(a > 0) || std::isinf(a))
        return r;
    typedef typename wide_of<Value>::type Wide;
    return adjust(r, sign_of(static_cast<Wide>(a) - static_cast<Wide>(r) * static_cast<Wide>(r)),
                  m);
}

template <class Value> inline Value multiply_add(Value a, Value b, Value c, rounding m)
{
    if (m == rounding::nearest || !std::isfinite(a) || !std::isfinite(b) || !std::isfinite(c))
        return std::fma(a, b, c);
    typedef typename wide_of<Value>::type Wide;
    Wide p = static_cast<Wide>(a) * static_cast<Wide>(b);
    Wide s = p + static_cast<Wide>(c);
    if (s == 0) {
        Value product_sign = std::signbit(a) != std::signbit(b) ? -Value(0) : Value(0);
        return exact_zero(p == 0 ? product_sign : Value(p > 0 ? 1 : -1),
                          p == 0 ? c : Value(p > 0 ? -1 : 1), m);
    }
    return round_sum<Value, Wide>(s, sum_error<Wide>(p, c, s), m);
}

} // namespace vgpu

#ifdef __CUDACC__
// To nearest the operators themselves are right: plain expressions, which compilers vectorise.
#define VGPU_NEAREST1(name, type, expression)                                                      \
    VGPU_FUNCTION type name(type a)                                                                \
    {                                                                                              \
        return expression;                                                                         \
    }
#define VGPU_NEAREST2(name, type, expression)                                                      \
    VGPU_FUNCTION type name(type a, type b)                                                        \
    {                                                                                              \
        return expression;                                                                         \
    }
VGPU_NEAREST2(__fadd_rn, float, a + b)
VGPU_NEAREST2(__fsub_rn, float, a - b)
VGPU_NEAREST2(__fmul_rn, float, a *b)
VGPU_NEAREST2(__fdiv_rn, float, a / b)
VGPU_NEAREST1(__frcp_rn, float, 1.0f / a)
VGPU_NEAREST1(__fsqrt_rn, float, vgpu::nearest_root(a))
VGPU_NEAREST2(__dadd_rn, double, a + b)
VGPU_NEAREST2(__dsub_rn, double, a - b)
VGPU_NEAREST2(__dmul_rn, double, a *b)
VGPU_NEAREST2(__ddiv_rn, double, a / b)
VGPU_NEAREST1(__drcp_rn, double, 1.0 / a)
VGPU_NEAREST1(__dsqrt_rn, double, vgpu::nearest_root(a))
#undef VGPU_NEAREST1
#undef VGPU_NEAREST2
VGPU_FUNCTION float __fmaf_rn(float a, float b, float c)
{
    return std::fma(a, b, c);
}
VGPU_FUNCTION double __fma_rn(double a, double b, double c)
{
    return std::fma(a, b, c);
}

#define VGPU_ROUNDED(suffix, mode)                                                                 \
    VGPU_FUNCTION float __fadd_##suffix(float a, float b)                                          \
    {                                                                                              \
        return vgpu::add(a, b, vgpu::rounding::mode);                                              \
    }                                                                                              \
    VGPU_FUNCTION float __fsub_##suffix(float a, float b)                                          \
    {                                                                                              \
        return vgpu::add(a, -b, vgpu::rounding::mode);                                             \
    }                                                                                              \
    VGPU_FUNCTION float __fmul_##suffix(float a, float b)                                          \
    {                                                                                              \
        return vgpu::multiply(a, b, vgpu::rounding::mode);                                         \
    }                                                                                              \
    VGPU_FUNCTION float __fdiv_##suffix(float a, float b)                                          \
    {                                                                                              \
        return vgpu::divide(a, b, vgpu::rounding::mode);                                           \
    }                                                                                              \
    VGPU_FUNCTION float __frcp_##suffix(float a)                                                   \
    {                                                                                              \
        return vgpu::divide(1.0f, a, vgpu::rounding::mode);                                        \
    }                                                                                              \
    VGPU_FUNCTION float __fsqrt_##suffix(float a)                                                  \
    {                                                                                              \
        return vgpu::square_root(a, vgpu::rounding::mode);                                         \
    }                                                                                              \
    VGPU_FUNCTION float __fmaf_##suffix(float a, float b, float c)                                 \
    {                                                                                              \
        return vgpu::multiply_add(a, b, c, vgpu::rounding::mode);                                  \
    }                                                                                              \
    VGPU_FUNCTION double __dadd_##suffix(double a, double b)                                       \
    {                                                                                              \
        return vgpu::add(a, b, vgpu::rounding::mode);                                              \
    }                                                                                              \
    VGPU_FUNCTION double __dsub_##suffix(double a, double b)                                       \
    {                                                                                              \
        return vgpu::add(a, -b, vgpu::rounding::mode);                                             \
    }                                                                                              \
    VGPU_FUNCTION double __dmul_##suffix(double a, double b)                                       \
    {                                                                                              \
        return vgpu::multiply(a, b, vgpu::rounding::mode);                                         \
    }                                                                                              \
    VGPU_FUNCTION double __ddiv_##suffix(double a, double b)                                       \
    {                                                                                              \
        return vgpu::divide(a, b, vgpu::rounding::mode);                                           \
    }                                                                                              \
    VGPU_FUNCTION double __drcp_##suffix(double a)                                                 \
    {                                                                                              \
        return vgpu::divide(1.0, a, vgpu::rounding::mode);                                         \
    }                                                                                              \
    VGPU_FUNCTION double __dsqrt_##suffix(double a)                                                \
    {                                                                                              \
        return vgpu::square_root(a, vgpu::rounding::mode);                                         \
    }                                                                                              \
    VGPU_FUNCTION double __fma_##suffix(double a, double b, double c)                              \
    {                                                                                              \
        return vgpu::multiply_add(a, b, c, vgpu::rounding::mode);                                  \
    }
VGPU_ROUNDED(rz, zero)
VGPU_ROUNDED(ru, up)
VGPU_ROUNDED(rd, down)
#undef VGPU_ROUNDED
#endif // __CUDACC__

} // extern "C++"
#endif
#endif
