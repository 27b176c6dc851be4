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
template <class Value, bool integral = std::is_integral<Value>::value> struct computing {
    typedef Value type;
};
template <class Value> struct computing<Value, true> {
    typedef typename std::conditional<sizeof(Value) <= 4, u32, u64>::type type;
};

#define VGPU_PTX_1(name, expression)                                                               \
    template <class Value, class First> inline Value name(First a)                                 \
    {                                                                                              \
        Value x = get<Value>(a);                                                                   \
        return static_cast<Value>(expression);                                                     \
    }
#define VGPU_PTX_2(name, expression)                                                               \
    template <class Value, class First, class Second> inline Value name(First a, Second b)         \
    {                                                                                              \
        Value x = get<Value>(a), y = get<Value>(b);                                                \
        return static_cast<Value>(expression);                                                     \
    }
#define VGPU_PTX_COMPUTE_2(name, expression)                                                       \
    template <class Value, class First, class Second> inline Value name(First a, Second b)         \
    {                                                                                              \
        typedef typename computing<Value>::type Computed;                                          \
        Computed x = static_cast<Computed>(get<Value>(a)),                                         \
                 y = static_cast<Computed>(get<Value>(b));                                         \
        return static_cast<Value>(expression);                                                     \
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

template <class Value> inline Value bit_not_of(Value x)
{
    return static_cast<Value>(~x);
}
inline bool bit_not_of(bool x)
{
    return !x;
}
VGPU_PTX_1(bit_not, bit_not_of(x))

template <class Value>
inline typename std::enable_if<std::is_integral<Value>::value, Value>::type negated(Value x)
{
    return static_cast<Value>(0 - static_cast<typename computing<Value>::type>(x));
}
template <class Value>
inline typename std::enable_if<!std::is_integral<Value>::value, Value>::type negated(Value x)
{
    return -x;
}
VGPU_PTX_1(negate, negated(x))
template <class Value>
inline typename std::enable_if<std::is_integral<Value>::value, Value>::type magnitude(Value x)
{
    return x < 0 ? negated(x) : x;
}
template <class Value>
inline typename std::enable_if<!std::is_integral<Value>::value, Value>::type magnitude(Value x)
{
    return std::fabs(x);
}
VGPU_PTX_1(absolute, magnitude(x))

// Of a number and a NaN the number; -0 below +0.
template <class Value> inline Value smaller(Value x, Value y)
{
    return y < x ? y : x;
}
template <class Value> inline Value larger(Value x, Value y)
{
    return x < y ? y : x;
}
template <class Value> inline Value smaller_float(Value x, Value y)
{
    if (x != x)
        return y;
    if (y != y)
        return x;
    return y < x || (x == y && std::signbit(y)) ? y : x;
}
template <class Value> inline Value larger_float(Value x, Value y)
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
template <class Value>
inline typename std::enable_if<std::is_integral<Value>::value, Value>::type quotient(Value x,
                                                                                     Value y)
{
    if (y == 0)
        return static_cast<Value>(-1);
    return std::is_signed<Value>::value && y == static_cast<Value>(-1) ? negated(x)
                                                                       : static_cast<Value>(x / y);
}
template <class Value>
inline typename std::enable_if<!std::is_integral<Value>::value, Value>::type quotient(Value x,
                                                                                      Value y)
{
    return x / y;
}
template <class Value> inline Value left_over(Value x, Value y)
{
    if (y == 0)
        return x;
    return std::is_signed<Value>::value && y == static_cast<Value>(-1) ? static_cast<Value>(0)
                                                                       : static_cast<Value>(x % y);
}
VGPU_PTX_2(divide, quotient(x, y))
VGPU_PTX_2(remainder, left_over(x, y))

// ---- Products ----------------------------------------------------------------------------------

template <class Value> struct doubled;
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

template <class Value, class First, class Second>
inline typename doubled<Value>::type multiply_wide(First a, Second b)
{
    typedef typename doubled<Value>::type wide;
    return static_cast<wide>(static_cast<wide>(get<Value>(a)) * static_cast<wide>(get<Value>(b)));
}
template <class Value, class First, class Second> inline Value multiply_high(First a, Second b)
{
    return static_cast<Value>(multiply_wide<Value>(a, b) >> (8 * sizeof(Value)));
}
template <class Value, class First, class Second, class Third>
inline Value multiply_add(First a, Second b, Third c)
{
    typedef typename computing<Value>::type compute;
    return static_cast<Value>(static_cast<compute>(mul<Value>(a, b)) +
                              static_cast<compute>(get<Value>(c)));
}
template <class Value, class First, class Second, class Third>
inline Value multiply_high_add(First a, Second b, Third c)
{
    typedef typename computing<Value>::type compute;
    return static_cast<Value>(static_cast<compute>(multiply_high<Value>(a, b)) +
                              static_cast<compute>(get<Value>(c)));
}
template <class Value, class First, class Second, class Third>
inline typename doubled<Value>::type multiply_wide_add(First a, Second b, Third c)
{
    typedef typename doubled<Value>::type wide;
    typedef typename computing<wide>::type compute;
    return static_cast<wide>(static_cast<compute>(multiply_wide<Value>(a, b)) +
                             static_cast<compute>(get<wide>(c)));
}
template <class Value, class First, class Second, class Third>
inline Value fused_multiply_add(First a, Second b, Third c)
{
    return std::fma(get<Value>(a), get<Value>(b), get<Value>(c));
}

// ---- Shifts and bits ---------------------------------------------------------------------------

template <class Value, class First, class Second> inline Value shift_left(First a, Second b)
{
    u32 by = get<u32>(b);
    return by >= 8 * sizeof(Value) ? static_cast<Value>(0)
                                   : static_cast<Value>(static_cast<u64>(get<Value>(a)) << by);
}
template <class Value, class First, class Second> inline Value shift_right(First a, Second b)
{
    u32 by = get<u32>(b), most = 8 * sizeof(Value) - 1;
    Value x = get<Value>(a);
    if (by > most)
        return std::is_signed<Value>::value ? static_cast<Value>(x >> most) : static_cast<Value>(0);
    return static_cast<Value>(x >> by);
}
template <class Value, class First> inline u32 count_ones(First a)
{
    return static_cast<u32>(__builtin_popcountll(get<Value>(a)));
}
template <class Value, class First> inline u32 count_leading_zeros(First a)
{
    u64 x = get<Value>(a);
    return x == 0 ? 8 * sizeof(Value)
                  : static_cast<u32>(__builtin_clzll(x)) - (64 - 8 * sizeof(Value));
}
template <class Value, class First> inline Value reverse_bits(First a)
{
    u64 x = get<Value>(a), result = 0;
    for (unsigned i = 0; i < 8 * sizeof(Value); i++)
        result |= (x >> i & 1) << (8 * sizeof(Value) - 1 - i);
    return static_cast<Value>(result);
}
// Position of the highest bit (of the highest that differs from the sign); all ones where there is
// none.
template <class Value, class First> inline u32 find_highest(First a)
{
    Value x = get<Value>(a);
    u64 bits =
        static_cast<typename std::make_unsigned<Value>::type>(x < 0 ? static_cast<Value>(~x) : x);
    return bits == 0 ? 0xffffffffu : 63u - static_cast<u32>(__builtin_clzll(bits));
}
template <class Value, class First, class Second, class Third>
inline Value extract_bits(First a, Second b, Third c)
{
    const u32 size = 8 * sizeof(Value);
    u32 at = get<u32>(b) & 0xff, length = get<u32>(c) & 0xff;
    Value x = get<Value>(a);
    bool is_signed = std::is_signed<Value>::value;
    u32 top = at + length - 1 < size - 1 ? at + length - 1 : size - 1;
    u64 sign = is_signed && length > 0 ? static_cast<u64>(x) >> top & 1 : 0;
    u64 field = 0;
    for (u32 i = 0; i < size; i++) {
        u64 bit = i < length && at + i < size ? static_cast<u64>(x) >> (at + i) & 1 : sign;
        field |= bit << i;
    }
    return static_cast<Value>(field);
}
template <class Value, class First, class Second, class Third, class Fourth>
inline Value insert_bits(First a, Second b, Third c, Fourth d)
{
    const u32 size = 8 * sizeof(Value);
    u32 at = get<u32>(c) & 0xff, length = get<u32>(d) & 0xff;
    u64 result = get<Value>(b), field = get<Value>(a);
    for (u32 i = 0; i < length && at + i < size; i++)
        result = (result & ~(1ull << (at + i))) | (field >> i & 1) << (at + i);
    return static_cast<Value>(result);
}
template <class First, class Second, class Third>
inline u32 permute_bytes(First a, Second b, Third c)
{
    return __byte_perm(get<u32>(a), get<u32>(b), get<u32>(c));
}
template <class First, class Second, class Third>
inline u32 funnel_left_wrap(First a, Second b, Third c)
{
    return __funnelshift_l(get<u32>(a), get<u32>(b), get<u32>(c));
}
template <class First, class Second, class Third>
inline u32 funnel_left_clamp(First a, Second b, Third c)
{
    return __funnelshift_lc(get<u32>(a), get<u32>(b), get<u32>(c));
}
template <class First, class Second, class Third>
inline u32 funnel_right_wrap(First a, Second b, Third c)
{
    return __funnelshift_r(get<u32>(a), get<u32>(b), get<u32>(c));
}
template <class First, class Second, class Third>
inline u32 funnel_right_clamp(First a, Second b, Third c)
{
    return __funnelshift_rc(get<u32>(a), get<u32>(b), get<u32>(c));
}
// Bit i of the result is bit (a_i b_i c_i) of the table.
template <class First, class Second, class Third, class Fourth>
inline u32 logic3(First a, Second b, Third c, Fourth table)
{
    u32 x = get<u32>(a), y = get<u32>(b), z = get<u32>(c), t = get<u32>(table), result = 0;
    for (u32 i = 0; i < 8; i++) {
        if (t >> i & 1)
            result |= (i & 4 ? x : ~x) & (i & 2 ? y : ~y) & (i & 1 ? z : ~z);
    }
    return result;
}
template <class First, class Second, class Third>
inline u32 find_nth_set(First a, Second b, Third c)
{
    return __fns(get<u32>(a), get<u32>(b), get<s32>(c));
}

// ---- Comparison --------------------------------------------------------------------------------

template <class Value, class First, class Second, class Parameter>
inline Value select(First a, Second b, Parameter p)
{
    return p ? get<Value>(a) : get<Value>(b);
}
#define VGPU_PTX_COMPARE(name, expression)                                                         \
    template <class Value, class First, class Second> inline bool name(First a, Second b)          \
    {                                                                                              \
        Value x = get<Value>(a), y = get<Value>(b);                                                \
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
