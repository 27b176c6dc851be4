// Inverse error functions, Bessel functions, norms, three-way minima and maxima: against bisection,
// integration and plain loops in a wider type.
// SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime.h"
#include "expect.h"
#include "fake_runtime.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>

namespace
{

const double INFINITE = HUGE_VAL;

// How far `got` is from `want`, in units of the last place of T.
template <class T> double ulps(T got, long double want)
{
    if (std::isnan(got) || std::isnan(want))
        return std::isnan(got) && std::isnan(want) ? 0 : 1e9;
    T nearest = static_cast<T>(want);
    if (got == nearest)
        return 0;
    T unit =
        std::nextafter(std::fabs(nearest), std::numeric_limits<T>::infinity()) - std::fabs(nearest);
    return static_cast<double>(std::fabs((got - want) / unit));
}
template <class T>
bool close_to(const char *what, double x, T got, long double want, double allowed)
{
    double error = ulps(got, want);
    if (error > allowed)
        printf("%s(%.17g) = %.17g, should be %.17Lg: off by %g units\n", what, x,
               static_cast<double>(got), want, error);
    return error <= allowed;
}

// The x with erfc(x) = y, by bisection; through 2 - y where that says more.
long double inverse_erfc(long double y)
{
    if (y >= 1)
        return y == 1 ? 0 : -inverse_erfc(2 - y);
    long double low = 0, high = 30;
    for (int i = 0; i < 90; i++) {
        long double middle = 0.5L * (low + high);
        (erfcl(middle) > y ? low : high) = middle;
    }
    return 0.5L * (low + high);
}
long double inverse_erf(long double y)
{
    return y < 0 ? -inverse_erf(-y) : inverse_erfc(1 - y);
}

void inverse_functions(void)
{
    const double CASES[] = {1e-300, 1e-40, 1e-15, 1e-8, 1e-3,  0.1,         0.3,
                            0.4999, 0.5,   0.501, 0.7,  0.9,   0.99,        1.0,
                            1.2,    1.5,   1.51,  1.9,  1.999, 1.9999999999};
    for (double y : CASES) {
        long double want = inverse_erfc(y);
        EXPECT(close_to("erfcinv", y, erfcinv(y), want, 4));
        float single = static_cast<float>(y);
        if (single > 0 && single < 2)
            EXPECT(close_to("erfcinvf", y, erfcinvf(single), inverse_erfc(single), 1));
        EXPECT(close_to("normcdfinv", 0.5 * y, normcdfinv(0.5 * y), -M_SQRT2l * want, 5));
        double e = y - 1.0; // -1 .. 1
        if (std::fabs(e) < 1)
            EXPECT(close_to("erfinv", e, erfinv(e), inverse_erf(e), 4));
    }
    EXPECT(erfinv(1.0) == INFINITE && erfinv(-1.0) == -INFINITE && std::isnan(erfinv(1.5)));
    EXPECT(erfcinv(0.0) == INFINITE && erfcinv(2.0) == -INFINITE && std::isnan(erfcinv(-0.1)));
    EXPECT(erfinv(0.0) == 0 && std::signbit(erfinv(-0.0)) && erfcinv(1.0) == 0);
    EXPECT(normcdfinv(0.5) == 0 && normcdfinvf(0.0f) == -INFINITE && normcdfinv(1.0) == INFINITE);
    EXPECT(close_to("erfinv", 1e-310, erfinv(1e-310), 1e-310L * sqrtl(M_PIl) / 2, 1));
    static_assert(std::is_same<decltype(erfinv(0.5f)), float>::value, "an overload");
}

void scaled_complements(void)
{
    for (double x = -4; x < 60; x += 0.8125) // squares are exact
        EXPECT(close_to("erfcx", x, erfcx(x), expl(static_cast<long double>(x) * x) * erfcl(x), 5));
    EXPECT(erfcx(-30.0) == INFINITE && erfcx(0.0) == 1.0 && erfcx(INFINITE) == 0.0);
    EXPECT(close_to("erfcxf", 3, erfcxf(3.0f), expl(9) * erfcl(3), 1));
}

// The integral that defines the function; the trapezoid rule is exact to all digits here.
long double bessel(int order, long double x)
{
    const int n = 400;
    long double sum = 0;
    for (int i = 0; i <= n; i++) {
        long double angle = M_PIl * i / n;
        sum += (i == 0 || i == n ? 0.5L : 1.0L) * expl(x * (cosl(angle) - 1)) * cosl(order * angle);
    }
    return sum / n * expl(x);
}

void bessel_functions(void)
{
    for (double x : {1e-10, 0.1, 1.0, 3.7, 10.0, 19.9, 20.1, 50.0, 300.0, 709.0}) {
        EXPECT(close_to("cyl_bessel_i0", x, cyl_bessel_i0(x), bessel(0, x), 8));
        EXPECT(close_to("cyl_bessel_i0", -x, cyl_bessel_i0(-x), bessel(0, x), 8));
        if (x > 0.01) // below, the integral cancels
            EXPECT(close_to("cyl_bessel_i1", -x, cyl_bessel_i1(-x), -bessel(1, x), 12));
    }
    EXPECT(close_to("cyl_bessel_i1", 1e-10, cyl_bessel_i1(1e-10), 0.5e-10L, 1));
    EXPECT(cyl_bessel_i0(0.0) == 1.0 && cyl_bessel_i1f(0.0f) == 0.0f);
    EXPECT(cyl_bessel_i0(INFINITE) == INFINITE && cyl_bessel_i1(-INFINITE) == -INFINITE);
    EXPECT(close_to("cyl_bessel_i0f", 2.5, cyl_bessel_i0f(2.5f), bessel(0, 2.5), 1));
}

void norms(void)
{
    const double nan = std::nan("");
    EXPECT(norm3d(3.0, 4.0, 12.0) == 13.0 && norm4df(1, 2, 4, 10) == 11.0f);
    EXPECT(norm3d(3e200, 4e200, 12e200) == 13e200 && norm3df(3e30f, 0, 4e30f) == 5e30f);
    EXPECT(norm3d(3e-200, 4e-200, 12e-200) == 13e-200);
    EXPECT(rnorm3d(0.0, 0.0, 4.0) == 0.25 && rnorm4d(1, 1, 1, 1) == 0.5 &&
           rnorm3df(2, 0, 0) == 0.5f);
    EXPECT(norm3d(nan, INFINITE, 1) == INFINITE && rnorm4df(INFINITE, nan, 0, 0) == 0.0f);
    EXPECT(std::isnan(norm4d(nan, 1, 1, 1)) && rnorm3d(0, 0, 0) == INFINITE);
    const double many[] = {1, 1, 1, 1, 2, 2, 2, 1};
    const float singles[] = {3e30f, 4e30f};
    EXPECT(norm(8, many) == std::sqrt(17.0) && normf(2, singles) == 5e30f && norm(0, many) == 0);
    EXPECT(rnorm(4, many) == 0.5 && rnormf(1, singles) == 1 / 3e30f);
    double sine, cosine;
    sincospi(0.5, &sine, &cosine);
    EXPECT(sine == 1.0 && cosine == 0.0 && fdivide(1.0, 4.0) == 0.25);
    float s, c;
    sincospi(1.0f, &s, &c);
    EXPECT(s == 0.0f && c == -1.0f && rsqrt(4.0f) == 0.5f && exp10(2.0f) == 100.0f);
    sincos(0.0f, &s, &c);
    EXPECT(s == 0.0f && c == 1.0f && umin(3u, 4u) == 3 && llmax(-3, 4) == 4 && ullmin(1, 2) == 1);
}

short lane_of(unsigned x, int i)
{
    return static_cast<short>(x >> 16 * i);
}

void three_ways(void)
{
    std::mt19937 random(7);
    int wrong = 0;
    for (int i = 0; i < 20000; i++) {
        unsigned a = random(), b = i % 3 ? random() : a, c = random() >> (i % 32);
        int x = static_cast<int>(a), y = static_cast<int>(b), z = static_cast<int>(c);
        int sum = static_cast<int>(a + b);
        wrong += __vimax3_s32(x, y, z) != std::max({x, y, z});
        wrong += __vimin3_s32_relu(x, y, z) != std::max(0, std::min({x, y, z}));
        wrong += __vimax3_u32(a, b, c) != std::max({a, b, c});
        wrong += __viaddmax_s32(x, y, z) != std::max(sum, z);
        wrong += __viaddmin_s32_relu(x, y, z) != std::max(0, std::min(sum, z));
        wrong += __viaddmin_u32(a, b, c) != std::min(a + b, c);
        wrong += __vimax_s32_relu(x, y) != std::max({x, y, 0});
        wrong += __vimin_s32_relu(x, y) != std::max(0, std::min(x, y));
        bool first, high, low;
        wrong += __vibmax_s32(x, y, &first) != std::max(x, y) || first != (x >= y);
        wrong += __vibmin_u32(a, b, &first) != std::min(a, b) || first != (a <= b);
        unsigned pair = __vibmin_s16x2(a, b, &high, &low);
        unsigned three = __vimin3_s16x2(a, b, c), relu = __viaddmax_s16x2_relu(a, b, c);
        unsigned plain = __viaddmin_u16x2(a, b, c);
        for (int k = 0; k < 2; k++) {
            short p = lane_of(a, k), q = lane_of(b, k), r = lane_of(c, k);
            short wrapped = static_cast<short>(static_cast<unsigned short>(p + q));
            auto u = [](short v) { return static_cast<unsigned short>(v); };
            wrong += lane_of(pair, k) != std::min(p, q) || (k ? high : low) != (p <= q);
            wrong += lane_of(three, k) != std::min({p, q, r});
            wrong += lane_of(relu, k) != std::max<short>(0, std::max(wrapped, r));
            wrong += u(lane_of(plain, k)) != std::min(u(wrapped), u(r));
        }
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(__dp2a_lo(make_short2(2, -3), make_char4(4, 5, 6, 7), 1), 2 * 4 - 3 * 5 + 1);
    EXPECT_EQ(__dp2a_hi(make_ushort2(2, 3), make_uchar4(4, 5, 6, 7), 1u), 2 * 6 + 3 * 7 + 1);
    EXPECT_EQ(__nv_bswap32(0x01020304u), 0x04030201u);
}

} // namespace

int main(void)
{
    RUN(inverse_functions);
    RUN(scaled_complements);
    RUN(bessel_functions);
    RUN(norms);
    RUN(three_ways);
    return expect_result();
}
