// Vectors of AVX2 with F16C. Included by vectors.h alone.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_REDUCE_VECTORS_AVX2_H
#define TT_REDUCE_VECTORS_AVX2_H

#include <cpuid.h>
#include <immintrin.h>

static bool vector_usable(void)
{
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) != 0 &&
           (c & bit_F16C) != 0;
}

INLINE vector_int widen(vector_short value)
{
    return (vector_int)_mm256_cvtepu16_epi32((__m128i)value);
}

// Elements are 0 .. 0xffff.
INLINE vector_short narrow(vector_int value)
{
    __m256i wide = (__m256i)value;
    return (vector_short)_mm_packus_epi32(_mm256_castsi256_si128(wide),
                                          _mm256_extracti128_si256(wide, 1));
}

INLINE vector_float half_widen(vector_short value)
{
    return (vector_float)_mm256_cvtph_ps((__m128i)value);
}

INLINE vector_short half_narrow(vector_float value)
{
    vector_short nan = narrow(is_nan(value) & 0xffff);
    vector_short plain = (vector_short)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
    return (plain & ~nan) | (nan & 0x7fff);
}

INLINE void stream_floats(void *to, vector_float value)
{
    _mm256_stream_ps((float *)to, (__m256)value);
}

INLINE void stream_shorts(void *to, vector_short value)
{
    _mm_stream_si128((__m128i *)to, (__m128i)value);
}

#endif
