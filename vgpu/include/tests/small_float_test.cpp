// Conversions of half, bfloat16 and 8-bit floats against a search through all values of the format,
// in every rounding; with the argument "full" over all 2^32 floats. And the arithmetic on them,
// against exact computation.
// SPDX-License-Identifier: Apache-2.0
#include "cuda_fp8.h"
#include "expect.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

namespace
{

// A format described by its values alone: all finite magnitudes in ascending order with their bits,
// and the magnitude at which rounding to nearest leaves them.
struct format {
    std::vector<double> values;
    unsigned infinity, nan, sign;
    double limit;

    format(unsigned largest, double (*value)(unsigned), unsigned infinity_bits, unsigned sign_bit,
           double overflow)
        : infinity(infinity_bits), nan(sign_bit - 1), sign(sign_bit), limit(overflow)
    {
        for (unsigned bits = 0; bits <= largest; bits++)
            values.push_back(value(bits));
    }

    unsigned round(double x, vgpu_rounding mode, bool saturate) const
    {
        if (x != x)
            return nan;
        unsigned s = std::signbit(x) ? sign : 0;
        double m = std::fabs(x);
        unsigned top = static_cast<unsigned>(values.size()) - 1;
        bool away = mode == VGPU_ROUND_UP ? s == 0 : mode == VGPU_ROUND_DOWN ? s != 0 : false;
        if (std::isinf(m))
            return s | (saturate ? top : infinity);
        unsigned above = static_cast<unsigned>(std::lower_bound(values.begin(), values.end(), m) -
                                               values.begin());
        if (above > top) {
            bool over = mode == VGPU_ROUND_NEAREST ? m >= limit : away;
            return s | (over && !saturate ? infinity : top);
        }
        if (values[above] == m)
            return s | above;
        unsigned below = above - 1;
        if (mode != VGPU_ROUND_NEAREST)
            return s | (away ? above : below);
        double to_below = m - values[below],
               to_above = values[above] - m; // exact: the values are close and short
        if (to_below != to_above)
            return s | (to_below < to_above ? below : above);
        return s | (below % 2 == 0 ? below : above);
    }
};

double half_value(unsigned bits)
{
    int exponent = static_cast<int>(bits >> 10);
    return exponent == 0 ? std::ldexp(bits & 1023u, -24)
                         : std::ldexp(1024.0 + (bits & 1023u), exponent - 25);
}
double bfloat16_value(unsigned bits)
{
    int exponent = static_cast<int>(bits >> 7);
    return exponent == 0 ? std::ldexp(bits & 127u, -133)
                         : std::ldexp(128.0 + (bits & 127u), exponent - 134);
}
double e4m3_value(unsigned bits)
{
    int exponent = static_cast<int>(bits >> 3);
    return exponent == 0 ? std::ldexp(bits & 7u, -9) : std::ldexp(8.0 + (bits & 7u), exponent - 10);
}
double e5m2_value(unsigned bits)
{
    int exponent = static_cast<int>(bits >> 2);
    return exponent == 0 ? std::ldexp(bits & 3u, -16)
                         : std::ldexp(4.0 + (bits & 3u), exponent - 17);
}

const format half_format(0x7bff, half_value, 0x7c00, 0x8000, 65520.0);
const format bfloat16_format(0x7f7f, bfloat16_value, 0x7f80, 0x8000, std::ldexp(511.0, 119));
const format e4m3_format(0x7e, e4m3_value, 0x7f, 0x80, 464.0000001);
const format e5m2_format(0x7b, e5m2_value, 0x7c, 0x80, 61440.0);

unsigned long long checked, wrong;

void check(unsigned got, unsigned want, double x, const char *what)
{
    checked++;
    if (got == want)
        return;
    if (wrong++ < 10)
        fprintf(stderr, "%s of %a: %#x, should be %#x\n", what, x, got, want);
}

void check_float(float x)
{
    const vgpu_rounding modes[] = {VGPU_ROUND_NEAREST, VGPU_ROUND_ZERO, VGPU_ROUND_UP,
                                   VGPU_ROUND_DOWN};
    check(vgpu_float_to_half(x), half_format.round(x, VGPU_ROUND_NEAREST, false), x, "half");
    check(vgpu_float_to_bfloat16(x), bfloat16_format.round(x, VGPU_ROUND_NEAREST, false), x,
          "bfloat16");
    for (vgpu_rounding mode : modes) {
        check(vgpu_double_to_half(x, mode), half_format.round(x, mode, false), x, "half by mode");
        check(vgpu_double_to_bfloat16(x, mode), bfloat16_format.round(x, mode, false), x,
              "bfloat16 by mode");
    }
    for (int saturate = 0; saturate < 2; saturate++) {
        check(vgpu_double_to_e4m3(x, saturate), e4m3_format.round(x, VGPU_ROUND_NEAREST, saturate),
              x, "e4m3");
        check(vgpu_double_to_e5m2(x, saturate), e5m2_format.round(x, VGPU_ROUND_NEAREST, saturate),
              x, "e5m2");
    }
}

// All values of a format, the midpoints between neighbours, and what lies one float beside each.
void check_around(const format &f)
{
    for (size_t i = 0; i < f.values.size(); i++) {
        double next = i + 1 < f.values.size() ? f.values[i + 1] : f.values[i];
        double points[] = {f.values[i], (f.values[i] + next) / 2};
        for (double p : points) {
            float x = static_cast<float>(p);
            for (float y : {x, std::nextafter(x, 0.0f), std::nextafter(x, HUGE_VALF)}) {
                check_float(y);
                check_float(-y);
            }
        }
    }
}

void floats(void)
{
    checked = wrong = 0;
    check_around(half_format);
    check_around(bfloat16_format);
    check_around(e4m3_format);
    check_around(e5m2_format);
    const float special[] = {NAN,      -NAN,     HUGE_VALF, -HUGE_VALF, 65519.996f, 65520.0f,
                             65535.9f, 448.0f,   463.999f,  464.0f,     464.001f,   57344.0f,
                             61439.9f, 61440.0f, 3.4e38f,   3.3961e38f, 1e-45f,     2.98e-8f,
                             2.99e-8f, 5.96e-8f, 0x1p-10f,  0x1p-17f};
    for (float x : special) {
        check_float(x);
        check_float(-x);
    }
    for (uint32_t step = 0; step < (1u << 20); step++)
        check_float(vgpu_bits_float(step * 4093u));
    EXPECT_EQ(wrong, 0);
    EXPECT(checked > 10000000);
}

// All floats, in ascending order per sign: the nearest value moves up with x, so that the reference
// is one running index.
void all_floats(void)
{
    checked = wrong = 0;
    unsigned at_half = 0, at_bfloat16 = 0;
    auto nearest = [](const format &f, unsigned &at, double m) {
        while (at + 1 < f.values.size() &&
               (m - f.values[at] > f.values[at + 1] - m ||
                (m - f.values[at] == f.values[at + 1] - m && at % 2 == 1)))
            at++;
        return m >= f.limit ? f.infinity : at;
    };
    for (uint32_t bits = 0; bits < 0x7f800000u; bits++) {
        float x = vgpu_bits_float(bits);
        unsigned h = nearest(half_format, at_half, x), b = nearest(bfloat16_format, at_bfloat16, x);
        check(vgpu_float_to_half(x), h, x, "half");
        check(vgpu_float_to_half(-x), h | 0x8000u, -x, "half");
        check(vgpu_float_to_bfloat16(x), b, x, "bfloat16");
        check(vgpu_float_to_bfloat16(-x), b | 0x8000u, -x, "bfloat16");
    }
    for (uint32_t bits = 0x7f800001u; bits < 0x80000000u; bits++) {
        check(vgpu_float_to_half(vgpu_bits_float(bits)), 0x7fff, 0, "half of NaN");
        check(vgpu_float_to_bfloat16(vgpu_bits_float(bits | 0x80000000u)), 0x7fff, 0,
              "bfloat16 of NaN");
    }
    EXPECT_EQ(wrong, 0);
    EXPECT(checked > 4000000000ull);
}

// All values of every format become the right float, and come back.
void widening(void)
{
    for (unsigned bits = 0; bits < 0x10000u; bits++) {
        unsigned m = bits & 0x7fffu;
        double sign = bits & 0x8000u ? -1.0 : 1.0;
        float h = vgpu_half_to_float(static_cast<uint16_t>(bits)),
              b = vgpu_bfloat16_to_float(static_cast<uint16_t>(bits));
        if (m > 0x7c00u)
            EXPECT_EQ(vgpu_float_bits(h), 0x7fffffff);
        else if (m == 0x7c00u)
            EXPECT(std::isinf(h) && std::signbit(h) == (sign < 0));
        else if (h != sign * half_value(m) || std::signbit(h) != (sign < 0) ||
                 vgpu_float_to_half(h) != bits)
            EXPECT_EQ(bits, -1);
        if (vgpu_float_bits(b) != bits << 16)
            EXPECT_EQ(bits, -2);
    }
    for (unsigned bits = 0; bits < 256; bits++) {
        unsigned m = bits & 0x7fu;
        double sign = bits & 0x80u ? -1.0 : 1.0;
        uint16_t h4 = vgpu_e4m3_to_half(static_cast<uint8_t>(bits)),
                 h5 = vgpu_e5m2_to_half(static_cast<uint8_t>(bits));
        if (m == 0x7f)
            EXPECT_EQ(h4, 0x7fff);
        else
            EXPECT(vgpu_half_to_float(h4) == sign * e4m3_value(m) && (h4 >> 15) == (bits >> 7));
        if (m > 0x7c)
            EXPECT_EQ(h5, 0x7fff);
        else if (m < 0x7c)
            EXPECT(vgpu_half_to_float(h5) == sign * e5m2_value(m) && (h5 >> 15) == (bits >> 7));
        else
            EXPECT_EQ(h5, 0x7c00 | (bits & 0x80u) << 8);
    }
}

// Sums, products, quotients and fused products of 16-bit floats, against 128-bit arithmetic rounded
// by search. The quad is exact for sums and products of them up to 113 bits; what it loses cannot
// reach a midpoint.
template <class T> struct type_of;
template <> struct type_of<__half> {
    static const format &of()
    {
        return half_format;
    }
};
template <> struct type_of<__nv_bfloat16> {
    static const format &of()
    {
        return bfloat16_format;
    }
};
template <class T> T from_bits(unsigned bits)
{
    return vgpu::small<T>::bits(bits);
}
// A quad (and what a sum of quads has lost) as a double that is odd where it loses bits.
double odd(__float128 x, __float128 lost = 0)
{
    double near = static_cast<double>(x);
    __float128 rest = x - near != 0 ? x - near : lost;
    return vgpu::make_odd(near, rest > 0 ? 1.0 : rest < 0 ? -1.0 : 0.0);
}
template <class T> void arithmetic_on(unsigned a, unsigned b, unsigned c)
{
    const format &f = type_of<T>::of();
    T x = from_bits<T>(a), y = from_bits<T>(b), z = from_bits<T>(c);
    float fx = vgpu::small<T>::value(x), fy = vgpu::small<T>::value(y),
          fz = vgpu::small<T>::value(z);
    typedef __float128 quad;
    auto want = [&](quad exact, double special) {
        bool finite = std::isfinite(fx) && std::isfinite(fy);
        return f.round(finite && exact != 0 ? odd(exact) : special, VGPU_ROUND_NEAREST, false);
    };
    check(__hadd(x, y).__x, want(quad(fx) + fy, double(fx) + fy), fx, "sum");
    check(__hsub(x, y).__x, want(quad(fx) - fy, double(fx) - fy), fx, "difference");
    check(__hmul(x, y).__x, want(quad(fx) * fy, double(fx) * fy), fx, "product");
    if (fy != 0)
        check(__hdiv(x, y).__x, want(quad(fx) / fy, double(fx) / fy), fx, "quotient");
    quad product = quad(fx) * fy, sum = product + fz;
    if (std::isfinite(fx) && std::isfinite(fy) && std::isfinite(fz) && sum != 0)
        check(__hfma(x, y, z).__x,
              f.round(odd(sum, vgpu::sum_error<quad>(product, fz, sum)), VGPU_ROUND_NEAREST, false),
              fx, "fused product");
    else
        check(__hfma(x, y, z).__x, f.round(double(fx) * fy + fz, VGPU_ROUND_NEAREST, false), fx,
              "special fused product");
}

void arithmetic(void)
{
    checked = wrong = 0;
    std::mt19937 random(17);
    const unsigned special[] = {0,      1,      0x8000, 0x8001, 0x3ff,  0x400,  0x7bff,
                                0x7c00, 0xfc00, 0x7fff, 0x7f7f, 0x7f80, 0xff80, 0x3c00,
                                0x3f80, 0x0080, 0x007f, 0x3c01, 0x3f81, 0xbc01};
    for (unsigned a : special)
        for (unsigned b : special)
            for (unsigned c : special) {
                arithmetic_on<__half>(a, b, c);
                arithmetic_on<__nv_bfloat16>(a, b, c);
            }
    for (int i = 0; i < 200000; i++) {
        unsigned a = random() & 0xffffu, b = random() & 0xffffu, c = random() & 0xffffu;
        arithmetic_on<__half>(a, b, c);
        arithmetic_on<__nv_bfloat16>(a, b, c);
        // Addends near the product's size, and near its negative, where rounding is hardest.
        arithmetic_on<__half>(
            a, b, __hmul(from_bits<__half>(a), from_bits<__half>(b)).__x ^ (random() & 0x8001u));
        arithmetic_on<__nv_bfloat16>(
            a, b,
            __hmul(from_bits<__nv_bfloat16>(a), from_bits<__nv_bfloat16>(b)).__x ^
                (random() & 0x8001u));
    }
    EXPECT_EQ(wrong, 0);
    EXPECT(checked > 1000000);
}

void functions(void)
{
    __half one = __float2half(1.0f), nan = from_bits<__half>(0x7e00),
           minus_zero = from_bits<__half>(0x8000);
    EXPECT_EQ(__hmax(one, nan).__x, 0x3c00);
    EXPECT_EQ(__hmin(nan, nan).__x, 0x7fff);
    EXPECT_EQ(__hmax_nan(one, nan).__x, 0x7fff);
    EXPECT_EQ(__hmax(minus_zero, from_bits<__half>(0)).__x, 0);
    EXPECT_EQ(__hmin(from_bits<__half>(0), minus_zero).__x, 0x8000);
    EXPECT(!__heq(nan, nan) && __hequ(nan, nan) && __hneu(nan, nan) && !__hne(nan, nan) &&
           (nan != nan));
    EXPECT(__hisinf(from_bits<__half>(0xfc00)) == -1 && __hisinf(from_bits<__half>(0x7c00)) == 1 &&
           __hisinf(one) == 0);
    EXPECT_EQ(__hadd_sat(one, one).__x, 0x3c00);
    EXPECT_EQ(__hfma_relu(one, __hneg(one), minus_zero).__x, 0);
    EXPECT_EQ(__heq2_mask(__half2(one, nan), __half2(one, nan)), 0xffff);
    EXPECT(__hblt2(__half2(minus_zero, one), __half2(one, __float2half(2.0f))));
    EXPECT_EQ(__half2int_rn(__float2half(2.5f)), 2);
    EXPECT_EQ(__half2int_rn(__float2half(3.5f)), 4);
    EXPECT_EQ(__half2int_ru(__float2half(2.25f)), 3);
    EXPECT_EQ(__half2uint_rz(__float2half(-1.0f)), 0);
    EXPECT_EQ(__half2short_rz(from_bits<__half>(0x7c00)), 32767);
    EXPECT_EQ(__half2int_rz(nan), 0);
    EXPECT_EQ(__half2ll_rz(nan), (long long)(1ull << 63));
    EXPECT_EQ(__int2half_rn(65519).__x, 0x7bff);
    EXPECT_EQ(__int2half_rn(65520).__x, 0x7c00);
    EXPECT_EQ(__ull2half_rz(~0ull).__x, 0x7bff);
    // 2^60 + 2^52 is half way between two bfloat16; one more is above it, though a double cannot
    // say so.
    EXPECT_EQ(__ll2bfloat16_rn((1ll << 60) + (1ll << 52)).__x, __float2bfloat16(0x1p60f).__x);
    EXPECT_EQ(__ll2bfloat16_rn((1ll << 60) + (1ll << 52) + 1).__x,
              __float2bfloat16(0x1p60f).__x + 1);
    EXPECT_EQ(__float2half_rd(-1e-9f).__x, 0x8001);
    EXPECT_EQ(__float2half_ru(-1e-9f).__x, 0x8000);
    float2 pair = __half22float2(__floats2half2_rn(1.5f, -2.0f));
    EXPECT(pair.x == 1.5f && pair.y == -2.0f);
    EXPECT(static_cast<float>(__half(__float2bfloat16(3.0f))) == 3.0f);
    __half h = 2.0f;
    h += one;
    EXPECT(static_cast<int>(h) == 3 && static_cast<float>(-h) == -3.0f && h > one &&
           static_cast<bool>(h));
    __nv_bfloat162 v = __float22bfloat162_rn(make_float2(1.0f, 2.0f));
    EXPECT(__low2float(v) == 1.0f && __high2float(v) == 2.0f);

    EXPECT_EQ(__nv_fp8_e4m3(1000.0f).__x, 0x7e);
    EXPECT_EQ(__nv_fp8_e5m2(-1e9f).__x, 0xfb);
    EXPECT_EQ(__nv_cvt_float_to_fp8(1000.0f, __NV_NOSAT, __NV_E4M3), 0x7f);
    EXPECT(static_cast<float>(__nv_fp8_e4m3(1.125f)) == 1.125f);
    EXPECT_EQ(static_cast<int>(__nv_fp8_e5m2(-3.5f)), -3);
    float4 four = static_cast<float4>(__nv_fp8x4_e4m3(make_float4(1.0f, 2.0f, -4.0f, 500.0f)));
    EXPECT(four.x == 1.0f && four.y == 2.0f && four.z == -4.0f && four.w == 448.0f);
}

// Usable in unions, arrays and memcpy.
union in_union {
    __half h[8];
    __nv_bfloat162 b[4];
    __nv_fp8x4_e5m2 f[4];
    uint4 u;
};
static_assert(sizeof(union in_union) == 16 && alignof(__half2) == 4 && alignof(__half) == 2,
              "layout");
static_assert(std::is_trivial<__half>::value && std::is_trivial<__nv_bfloat162>::value &&
                  std::is_trivial<__nv_fp8x4_e4m3>::value,
              "trivial");

} // namespace

int main(int count, char **arguments)
{
    RUN(floats);
    RUN(widening);
    RUN(arithmetic);
    RUN(functions);
    if (count > 1 && strcmp(arguments[1], "full") == 0)
        RUN(all_floats);
    return expect_result();
}
