// Arithmetic on rows of tokens: copies, weighted sums, dot products, in a portable form and in one
// for processors with AVX2. The same bits in both: no multiplication and addition in one rounding.
// SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_MOE_ROWS_H
#define PARALLEL_MOE_ROWS_H

#include "nccl.h"

#include <stddef.h>

struct moe_rows {
    // past: stores past the caches, where `to` is a multiple of 32; fence() comes before others may
    // read.
    void (*copy)(void *to, const void *from, size_t bytes, int past);
    // to[i] = rounded(sum over r, ascending, of (weights[r] *) rows[r][i]). In float, weights
    // rounded to it; for ncclFloat64 in double. weights NULL: all 1. to may be rows[r].
    void (*sum_float32)(void *to, const void *const *rows, const double *weights, int count,
                        size_t hidden, int past);
    void (*sum_bfloat16)(void *to, const void *const *rows, const double *weights, int count,
                         size_t hidden, int past);
    void (*sum_float64)(void *to, const void *const *rows, const double *weights, int count,
                        size_t hidden, int past);
    // The dot product: partial sums in double of the elements i with i mod 32 = l, ascending, then
    // of those by ascending l. A float gradient with a float or bf16 row; double with double.
    double (*dot_float32)(const void *grad, const void *row, size_t hidden);
    double (*dot_bfloat16)(const void *grad, const void *row, size_t hidden);
    double (*dot_float64)(const void *grad, const void *row, size_t hidden);
    void (*fence)(void);
};

extern const struct moe_rows moe_rows_portable;
#ifdef MOE_X86
extern const struct moe_rows moe_rows_avx2;
#endif

// The best of this processor.
const struct moe_rows *moe_rows_choose(void);

#endif
