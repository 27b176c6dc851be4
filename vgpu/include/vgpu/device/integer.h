// Integer intrinsics: counting and permuting bits and bytes, high products, dot products.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_INTEGER_H
#define VGPU_DEVICE_INTEGER_H

#include "common.h"

#ifdef __cplusplus
extern "C++" {

VGPU_FUNCTION int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
VGPU_FUNCTION int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
VGPU_FUNCTION int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}
VGPU_FUNCTION int __clzll(long long x)
{
    return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
// One more than the position of the lowest set bit; 0 where none is.
VGPU_FUNCTION int __ffs(int x)
{
    return __builtin_ffs(x);
}
VGPU_FUNCTION int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}
VGPU_FUNCTION unsigned __brev(unsigned x)
{
    x = (x & 0x55555555u) << 1 | (x >> 1 & 0x55555555u);
    x = (x & 0x33333333u) << 2 | (x >> 2 & 0x33333333u);
    x = (x & 0x0f0f0f0fu) << 4 | (x >> 4 & 0x0f0f0f0fu);
    return __builtin_bswap32(x);
}
VGPU_FUNCTION unsigned long long __brevll(unsigned long long x)
{
    return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
           __brev(static_cast<unsigned>(x >> 32));
}
// Position of the |offset|-th set bit from `base` upwards (offset > 0) or downwards (< 0); offset 0
// tests bit `base`. 0xffffffff where there is none.
VGPU_FUNCTION unsigned __fns(unsigned mask, unsigned base, int offset)
{
    if (base > 31)
        return 0xffffffffu;
    if (offset == 0)
        return mask >> base & 1u ? base : 0xffffffffu;
    int step = offset > 0 ? 1 : -1;
    int left = offset > 0 ? offset : -offset;
    for (int bit = static_cast<int>(base); bit >= 0 && bit < 32; bit += step)
        if ((mask >> bit & 1u) != 0 && --left == 0)
            return static_cast<unsigned>(bit);
    return 0xffffffffu;
}
// Four bytes chosen from the eight of (y, x), x low; each selector nibble's low three bits name
// one.
VGPU_FUNCTION unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    unsigned long long bytes = static_cast<unsigned long long>(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++)
        result |= static_cast<unsigned>(bytes >> (selector >> 4 * i & 7u) * 8 & 0xffu) << 8 * i;
    return result;
}
// The high (l) or low (r) word of (hi, lo) shifted left or right by shift mod 32, or by min(shift,
// 32) in the c forms.
VGPU_FUNCTION unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift)
{
    return static_cast<unsigned>(
        ((static_cast<unsigned long long>(hi) << 32 | lo) << (shift & 31u)) >> 32);
}
VGPU_FUNCTION unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift)
{
    return static_cast<unsigned>((static_cast<unsigned long long>(hi) << 32 | lo) >> (shift & 31u));
}
VGPU_FUNCTION unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned shift)
{
    return shift >= 32u ? lo : __funnelshift_l(lo, hi, shift);
}
VGPU_FUNCTION unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned shift)
{
    return shift >= 32u ? hi : __funnelshift_r(lo, hi, shift);
}

VGPU_FUNCTION int __mulhi(int x, int y)
{
    return static_cast<int>(static_cast<long long>(x) * y >> 32);
}
VGPU_FUNCTION unsigned __umulhi(unsigned x, unsigned y)
{
    return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32);
}
VGPU_FUNCTION long long __mul64hi(long long x, long long y)
{
    return static_cast<long long>(static_cast<__int128>(x) * y >> 64);
}
VGPU_FUNCTION unsigned long long __umul64hi(unsigned long long x, unsigned long long y)
{
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
// Low 32 bits of the product of the operands' low 24 bits.
VGPU_FUNCTION int __mul24(int x, int y)
{
    long long a = static_cast<int>(static_cast<unsigned>(x) << 8) >> 8;
    long long b = static_cast<int>(static_cast<unsigned>(y) << 8) >> 8;
    return static_cast<int>(a * b);
}
VGPU_FUNCTION unsigned __umul24(unsigned x, unsigned y)
{
    return static_cast<unsigned>(static_cast<unsigned long long>(x & 0xffffffu) * (y & 0xffffffu));
}
// |x - y| + z
VGPU_FUNCTION unsigned __sad(int x, int y, unsigned z)
{
    return (x > y ? static_cast<unsigned>(x) - static_cast<unsigned>(y)
                  : static_cast<unsigned>(y) - static_cast<unsigned>(x)) +
           z;
}
VGPU_FUNCTION unsigned __usad(unsigned x, unsigned y, unsigned z)
{
    return (x > y ? x - y : y - x) + z;
}
// Averages that cannot overflow: rounded down, and up (r).
VGPU_FUNCTION int __hadd(int x, int y)
{
    return static_cast<int>((static_cast<long long>(x) + y) >> 1);
}
VGPU_FUNCTION int __rhadd(int x, int y)
{
    return static_cast<int>((static_cast<long long>(x) + y + 1) >> 1);
}
VGPU_FUNCTION unsigned __uhadd(unsigned x, unsigned y)
{
    return static_cast<unsigned>((static_cast<unsigned long long>(x) + y) >> 1);
}
VGPU_FUNCTION unsigned __urhadd(unsigned x, unsigned y)
{
    return static_cast<unsigned>((static_cast<unsigned long long>(x) + y + 1) >> 1);
}

// Dot products of four bytes (dp4a), or of two 16-bit values with the low or high two bytes (dp2a),
// plus c.
VGPU_FUNCTION int __dp4a(int a, int b, int c)
{
    unsigned sum = static_cast<unsigned>(c);
    for (int i = 0; i < 32; i += 8)
        sum += static_cast<unsigned>(static_cast<signed char>(a >> i) *
                                     static_cast<signed char>(b >> i));
    return static_cast<int>(sum);
}
VGPU_FUNCTION unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    for (int i = 0; i < 32; i += 8)
        c += (a >> i & 0xffu) * (b >> i & 0xffu);
    return c;
}
VGPU_FUNCTION int __dp4a(char4 a, char4 b, int c)
{
    return __dp4a(vgpu::bit_cast<int>(a), vgpu::bit_cast<int>(b), c);
}
VGPU_FUNCTION unsigned __dp4a(uchar4 a, uchar4 b, unsigned c)
{
    return __dp4a(vgpu::bit_cast<unsigned>(a), vgpu::bit_cast<unsigned>(b), c);
}
VGPU_FUNCTION int __dp2a_lo(int a, int b, int c)
{
    unsigned sum = static_cast<unsigned>(c);
    for (int i = 0; i < 2; i++)
        sum += static_cast<unsigned>(static_cast<short>(a >> 16 * i) *
                                     static_cast<signed char>(b >> 8 * i));
    return static_cast<int>(sum);
}
VGPU_FUNCTION int __dp2a_hi(int a, int b, int c)
{
    return __dp2a_lo(a, b >> 16, c);
}
VGPU_FUNCTION unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c)
{
    for (int i = 0; i < 2; i++)
        c += (a >> 16 * i & 0xffffu) * (b >> 8 * i & 0xffu);
    return c;
}
VGPU_FUNCTION unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c)
{
    return __dp2a_lo(a, b >> 16, c);
}

// The smaller and larger of two integers, as device code calls them without std::.
#define VGPU_MIN_MAX(type)                                                                         \
    VGPU_FUNCTION type min(type a, type b)                                                         \
    {                                                                                              \
        return a < b ? a : b;                                                                      \
    }                                                                                              \
    VGPU_FUNCTION type max(type a, type b)                                                         \
    {                                                                                              \
        return a < b ? b : a;                                                                      \
    }
VGPU_MIN_MAX(int)
VGPU_MIN_MAX(unsigned int)
VGPU_MIN_MAX(long)
VGPU_MIN_MAX(unsigned long)
VGPU_MIN_MAX(long long)
VGPU_MIN_MAX(unsigned long long)
#undef VGPU_MIN_MAX
// Of mixed signs the comparison is unsigned.
#define VGPU_MIN_MAX_MIXED(a_type, b_type, type)                                                   \
    VGPU_FUNCTION type min(a_type a, b_type b)                                                     \
    {                                                                                              \
        return min(static_cast<type>(a), static_cast<type>(b));                                    \
    }                                                                                              \
    VGPU_FUNCTION type max(a_type a, b_type b)                                                     \
    {                                                                                              \
        return max(static_cast<type>(a), static_cast<type>(b));                                    \
    }
VGPU_MIN_MAX_MIXED(int, unsigned int, unsigned int)
VGPU_MIN_MAX_MIXED(unsigned int, int, unsigned int)
VGPU_MIN_MAX_MIXED(long, unsigned long, unsigned long)
VGPU_MIN_MAX_MIXED(unsigned long, long, unsigned long)
VGPU_MIN_MAX_MIXED(long long, unsigned long long, unsigned long long)
VGPU_MIN_MAX_MIXED(unsigned long long, long long, unsigned long long)
#undef VGPU_MIN_MAX_MIXED

} // extern "C++"
#endif
#endif
