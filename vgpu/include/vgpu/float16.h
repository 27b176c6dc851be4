// One 16-bit floating-point type, its pair and every function on them. Included once for half and
// once for bfloat16, with
//   VGPU_F16, VGPU_F16_RAW, VGPU_F16x2, VGPU_F16x2_RAW   the types' names
//   VGPU_F16_NAME                                        the name inside function names: half or
//   bfloat16 VGPU_F16_FORMAT, VGPU_F16_FROM_FLOAT, VGPU_F16_TO_FLOAT   the format and its
//   conversions (small_float.h) VGPU_F16_OTHER                                       the other
//   type, for the explicit conversion VGPU_F16_NO_CONVERSIONS, VGPU_F16_NO_OPERATORS       0 or 1:
//   leave out the implicit conversions, the operators
// Results are exact, rounded once, unless a function is transcendental. A NaN result is 0x7fff.
// SPDX-License-Identifier: Apache-2.0

#define VGPU_PASTE_(a, b, c)        a##b##c
#define VGPU_PASTE(a, b, c)         VGPU_PASTE_(a, b, c)
#define VGPU_PASTE5_(a, b, c, d, e) a##b##c##d##e
#define VGPU_PASTE5(a, b, c, d, e)  VGPU_PASTE5_(a, b, c, d, e)

struct VGPU_F16_OTHER;

struct __attribute__((aligned(2))) VGPU_F16 {
    unsigned short __x;

    VGPU_F16() = default;
    constexpr VGPU_F16(const VGPU_F16_RAW &raw) : __x(raw.x) {}
    explicit VGPU_F16(VGPU_F16_OTHER other);
    VGPU_F16 &operator=(const VGPU_F16_RAW &raw)
    {
        __x = raw.x;
        return *this;
    }
    operator VGPU_F16_RAW() const
    {
        VGPU_F16_RAW raw;
        raw.x = __x;
        return raw;
    }
    operator VGPU_F16_RAW() const volatile
    {
        VGPU_F16_RAW raw;
        raw.x = __x;
        return raw;
    }

#if !VGPU_F16_NO_CONVERSIONS
    VGPU_F16(float x) : __x(VGPU_F16_FROM_FLOAT(x)) {}
    VGPU_F16(double x)
        : __x(static_cast<unsigned short>(vgpu_narrow(x, VGPU_F16_FORMAT, VGPU_ROUND_NEAREST, 0)))
    {
    }
#define VGPU_F16_FROM_INTEGER(type)                                                                \
    VGPU_F16(type x)                                                                               \
        : __x(static_cast<unsigned short>(                                                         \
              vgpu_narrow(vgpu::odd_double(x), VGPU_F16_FORMAT, VGPU_ROUND_NEAREST, 0)))           \
    {                                                                                              \
    }
    VGPU_F16_FROM_INTEGER(short)
    VGPU_F16_FROM_INTEGER(unsigned short)
    VGPU_F16_FROM_INTEGER(int)
    VGPU_F16_FROM_INTEGER(unsigned int)
    VGPU_F16_FROM_INTEGER(long)
    VGPU_F16_FROM_INTEGER(unsigned long)
    VGPU_F16_FROM_INTEGER(long long)
    VGPU_F16_FROM_INTEGER(unsigned long long)
#undef VGPU_F16_FROM_INTEGER

    operator float() const
    {
        return VGPU_F16_TO_FLOAT(__x);
    }
    // Towards zero, out of range to the nearest end.
#define VGPU_F16_TO_INTEGER(type)                                                                  \
    operator type() const                                                                          \
    {                                                                                              \
        return vgpu::to_integer<type>(VGPU_F16_TO_FLOAT(__x), vgpu::rounding::zero);               \
    }
    VGPU_F16_TO_INTEGER(signed char)
    VGPU_F16_TO_INTEGER(unsigned char)
    VGPU_F16_TO_INTEGER(char)
    VGPU_F16_TO_INTEGER(short)
    VGPU_F16_TO_INTEGER(unsigned short)
    VGPU_F16_TO_INTEGER(int)
    VGPU_F16_TO_INTEGER(unsigned int)
    VGPU_F16_TO_INTEGER(long)
    VGPU_F16_TO_INTEGER(unsigned long)
    VGPU_F16_TO_INTEGER(long long)
    VGPU_F16_TO_INTEGER(unsigned long long)
#undef VGPU_F16_TO_INTEGER
    operator bool() const
    {
        return (__x & 0x7fffu) != 0;
    }
#endif
};

struct __attribute__((aligned(4))) VGPU_F16x2 {
    VGPU_F16 x, y;

    VGPU_F16x2() = default;
    constexpr VGPU_F16x2(const VGPU_F16 &low, const VGPU_F16 &high) : x(low), y(high) {}
    VGPU_F16x2(const VGPU_F16x2_RAW &raw)
    {
        x.__x = raw.x;
        y.__x = raw.y;
    }
    VGPU_F16x2 &operator=(const VGPU_F16x2_RAW &raw)
    {
        x.__x = raw.x;
        y.__x = raw.y;
        return *this;
    }
    operator VGPU_F16x2_RAW() const
    {
        VGPU_F16x2_RAW raw;
        raw.x = x.__x;
        raw.y = y.__x;
        return raw;
    }
};

namespace vgpu
{

template <> struct small<VGPU_F16> {
    static VGPU_F16 bits(unsigned bits)
    {
        VGPU_F16_RAW raw;
        raw.x = static_cast<unsigned short>(bits);
        return VGPU_F16(raw);
    }
    static VGPU_F16 round(float x)
    {
        return bits(VGPU_F16_FROM_FLOAT(x));
    }
    static VGPU_F16 round(double x, vgpu_rounding mode)
    {
        return bits(vgpu_narrow(x, VGPU_F16_FORMAT, mode, 0));
    }
    static float value(VGPU_F16 h)
    {
        return VGPU_F16_TO_FLOAT(h.__x);
    }
    // A float or double result of one exact operation, rounded: the float is enough unless it may
    // have lost bits itself.
    static VGPU_F16 product(VGPU_F16 a, VGPU_F16 b)
    {
        float p = value(a) * value(b);
        if (__builtin_fabsf(p) < 2.3509887e-38f)
            return round(static_cast<double>(value(a)) * value(b), VGPU_ROUND_NEAREST);
        return round(p);
    }
    static VGPU_F16 quotient(VGPU_F16 a, VGPU_F16 b)
    {
        return round(static_cast<double>(value(a)) / value(b), VGPU_ROUND_NEAREST);
    }
    static VGPU_F16 fused(VGPU_F16 a, VGPU_F16 b, VGPU_F16 c)
    {
        return round(odd_fma(value(a), value(b), value(c)), VGPU_ROUND_NEAREST);
    }
};

} // namespace vgpu

#define VGPU_F16_DO(name, parameters, expression)                                                  \
    VGPU_FUNCTION VGPU_F16 name parameters                                                         \
    {                                                                                              \
        return expression;                                                                         \
    }
#define VGPU_F16x2_DO(name, parameters, expression)                                                \
    VGPU_FUNCTION VGPU_F16x2 name parameters                                                       \
    {                                                                                              \
        return expression;                                                                         \
    }
#define VGPU_VALUE(h) vgpu::small<VGPU_F16>::value(h)
#define VGPU_MAKE(x)  vgpu::small<VGPU_F16>::round(x)

// ---- Conversions -------------------------------------------------------------------------------

#define VGPU_NAME(before, after) VGPU_PASTE(before, VGPU_F16_NAME, after)
VGPU_F16_DO(VGPU_NAME(__float2, ), (float x), VGPU_MAKE(x))
VGPU_F16_DO(VGPU_NAME(__float2, _rn), (float x), VGPU_MAKE(x))
VGPU_F16_DO(VGPU_NAME(__float2, _rz), (float x), vgpu::small<VGPU_F16>::round(x, VGPU_ROUND_ZERO))
VGPU_F16_DO(VGPU_NAME(__float2, _ru), (float x), vgpu::small<VGPU_F16>::round(x, VGPU_ROUND_UP))
VGPU_F16_DO(VGPU_NAME(__float2, _rd), (float x), vgpu::small<VGPU_F16>::round(x, VGPU_ROUND_DOWN))
VGPU_F16_DO(VGPU_NAME(__double2, ), (double x), vgpu::small<VGPU_F16>::round(x, VGPU_ROUND_NEAREST))
VGPU_FUNCTION float VGPU_NAME(__, 2float)(VGPU_F16 h)
{
    return VGPU_VALUE(h);
}
#define VGPU_F16_INTEGER(name, type)                                                               \
    VGPU_F16_DO(VGPU_PASTE5(__, name, 2, VGPU_F16_NAME, _rn), (type x),                            \
                vgpu::small<VGPU_F16>::round(vgpu::odd_double(x), VGPU_ROUND_NEAREST))             \
    VGPU_F16_DO(VGPU_PASTE5(__, name, 2, VGPU_F16_NAME, _rz), (type x),                            \
                vgpu::small<VGPU_F16>::round(vgpu::odd_double(x), VGPU_ROUND_ZERO))                \
    VGPU_F16_DO(VGPU_PASTE5(__, name, 2, VGPU_F16_NAME, _ru), (type x),                            \
                vgpu::small<VGPU_F16>::round(vgpu::odd_double(x), VGPU_ROUND_UP))                  \
    VGPU_F16_DO(VGPU_PASTE5(__, name, 2, VGPU_F16_NAME, _rd), (type x),                            \
                vgpu::small<VGPU_F16>::round(vgpu::odd_double(x), VGPU_ROUND_DOWN))                \
    VGPU_FUNCTION type VGPU_PASTE5(__, VGPU_F16_NAME, 2, name, _rn)(VGPU_F16 h)                    \
    {                                                                                              \
        return vgpu::to_integer<type>(VGPU_VALUE(h), vgpu::rounding::nearest);                     \
    }                                                                                              \
    VGPU_FUNCTION type VGPU_PASTE5(__, VGPU_F16_NAME, 2, name, _rz)(VGPU_F16 h)                    \
    {                                                                                              \
        return vgpu::to_integer<type>(VGPU_VALUE(h), vgpu::rounding::zero);                        \
    }                                                                                              \
    VGPU_FUNCTION type VGPU_PASTE5(__, VGPU_F16_NAME, 2, name, _ru)(VGPU_F16 h)                    \
    {                                                                                              \
        return vgpu::to_integer<type>(VGPU_VALUE(h), vgpu::rounding::up);                          \
    }                                                                                              \
    VGPU_FUNCTION type VGPU_PASTE5(__, VGPU_F16_NAME, 2, name, _rd)(VGPU_F16 h)                    \
    {                                                                                              \
        return vgpu::to_integer<type>(VGPU_VALUE(h), vgpu::rounding::down);                        \
    }
VGPU_F16_INTEGER(short, short)
VGPU_F16_INTEGER(ushort, unsigned short)
VGPU_F16_INTEGER(int, int)
VGPU_F16_INTEGER(uint, unsigned int)
VGPU_F16_INTEGER(ll, long long)
VGPU_F16_INTEGER(ull, unsigned long long)
#undef VGPU_F16_INTEGER
VGPU_FUNCTION signed char VGPU_NAME(__, 2char_rz)(VGPU_F16 h)
{
    return vgpu::to_integer<signed char>(VGPU_VALUE(h), vgpu::rounding::zero);
}
VGPU_FUNCTION unsigned char VGPU_NAME(__, 2uchar_rz)(VGPU_F16 h)
{
    return vgpu::to_integer<unsigned char>(VGPU_VALUE(h), vgpu::rounding::zero);
}
VGPU_FUNCTION short VGPU_NAME(__, _as_short)(VGPU_F16 h)
{
    return static_cast<short>(h.__x);
}
VGPU_FUNCTION unsigned short VGPU_NAME(__, _as_ushort)(VGPU_F16 h)
{
    return h.__x;
}
VGPU_F16_DO(VGPU_NAME(__short_as_, ), (short x),
            vgpu::small<VGPU_F16>::bits(static_cast<unsigned short>(x)))
VGPU_F16_DO(VGPU_NAME(__ushort_as_, ), (unsigned short x), vgpu::small<VGPU_F16>::bits(x))

// Pairs: built, taken apart, converted.
VGPU_F16x2_DO(VGPU_NAME(make_, 2), (VGPU_F16 low, VGPU_F16 high), VGPU_F16x2(low, high))
    VGPU_F16x2_DO(VGPU_NAME(__halves2, 2), (VGPU_F16 low, VGPU_F16 high), VGPU_F16x2(low, high))
        VGPU_F16x2_DO(VGPU_PASTE5(__, VGPU_F16_NAME, 2, VGPU_F16_NAME, 2), (VGPU_F16 h),
                      VGPU_F16x2(h, h)) VGPU_F16x2_DO(VGPU_NAME(__float2, 2_rn), (float x),
                                                      VGPU_F16x2(VGPU_MAKE(x), VGPU_MAKE(x)))
            VGPU_F16x2_DO(VGPU_NAME(__floats2, 2_rn), (float low, float high),
                          VGPU_F16x2(VGPU_MAKE(low), VGPU_MAKE(high)))
                VGPU_F16x2_DO(VGPU_NAME(__float22, 2_rn), (float2 v),
                              VGPU_F16x2(VGPU_MAKE(v.x), VGPU_MAKE(v.y)))
                    VGPU_F16x2_DO(VGPU_NAME(__low2, 2), (VGPU_F16x2 v), VGPU_F16x2(v.x, v.x))
                        VGPU_F16x2_DO(VGPU_NAME(__high2, 2), (VGPU_F16x2 v), VGPU_F16x2(v.y, v.y))
                            VGPU_F16x2_DO(VGPU_NAME(__lows2, 2), (VGPU_F16x2 a, VGPU_F16x2 b),
                                          VGPU_F16x2(a.x, b.x))
                                VGPU_F16x2_DO(VGPU_NAME(__highs2, 2), (VGPU_F16x2 a, VGPU_F16x2 b),
                                              VGPU_F16x2(a.y, b.y))
                                    VGPU_F16x2_DO(__lowhigh2highlow, (VGPU_F16x2 v),
                                                  VGPU_F16x2(v.y, v.x))
                                        VGPU_F16_DO(VGPU_NAME(__low2, ), (VGPU_F16x2 v), v.x)
                                            VGPU_F16_DO(VGPU_NAME(__high2, ), (VGPU_F16x2 v),
                                                        v.y) VGPU_FUNCTION
    float __low2float(VGPU_F16x2 v)
{
    return VGPU_VALUE(v.x);
}
VGPU_FUNCTION float __high2float(VGPU_F16x2 v)
{
    return VGPU_VALUE(v.y);
}
VGPU_FUNCTION float2 VGPU_NAME(__, 22float2)(VGPU_F16x2 v)
{
    float2 result = {VGPU_VALUE(v.x), VGPU_VALUE(v.y)};
    return result;
}

// ---- Tests and comparisons ---------------------------------------------------------------------

VGPU_FUNCTION bool __hisnan(VGPU_F16 h)
{
    return (h.__x & 0x7fffu) > VGPU_F16_FORMAT.infinity;
}
// 1 for +infinity, -1 for -infinity, else 0.
VGPU_FUNCTION int __hisinf(VGPU_F16 h)
{
    return (h.__x & 0x7fffu) != VGPU_F16_FORMAT.infinity ? 0 : (h.__x & 0x8000u) != 0 ? -1 : 1;
}

// The ordered form is false for NaNs, the u form true. On pairs: 1.0 or 0.0 per half, all bits or
// none (_mask), both (b).
#define VGPU_F16_COMPARE(name, operation)                                                          \
    VGPU_FUNCTION bool __h##name(VGPU_F16 a, VGPU_F16 b)                                           \
    {                                                                                              \
        return !__hisnan(a) && !__hisnan(b) && VGPU_VALUE(a) operation VGPU_VALUE(b);              \
    }                                                                                              \
    VGPU_FUNCTION bool __h##name##u(VGPU_F16 a, VGPU_F16 b)                                        \
    {                                                                                              \
        return __hisnan(a) || __hisnan(b) || VGPU_VALUE(a) operation VGPU_VALUE(b);                \
    }                                                                                              \
    VGPU_F16_COMPARE2(name)                                                                        \
    VGPU_F16_COMPARE2(name##u)
#define VGPU_F16_COMPARE2(name)                                                                    \
    VGPU_F16x2_DO(__h##name##2, (VGPU_F16x2 a, VGPU_F16x2 b),                                      \
                  VGPU_F16x2(VGPU_MAKE(__h##name(a.x, b.x) ? 1.0f : 0.0f),                         \
                             VGPU_MAKE(__h##name(a.y, b.y) ? 1.0f : 0.0f)))                        \
        VGPU_FUNCTION unsigned __h##name##2_mask(VGPU_F16x2 a, VGPU_F16x2 b)                       \
    {                                                                                              \
        return (__h##name(a.x, b.x) ? 0xffffu : 0u) | (__h##name(a.y, b.y) ? 0xffff0000u : 0u);    \
    }                                                                                              \
    VGPU_FUNCTION bool __hb##name##2(VGPU_F16x2 a, VGPU_F16x2 b)                                   \
    {                                                                                              \
        return __h##name(a.x, b.x) && __h##name(a.y, b.y);                                         \
    }
VGPU_F16_COMPARE(eq, ==)
VGPU_F16_COMPARE(ne, !=)
VGPU_F16_COMPARE(le, <=)
VGPU_F16_COMPARE(ge, >=)
VGPU_F16_COMPARE(lt, <)
VGPU_F16_COMPARE(gt, >)
#undef VGPU_F16_COMPARE
#undef VGPU_F16_COMPARE2
VGPU_F16x2_DO(__hisnan2, (VGPU_F16x2 v),
              VGPU_F16x2(VGPU_MAKE(__hisnan(v.x) ? 1.0f : 0.0f),
                         VGPU_MAKE(__hisnan(v.y) ? 1.0f : 0.0f)))

// ---- Arithmetic --------------------------------------------------------------------------------

// A function and its pair form.
#define VGPU_F16_UNARY(name, name2, expression)                                                    \
    VGPU_F16_DO(name, (VGPU_F16 a), expression)                                                    \
    VGPU_F16x2_DO(name2, (VGPU_F16x2 a), VGPU_F16x2(name(a.x), name(a.y)))
#define VGPU_F16_BINARY(name, name2, expression)                                                   \
    VGPU_F16_DO(name, (VGPU_F16 a, VGPU_F16 b), expression)                                        \
    VGPU_F16x2_DO(name2, (VGPU_F16x2 a, VGPU_F16x2 b), VGPU_F16x2(name(a.x, b.x), name(a.y, b.y)))
#define VGPU_F16_TERNARY(name, name2, expression)                                                  \
    VGPU_F16_DO(name, (VGPU_F16 a, VGPU_F16 b, VGPU_F16 c), expression)                            \
    VGPU_F16x2_DO(name2, (VGPU_F16x2 a, VGPU_F16x2 b, VGPU_F16x2 c),                               \
                  VGPU_F16x2(name(a.x, b.x, c.x), name(a.y, b.y, c.y)))

    VGPU_F16_UNARY(__hneg, __hneg2,
                   __hisnan(a) ? vgpu::small<VGPU_F16>::bits(0x7fff)
                               : vgpu::small<VGPU_F16>::bits(a.__x ^ 0x8000u))
        VGPU_F16_UNARY(__habs, __habs2,
                       __hisnan(a) ? vgpu::small<VGPU_F16>::bits(0x7fff)
                                   : vgpu::small<VGPU_F16>::bits(a.__x & 0x7fffu))
            VGPU_F16_BINARY(__hadd, __hadd2, VGPU_MAKE(VGPU_VALUE(a) + VGPU_VALUE(b)))
                VGPU_F16_BINARY(__hsub, __hsub2, VGPU_MAKE(VGPU_VALUE(a) - VGPU_VALUE(b)))
                    VGPU_F16_BINARY(__hmul, __hmul2, vgpu::small<VGPU_F16>::product(a, b))
                        VGPU_F16_BINARY(__hadd_rn, __hadd2_rn, __hadd(a, b))
                            VGPU_F16_BINARY(__hsub_rn, __hsub2_rn, __hsub(a, b))
                                VGPU_F16_BINARY(__hmul_rn, __hmul2_rn, __hmul(a, b))
                                    VGPU_F16_BINARY(__hdiv, __h2div,
                                                    vgpu::small<VGPU_F16>::quotient(a, b))
                                        VGPU_F16_TERNARY(__hfma, __hfma2,
                                                         vgpu::small<VGPU_F16>::fused(a, b, c))

                                            namespace vgpu
{

    // Clamped to [0, 1], a NaN to 0.
    inline VGPU_F16 saturated(VGPU_F16 h)
    {
        float x = VGPU_VALUE(h);
        return x >= 1.0f ? VGPU_MAKE(1.0f) : x > 0.0f ? h : VGPU_MAKE(0.0f);
    }
    // Negative values to 0.
    inline VGPU_F16 rectified(VGPU_F16 h)
    {
        return VGPU_VALUE(h) < 0.0f || h.__x == 0x8000u ? VGPU_MAKE(0.0f) : h;
    }
    // The larger or smaller by total order of the non-NaN values: -0 below +0.
    inline VGPU_F16 choose(VGPU_F16 a, VGPU_F16 b, bool larger)
    {
        float x = VGPU_VALUE(a), y = VGPU_VALUE(b);
        bool a_below = x < y || (x == y && (a.__x & 0x8000u) != 0);
        return a_below == larger ? b : a;
    }
    inline VGPU_F16 choose_number(VGPU_F16 a, VGPU_F16 b, bool larger)
    {
        if (__hisnan(a) && __hisnan(b))
            return small<VGPU_F16>::bits(0x7fff);
        return __hisnan(a) ? b : __hisnan(b) ? a : choose(a, b, larger);
    }
    inline VGPU_F16 choose_nan(VGPU_F16 a, VGPU_F16 b, bool larger)
    {
        return __hisnan(a) || __hisnan(b) ? small<VGPU_F16>::bits(0x7fff) : choose(a, b, larger);
    }

} // namespace vgpu

VGPU_F16_BINARY(__hadd_sat, __hadd2_sat, vgpu::saturated(__hadd(a, b)))
VGPU_F16_BINARY(__hsub_sat, __hsub2_sat, vgpu::saturated(__hsub(a, b)))
VGPU_F16_BINARY(__hmul_sat, __hmul2_sat, vgpu::saturated(__hmul(a, b)))
VGPU_F16_TERNARY(__hfma_sat, __hfma2_sat, vgpu::saturated(__hfma(a, b, c)))
VGPU_F16_TERNARY(__hfma_relu, __hfma2_relu, vgpu::rectified(__hfma(a, b, c)))
VGPU_F16_BINARY(__hmax, __hmax2, vgpu::choose_number(a, b, true))
VGPU_F16_BINARY(__hmin, __hmin2, vgpu::choose_number(a, b, false))
VGPU_F16_BINARY(__hmax_nan, __hmax2_nan, vgpu::choose_nan(a, b, true))
VGPU_F16_BINARY(__hmin_nan, __hmin2_nan, vgpu::choose_nan(a, b, false))
// Complex multiply and add: (x, y) are real and imaginary parts.
VGPU_F16x2_DO(__hcmadd, (VGPU_F16x2 a, VGPU_F16x2 b, VGPU_F16x2 c),
              VGPU_F16x2(__hfma(__hneg(a.y), b.y, __hfma(a.x, b.x, c.x)),
                         __hfma(a.y, b.x, __hfma(a.x, b.y, c.y))))

// ---- Mathematical functions --------------------------------------------------------------------

#define VGPU_F16_MATH(name, name2, expression)                                                     \
    VGPU_FUNCTION VGPU_F16 name(VGPU_F16 a)                                                        \
    {                                                                                              \
        double x = VGPU_VALUE(a);                                                                  \
        return vgpu::small<VGPU_F16>::round(static_cast<double>(expression), VGPU_ROUND_NEAREST);  \
    }                                                                                              \
    VGPU_F16x2_DO(name2, (VGPU_F16x2 a), VGPU_F16x2(name(a.x), name(a.y)))
    VGPU_F16_MATH(hsqrt, h2sqrt, std::sqrt(x)) VGPU_F16_MATH(hrsqrt, h2rsqrt, 1.0 / std::sqrt(x))
        VGPU_F16_MATH(hrcp, h2rcp, 1.0 / x) VGPU_F16_MATH(hexp, h2exp, std::exp(x)) VGPU_F16_MATH(
            hexp2, h2exp2, std::exp2(x)) VGPU_F16_MATH(hexp10, h2exp10,
                                                       std::pow(10.0, x)) VGPU_F16_MATH(hlog, h2log,
                                                                                        std::log(x))
            VGPU_F16_MATH(hlog2, h2log2, std::log2(x)) VGPU_F16_MATH(hlog10, h2log10, std::log10(x))
                VGPU_F16_MATH(hsin, h2sin, std::sin(x)) VGPU_F16_MATH(
                    hcos, h2cos, std::cos(x)) VGPU_F16_MATH(htanh, h2tanh, std::tanh(x))
                    VGPU_F16_MATH(htanh_approx, h2tanh_approx, std::tanh(x)) VGPU_F16_MATH(
                        htrunc,
                        h2trunc, std::trunc(x)) VGPU_F16_MATH(hceil, h2ceil, std::ceil(x))
                        VGPU_F16_MATH(hfloor, h2floor, std::floor(x)) VGPU_F16_MATH(
                            hrint, h2rint, vgpu::round_to_integral(x, vgpu::rounding::nearest))
#undef VGPU_F16_MATH

// ---- Operators ---------------------------------------------------------------------------------

#if !VGPU_F16_NO_OPERATORS
#define VGPU_F16_OPERATOR(type, operation, function)                                               \
    VGPU_FUNCTION type operator operation(const type &a, const type &b)                            \
    {                                                                                              \
        return function(a, b);                                                                     \
    }                                                                                              \
    VGPU_FUNCTION type &operator operation##=(type &a, const type &b)                              \
    {                                                                                              \
        a = function(a, b);                                                                        \
        return a;                                                                                  \
    }
#define VGPU_F16_OPERATORS(type, one, add, sub, mul, div, neg)                                     \
    VGPU_F16_OPERATOR(type, +, add)                                                                \
    VGPU_F16_OPERATOR(type, -, sub)                                                                \
    VGPU_F16_OPERATOR(type, *, mul)                                                                \
    VGPU_F16_OPERATOR(type, /, div)                                                                \
    VGPU_FUNCTION type operator+(const type &a)                                                    \
    {                                                                                              \
        return a;                                                                                  \
    }                                                                                              \
    VGPU_FUNCTION type operator-(const type &a)                                                    \
    {                                                                                              \
        return neg(a);                                                                             \
    }                                                                                              \
    VGPU_FUNCTION type &operator++(type &a)                                                        \
    {                                                                                              \
        a = add(a, one);                                                                           \
        return a;                                                                                  \
    }                                                                                              \
    VGPU_FUNCTION type operator++(type &a, int)                                                    \
    {                                                                                              \
        type old = a;                                                                              \
        a = add(a, one);                                                                           \
        return old;                                                                                \
    }                                                                                              \
    VGPU_FUNCTION type &operator--(type &a)                                                        \
    {                                                                                              \
        a = sub(a, one);                                                                           \
        return a;                                                                                  \
    }                                                                                              \
    VGPU_FUNCTION type operator--(type &a, int)                                                    \
    {                                                                                              \
        type old = a;                                                                              \
        a = sub(a, one);                                                                           \
        return old;                                                                                \
    }
                            VGPU_F16_OPERATORS(VGPU_F16, VGPU_MAKE(1.0f), __hadd, __hsub, __hmul,
                                               __hdiv,
                                               __hneg)
                                VGPU_F16_OPERATORS(VGPU_F16x2,
                                                   VGPU_F16x2(VGPU_MAKE(1.0f), VGPU_MAKE(1.0f)),
                                                   __hadd2, __hsub2, __hmul2, __h2div, __hneg2)
#define VGPU_F16_RELATION(type, operation, function)                                               \
    VGPU_FUNCTION bool operator operation(const type &a, const type &b)                            \
    {                                                                                              \
        return function(a, b);                                                                     \
    }
                                    VGPU_F16_RELATION(VGPU_F16, ==, __heq) VGPU_F16_RELATION(
                                        VGPU_F16, !=, __hneu) VGPU_F16_RELATION(VGPU_F16, <, __hlt)
                                        VGPU_F16_RELATION(VGPU_F16, <=, __hle) VGPU_F16_RELATION(
                                            VGPU_F16, >,
                                            __hgt) VGPU_F16_RELATION(VGPU_F16, >=, __hge)
                                            VGPU_F16_RELATION(VGPU_F16x2, ==, __hbeq2)
                                                VGPU_F16_RELATION(VGPU_F16x2, !=, __hbneu2)
                                                    VGPU_F16_RELATION(VGPU_F16x2, <, __hblt2)
                                                        VGPU_F16_RELATION(VGPU_F16x2, <=, __hble2)
                                                            VGPU_F16_RELATION(VGPU_F16x2, >,
                                                                              __hbgt2)
                                                                VGPU_F16_RELATION(VGPU_F16x2, >=,
                                                                                  __hbge2)
#undef VGPU_F16_RELATION
#undef VGPU_F16_OPERATORS
#undef VGPU_F16_OPERATOR
#endif

// ---- Atomics -----------------------------------------------------------------------------------

#ifdef __CUDACC__
                                                                    VGPU_F16_DO(
                                                                        atomicAdd,
                                                                        (VGPU_F16 * address,
                                                                         VGPU_F16 value),
                                                                        vgpu::atomic_update(
                                                                            address,
                                                                            [value](VGPU_F16 x) {
                                                                                return __hadd(
                                                                                    x, value);
                                                                            }))
                                                                        VGPU_F16x2_DO(
                                                                            atomicAdd,
                                                                            (VGPU_F16x2 * address,
                                                                             VGPU_F16x2 value),
                                                                            vgpu::atomic_update(
                                                                                address,
                                                                                [value](
                                                                                    VGPU_F16x2 x) {
                                                                                    return __hadd2(
                                                                                        x, value);
                                                                                }))
#endif

#undef VGPU_F16_UNARY
#undef VGPU_F16_BINARY
#undef VGPU_F16_TERNARY
#undef VGPU_F16_DO
#undef VGPU_F16x2_DO
#undef VGPU_VALUE
#undef VGPU_MAKE
#undef VGPU_NAME
#undef VGPU_PASTE
#undef VGPU_PASTE_
#undef VGPU_PASTE5
#undef VGPU_PASTE5_
#undef VGPU_F16
#undef VGPU_F16_RAW
#undef VGPU_F16x2
#undef VGPU_F16x2_RAW
#undef VGPU_F16_NAME
#undef VGPU_F16_FORMAT
#undef VGPU_F16_FROM_FLOAT
#undef VGPU_F16_TO_FLOAT
#undef VGPU_F16_OTHER
#undef VGPU_F16_NO_CONVERSIONS
#undef VGPU_F16_NO_OPERATORS
