// The element kernels for x86-64 with AVX-512.
// SPDX-License-Identifier: Apache-2.0
#define TT_VECTOR_BYTES 64

#include "reduce/reduce.h"

#define VARIANT      tt_reduce_avx512
#define VARIANT_NAME "avx512"
extern const struct tt_reduce_variant VARIANT;
#include "reduce/reduce_body.h"
