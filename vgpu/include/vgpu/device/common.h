// What the device function headers share: the form of a function, 16-byte accesses, fences and bit
// casts.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_COMMON_H
#define VGPU_DEVICE_COMMON_H

#include "../device_runtime.h"

#include <stdint.h>
#include <string.h>

// Every device function is an ordinary function with internal linkage: programs compiled for
// different processors may be linked together without one's instructions ending up in the other.
// Always inlined, as the instructions that they stand for are: what the runtime is called from is
// then a line of users' code, at -O0 too, and so are the functions around barriers elsewhere.
#define VGPU_FUNCTION static inline __attribute__((always_inline, unused))

// As the default argument of an always inlined function that is only a barrier ("char =
// VGPU_LINE_OF_CALL"): it is read where the call stands, so that the caller's line has code of its
// own and a breakpoint on it stops before the barrier.
#define VGPU_LINE_OF_CALL vgpu_line_of_call
__attribute__((unused)) static const volatile char vgpu_line_of_call = 0;

#ifdef __cplusplus
extern "C++" {

namespace vgpu
{

// 16 bytes that move in one instruction, at every optimisation level.
typedef long long bytes16 __attribute__((vector_size(16), may_alias));
static_assert(sizeof(bytes16) == 16, "16 bytes");

// The bits of `from` as a To of the same size.
template <class To, class From> inline To bit_cast(const From &from)
{
    static_assert(sizeof(To) == sizeof(From), "bit_cast between types of different size");
    To to;
    memcpy(static_cast<void *>(&to), &from, sizeof(to));
    return to;
}

// One value from memory: naturally aligned 1 to 16 bytes in one instruction.
template <class Value> inline Value load(const Value *address)
{
    if (sizeof(Value) == 16 && alignof(Value) == 16) {
        bytes16 raw = *reinterpret_cast<const bytes16 *>(address);
        Value value;
        memcpy(static_cast<void *>(&value), &raw,
               sizeof(raw) < sizeof(Value) ? sizeof(raw) : sizeof(Value));
        return value;
    }
    return *address;
}

template <class Value> inline void store(Value *address, const Value &value)
{
    if (sizeof(Value) == 16 && alignof(Value) == 16) {
        bytes16 raw;
        memcpy(&raw, &value, sizeof(raw) < sizeof(Value) ? sizeof(raw) : sizeof(Value));
        *reinterpret_cast<bytes16 *>(address) = raw;
        return;
    }
    *address = value;
}

} // namespace vgpu

} // extern "C++"
#endif
#endif
