// The element kernels for x86-64 with AVX2 and F16C.
// SPDX-License-Identifier: Apache-2.0
#define TT_VECTOR_BYTES 32

#include "reduce/reduce.h"

#define VARIANT      tt_reduce_avx2
#define VARIANT_NAME "avx2"
extern const struct tt_reduce_variant VARIANT;
#include "reduce/reduce_body.h"
