// Vectors of TT_VECTOR_BYTES bytes for code that is compiled once per instruction set: types,
// conversions of the small floats, streaming stores. The includer defines TT_VECTOR_BYTES (64:
// AVX-512, 32: AVX2 and F16C, 16: any processor) and is compiled with that set switched on. Vectors
// are the compiler's own vector types, so all sets compute the same.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_REDUCE_VECTORS_H
#define TT_REDUCE_VECTORS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

// As many elements each as there are floats in a vector.
typedef float vector_float __attribute__((vector_size(TT_VECTOR_BYTES)));
typedef int32_t vector_int __attribute__((vector_size(TT_VECTOR_BYTES)));
typedef uint16_t vector_short __attribute__((vector_size(TT_VECTOR_BYTES / 2)));
typedef uint8_t vector_byte __attribute__((vector_size(TT_VECTOR_BYTES / 4)));

// All ones where not a number.
INLINE vector_int is_nan(vector_float value)
{
    return ((vector_int)value & 0x7fffffff) > 0x7f800000;
}

INLINE vector_int select_int(vector_int mask, vector_int yes, vector_int no)
{
    return (mask & yes) | (~mask & no);
}

// Each defines vector_usable (on this processor); widen and narrow of shorts that hold 0 .. 0xffff;
// half_widen and half_narrow, as tt_float_from_half and tt_half_from_float; stream_floats and
// stream_shorts, stores past the caches to an aligned address.
#if TT_VECTOR_BYTES == 64
#include "reduce/vectors_avx512.h"
#elif TT_VECTOR_BYTES == 32
#include "reduce/vectors_avx2.h"
#else
#include "reduce/vectors_portable.h"
#endif

INLINE vector_float bfloat16_widen(vector_short value)
{
    return (vector_float)(widen(value) << 16);
}

INLINE vector_short bfloat16_narrow(vector_float value)
{
    vector_int bits = (vector_int)value;
    vector_int nan = is_nan(value);
    vector_int rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return narrow((rounded & ~nan & 0xffff) | (nan & 0x7fff));
}

INLINE vector_int least_int(vector_int a, vector_int b)
{
    return select_int(a < b, a, b);
}

// The 8-bit floats, as in fp8.h.
INLINE vector_float e4m3_widen(vector_byte value)
{
    vector_int bits = __builtin_convertvector(value, vector_int);
    vector_int sign = (bits & 0x80) << 24, rest = bits & 0x7f;
    vector_int number = (vector_int)((vector_float)(rest << 20) * 0x1p120f);
    vector_int nan = (vector_int){0} + 0x7fc00000;
    return (vector_float)(sign | select_int(rest == 0x7f, nan, number));
}

INLINE vector_byte e4m3_narrow(vector_float value)
{
    vector_int bits = (vector_int)value, nan = is_nan(value);
    vector_int sign = bits >> 24 & 0x80;
    vector_int rest = least_int(bits & 0x7fffffff, (vector_int){0} + 0x43e00000);
    vector_int small = (vector_int)((vector_float)rest + 0x1p14f) - 0x46800000;
    vector_int normal = (rest - (120 << 23) + 0x7ffff + (rest >> 20 & 1)) >> 20;
    vector_int number = sign | select_int(rest < 0x3c800000, small, normal);
    return __builtin_convertvector(select_int(nan, (vector_int){0} + 0x7f, number), vector_byte);
}

INLINE vector_float e5m2_widen(vector_byte value)
{
    return half_widen(__builtin_convertvector(value, vector_short) << 8);
}

INLINE vector_byte e5m2_narrow(vector_float value)
{
    vector_int bits = (vector_int)value, nan = is_nan(value);
    vector_int sign = bits >> 24 & 0x80;
    vector_int rest = least_int(bits & 0x7fffffff, (vector_int){0} + 0x47600000);
    vector_int small = (vector_int)((vector_float)rest + 0x1p7f) - 0x43000000;
    vector_int normal = (rest - (112 << 23) + 0xfffff + (rest >> 21 & 1)) >> 21;
    vector_int number = sign | select_int(rest < 0x38800000, small, normal);
    return __builtin_convertvector(select_int(nan, (vector_int){0} + 0x7f, number), vector_byte);
}

#endif
