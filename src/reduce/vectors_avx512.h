// Vectors of AVX-512 (F, BW, VL, DQ). Included by vectors.h alone.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_REDUCE_VECTORS_AVX512_H
#define TT_REDUCE_VECTORS_AVX512_H

#include <immintrin.h>

static bool vector_usable(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

INLINE vector_int widen(vector_short value)
{
    return (vector_int)_mm512_cvtepu16_epi32((__m256i)value);
}

INLINE vector_short narrow(vector_int value)
{
    return (vector_short)_mm512_cvtepi32_epi16((__m512i)value);
}

INLINE vector_float half_widen(vector_short value)
{
    return (vector_float)_mm512_cvtph_ps((__m256i)value);
}

INLINE vector_short half_narrow(vector_float value)
{
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)value, (__m512)value, _CMP_UNORD_Q);
    __m256i halves = _mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT);
    return (vector_short)_mm256_mask_set1_epi16(halves, nan, 0x7fff);
}

INLINE void stream_floats(void *to, vector_float value)
{
    _mm512_stream_ps((float *)to, (__m512)value);
}

INLINE void stream_shorts(void *to, vector_short value)
{
    _mm256_stream_si256((__m256i *)to, (__m256i)value);
}

#endif
