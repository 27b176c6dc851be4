// A product in blocks: what the two working types, float and double, have in common.
// SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_MATMUL_INTERNAL_H
#define PARALLEL_MATMUL_INTERNAL_H

#include "tutti_parallel/matmul.h"

#include "blas.h"

// A checked product: strides are set, sizes fit, no dimension of C is 0.
struct matmul {
    struct tuttiProduct product;
    const void *a, *b;
    void *c;
    const struct parallel_blas *blas;
};

// Blocks of A and B: 256 KiB each in float, so that they stay in a core's second cache.
enum { BLOCK = 256 };

// Compute it in blocks of the working type: float (C is float or bf16) or double. The blocks are
// converted as they lie for the BLAS library, or laid out in tiles for our own loop.
// ncclSystemError without memory.
ncclResult_t parallel_matmul_float(const struct matmul *m);
ncclResult_t parallel_matmul_double(const struct matmul *m);

#endif
