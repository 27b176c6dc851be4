// Arithmetic on 16-bit floats and pairs of them, for inline PTX: exact, rounded once.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_PTX_HALF_H
#define VGPU_PTX_HALF_H

#include "../float16_support.h"
#include "memory.h"
#include "registers.h"

extern "C++" {
namespace vgpu
{
namespace ptx
{

template <class Value> struct half_traits;
template <> struct half_traits<f16> {
    static float value(f16 x)
    {
        return vgpu_half_to_float(x.bits);
    }
    static f16 round(double x)
    {
        return f16{vgpu_double_to_half(x, VGPU_ROUND_NEAREST)};
    }
};
template <> struct half_traits<bf16> {
    static float value(bf16 x)
    {
        return vgpu_bfloat16_to_float(x.bits);
    }
    static bf16 round(double x)
    {
        return bf16{vgpu_double_to_bfloat16(x, VGPU_ROUND_NEAREST)};
    }
};

// a * b + c
template <class Value> inline Value half_fused(Value a, Value b, Value c)
{
    typedef half_traits<Value> t;
    return t::round(odd_fma(t::value(a), t::value(b), t::value(c)));
}

enum class half_operation { add, sub, mul, fma, min, max, neg, abs };

template <half_operation op, class Value> inline Value half_computed(Value a, Value b, Value c)
{
    typedef half_traits<Value> t;
    const u16 one = static_cast<u16>(std::is_same<Value, f16>::value ? 0x3c00 : 0x3f80);
    switch (op) {
    case half_operation::add:
        return half_fused(a, Value{one}, b);
    case half_operation::sub:
        return half_fused(b, Value{static_cast<u16>(one | 0x8000)}, a);
    case half_operation::mul:
        return t::round(static_cast<double>(t::value(a)) * t::value(b));
    case half_operation::fma:
        return half_fused(a, b, c);
    case half_operation::min:
        return combined<multimem::operation::min>(a, b);
    case half_operation::max:
        return combined<multimem::operation::max>(a, b);
    case half_operation::neg:
        return Value{static_cast<u16>(a.bits ^ 0x8000)};
    default:
        return Value{static_cast<u16>(a.bits & 0x7fff)};
    }
}

// A pair: each half by itself.
template <class Pair> struct half_of;
template <> struct half_of<f16x2> {
    typedef f16 type;
};
template <> struct half_of<bf16x2> {
    typedef bf16 type;
};
template <half_operation op> inline f16 half_all(f16 a, f16 b, f16 c)
{
    return half_computed<op>(a, b, c);
}
template <half_operation op> inline bf16 half_all(bf16 a, bf16 b, bf16 c)
{
    return half_computed<op>(a, b, c);
}
template <half_operation op, class Pair> inline Pair half_all(Pair a, Pair b, Pair c)
{
    typedef typename half_of<Pair>::type Value;
    auto part = [](Pair x, int shift) { return Value{static_cast<u16>(x.bits >> shift)}; };
    u32 low = half_computed<op>(part(a, 0), part(b, 0), part(c, 0)).bits;
    u32 high = half_computed<op>(part(a, 16), part(b, 16), part(c, 16)).bits;
    return Pair{high << 16 | low};
}

#define VGPU_PTX_HALF1(name)                                                                       \
    template <class Value, class First> inline Value half_##name(First a)                          \
    {                                                                                              \
        return half_all<half_operation::name>(get<Value>(a), Value(), Value());                    \
    }
#define VGPU_PTX_HALF2(name)                                                                       \
    template <class Value, class First, class Second> inline Value half_##name(First a, Second b)  \
    {                                                                                              \
        return half_all<half_operation::name>(get<Value>(a), get<Value>(b), Value());              \
    }
VGPU_PTX_HALF2(add)
VGPU_PTX_HALF2(sub)
VGPU_PTX_HALF2(mul)
VGPU_PTX_HALF2(min)
VGPU_PTX_HALF2(max)
VGPU_PTX_HALF1(neg)
VGPU_PTX_HALF1(abs)
#undef VGPU_PTX_HALF1
#undef VGPU_PTX_HALF2
template <class Value, class First, class Second, class Third>
inline Value half_fma(First a, Second b, Third c)
{
    return half_all<half_operation::fma>(get<Value>(a), get<Value>(b), get<Value>(c));
}

// ---- Conversions of 8-bit floats, in pairs -----------------------------------------------------

// Two floats, the first in the upper half; what is too large becomes the largest number.
template <class First, class Second> inline u16 floats_to_e4m3s(First a, Second b)
{
    return static_cast<u16>(vgpu_double_to_e4m3(get<f32>(a), 1) << 8 |
                            vgpu_double_to_e4m3(get<f32>(b), 1));
}
template <class First, class Second> inline u16 floats_to_e5m2s(First a, Second b)
{
    return static_cast<u16>(vgpu_double_to_e5m2(get<f32>(a), 1) << 8 |
                            vgpu_double_to_e5m2(get<f32>(b), 1));
}
template <class First> inline u16 halves_to_e4m3s(First a)
{
    u32 pair = get<u32>(a);
    return static_cast<u16>(vgpu_double_to_e4m3(vgpu_half_to_float(static_cast<u16>(pair >> 16)), 1)
                                << 8 |
                            vgpu_double_to_e4m3(vgpu_half_to_float(static_cast<u16>(pair)), 1));
}
template <class First> inline u16 halves_to_e5m2s(First a)
{
    u32 pair = get<u32>(a);
    return static_cast<u16>(vgpu_double_to_e5m2(vgpu_half_to_float(static_cast<u16>(pair >> 16)), 1)
                                << 8 |
                            vgpu_double_to_e5m2(vgpu_half_to_float(static_cast<u16>(pair)), 1));
}
template <class First> inline u32 e4m3s_to_halves(First a)
{
    u16 pair = get<u16>(a);
    return static_cast<u32>(vgpu_e4m3_to_half(static_cast<u8>(pair >> 8))) << 16 |
           vgpu_e4m3_to_half(static_cast<u8>(pair));
}
template <class First> inline u32 e5m2s_to_halves(First a)
{
    u16 pair = get<u16>(a);
    return static_cast<u32>(vgpu_e5m2_to_half(static_cast<u8>(pair >> 8))) << 16 |
           vgpu_e5m2_to_half(static_cast<u8>(pair));
}

} // namespace ptx
} // namespace vgpu
} // extern "C++"
#endif
