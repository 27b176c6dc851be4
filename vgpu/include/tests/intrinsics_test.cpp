// Integer, rounding, conversion and mathematical intrinsics against straightforward references;
// directed rounding against the processor's own rounding modes.
// SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime.h"
#include "expect.h"
#include "fake_runtime.h"

#include <cfenv>
#include <cstdio>
#include <cstring>
#include <random>

namespace
{

std::mt19937_64 random_bits(4);
int wrong;

void differ(const char *what, double a, double b, double got, double want)
{
    if (wrong++ < 10)
        fprintf(stderr, "%s(%a, %a) = %a, should be %a\n", what, a, b, got, want);
}

void counting(void)
{
    EXPECT_EQ(__clz(0), 32);
    EXPECT_EQ(__clz(1), 31);
    EXPECT_EQ(__clz(-1), 0);
    EXPECT_EQ(__clzll(0), 64);
    EXPECT_EQ(__clzll(1ll << 40), 23);
    EXPECT_EQ(__ffs(0), 0);
    EXPECT_EQ(__ffs(8), 4);
    EXPECT_EQ(__ffsll(1ll << 40), 41);
    EXPECT_EQ(__popc(0xf0f0u), 8);
    EXPECT_EQ(__popcll(~0ull), 64);
    for (int i = 0; i < 2000; i++) {
        unsigned long long x = random_bits(), want = 0;
        for (int b = 0; b < 64; b++)
            want |= (x >> b & 1ull) << (63 - b);
        if (__brevll(x) != want || __brev(static_cast<unsigned>(x)) != want >> 32)
            EXPECT_EQ(x, 0);
    }
    EXPECT_EQ(__fns(0xb4u, 0, 1), 2);
    EXPECT_EQ(__fns(0xb4u, 0, 3), 5);
    EXPECT_EQ(__fns(0xb4u, 2, 1), 2);
    EXPECT_EQ(__fns(0xb4u, 6, -1), 5);
    EXPECT_EQ(__fns(0xb4u, 7, -4), 2);
    EXPECT_EQ(__fns(0xb4u, 4, 0), 4);
    EXPECT_EQ(__fns(0xb4u, 3, 0), 0xffffffffu);
    EXPECT_EQ(__fns(0xb4u, 0, 5), 0xffffffffu);
    EXPECT_EQ(__fns(1u << 31, 0, 1), 31);
    EXPECT_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x7250u), 0x77225500u);
    EXPECT_EQ(__funnelshift_l(0x89abcdefu, 0x01234567u, 8), 0x23456789u);
    EXPECT_EQ(__funnelshift_l(0x89abcdefu, 0x01234567u, 32), 0x01234567u);
    EXPECT_EQ(__funnelshift_lc(0x89abcdefu, 0x01234567u, 40), 0x89abcdefu);
    EXPECT_EQ(__funnelshift_r(0x89abcdefu, 0x01234567u, 8), 0x6789abcdu);
    EXPECT_EQ(__funnelshift_rc(0x89abcdefu, 0x01234567u, 32), 0x01234567u);
}

void products(void)
{
    EXPECT_EQ(__umulhi(0xffffffffu, 0xffffffffu), 0xfffffffeu);
    EXPECT_EQ(__mulhi(-1, 1), -1);
    EXPECT_EQ(__umul64hi(~0ull, ~0ull), ~0ull - 1);
    EXPECT_EQ(__mul64hi(-1, 1), -1);
    EXPECT_EQ(__mul24(0xffffff, 2), -2);
    EXPECT_EQ(__umul24(0x1ffffffu, 2u), 0x1fffffeu);
    EXPECT_EQ(__sad(-5, 7, 1u), 13);
    EXPECT_EQ(__usad(5u, 7u, 1u), 3);
    EXPECT_EQ(__hadd(-3, -4), -4);
    EXPECT_EQ(__rhadd(-3, -4), -3);
    EXPECT_EQ(__uhadd(0xffffffffu, 0xffffffffu), 0xffffffffu);
    EXPECT_EQ(__dp4a(0x01ff0203, 0x01010101, 10), 10 + 1 - 1 + 2 + 3);
    EXPECT_EQ(__dp4a(0x01ff0203u, 0x01010101u, 10u), 10 + 1 + 255 + 2 + 3);
    EXPECT_EQ(__dp2a_lo(0x0002ffff, 0x04030201, 5), 5 + 2 * 2 - 1);
    EXPECT_EQ(__dp2a_hi(0x00020001, 0x04030201, 5), 5 + 2 * 4 + 3);
    EXPECT_EQ(max(3u, 2u), 3);
    EXPECT_EQ(min(-1, 2), -1);
    EXPECT_EQ(max(-1, 2u), 0xffffffffu);
    EXPECT(max(1.0f, NAN) == 1.0f && min(NAN, 2.0) == 2.0);
}

void words(void)
{
    for (int i = 0; i < 2000; i++) {
        unsigned a = static_cast<unsigned>(random_bits()), b = static_cast<unsigned>(random_bits());
        unsigned add = 0, max_signed = 0, equal = 0, average = 0, saturated = 0, difference = 0;
        for (int j = 0; j < 32; j += 8) {
            int x = static_cast<signed char>(a >> j), y = static_cast<signed char>(b >> j);
            int ux = static_cast<unsigned char>(a >> j), uy = static_cast<unsigned char>(b >> j);
            add |= static_cast<unsigned>((x + y) & 255) << j;
            max_signed |= static_cast<unsigned>((x > y ? x : y) & 255) << j;
            equal |= x == y ? 255u << j : 0u;
            average |= static_cast<unsigned>((ux + uy + 1) >> 1) << j;
            saturated |= static_cast<unsigned>(std::max(-128, std::min(127, x + y)) & 255) << j;
            difference += static_cast<unsigned>(std::abs(ux - uy));
        }
        bool right = __vadd4(a, b) == add && __vmaxs4(a, b) == max_signed &&
                     __vcmpeq4(a, b) == equal && __vavgu4(a, b) == average &&
                     __vaddss4(a, b) == saturated && __vsadu4(a, b) == difference;
        if (!right)
            EXPECT_EQ(a, b);
    }
    EXPECT_EQ(__vadd2(0xffff0001u, 0x00010001u), 2);
    EXPECT_EQ(__vsubus2(0x00010005u, 0x00020003u), 2);
    EXPECT_EQ(__vminu2(0x00010005u, 0x00020003u), 0x00010003u);
    EXPECT_EQ(__vabsss4(0x80ff7f01u), 0x7f017f01u);
    EXPECT_EQ(__vseteq4(0x01020304u, 0x01000300u), 0x01000100u);
}

// ---- Rounding
// ------------------------------------------------------------------------------------

// The reference: the processor's own rounding. Not inlined, so that nothing is moved across the
// mode's changes.
template <class T>
__attribute__((noinline)) T by_processor(int mode, int operation, volatile T a, volatile T b,
                                         volatile T c)
{
    fesetround(mode);
    volatile T result;
    switch (operation) {
    case 0:
        result = a + b;
        break;
    case 1:
        result = a * b;
        break;
    case 2:
        result = a / b;
        break;
    case 3:
        result = std::sqrt(a);
        break;
    default:
        result = std::fma(a, b, c);
        break;
    }
    fesetround(FE_TONEAREST);
    return result;
}

template <class T> bool same(T a, T b)
{
    return (a != a && b != b) || memcmp(&a, &b, sizeof(T)) == 0;
}

template <class T> void check_rounding(T a, T b, T c)
{
    const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD};
    const char *const names[] = {"add", "multiply", "divide", "square_root", "multiply_add"};
    for (int m = 0; m < 4; m++) {
        vgpu::rounding mode = static_cast<vgpu::rounding>(m);
        T got[] = {vgpu::add(a, b, mode), vgpu::multiply(a, b, mode), vgpu::divide(a, b, mode),
                   vgpu::square_root(a, mode), vgpu::multiply_add(a, b, c, mode)};
        for (int i = 0; i < 5; i++) {
            T want = by_processor<T>(modes[m], i, a, b, c);
            if (!same(got[i], want)) {
                differ(names[i], a, b, got[i], want);
                if (wrong < 10)
                    fprintf(stderr, "    mode %d, c %a\n", m, static_cast<double>(c));
            }
        }
    }
}

template <class T, class Bits> T random_number()
{
    Bits bits = static_cast<Bits>(random_bits());
    T x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

template <class T, class Bits> void rounding_of(T smallest, T largest)
{
    const T special[] = {0,         -T(0),   1,        -1,           smallest,
                         -smallest, largest, -largest, T(HUGE_VAL),  -T(HUGE_VAL),
                         T(NAN),    3,       T(0.1),   smallest * 3, largest / 2};
    for (T a : special)
        for (T b : special)
            for (T c : special)
                check_rounding(a, b, c);
    for (int i = 0; i < 30000; i++) {
        T a = random_number<T, Bits>(), b = random_number<T, Bits>(), c = random_number<T, Bits>();
        check_rounding(a, b, c);
        // Operands of like size, where sums cancel and fused products lose low bits.
        check_rounding(a, static_cast<T>(a * T(1.0 + i * 1e-6)), static_cast<T>(-a * a));
        check_rounding(static_cast<T>(1 + i * 1e-7), static_cast<T>(1 - i * 1e-7),
                       static_cast<T>(-1));
    }
}

void rounding(void)
{
    wrong = 0;
    rounding_of<float, uint32_t>(1e-45f, 3.40282347e38f);
    EXPECT_EQ(wrong, 0);
    wrong = 0;
    rounding_of<double, uint64_t>(4.9406564584124654e-324, 1.7976931348623157e308);
    EXPECT_EQ(wrong, 0);
    EXPECT(__fadd_rd(1.0f, 1e-10f) == 1.0f && __fadd_ru(1.0f, 1e-10f) == 1.00000012f);
    EXPECT(__dmul_rz(0.1, 3.0) < __dmul_ru(0.1, 3.0) && __frcp_rd(3.0f) < __frcp_ru(3.0f));
    EXPECT(__fma_rn(0.1, 10.0, -1.0) == std::fma(0.1, 10.0, -1.0));
}

template <class I, class F> void check_integer(F x)
{
    const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD};
    for (int m = 0; m < 4; m++) {
        I got = vgpu::to_integer<I>(x, static_cast<vgpu::rounding>(m)), want;
        fesetround(modes[m]);
        volatile F argument = x;
        volatile F rounded_value = std::nearbyint(argument);
        fesetround(FE_TONEAREST);
        F rounded = rounded_value;
        if (x != x)
            want =
                sizeof(I) == 8 || sizeof(F) == 8 ? static_cast<I>(1ull << (8 * sizeof(I) - 1)) : 0;
        else if (rounded >= std::ldexp(F(1), std::numeric_limits<I>::digits))
            want = std::numeric_limits<I>::max();
        else if (rounded <= static_cast<F>(std::numeric_limits<I>::min()))
            want = std::numeric_limits<I>::min();
        else
            want = static_cast<I>(rounded);
        if (got != want)
            differ("to_integer", x, m, static_cast<double>(got), static_cast<double>(want));
    }
}

void integers(void)
{
    wrong = 0;
    for (int i = 0; i < 100000; i++) {
        float f = i < 64 ? static_cast<float>(i - 32) / 4 : random_number<float, uint32_t>();
        double d = i < 64 ? (i - 32) / 4.0 : random_number<double, uint64_t>();
        check_integer<int>(f);
        check_integer<unsigned>(f);
        check_integer<long long>(f);
        check_integer<unsigned long long>(f);
        check_integer<int>(d);
        check_integer<unsigned>(d);
        check_integer<long long>(d);
        check_integer<unsigned long long>(d);
        long long n = static_cast<long long>(random_bits() >> (i % 60));
        const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD};
        for (int m = 0; m < 4; m++) {
            fesetround(modes[m]);
            volatile long long argument = n;
            volatile float nf = static_cast<float>(argument);
            volatile double nd = static_cast<double>(argument);
            volatile double da = d;
            volatile float df = static_cast<float>(da);
            fesetround(FE_TONEAREST);
            vgpu::rounding mode = static_cast<vgpu::rounding>(m);
            if (vgpu::from_integer<float>(n, mode) != nf ||
                vgpu::from_integer<double>(n, mode) != nd)
                differ("from_integer", static_cast<double>(n), m,
                       vgpu::from_integer<double>(n, mode), nd);
            float got = vgpu::to_float(d, mode), want = df;
            if (!same(got, want))
                differ("to_float", d, m, got, want);
        }
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(__float2int_rn(2.5f), 2);
    EXPECT_EQ(__float2uint_rd(-0.5f), 0);
    EXPECT_EQ(__float2int_rz(1e20f), 2147483647);
    EXPECT_EQ(__float_as_int(1.0f), 0x3f800000);
    EXPECT(__int_as_float(0x40000000) == 2.0f && __hiloint2double(0x3ff00000, 0) == 1.0);
}

// rsqrtf is the nearest float: no midpoint beside it is nearer. Both binades of significands, so
// all of them.
void reciprocal_root(void)
{
    int misses = 0;
    for (uint32_t bits = 0x3f800000u; bits < 0x40800000u; bits += 7) {
        float x = __uint_as_float(bits), r = rsqrtf(x);
        __float128 below = (static_cast<__float128>(r) + std::nextafter(r, 0.0f)) / 2;
        __float128 above = (static_cast<__float128>(r) + std::nextafter(r, 2.0f)) / 2;
        misses += !(below * below * x <= 1 && above * above * x >= 1);
    }
    EXPECT_EQ(misses, 0);
    EXPECT(std::isinf(rsqrtf(0.0f)) && rsqrtf(HUGE_VALF) == 0.0f && std::isnan(rsqrtf(-1.0f)));
    EXPECT(__saturatef(NAN) == 0.0f && __saturatef(2.0f) == 1.0f && __saturatef(0.25f) == 0.25f);
    EXPECT(sinpif(0.5f) == 1.0f && sinpif(1.0f) == 0.0f && cospif(0.5f) == 0.0f &&
           cospi(1.0) == -1.0);
    EXPECT_NEAR(__expf(1.0f), 2.718281828, 1e-6);
    EXPECT_NEAR(__powf(2.0f, 10.0f), 1024, 1e-3);
}

void memory(void)
{
    alignas(16) float source[4] = {1, 2, 3, 4}, target[4];
    float4 v = __ldg(reinterpret_cast<const float4 *>(source));
    __stwt(reinterpret_cast<float4 *>(target), v);
    EXPECT(memcmp(source, target, 16) == 0);
    int before = fake_yields;
    EXPECT(__ldcv(&source[2]) == 3.0f && __ldcg(source) == 1.0f);
    EXPECT_EQ(fake_yields, before + 1);
    EXPECT_EQ(__cvta_generic_to_global(source), reinterpret_cast<size_t>(source));
}

} // namespace

int main(void)
{
    RUN(counting);
    RUN(products);
    RUN(words);
    RUN(rounding);
    RUN(integers);
    RUN(reciprocal_root);
    RUN(memory);
    return expect_result();
}
