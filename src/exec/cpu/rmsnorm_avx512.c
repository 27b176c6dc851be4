// The row kernels for x86-64 with AVX-512. Compiled with it switched on; called only where the
// processor has it.
// SPDX-License-Identifier: Apache-2.0
#define TT_VECTOR_BYTES 64
#include "exec/cpu/rmsnorm_vectors.h"

#define VARIANT      tt_norm_avx512
#define VARIANT_NAME "avx512"
extern const struct tt_norm_variant VARIANT;
#include "exec/cpu/rmsnorm_body.h"
