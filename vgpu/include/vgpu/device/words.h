// Arithmetic on two 16-bit or four 8-bit lanes inside a 32-bit word (__vadd4, __vmaxs2, __vcmpeq4,
// ...).
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_WORDS_H
#define VGPU_DEVICE_WORDS_H

#include "common.h"

#ifdef __cplusplus
extern "C++" {

namespace vgpu
{

// f(a_i, b_i) for each lane, computed in int and cut to the lane's width.
template <class Lane, class Function> inline unsigned lanes(unsigned a, unsigned b, Function f)
{
    const int bits = 8 * static_cast<int>(sizeof(Lane));
    const unsigned mask = (1u << bits) - 1u;
    unsigned result = 0;
    for (int i = 0; i < 32; i += bits) {
        int x = static_cast<Lane>(a >> i & mask), y = static_cast<Lane>(b >> i & mask);
        result |= (static_cast<unsigned>(f(x, y)) & mask) << i;
    }
    return result;
}

// Sum over the lanes of f(a_i, b_i).
template <class Lane, class Function> inline unsigned sum_lanes(unsigned a, unsigned b, Function f)
{
    const int bits = 8 * static_cast<int>(sizeof(Lane));
    const unsigned mask = (1u << bits) - 1u;
    unsigned sum = 0;
    for (int i = 0; i < 32; i += bits)
        sum += static_cast<unsigned>(
            f(static_cast<Lane>(a >> i & mask), static_cast<Lane>(b >> i & mask)));
    return sum;
}

template <class Lane> inline int clamp_to(int value)
{
    const bool is_signed = static_cast<Lane>(-1) < static_cast<Lane>(0);
    const int bits = 8 * static_cast<int>(sizeof(Lane));
    const int low = is_signed ? -(1 << (bits - 1)) : 0;
    const int high = is_signed ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
    return value < low ? low : value > high ? high : value;
}

} // namespace vgpu

#define VGPU_WORD2(name, lane, expression)                                                         \
    VGPU_FUNCTION unsigned name(unsigned a, unsigned b)                                            \
    {                                                                                              \
        return vgpu::lanes<lane>(a, b, [](int x, int y) -> int { return expression; });            \
    }
#define VGPU_WORD1(name, lane, expression)                                                         \
    VGPU_FUNCTION unsigned name(unsigned a)                                                        \
    {                                                                                              \
        return vgpu::lanes<lane>(a, 0, [](int x, int) -> int { return expression; });              \
    }
#define VGPU_WORD_SUM(name, lane)                                                                  \
    VGPU_FUNCTION unsigned name(unsigned a, unsigned b)                                            \
    {                                                                                              \
        return vgpu::sum_lanes<lane>(a, b,                                                         \
                                     [](int x, int y) -> int { return x > y ? x - y : y - x; });   \
    }
// One operation for both lane counts; n is 2 or 4, s and u the signed and unsigned lane.
#define VGPU_WORD_SET(n, s, u)                                                                     \
    VGPU_WORD2(__vadd##n, u, x + y)                                                                \
    VGPU_WORD2(__vsub##n, u, x - y)                                                                \
    VGPU_WORD2(__vaddss##n, s, vgpu::clamp_to<s>(x + y))                                           \
    VGPU_WORD2(__vaddus##n, u, vgpu::clamp_to<u>(x + y))                                           \
    VGPU_WORD2(__vsubss##n, s, vgpu::clamp_to<s>(x - y))                                           \
    VGPU_WORD2(__vsubus##n, u, vgpu::clamp_to<u>(x - y))                                           \
    VGPU_WORD2(__vmaxs##n, s, x > y ? x : y)                                                       \
    VGPU_WORD2(__vmaxu##n, u, x > y ? x : y)                                                       \
    VGPU_WORD2(__vmins##n, s, x < y ? x : y)                                                       \
    VGPU_WORD2(__vminu##n, u, x < y ? x : y)                                                       \
    VGPU_WORD2(__vavgs##n, s, (x + y + (x + y >= 0)) >> 1)                                         \
    VGPU_WORD2(__vavgu##n, u, (x + y + 1) >> 1)                                                    \
    VGPU_WORD2(__vhaddu##n, u, (x + y) >> 1)                                                       \
    VGPU_WORD2(__vabsdiffs##n, s, x > y ? x - y : y - x)                                           \
    VGPU_WORD2(__vabsdiffu##n, u, x > y ? x - y : y - x)                                           \
    VGPU_WORD1(__vabs##n, s, x < 0 ? -x : x)                                                       \
    VGPU_WORD1(__vabsss##n, s, vgpu::clamp_to<s>(x < 0 ? -x : x))                                  \
    VGPU_WORD1(__vneg##n, s, -x)                                                                   \
    VGPU_WORD1(__vnegss##n, s, vgpu::clamp_to<s>(-x))                                              \
    VGPU_WORD2(__vcmpeq##n, u, x == y ? -1 : 0)                                                    \
    VGPU_WORD2(__vcmpne##n, u, x != y ? -1 : 0)                                                    \
    VGPU_WORD2(__vcmpges##n, s, x >= y ? -1 : 0)                                                   \
    VGPU_WORD2(__vcmpgeu##n, u, x >= y ? -1 : 0)                                                   \
    VGPU_WORD2(__vcmpgts##n, s, x > y ? -1 : 0)                                                    \
    VGPU_WORD2(__vcmpgtu##n, u, x > y ? -1 : 0)                                                    \
    VGPU_WORD2(__vcmples##n, s, x <= y ? -1 : 0)                                                   \
    VGPU_WORD2(__vcmpleu##n, u, x <= y ? -1 : 0)                                                   \
    VGPU_WORD2(__vcmplts##n, s, x < y ? -1 : 0)                                                    \
    VGPU_WORD2(__vcmpltu##n, u, x < y ? -1 : 0)                                                    \
    VGPU_WORD2(__vseteq##n, u, x == y)                                                             \
    VGPU_WORD2(__vsetne##n, u, x != y)                                                             \
    VGPU_WORD2(__vsetges##n, s, x >= y)                                                            \
    VGPU_WORD2(__vsetgeu##n, u, x >= y)                                                            \
    VGPU_WORD2(__vsetgts##n, s, x > y)                                                             \
    VGPU_WORD2(__vsetgtu##n, u, x > y)                                                             \
    VGPU_WORD2(__vsetles##n, s, x <= y)                                                            \
    VGPU_WORD2(__vsetleu##n, u, x <= y)                                                            \
    VGPU_WORD2(__vsetlts##n, s, x < y)                                                             \
    VGPU_WORD2(__vsetltu##n, u, x < y)                                                             \
    VGPU_WORD_SUM(__vsads##n, s)                                                                   \
    VGPU_WORD_SUM(__vsadu##n, u)

VGPU_WORD_SET(2, short, unsigned short)
VGPU_WORD_SET(4, signed char, unsigned char)

#undef VGPU_WORD_SET
#undef VGPU_WORD_SUM
#undef VGPU_WORD2
#undef VGPU_WORD1

} // extern "C++"
#endif
#endif
