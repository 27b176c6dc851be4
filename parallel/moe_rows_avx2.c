// Rows with AVX2: stores of 32 bytes past the caches. Compiled with -mavx2.
// SPDX-License-Identifier: Apache-2.0
#include "moe_rows.h"

#include <immintrin.h>

#define MOE_ROWS            moe_rows_avx2
#define store_32(to, value) _mm256_stream_ps((float *)(void *)(to), (__m256)(value))

static void fence(void)
{
    _mm_sfence();
}

#include "moe_rows_body.h"
