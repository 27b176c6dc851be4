// Arithmetic, logic, comparison and bit instructions. Integers wrap; floats round to nearest even.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_PTX_ARITHMETIC_H
#define VGPU_PTX_ARITHMETIC_H

#include "../device/integer.h"
#include "registers.h"

#include <cmath>

extern "C++" {
namespace vgpu
{
namespace ptx
{

// Unsigned arithmetic of at least 32 bits for integers, so that nothing overflows; floats as they
// are.
template <class T, bool integral = std::is_integral<T>::value> struct computing {
    typedef T type;
};
template <class T> struct computing<T, true> {
    typedef typename std::conditional<sizeof(T) <= 4, u32, u64>::type type;
};

#define VGPU_PTX_1(name, expression)                                                               \
    template <class T, class A> inline T name(A a)                                                 \
    {                                                                                              \
        T x = get<T>(a);                                                                           \
        return static_cast<T>(expression);                                                         \
    }
#define VGPU_PTX_2(name, expression)                                                               \
    template <class T, class A, class B> inline T name(A a, B b)                                   \
    {                                                                                              \
        T x = get<T>(a), y = get<T>(b);                                                            \
        return static_cast<T>(expression);                                                         \
    }
#define VGPU_PTX_COMPUTE_2(name, expression)                                                       \
    template <class T, class A, class B> inline T name(A a, B b)                                   \
    {                                                                                              \
        typedef typename computing<T>::type C;                                                     \
        C x = static_cast<C>(get<T>(a)), y = static_cast<C>(get<T>(b));                            \
        return static_cast<T>(expression);                                                         \
    }

VGPU_PTX_1(mov, x)
VGPU_PTX_COMPUTE_2(add, x + y)
VGPU_PTX_COMPUTE_2(sub, x - y)
VGPU_PTX_COMPUTE_2(mul, x *y)
VGPU_PTX_2(bit_and, x &y)
VGPU_PTX_2(bit_or, x | y)
VGPU_PTX_2(bit_xor, x ^ y)
VGPU_PTX_1(square_root, std::sqrt(x))
VGPU_PTX_1(reciprocal, 1 / x)
VGPU_PTX_1(reciprocal_root, 1 / std::sqrt(x))
VGPU_PTX_1(exponential2, std::exp2(x))
VGPU_PTX_1(logarithm2, std::log2(x))
VGPU_PTX_1(sine, std::sin(x))
VGPU_PTX_1(cosine, std::cos(x))
VGPU_PTX_1(hyperbolic_tangent, std::tanh(x))
VGPU_PTX_2(copy_sign, std::copysign(y, x))
#undef VGPU_PTX_COMPUTE_2

template <class T> inline T bit_not_of(T x)
{
    return static_cast<T>(~x);
}
inline bool bit_not_of(bool x)
{
    return !x;
}
VGPU_PTX_1(bit_not, bit_not_of(x))

template <class T> inline typename std::enable_if<std::is_integral<T>::value, T>::type negated(T x)
{
    return static_cast<T>(0 - static_cast<typename computing<T>::type>(x));
}
template <class T> inline typename std::enable_if<!std::is_integral<T>::value, T>::type negated(T x)
{
    return -x;
}
VGPU_PTX_1(negate, negated(x))
template <class T>
inline typename std::enable_if<std::is_integral<T>::value, T>::type magnitude(T x)
{
    return x < 0 ? negated(x) : x;
}
template <class T>
inline typename std::enable_if<!std::is_integral<T>::value, T>::type magnitude(T x)
{
    return std::fabs(x);
}
VGPU_PTX_1(absolute, magnitude(x))

// Of a number and a NaN the number; -0 below +0.
template <class T> inline T smaller(T x, T y)
{
    return y < x ? y : x;
}
template <class T> inline T larger(T x, T y)
{
    return x < y ? y : x;
}
template <class T> inline T smaller_float(T x, T y)
{
    if (x != x)
        return y;
    if (y != y)
        return x;
    return y < x || (x == y && std::signbit(y)) ? y : x;
}
template <class T> inline T larger_float(T x, T y)
{
    if (x != x)
        return y;
    if (y != y)
        return x;
    return x < y || (x == y && std::signbit(x)) ? y : x;
}
inline float smaller(float x, float y)
{
    return smaller_float(x, y);
}
inline double smaller(double x, double y)
{
    return smaller_float(x, y);
}
inline float larger(float x, float y)
{
    return larger_float(x, y);
}
inline double larger(double x, double y)
{
    return larger_float(x, y);
}
VGPU_PTX_2(minimum, smaller(x, y))
VGPU_PTX_2(maximum, larger(x, y))

// Division by zero gives all ones, as the hardware does; the most negative number over -1 wraps.
template <class T>
inline typename std::enable_if<std::is_integral<T>::value, T>::type quotient(T x, T y)
{
    if (y == 0)
        return static_cast<T>(-1);
    return std::is_signed<T>::value && y == static_cast<T>(-1) ? negated(x) : static_cast<T>(x / y);
}
template <class T>
inline typename std::enable_if<!std::is_integral<T>::value, T>::type quotient(T x, T y)
{
    return x / y;
}
template <class T> inline T left_over(T x, T y)
{
    if (y == 0)
        return x;
    return std::is_signed<T>::value && y == static_cast<T>(-1) ? static_cast<T>(0)
                                                               : static_cast<T>(x % y);
}
VGPU_PTX_2(divide, quotient(x, y))
VGPU_PTX_2(remainder, left_over(x, y))

// ---- Products ----------------------------------------------------------------------------------

template <class T> struct doubled;
template <> struct doubled<s16> {
    typedef s32 type;
};
template <> struct doubled<u16> {
    typedef u32 type;
};
template <> struct doubled<s32> {
    typedef s64 type;
};
template <> struct doubled<u32> {
    typedef u64 type;
};
template <> struct doubled<s64> {
    __extension__ typedef __int128 type;
};
template <> struct doubled<u64> {
    typedef b128 type;
};

template <class T, class A, class B> inline typename doubled<T>::type multiply_wide(A a, B b)
{
    typedef typename doubled<T>::type wide;
    return static_cast<wide>(static_cast<wide>(get<T>(a)) * static_cast<wide>(get<T>(b)));
}
template <class T, class A, class B> inline T multiply_high(A a, B b)
{
    return static_cast<T>(multiply_wide<T>(a, b) >> (8 * sizeof(T)));
}
template <class T, class A, class B, class C> inline T multiply_add(A a, B b, C c)
{
    typedef typename computing<T>::type compute;
    return static_cast<T>(static_cast<compute>(mul<T>(a, b)) + static_cast<compute>(get<T>(c)));
}
template <class T, class A, class B, class C> inline T multiply_high_add(A a, B b, C c)
{
    typedef typename computing<T>::type compute;
    return static_cast<T>(static_cast<compute>(multiply_high<T>(a, b)) +
                          static_cast<compute>(get<T>(c)));
}
template <class T, class A, class B, class C>
inline typename doubled<T>::type multiply_wide_add(A a, B b, C c)
{
    typedef typename doubled<T>::type wide;
    typedef typename computing<wide>::type compute;
    return static_cast<wide>(static_cast<compute>(multiply_wide<T>(a, b)) +
                             static_cast<compute>(get<wide>(c)));
}
template <class T, class A, class B, class C> inline T fused_multiply_add(A a, B b, C c)
{
    return std::fma(get<T>(a), get<T>(b), get<T>(c));
}

// ---- Shifts and bits ---------------------------------------------------------------------------

template <class T, class A, class B> inline T shift_left(A a, B b)
{
    u32 by = get<u32>(b);
    return by >= 8 * sizeof(T) ? static_cast<T>(0)
                               : static_cast<T>(static_cast<u64>(get<T>(a)) << by);
}
template <class T, class A, class B> inline T shift_right(A a, B b)
{
    u32 by = get<u32>(b), most = 8 * sizeof(T) - 1;
    T x = get<T>(a);
    if (by > most)
        return std::is_signed<T>::value ? static_cast<T>(x >> most) : static_cast<T>(0);
    return static_cast<T>(x >> by);
}
template <class T, class A> inline u32 count_ones(A a)
{
    return static_cast<u32>(__builtin_popcountll(get<T>(a)));
}
template <class T, class A> inline u32 count_leading_zeros(A a)
{
    u64 x = get<T>(a);
    return x == 0 ? 8 * sizeof(T) : static_cast<u32>(__builtin_clzll(x)) - (64 - 8 * sizeof(T));
}
template <class T, class A> inline T reverse_bits(A a)
{
    u64 x = get<T>(a), result = 0;
    for (unsigned i = 0; i < 8 * sizeof(T); i++)
        result |= (x >> i & 1) << (8 * sizeof(T) - 1 - i);
    return static_cast<T>(result);
}
// Position of the highest bit (of the highest that differs from the sign); all ones where there is
// none.
template <class T, class A> inline u32 find_highest(A a)
{
    T x = get<T>(a);
    u64 bits = static_cast<typename std::make_unsigned<T>::type>(x < 0 ? static_cast<T>(~x) : x);
    return bits == 0 ? 0xffffffffu : 63u - static_cast<u32>(__builtin_clzll(bits));
}
template <class T, class A, class B, class C> inline T extract_bits(A a, B b, C c)
{
    const u32 size = 8 * sizeof(T);
    u32 at = get<u32>(b) & 0xff, length = get<u32>(c) & 0xff;
    T x = get<T>(a);
    bool is_signed = std::is_signed<T>::value;
    u32 top = at + length - 1 < size - 1 ? at + length - 1 : size - 1;
    u64 sign = is_signed && length > 0 ? static_cast<u64>(x) >> top & 1 : 0;
    u64 field = 0;
    for (u32 i = 0; i < size; i++) {
        u64 bit = i < length && at + i < size ? static_cast<u64>(x) >> (at + i) & 1 : sign;
        field |= bit << i;
    }
    return static_cast<T>(field);
}
template <class T, class A, class B, class C, class D> inline T insert_bits(A a, B b, C c, D d)
{
    const u32 size = 8 * sizeof(T);
    u32 at = get<u32>(c) & 0xff, length = get<u32>(d) & 0xff;
    u64 result = get<T>(b), field = get<T>(a);
    for (u32 i = 0; i < length && at + i < size; i++)
        result = (result & ~(1ull << (at + i))) | (field >> i & 1) << (at + i);
    return static_cast<T>(result);
}
template <class A, class B, class C> inline u32 permute_bytes(A a, B b, C c)
{
    return __byte_perm(get<u32>(a), get<u32>(b), get<u32>(c));
}
template <class A, class B, class C> inline u32 funnel_left_wrap(A a, B b, C c)
{
    return __funnelshift_l(get<u32>(a), get<u32>(b), get<u32>(c));
}
template <class A, class B, class C> inline u32 funnel_left_clamp(A a, B b, C c)
{
    return __funnelshift_lc(get<u32>(a), get<u32>(b), get<u32>(c));
}
template <class A, class B, class C> inline u32 funnel_right_wrap(A a, B b, C c)
{
    return __funnelshift_r(get<u32>(a), get<u32>(b), get<u32>(c));
}
template <class A, class B, class C> inline u32 funnel_right_clamp(A a, B b, C c)
{
    return __funnelshift_rc(get<u32>(a), get<u32>(b), get<u32>(c));
}
// Bit i of the result is bit (a_i b_i c_i) of the table.
template <class A, class B, class C, class D> inline u32 logic3(A a, B b, C c, D table)
{
    u32 x = get<u32>(a), y = get<u32>(b), z = get<u32>(c), t = get<u32>(table), result = 0;
    for (u32 i = 0; i < 8; i++) {
        if (t >> i & 1)
            result |= (i & 4 ? x : ~x) & (i & 2 ? y : ~y) & (i & 1 ? z : ~z);
    }
    return result;
}
template <class A, class B, class C> inline u32 find_nth_set(A a, B b, C c)
{
    return __fns(get<u32>(a), get<u32>(b), get<s32>(c));
}

// ---- Comparison --------------------------------------------------------------------------------

template <class T, class A, class B, class P> inline T select(A a, B b, P p)
{
    return p ? get<T>(a) : get<T>(b);
}
#define VGPU_PTX_COMPARE(name, expression)                                                         \
    template <class T, class A, class B> inline bool name(A a, B b)                                \
    {                                                                                              \
        T x = get<T>(a), y = get<T>(b);                                                            \
        return expression;                                                                         \
    }
VGPU_PTX_COMPARE(compare_eq, x == y)
VGPU_PTX_COMPARE(compare_ne, x<y || x> y)
VGPU_PTX_COMPARE(compare_lt, x < y)
VGPU_PTX_COMPARE(compare_le, x <= y)
VGPU_PTX_COMPARE(compare_gt, x > y)
VGPU_PTX_COMPARE(compare_ge, x >= y)
// True also where one is a NaN.
VGPU_PTX_COMPARE(compare_equ, !(x < y || x > y))
VGPU_PTX_COMPARE(compare_neu, !(x == y))
VGPU_PTX_COMPARE(compare_ltu, !(x >= y))
VGPU_PTX_COMPARE(compare_leu, !(x > y))
VGPU_PTX_COMPARE(compare_gtu, !(x <= y))
VGPU_PTX_COMPARE(compare_geu, !(x < y))
VGPU_PTX_COMPARE(compare_num, x == x && y == y)
VGPU_PTX_COMPARE(compare_nan, x != x || y != y)
#undef VGPU_PTX_COMPARE

#undef VGPU_PTX_1
#undef VGPU_PTX_2

} // namespace ptx
} // namespace vgpu
} // extern "C++"
#endif
