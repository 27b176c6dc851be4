// The row kernels for any processor: vectors of 16 bytes, which every compiler can lower, and half
// in software.
// SPDX-License-Identifier: Apache-2.0
#define TT_VECTOR_BYTES 16
#include "exec/cpu/rmsnorm_vectors.h"

#define VARIANT      tt_norm_portable
#define VARIANT_NAME "portable"
extern const struct tt_norm_variant VARIANT;
#include "exec/cpu/rmsnorm_body.h"
