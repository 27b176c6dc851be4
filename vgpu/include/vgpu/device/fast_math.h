// The mathematical functions that CUDA has and C has not, and the "fast" intrinsics, which here are
// the accurate functions.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_FAST_MATH_H
#define VGPU_DEVICE_FAST_MATH_H

#include "common.h"
#include "rounding.h"

#ifdef __cplusplus
#include <cmath>
#include <math.h>
extern "C++" {

// The C library has hidden functions of these names; the words mean ours once its header has been
// read.
#define __expf    vgpu_fast_expf
#define __exp10f  vgpu_fast_exp10f
#define __logf    vgpu_fast_logf
#define __log2f   vgpu_fast_log2f
#define __log10f  vgpu_fast_log10f
#define __sinf    vgpu_fast_sinf
#define __cosf    vgpu_fast_cosf
#define __tanf    vgpu_fast_tanf
#define __tanhf   vgpu_fast_tanhf
#define __powf    vgpu_fast_powf
#define __sincosf vgpu_fast_sincosf

#define VGPU_MATH1(name, type, expression)                                                         \
    VGPU_FUNCTION type name(type x)                                                                \
    {                                                                                              \
        return expression;                                                                         \
    }
#define VGPU_MATH2(name, type, expression)                                                         \
    VGPU_FUNCTION type name(type x, type y)                                                        \
    {                                                                                              \
        return expression;                                                                         \
    }

// rsqrtf is 1 / sqrt(x) in double, rounded once to float: the nearest float in all but the rarest
// of ties.
VGPU_MATH1(rsqrtf, float, static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))))
VGPU_MATH1(__frsqrt_rn, float, static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))))
VGPU_MATH1(rsqrt, double, 1.0 / std::sqrt(x))
VGPU_MATH1(rcbrtf, float, static_cast<float>(1.0 / std::cbrt(static_cast<double>(x))))
VGPU_MATH1(rcbrt, double, 1.0 / std::cbrt(x))
VGPU_MATH1(vgpu_fast_expf, float, std::exp(x))
VGPU_MATH1(vgpu_fast_exp10f, float, ::exp10f(x))
VGPU_MATH1(vgpu_fast_logf, float, std::log(x))
VGPU_MATH1(vgpu_fast_log2f, float, std::log2(x))
VGPU_MATH1(vgpu_fast_log10f, float, std::log10(x))
VGPU_MATH1(vgpu_fast_sinf, float, std::sin(x))
VGPU_MATH1(vgpu_fast_cosf, float, std::cos(x))
VGPU_MATH1(vgpu_fast_tanf, float, std::tan(x))
VGPU_MATH1(vgpu_fast_tanhf, float, std::tanh(x))
VGPU_MATH2(vgpu_fast_powf, float, std::pow(x, y))
VGPU_MATH2(__fdividef, float, x / y)
VGPU_MATH2(fdividef, float, x / y)
// NaN becomes 0.
VGPU_MATH1(__saturatef, float, x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f)
VGPU_MATH2(rhypotf, float,
           static_cast<float>(1.0 / std::hypot(static_cast<double>(x), static_cast<double>(y))))
VGPU_MATH2(rhypot, double, 1.0 / std::hypot(x, y))
VGPU_MATH1(normcdff, float,
           static_cast<float>(0.5 * std::erfc(-static_cast<double>(x) * 0.70710678118654752440)))
VGPU_MATH1(normcdf, double, 0.5 * std::erfc(-x * 0.70710678118654752440))
#undef VGPU_MATH1
#undef VGPU_MATH2

VGPU_FUNCTION void vgpu_fast_sincosf(float x, float *sine, float *cosine)
{
    *sine = std::sin(x);
    *cosine = std::cos(x);
}

// The smaller and larger of two floating-point numbers; of a number and a NaN, the number.
VGPU_FUNCTION float min(float a, float b)
{
    return std::fmin(a, b);
}
VGPU_FUNCTION float max(float a, float b)
{
    return std::fmax(a, b);
}
VGPU_FUNCTION double min(double a, double b)
{
    return std::fmin(a, b);
}
VGPU_FUNCTION double max(double a, double b)
{
    return std::fmax(a, b);
}
VGPU_FUNCTION double min(float a, double b)
{
    return std::fmin(static_cast<double>(a), b);
}
VGPU_FUNCTION double max(float a, double b)
{
    return std::fmax(static_cast<double>(a), b);
}
VGPU_FUNCTION double min(double a, float b)
{
    return std::fmin(a, static_cast<double>(b));
}
VGPU_FUNCTION double max(double a, float b)
{
    return std::fmax(a, static_cast<double>(b));
}

namespace vgpu
{

// sin and cos of pi * x: x is first brought to [-1, 1] exactly.
inline double sin_pi(double x)
{
    double r = std::remainder(x, 2.0);
    if (r == std::trunc(r))
        return std::copysign(0.0, x);
    if (r > 0.5)
        r = 1.0 - r;
    else if (r < -0.5)
        r = -1.0 - r;
    return std::sin(3.14159265358979323846 * r);
}
inline double cos_pi(double x)
{
    double r = std::fabs(std::remainder(x, 2.0));
    if (r == 0.5)
        return 0.0;
    return r < 0.25 ? std::cos(3.14159265358979323846 * r)
                    : std::sin(3.14159265358979323846 * (0.5 - r));
}

} // namespace vgpu

VGPU_FUNCTION double sinpi(double x)
{
    return vgpu::sin_pi(x);
}
VGPU_FUNCTION double cospi(double x)
{
    return vgpu::cos_pi(x);
}
VGPU_FUNCTION float sinpif(float x)
{
    return static_cast<float>(vgpu::sin_pi(x));
}
VGPU_FUNCTION float cospif(float x)
{
    return static_cast<float>(vgpu::cos_pi(x));
}
VGPU_FUNCTION void sincospif(float x, float *sine, float *cosine)
{
    *sine = sinpif(x);
    *cosine = cospif(x);
}
VGPU_FUNCTION void sincospi(double x, double *sine, double *cosine)
{
    *sine = sinpi(x);
    *cosine = cospi(x);
}
VGPU_FUNCTION void sincospi(float x, float *sine, float *cosine)
{
    sincospif(x, sine, cosine);
}
// The overloads for float of functions whose names are double's.
#define VGPU_MATH_OVERLOAD(name)                                                                   \
    VGPU_FUNCTION float name(float x)                                                              \
    {                                                                                              \
        return name##f(x);                                                                         \
    }
VGPU_MATH_OVERLOAD(rsqrt)
VGPU_MATH_OVERLOAD(rcbrt)
VGPU_MATH_OVERLOAD(normcdf)
VGPU_MATH_OVERLOAD(sinpi)
VGPU_MATH_OVERLOAD(cospi)
VGPU_MATH_OVERLOAD(exp10)
VGPU_MATH_OVERLOAD(j0)
VGPU_MATH_OVERLOAD(j1)
VGPU_MATH_OVERLOAD(y0)
VGPU_MATH_OVERLOAD(y1)
#undef VGPU_MATH_OVERLOAD
VGPU_FUNCTION float jn(int n, float x)
{
    return jnf(n, x);
}
VGPU_FUNCTION float yn(int n, float x)
{
    return ynf(n, x);
}
VGPU_FUNCTION void sincos(float x, float *sine, float *cosine)
{
    *sine = std::sin(x);
    *cosine = std::cos(x);
}

} // extern "C++"
#endif
#endif
