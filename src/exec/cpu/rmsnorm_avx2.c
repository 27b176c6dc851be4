// The row kernels for x86-64 with AVX2 and F16C. Compiled with those switched on; called only
// where the processor has them.
// SPDX-License-Identifier: Apache-2.0
#define TT_VECTOR_BYTES 32
#include "exec/cpu/rmsnorm_vectors.h"

#define VARIANT      tt_norm_avx2
#define VARIANT_NAME "avx2"
extern const struct tt_norm_variant VARIANT;
#include "exec/cpu/rmsnorm_body.h"
