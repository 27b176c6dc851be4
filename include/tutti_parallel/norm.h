// The norms of transformers, over the rows that a rank has. No communication: under sequence
// parallelism each rank norms its own tokens, and the gradients of gamma and beta are then sums
// over these tokens only, which the program adds up over the ranks (ncclAllReduce, ncclSum, over
// the tensor-parallel communicator) before the optimizer reads them.
//
// The host computes, in double, at once: what still writes to these matrices in a stream must be
// waited for before. Errors, everywhere: ncclInvalidArgument for a bad argument, ncclSystemError
// without memory for a row.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_PARALLEL_NORM_H
#define TUTTI_PARALLEL_NORM_H

#include "tutti_parallel/types.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tuttiNormKind {
    // y = x / sqrt(mean of x^2 + eps) * gamma. B. Zhang, R. Sennrich: Root Mean Square Layer
    // Normalization, 2019.
    TUTTI_RMS_NORM = 0,
    // y = (x - mean of x) / sqrt(variance of x + eps) * gamma + beta. J. L. Ba, J. R. Kiros, G. E.
    // Hinton: Layer Normalization, 2016.
    TUTTI_LAYER_NORM = 1
};

struct tuttiNorm {
    enum tuttiNormKind kind;
    size_t width; // features of a row, at least 1
    double eps;   // finite, >= 0
    struct tuttiTypes types;
};

// A backward call: x: [tokens x width], as forward read it. dy: [tokens x width]. dx: receives
// [tokens x width]; may be dy. added: [tokens x width] in the gradients' type, added to dx (the
// derivatives that come along the residual); may be dx; NULL: none. gamma: NULL: all 1. dgamma,
// dbeta: float (double) [width], added to; NULL: not wanted.
struct tuttiNormGradients {
    const void *x, *gamma, *dy, *added;
    void *dx, *dgamma, *dbeta;
};

// x, y: [tokens x width] in the activations' type; may be equal. gamma, beta: [width] in the
// weights' type; NULL: all 1, all 0. beta is for TUTTI_LAYER_NORM only. A row whose squares sum to
// zero with eps 0 becomes zeros (then beta). Since 0.1.
ncclResult_t tuttiNormForward(const struct tuttiNorm *norm, size_t tokens, const void *x,
                              const void *gamma, const void *beta, void *y);
// Computes the statistics of x anew. Since 0.1.
ncclResult_t tuttiNormBackward(const struct tuttiNorm *norm, size_t tokens,
                               const struct tuttiNormGradients *gradients);

#ifdef __cplusplus
}
#endif
#endif
