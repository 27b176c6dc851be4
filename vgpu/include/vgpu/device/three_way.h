// Maxima and minima of three values, of a sum and a value, and with a record of which was taken
// (__vimax3_s32, __viaddmin_u16x2, __vibmax_s32, ...), on words and on 16-bit lanes.
//
// _relu: what is below 0 becomes 0. Sums wrap.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_THREE_WAY_H
#define VGPU_DEVICE_THREE_WAY_H

#include "integer.h"

#ifdef __cplusplus
extern "C++" {

namespace vgpu
{

template <class Value> inline Value larger(Value a, Value b)
{
    return a < b ? b : a;
}
template <class Value> inline Value smaller(Value a, Value b)
{
    return b < a ? b : a;
}
template <class Value> inline Value not_negative(Value a)
{
    return a < Value(0) ? Value(0) : a;
}
// The sum in Value's width.
template <class Value> inline Value wrapped_sum(Value a, Value b)
{
    return static_cast<Value>(static_cast<unsigned>(a) + static_cast<unsigned>(b));
}

// f on each 16-bit lane of three words; Lane: short or unsigned short.
template <class Lane, class Function>
inline unsigned lanes3(unsigned a, unsigned b, unsigned c, Function f)
{
    unsigned low = static_cast<unsigned short>(
        f(static_cast<Lane>(a), static_cast<Lane>(b), static_cast<Lane>(c)));
    unsigned high = static_cast<unsigned short>(
        f(static_cast<Lane>(a >> 16), static_cast<Lane>(b >> 16), static_cast<Lane>(c >> 16)));
    return high << 16 | low;
}

} // namespace vgpu

// One operation on words of `type` and on pairs of `lane`: f(a, b, c).
#define VGPU_THREE(name, suffix, type, lane, expression)                                           \
    VGPU_FUNCTION type name##32##suffix(type a, type b, type c)                                    \
    {                                                                                              \
        typedef type Value;                                                                        \
        return expression;                                                                         \
    }                                                                                              \
    VGPU_FUNCTION unsigned name##16x2##suffix(unsigned x, unsigned y, unsigned z)                  \
    {                                                                                              \
        typedef lane Value;                                                                        \
        return vgpu::lanes3<Value>(x, y, z,                                                        \
                                   [](Value a, Value b, Value c) -> Value { return expression; }); \
    }
#define VGPU_THREE_ALL(name, expression)                                                           \
    VGPU_THREE(name##_s, , int, short, (expression))                                               \
    VGPU_THREE(name##_s, _relu, int, short, vgpu::not_negative<Value>(expression))                 \
    VGPU_THREE(name##_u, , unsigned, unsigned short, (expression))
VGPU_THREE_ALL(__vimax3, vgpu::larger<Value>(vgpu::larger<Value>(a, b), c))
VGPU_THREE_ALL(__vimin3, vgpu::smaller<Value>(vgpu::smaller<Value>(a, b), c))
VGPU_THREE_ALL(__viaddmax, vgpu::larger<Value>(vgpu::wrapped_sum<Value>(a, b), c))
VGPU_THREE_ALL(__viaddmin, vgpu::smaller<Value>(vgpu::wrapped_sum<Value>(a, b), c))
#undef VGPU_THREE_ALL
#undef VGPU_THREE

// Of two, not below 0.
VGPU_FUNCTION int __vimax_s32_relu(int a, int b)
{
    return __vimax3_s32(a, b, 0);
}
VGPU_FUNCTION int __vimin_s32_relu(int a, int b)
{
    return vgpu::not_negative(vgpu::smaller(a, b));
}
VGPU_FUNCTION unsigned __vimax_s16x2_relu(unsigned a, unsigned b)
{
    return __vimax3_s16x2(a, b, 0);
}
VGPU_FUNCTION unsigned __vimin_s16x2_relu(unsigned a, unsigned b)
{
    return __vimin3_s16x2_relu(a, b, b);
}

// Of two, saying whether it is the first (also where both are equal).
#define VGPU_CHOICE(name, type, lane, relation)                                                    \
    VGPU_FUNCTION type name##32(type a, type b, bool *first)                                       \
    {                                                                                              \
        *first = a relation b;                                                                     \
        return *first ? a : b;                                                                     \
    }                                                                                              \
    VGPU_FUNCTION unsigned name##16x2(unsigned a, unsigned b, bool *first_high, bool *first_low)   \
    {                                                                                              \
        *first_low = static_cast<lane>(a) relation static_cast<lane>(b);                           \
        *first_high = static_cast<lane>(a >> 16) relation static_cast<lane>(b >> 16);              \
        return ((*first_high ? a : b) & 0xffff0000u) | ((*first_low ? a : b) & 0xffffu);           \
    }
VGPU_CHOICE(__vibmax_s, int, short, >=)
VGPU_CHOICE(__vibmax_u, unsigned, unsigned short, >=)
VGPU_CHOICE(__vibmin_s, int, short, <=)
VGPU_CHOICE(__vibmin_u, unsigned, unsigned short, <=)
#undef VGPU_CHOICE

// Dot products of two 16-bit values with two of four bytes, as vectors.
VGPU_FUNCTION int __dp2a_lo(short2 a, char4 b, int c)
{
    return __dp2a_lo(vgpu::bit_cast<int>(a), vgpu::bit_cast<int>(b), c);
}
VGPU_FUNCTION int __dp2a_hi(short2 a, char4 b, int c)
{
    return __dp2a_hi(vgpu::bit_cast<int>(a), vgpu::bit_cast<int>(b), c);
}
VGPU_FUNCTION unsigned __dp2a_lo(ushort2 a, uchar4 b, unsigned c)
{
    return __dp2a_lo(vgpu::bit_cast<unsigned>(a), vgpu::bit_cast<unsigned>(b), c);
}
VGPU_FUNCTION unsigned __dp2a_hi(ushort2 a, uchar4 b, unsigned c)
{
    return __dp2a_hi(vgpu::bit_cast<unsigned>(a), vgpu::bit_cast<unsigned>(b), c);
}
VGPU_FUNCTION unsigned short __nv_bswap16(unsigned short x)
{
    return __builtin_bswap16(x);
}
VGPU_FUNCTION unsigned int __nv_bswap32(unsigned int x)
{
    return __builtin_bswap32(x);
}
VGPU_FUNCTION unsigned long long __nv_bswap64(unsigned long long x)
{
    return __builtin_bswap64(x);
}

} // extern "C++"
#endif
#endif
