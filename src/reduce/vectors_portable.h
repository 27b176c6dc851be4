// Vectors of 16 bytes, which every compiler can lower, and half in software. Included by vectors.h
// alone.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_REDUCE_VECTORS_PORTABLE_H
#define TT_REDUCE_VECTORS_PORTABLE_H

#ifdef __SSE2__
#include <emmintrin.h>
#endif

static bool vector_usable(void)
{
    return true;
}

INLINE vector_int widen(vector_short value)
{
    return __builtin_convertvector(value, vector_int);
}

// Elements are 0 .. 0xffff.
INLINE vector_short narrow(vector_int value)
{
    return __builtin_convertvector(value, vector_short);
}

// tt_float_from_half, without branches: the exponent is put right by a multiplication, which is
// exact, subnormals included; infinity and NaN then get theirs.
INLINE vector_float half_widen(vector_short value)
{
    vector_int half = widen(value);
    vector_int sign = (half & 0x8000) << 16, rest = half & 0x7fff;
    vector_int finite = (vector_int)((vector_float)(rest << 13) * 0x1p112f);
    vector_int special = rest << 13 | 0x7f800000;
    return (vector_float)(sign | select_int(rest >= 0x7c00, special, finite));
}

// tt_half_from_float, without branches.
INLINE vector_short half_narrow(vector_float value)
{
    vector_int bits = (vector_int)value;
    vector_int sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    vector_int normal = (rest - (112 << 23) + 0xfff + (rest >> 13 & 1)) >> 13;
    vector_int small = (vector_int)((vector_float)rest + 0.5f) - 0x3f000000;
    vector_int half = select_int(rest < 0x38800000, small, normal);
    half = sign | select_int(rest >= 0x477ff000, (vector_int){0} + 0x7c00, half);
    return narrow(select_int(rest > 0x7f800000, (vector_int){0} + 0x7fff, half));
}

INLINE void stream_floats(void *to, vector_float value)
{
#ifdef __SSE2__
    _mm_stream_ps((float *)to, (__m128)value);
#else
    memcpy(to, &value, sizeof value);
#endif
}

INLINE void stream_shorts(void *to, vector_short value)
{
#if defined(__SSE2__) && defined(__x86_64__)
    long long bits;
    memcpy(&bits, &value, sizeof bits);
    _mm_stream_si64((long long *)to, bits);
#else
    memcpy(to, &value, sizeof value);
#endif
}

#endif
