// The element kernels for any processor.
// SPDX-License-Identifier: Apache-2.0
#define TT_VECTOR_BYTES 16

#include "reduce/reduce.h"

#define VARIANT      tt_reduce_portable
#define VARIANT_NAME "portable"
extern const struct tt_reduce_variant VARIANT;
#include "reduce/reduce_body.h"
