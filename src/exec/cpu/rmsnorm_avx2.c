// The row kernels for x86-64 with AVX2 and F16C. Compiled with those switched on; called only where
// the processor has them. SPDX-License-Identifier: Apache-2.0
#define TT_VECTOR_BYTES 32
#include "exec/cpu/rmsnorm_vectors.h"

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

static bool vector_usable(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
}

static inline vector_float half_load(const void *from)
{
    return (vector_float)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
}

static inline void half_store(void *to, vector_float value)
{
    vector_int nan = (vector_int)(value != value);
    vector_short plain = (vector_short)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
    vector_short mask = __builtin_convertvector(nan, vector_short);
    vector_short halves = (plain & ~mask) | (mask & 0x7fff);
    memcpy(to, &halves, sizeof halves);
}

static inline void stream_store(void *to, vector_float value)
{
    _mm256_stream_ps((float *)to, (__m256)value);
}

#define VARIANT      tt_norm_avx2
#define VARIANT_NAME "avx2"
extern const struct tt_norm_variant VARIANT;
#include "exec/cpu/rmsnorm_body.h"
