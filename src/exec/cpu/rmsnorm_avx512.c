// The row kernels for x86-64 with AVX-512. Compiled with it switched on; called only where the
// processor has it. SPDX-License-Identifier: Apache-2.0
#define TT_VECTOR_BYTES 64
#include "exec/cpu/rmsnorm_vectors.h"

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

static bool vector_usable(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static inline vector_float half_load(const void *from)
{
    return (vector_float)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
}

static inline void half_store(void *to, vector_float value)
{
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)value, (__m512)value, _CMP_UNORD_Q);
    __m256i halves = _mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT);
    halves = _mm256_mask_set1_epi16(halves, nan, 0x7fff);
    memcpy(to, &halves, sizeof halves);
}

static inline void stream_store(void *to, vector_float value)
{
    _mm512_stream_ps((float *)to, (__m512)value);
}

#define VARIANT      tt_norm_avx512
#define VARIANT_NAME "avx512"
extern const struct tt_norm_variant VARIANT;
#include "exec/cpu/rmsnorm_body.h"
