// Loads, stores, atomics and fences of inline PTX.
//
// Ordered loads and failing atomics let other threads run: programs poll with them. 16 bytes move
// in one instruction.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_PTX_MEMORY_H
#define VGPU_PTX_MEMORY_H

#include "../fence.h"
#include "../multimem.h"
#include "registers.h"

extern "C++" {
namespace vgpu
{
namespace ptx
{

enum class order { weak, relaxed, acquire, release, acq_rel, seq_cst };

constexpr int atomic_order(order o)
{
    return o == order::acquire   ? __ATOMIC_ACQUIRE
           : o == order::release ? __ATOMIC_RELEASE
           : o == order::acq_rel ? __ATOMIC_ACQ_REL
           : o == order::seq_cst ? __ATOMIC_SEQ_CST
                                 : __ATOMIC_RELAXED;
}

// ---- Loads and stores --------------------------------------------------------------------------
// access<bytes>: one access of that size, atomic where ordered.

template <int bytes> struct access {
    typedef typename bits_of<bytes>::type word;
    typedef word __attribute__((may_alias)) aliasing;
    template <order o> static void load(void *out, const char *from)
    {
        word value = o == order::weak ? *reinterpret_cast<const aliasing *>(from)
                                      : __atomic_load_n(reinterpret_cast<const aliasing *>(from),
                                                        o == order::acquire ? __ATOMIC_ACQUIRE
                                                                            : __ATOMIC_RELAXED);
        memcpy(out, &value, bytes);
    }
    template <order o> static void store(char *to, const void *from)
    {
        word value;
        memcpy(&value, from, bytes);
        if (o == order::weak)
            *reinterpret_cast<aliasing *>(to) = value;
        else
            __atomic_store_n(reinterpret_cast<aliasing *>(to), value,
                             o == order::release ? __ATOMIC_RELEASE : __ATOMIC_RELAXED);
    }
};
template <> struct access<16> {
    template <order o> static void load(void *out, const char *from)
    {
        bytes16 value = o == order::weak ? *reinterpret_cast<const bytes16 *>(from)
                                         : *reinterpret_cast<const volatile bytes16 *>(from);
        if (o == order::acquire)
            vgpu_fence(__ATOMIC_ACQUIRE);
        memcpy(out, &value, 16);
    }
    template <order o> static void store(char *to, const void *from)
    {
        bytes16 value;
        memcpy(&value, from, 16);
        if (o == order::release)
            vgpu_fence(__ATOMIC_RELEASE);
        if (o == order::weak)
            *reinterpret_cast<bytes16 *>(to) = value;
        else
            *reinterpret_cast<volatile bytes16 *>(to) = value;
    }
};
template <> struct access<32> {
    template <order o> static void load(void *out, const char *from)
    {
        access<16>::load<o>(out, from);
        access<16>::load<o>(static_cast<char *>(out) + 16, from + 16);
    }
    template <order o> static void store(char *to, const void *from)
    {
        access<16>::store<o>(to, from);
        access<16>::store<o == order::release ? order::relaxed : o>(
            to + 16, static_cast<const char *>(from) + 16);
    }
};

template <order o, class Value, int n> inline void ld(Value (&out)[n], const char *from)
{
    access<static_cast<int>(sizeof(Value)) * n>::template load<o>(out, from);
    if (o != order::weak)
        vgpu_yield();
}
template <order o, class Value, int n> inline void st(char *to, const Value (&value)[n])
{
    access<static_cast<int>(sizeof(Value)) * n>::template store<o>(to, value);
}

// ---- Atomics -----------------------------------------------------------------------------------

template <order o, class Value, class Function> inline Value atomic_change(char *at, Function f)
{
    typedef typename bits_of<sizeof(Value)>::type bits;
    typedef bits __attribute__((may_alias)) aliasing;
    aliasing *word = reinterpret_cast<aliasing *>(at);
    bits old = __atomic_load_n(word, __ATOMIC_RELAXED);
    for (;;) {
        bits wanted = bit_cast<bits>(static_cast<Value>(f(bit_cast<Value>(old))));
        if (__atomic_compare_exchange_n(word, &old, wanted, false, atomic_order(o),
                                        __ATOMIC_RELAXED)) {
            if (wanted == old)
                vgpu_yield();
            return bit_cast<Value>(old);
        }
    }
}

template <class Value> inline Value wrapping_sum(Value a, Value b)
{
    return static_cast<Value>(static_cast<typename std::make_unsigned<Value>::type>(a) +
                              static_cast<typename std::make_unsigned<Value>::type>(b));
}
inline float wrapping_sum(float a, float b)
{
    return a + b;
}
inline double wrapping_sum(double a, double b)
{
    return a + b;
}

// 16-bit floats: one rounding per operation.
template <multimem::operation op> inline f16 combined(f16 a, f16 b)
{
    return f16{vgpu_float_to_half(
        multimem::choose<op>(vgpu_half_to_float(a.bits), vgpu_half_to_float(b.bits)))};
}
template <multimem::operation op> inline bf16 combined(bf16 a, bf16 b)
{
    return bf16{vgpu_float_to_bfloat16(
        multimem::choose<op>(vgpu_bfloat16_to_float(a.bits), vgpu_bfloat16_to_float(b.bits)))};
}
template <multimem::operation op, class Pair, class Single>
inline Pair combined_pair(Pair a, Pair b)
{
    u32 low = combined<op>(Single{static_cast<u16>(a.bits)}, Single{static_cast<u16>(b.bits)}).bits;
    u32 high =
        combined<op>(Single{static_cast<u16>(a.bits >> 16)}, Single{static_cast<u16>(b.bits >> 16)})
            .bits;
    return Pair{high << 16 | low};
}
template <multimem::operation op> inline f16x2 combined(f16x2 a, f16x2 b)
{
    return combined_pair<op, f16x2, f16>(a, b);
}
template <multimem::operation op> inline bf16x2 combined(bf16x2 a, bf16x2 b)
{
    return combined_pair<op, bf16x2, bf16>(a, b);
}
template <class Value> struct is_small_float {
    static const bool value = !std::is_arithmetic<Value>::value;
};

template <class Value, multimem::operation op, bool small = is_small_float<Value>::value>
struct combining;
template <class Value, multimem::operation op> struct combining<Value, op, true> {
    static Value of(Value a, Value b)
    {
        return combined<op>(a, b);
    }
};
template <class Value> struct combining<Value, multimem::operation::add, false> {
    static Value of(Value a, Value b)
    {
        return wrapping_sum(a, b);
    }
};
template <class Value> struct combining<Value, multimem::operation::min, false> {
    static Value of(Value a, Value b)
    {
        return b < a ? b : a;
    }
};
template <class Value> struct combining<Value, multimem::operation::max, false> {
    static Value of(Value a, Value b)
    {
        return a < b ? b : a;
    }
};

#define VGPU_PTX_ATOM(name, expression)                                                            \
    template <class Value, order o> inline Value atom_##name(char *at, Value y)                    \
    {                                                                                              \
        return atomic_change<o, Value>(at, [y](Value x) -> Value { return expression; });          \
    }
VGPU_PTX_ATOM(add, (combining<Value, multimem::operation::add>::of(x, y)))
VGPU_PTX_ATOM(min, (combining<Value, multimem::operation::min>::of(x, y)))
VGPU_PTX_ATOM(max, (combining<Value, multimem::operation::max>::of(x, y)))
VGPU_PTX_ATOM(inc, x >= y ? 0 : x + 1)
VGPU_PTX_ATOM(dec, x == 0 || x > y ? y : x - 1)
VGPU_PTX_ATOM(and, x &y)
VGPU_PTX_ATOM(or, x | y)
VGPU_PTX_ATOM(xor, x ^ y)
VGPU_PTX_ATOM(exch, (static_cast<void>(x), y))
#undef VGPU_PTX_ATOM

template <class Value, order o> inline Value atom_cas(char *at, Value expected, Value wanted)
{
    typedef Value __attribute__((may_alias)) aliasing;
    Value old = expected;
    bool stored = __atomic_compare_exchange_n(
        reinterpret_cast<aliasing *>(at), &old, wanted, false, atomic_order(o),
        o == order::acquire || o == order::acq_rel ? __ATOMIC_ACQUIRE : __ATOMIC_RELAXED);
    if (!stored || expected == wanted)
        vgpu_yield();
    return old;
}

// ---- Fences and copies -------------------------------------------------------------------------

template <order o> inline void fence()
{
    vgpu_fence(atomic_order(o));
}
template <order o> inline void fence_block()
{
    vgpu_fence_block(atomic_order(o));
}
// Asynchronous copies are done at once; so their groups are always complete.
template <class Bytes> inline void copy(char *to, const char *from, Bytes bytes)
{
    memcpy(to, from, get<u32>(bytes));
}
// cp.async with a source size: the rest of the destination becomes zero.
template <class Bytes, class SourceBytes>
inline void copy_and_fill(char *to, const char *from, Bytes bytes, SourceBytes source_bytes)
{
    u32 all = get<u32>(bytes), some = get<u32>(source_bytes);
    some = some < all ? some : all;
    memcpy(to, from, some);
    memset(to + some, 0, all - some);
}

} // namespace ptx
} // namespace vgpu
} // extern "C++"
#endif
