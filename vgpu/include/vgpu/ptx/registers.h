// Registers of inline PTX. A register holds bits (unsigned char .. unsigned __int128, bool for a
// predicate); each
// instruction says how it reads and writes them. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_PTX_REGISTERS_H
#define VGPU_PTX_REGISTERS_H

#include "../device/address_space.h"
#include "../device/common.h"
#include "../device_runtime.h"

#include <type_traits>

extern "C++" {
namespace vgpu
{
namespace ptx
{

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;
typedef float f32;
typedef double f64;
typedef bool pred;
__extension__ typedef unsigned __int128 b128;

// 16-bit floats, alone and in pairs: their bits, distinct types.
struct f16 {
    u16 bits;
};
struct bf16 {
    u16 bits;
};
struct f16x2 {
    u32 bits;
};
struct bf16x2 {
    u32 bits;
};

// A floating constant in the text: becomes what the instruction computes with.
struct number {
    double value;
};

template <int bytes> struct bits_of;
template <> struct bits_of<1> {
    typedef u8 type;
};
template <> struct bits_of<2> {
    typedef u16 type;
};
template <> struct bits_of<4> {
    typedef u32 type;
};
template <> struct bits_of<8> {
    typedef u64 type;
};
template <> struct bits_of<16> {
    typedef b128 type;
};

// ---- Reading and writing -----------------------------------------------------------------------

// The register's low bits as a Value.
template <class Value, class Register> inline Value get(Register reg)
{
    typedef typename bits_of<sizeof(Value)>::type bits;
    return bit_cast<Value>(static_cast<bits>(reg));
}
template <> inline bool get<bool, bool>(bool reg)
{
    return reg;
}
template <class Value> inline Value get(number constant)
{
    return static_cast<Value>(constant.value);
}

// Writes a value: narrower signed integers are extended with their sign, all else with zeros.
template <class Register, class Value>
inline typename std::enable_if<std::is_integral<Value>::value && std::is_signed<Value>::value>::type
set(Register &reg, Value value)
{
    reg = static_cast<Register>(static_cast<s64>(value));
}
template <class Register, class Value>
inline
    typename std::enable_if<!(std::is_integral<Value>::value && std::is_signed<Value>::value)>::type
    set(Register &reg, Value value)
{
    reg = static_cast<Register>(bit_cast<typename bits_of<sizeof(Value)>::type>(value));
}

// ---- Operands of the asm statement -------------------------------------------------------------

// A C++ value as the bits of a register of the constraint's size.
template <class Register, class Value,
          bool is_number = std::is_integral<Value>::value || std::is_enum<Value>::value>
struct entering {
    static Register bits(Value value)
    {
        static_assert(sizeof(Value) <= sizeof(Register),
                      "an operand of inline PTX is larger than its constraint says");
        typename bits_of<sizeof(Value)>::type raw;
        memcpy(&raw, &value, sizeof(raw));
        return static_cast<Register>(raw);
    }
};
template <class Register, class Value> struct entering<Register, Value, true> {
    static Register bits(Value value)
    {
        return static_cast<Register>(value);
    }
};
template <class Register, class Value> inline Register in(const Value &value)
{
    return entering<Register, typename std::decay<const Value>::type>::bits(value);
}
template <class Register, class Value> inline Register in(Value *value)
{
    return static_cast<Register>(reinterpret_cast<uintptr_t>(value));
}
// "f" and "d" convert, as for a function's parameter.
template <class Value> inline u32 in_float(const Value &value)
{
    return bit_cast<u32>(static_cast<float>(value));
}
template <class Value> inline u64 in_double(const Value &value)
{
    return bit_cast<u64>(static_cast<double>(value));
}

// A register's bits as the C++ object that an output names.
template <class Register, class Value,
          bool is_number = std::is_integral<Value>::value || std::is_enum<Value>::value>
struct leaving {
    static Value value(Register reg)
    {
        static_assert(sizeof(Value) <= sizeof(Register),
                      "an operand of inline PTX is larger than its constraint says");
        typename bits_of<sizeof(Value)>::type raw =
            static_cast<typename bits_of<sizeof(Value)>::type>(reg);
        Value result;
        memcpy(static_cast<void *>(&result), &raw, sizeof(raw));
        return result;
    }
};
template <class Register, class Value> struct leaving<Register, Value, true> {
    static Value value(Register reg)
    {
        return static_cast<Value>(reg);
    }
};
template <class Register, class Value> inline void out(Value &object, Register reg)
{
    object = leaving<Register, typename std::remove_cv<Value>::type>::value(reg);
}
template <class Value> inline void out_float(Value &object, u32 reg)
{
    object = static_cast<Value>(bit_cast<float>(reg));
}
template <class Value> inline void out_double(Value &object, u64 reg)
{
    object = static_cast<Value>(bit_cast<double>(reg));
}

// ---- Addresses ---------------------------------------------------------------------------------

inline char *address(u64 value)
{
    return reinterpret_cast<char *>(static_cast<uintptr_t>(value));
}
// An address of shared memory of which a program kept 32 bits: the one nearest to the last that it
// converted, or to the block's own memory.
inline char *address_of_shared(u32 low)
{
    uintptr_t near = __atomic_load_n(&last_shared_address(), __ATOMIC_RELAXED);
    if (near == 0)
        near = reinterpret_cast<uintptr_t>(vgpu_dynamic_shared());
    return address(static_cast<u64>(
        near + static_cast<intptr_t>(static_cast<s32>(low - static_cast<u32>(near)))));
}

} // namespace ptx
} // namespace vgpu
} // extern "C++"
#endif
