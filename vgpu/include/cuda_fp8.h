// 8-bit floats: e4m3 (no infinities, largest 448) and e5m2 (largest 57344), alone and in packs of
// two and four.
//
// Conversions round to nearest even; with __NV_SATFINITE, which the types use, what is too large
// becomes the largest finite value, with __NV_NOSAT infinity (e5m2) or NaN (e4m3). e8m0 is a scale:
// a power of two from 2^-127 to 2^127, or NaN. In C only the storage types.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_CUDA_FP8_H
#define VGPU_CUDA_FP8_H

#include "cuda_bf16.h"
#include "device_types.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;
typedef enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE } __nv_saturation_t;
typedef enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 } __nv_fp8_interpretation_t;

#ifdef __cplusplus
extern "C++" {

// ---- Functions on bits -------------------------------------------------------------------------

VGPU_FUNCTION __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t saturate,
                                                        __nv_fp8_interpretation_t kind)
{
    int finite = saturate == __NV_SATFINITE;
    return kind == __NV_E4M3 ? vgpu_double_to_e4m3(x, finite) : vgpu_double_to_e5m2(x, finite);
}
VGPU_FUNCTION __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturate,
                                                       __nv_fp8_interpretation_t kind)
{
    return __nv_cvt_double_to_fp8(x, saturate, kind);
}
VGPU_FUNCTION __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t saturate,
                                                         __nv_fp8_interpretation_t kind)
{
    return __nv_cvt_double_to_fp8(vgpu_half_to_float(x.x), saturate, kind);
}
VGPU_FUNCTION __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw x,
                                                             __nv_saturation_t saturate,
                                                             __nv_fp8_interpretation_t kind)
{
    return __nv_cvt_double_to_fp8(vgpu_bfloat16_to_float(x.x), saturate, kind);
}
VGPU_FUNCTION __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x,
                                                 __nv_fp8_interpretation_t kind)
{
    __half_raw result;
    result.x = kind == __NV_E4M3 ? vgpu_e4m3_to_half(x) : vgpu_e5m2_to_half(x);
    return result;
}

namespace vgpu
{

// Two 8-bit floats in a short, the first one low.
inline __nv_fp8x2_storage_t pack_fp8(double low, double high, __nv_saturation_t saturate,
                                     __nv_fp8_interpretation_t kind)
{
    return static_cast<__nv_fp8x2_storage_t>(__nv_cvt_double_to_fp8(low, saturate, kind) |
                                             __nv_cvt_double_to_fp8(high, saturate, kind) << 8);
}
inline float fp8_value(unsigned x, __nv_fp8_interpretation_t kind)
{
    return vgpu_half_to_float(__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(x), kind).x);
}

} // namespace vgpu

VGPU_FUNCTION __nv_fp8x2_storage_t __nv_cvt_double2_to_fp8x2(double2 v, __nv_saturation_t saturate,
                                                             __nv_fp8_interpretation_t kind)
{
    return vgpu::pack_fp8(v.x, v.y, saturate, kind);
}
VGPU_FUNCTION __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 v, __nv_saturation_t saturate,
                                                            __nv_fp8_interpretation_t kind)
{
    return vgpu::pack_fp8(v.x, v.y, saturate, kind);
}
VGPU_FUNCTION __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw v,
                                                              __nv_saturation_t saturate,
                                                              __nv_fp8_interpretation_t kind)
{
    return vgpu::pack_fp8(vgpu_half_to_float(v.x), vgpu_half_to_float(v.y), saturate, kind);
}
VGPU_FUNCTION __nv_fp8x2_storage_t __nv_cvt_bfloat16raw2_to_fp8x2(__nv_bfloat162_raw v,
                                                                  __nv_saturation_t saturate,
                                                                  __nv_fp8_interpretation_t kind)
{
    return vgpu::pack_fp8(vgpu_bfloat16_to_float(v.x), vgpu_bfloat16_to_float(v.y), saturate, kind);
}
VGPU_FUNCTION __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t v,
                                                     __nv_fp8_interpretation_t kind)
{
    __half2_raw result;
    result.x = __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(v), kind).x;
    result.y = __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(v >> 8), kind).x;
    return result;
}

// ---- Types -------------------------------------------------------------------------------------

#define VGPU_FP8_FROM(type, source, expression)                                                    \
    explicit type(source x) : __x(__nv_cvt_double_to_fp8(expression, __NV_SATFINITE, kind)) {}
#define VGPU_FP8_TO_INTEGER(target)                                                                \
    explicit operator target() const                                                               \
    {                                                                                              \
        return vgpu::to_integer<target>(vgpu::fp8_value(__x, kind), vgpu::rounding::zero);         \
    }

#define VGPU_FP8_TYPE(type, interpretation)                                                        \
    struct type {                                                                                  \
        __nv_fp8_storage_t __x;                                                                    \
        static constexpr __nv_fp8_interpretation_t kind = interpretation;                          \
        type() = default;                                                                          \
        VGPU_FP8_FROM(type, __half, vgpu_half_to_float(x.__x))                                     \
        VGPU_FP8_FROM(type, __nv_bfloat16, vgpu_bfloat16_to_float(x.__x))                          \
        VGPU_FP8_FROM(type, float, x)                                                              \
        VGPU_FP8_FROM(type, double, x)                                                             \
        VGPU_FP8_FROM(type, short, x)                                                              \
        VGPU_FP8_FROM(type, unsigned short, x)                                                     \
        VGPU_FP8_FROM(type, int, x)                                                                \
        VGPU_FP8_FROM(type, unsigned int, x)                                                       \
        VGPU_FP8_FROM(type, long, vgpu::odd_double(x))                                             \
        VGPU_FP8_FROM(type, unsigned long, vgpu::odd_double(x))                                    \
        VGPU_FP8_FROM(type, long long, vgpu::odd_double(x))                                        \
        VGPU_FP8_FROM(type, unsigned long long, vgpu::odd_double(x))                               \
        explicit operator __half() const                                                           \
        {                                                                                          \
            return __half(__nv_cvt_fp8_to_halfraw(__x, kind));                                     \
        }                                                                                          \
        explicit operator __nv_bfloat16() const                                                    \
        {                                                                                          \
            return __float2bfloat16(vgpu::fp8_value(__x, kind));                                   \
        }                                                                                          \
        explicit operator float() const                                                            \
        {                                                                                          \
            return vgpu::fp8_value(__x, kind);                                                     \
        }                                                                                          \
        explicit operator double() const                                                           \
        {                                                                                          \
            return static_cast<double>(vgpu::fp8_value(__x, kind));                                \
        }                                                                                          \
        explicit operator bool() const                                                             \
        {                                                                                          \
            return (__x & 0x7fu) != 0;                                                             \
        }                                                                                          \
        VGPU_FP8_TO_INTEGER(char)                                                                  \
        VGPU_FP8_TO_INTEGER(signed char)                                                           \
        VGPU_FP8_TO_INTEGER(unsigned char)                                                         \
        VGPU_FP8_TO_INTEGER(short)                                                                 \
        VGPU_FP8_TO_INTEGER(unsigned short)                                                        \
        VGPU_FP8_TO_INTEGER(int)                                                                   \
        VGPU_FP8_TO_INTEGER(unsigned int)                                                          \
        VGPU_FP8_TO_INTEGER(long)                                                                  \
        VGPU_FP8_TO_INTEGER(unsigned long)                                                         \
        VGPU_FP8_TO_INTEGER(long long)                                                             \
        VGPU_FP8_TO_INTEGER(unsigned long long)                                                    \
    };

#define VGPU_FP8_PACKS(pair, quad, interpretation)                                                 \
    struct __attribute__((aligned(2))) pair {                                                      \
        __nv_fp8x2_storage_t __x;                                                                  \
        static constexpr __nv_fp8_interpretation_t kind = interpretation;                          \
        pair() = default;                                                                          \
        explicit pair(__half2 v) : __x(__nv_cvt_halfraw2_to_fp8x2(v, __NV_SATFINITE, kind)) {}     \
        explicit pair(__nv_bfloat162 v)                                                            \
            : __x(__nv_cvt_bfloat16raw2_to_fp8x2(v, __NV_SATFINITE, kind))                         \
        {                                                                                          \
        }                                                                                          \
        explicit pair(float2 v) : __x(__nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, kind)) {}        \
        explicit pair(double2 v) : __x(__nv_cvt_double2_to_fp8x2(v, __NV_SATFINITE, kind)) {}      \
        explicit operator __half2() const                                                          \
        {                                                                                          \
            return __half2(__nv_cvt_fp8x2_to_halfraw2(__x, kind));                                 \
        }                                                                                          \
        explicit operator float2() const                                                           \
        {                                                                                          \
            float2 v = {vgpu::fp8_value(__x & 0xffu, kind),                                        \
                        vgpu::fp8_value(__x >> 8 & 0xffu, kind)};                                  \
            return v;                                                                              \
        }                                                                                          \
    };                                                                                             \
    struct __attribute__((aligned(4))) quad {                                                      \
        __nv_fp8x4_storage_t __x;                                                                  \
        static constexpr __nv_fp8_interpretation_t kind = interpretation;                          \
        quad() = default;                                                                          \
        explicit quad(__half2 low, __half2 high) : quad(pair(low), pair(high)) {}                  \
        explicit quad(__nv_bfloat162 low, __nv_bfloat162 high) : quad(pair(low), pair(high)) {}    \
        explicit quad(float4 v) : __x(packed(v.x, v.y, v.z, v.w)) {}                               \
        explicit quad(double4 v) : __x(packed(v.x, v.y, v.z, v.w)) {}                              \
        explicit quad(double4_16a v) : __x(packed(v.x, v.y, v.z, v.w)) {}                          \
        explicit quad(double4_32a v) : __x(packed(v.x, v.y, v.z, v.w)) {}                          \
        explicit operator float4() const                                                           \
        {                                                                                          \
            float4 v = {                                                                           \
                vgpu::fp8_value(__x & 0xffu, kind), vgpu::fp8_value(__x >> 8 & 0xffu, kind),       \
                vgpu::fp8_value(__x >> 16 & 0xffu, kind), vgpu::fp8_value(__x >> 24, kind)};       \
            return v;                                                                              \
        }                                                                                          \
                                                                                                   \
      private:                                                                                     \
        explicit quad(pair low, pair high)                                                         \
            : __x(low.__x | static_cast<unsigned>(high.__x) << 16) {}                              \
        static unsigned packed(double a, double b, double c, double d)                             \
        {                                                                                          \
            return vgpu::pack_fp8(a, b, __NV_SATFINITE, kind) |                                    \
                   static_cast<unsigned>(vgpu::pack_fp8(c, d, __NV_SATFINITE, kind)) << 16;        \
        }                                                                                          \
    };

// ---- Scales ------------------------------------------------------------------------------------

// The magnitude of x as a power of two, rounded down (cudaRoundZero) or up (cudaRoundPosInf).
VGPU_FUNCTION __nv_fp8_storage_t __nv_cvt_double_to_e8m0(double x, __nv_saturation_t saturate,
                                                         enum cudaRoundMode rounding)
{
    if (x != x)
        return 0xff;
    double size = __builtin_fabs(x);
    int exponent = -127;
    if (size >= 0x1p-127 && size < 0x1p128)
        exponent = static_cast<int>(vgpu_double_bits(size) >> 52) - 1023;
    else if (size >= 0x1p128)
        exponent = 128;
    if (rounding == cudaRoundPosInf && exponent < 128 && size > __builtin_ldexp(1.0, exponent))
        exponent++;
    if (exponent > 127)
        return saturate == __NV_SATFINITE ? 0xfe : 0xff;
    return static_cast<__nv_fp8_storage_t>(exponent + 127);
}
VGPU_FUNCTION __nv_fp8_storage_t __nv_cvt_float_to_e8m0(float x, __nv_saturation_t saturate,
                                                        enum cudaRoundMode rounding)
{
    return __nv_cvt_double_to_e8m0(x, saturate, rounding);
}
VGPU_FUNCTION __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_e8m0(__nv_bfloat16_raw x,
                                                              __nv_saturation_t saturate,
                                                              enum cudaRoundMode rounding)
{
    return __nv_cvt_double_to_e8m0(vgpu_bfloat16_to_float(x.x), saturate, rounding);
}
VGPU_FUNCTION __nv_bfloat16_raw __nv_cvt_e8m0_to_bf16raw(__nv_fp8_storage_t x)
{
    __nv_bfloat16_raw result;
    result.x = static_cast<unsigned short>(x == 0 ? 0x0040u : x == 0xff ? 0x7fffu : x << 7);
    return result;
}

// Pairs, the first value low.
VGPU_FUNCTION __nv_fp8x2_storage_t __nv_cvt_double2_to_e8m0x2(double2 v, __nv_saturation_t saturate,
                                                              enum cudaRoundMode rounding)
{
    return static_cast<__nv_fp8x2_storage_t>(__nv_cvt_double_to_e8m0(v.x, saturate, rounding) |
                                             __nv_cvt_double_to_e8m0(v.y, saturate, rounding) << 8);
}
VGPU_FUNCTION __nv_fp8x2_storage_t __nv_cvt_float2_to_e8m0x2(float2 v, __nv_saturation_t saturate,
                                                             enum cudaRoundMode rounding)
{
    return __nv_cvt_double2_to_e8m0x2(make_double2(v.x, v.y), saturate, rounding);
}
VGPU_FUNCTION __nv_fp8x2_storage_t __nv_cvt_bfloat162raw_to_e8m0x2(__nv_bfloat162_raw v,
                                                                   __nv_saturation_t saturate,
                                                                   enum cudaRoundMode rounding)
{
    return __nv_cvt_double2_to_e8m0x2(
        make_double2(vgpu_bfloat16_to_float(v.x), vgpu_bfloat16_to_float(v.y)), saturate, rounding);
}
VGPU_FUNCTION __nv_bfloat162_raw __nv_cvt_e8m0x2_to_bf162raw(__nv_fp8x2_storage_t v)
{
    __nv_bfloat162_raw result;
    result.x = __nv_cvt_e8m0_to_bf16raw(static_cast<__nv_fp8_storage_t>(v)).x;
    result.y = __nv_cvt_e8m0_to_bf16raw(static_cast<__nv_fp8_storage_t>(v >> 8)).x;
    return result;
}

struct __nv_fp8_e8m0 {
    __nv_fp8_storage_t __x;
    __nv_fp8_e8m0() = default;
#define VGPU_E8M0_FROM(source, expression)                                                         \
    explicit __nv_fp8_e8m0(source x)                                                               \
        : __x(__nv_cvt_double_to_e8m0(expression, __NV_SATFINITE, cudaRoundPosInf))                \
    {                                                                                              \
    }
    VGPU_E8M0_FROM(__half, vgpu_half_to_float(x.__x))
    VGPU_E8M0_FROM(__nv_bfloat16, vgpu_bfloat16_to_float(x.__x))
    VGPU_E8M0_FROM(float, x)
    VGPU_E8M0_FROM(double, x)
#undef VGPU_E8M0_FROM
    explicit operator __nv_bfloat16() const
    {
        return __nv_bfloat16(__nv_cvt_e8m0_to_bf16raw(__x));
    }
    explicit operator float() const
    {
        return vgpu_bfloat16_to_float(__nv_cvt_e8m0_to_bf16raw(__x).x);
    }
    explicit operator double() const
    {
        return static_cast<double>(static_cast<float>(*this));
    }
};

VGPU_FP8_TYPE(__nv_fp8_e4m3, __NV_E4M3)
VGPU_FP8_TYPE(__nv_fp8_e5m2, __NV_E5M2)
VGPU_FP8_PACKS(__nv_fp8x2_e4m3, __nv_fp8x4_e4m3, __NV_E4M3)
VGPU_FP8_PACKS(__nv_fp8x2_e5m2, __nv_fp8x4_e5m2, __NV_E5M2)
#undef VGPU_FP8_PACKS
#undef VGPU_FP8_TYPE
#undef VGPU_FP8_TO_INTEGER
#undef VGPU_FP8_FROM

} // extern "C++"
#else
typedef struct {
    __nv_fp8_storage_t __x;
} __nv_fp8_e4m3, __nv_fp8_e5m2;
typedef struct {
    __nv_fp8x2_storage_t __x;
} __nv_fp8x2_e4m3, __nv_fp8x2_e5m2;
typedef struct {
    __nv_fp8x4_storage_t __x;
} __nv_fp8x4_e4m3, __nv_fp8x4_e5m2;
#endif
#endif
