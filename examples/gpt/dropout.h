// Dropout (N. Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from
// Overfitting", 2014) whose random numbers are named by step, site, token of the global batch and
// feature: a rank that has some of the tokens drops what one that has all would.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_DROPOUT_H
#define GPT_DROPOUT_H

#include "real.h"

#define gpt_dropout_add      GPT_TYPED(gpt_dropout_add)
#define gpt_dropout_backward GPT_TYPED(gpt_dropout_backward)

struct gpt_dropout {
    double probability; // of an element to become 0; the others are multiplied by 1 / (1 - it); 0:
                        // nothing is dropped
    uint64_t seed;
    uint64_t step;
    int site;     // of the model: 0 the embedding; 1 + 2 l, 2 + 2 l attention and MLP of layer l
    size_t token; // of the first row, in the global batch
    size_t width; // features
};

// out = dropout(x) (+ residual). x, residual, out: [rows x width]; residual NULL: none; out may be
// x or residual.
void gpt_dropout_add(const struct gpt_dropout *dropout, size_t rows, const stored *x,
                     const stored *residual, stored *out);

// dx = dropout(dout): the same elements. [rows x width]; dx may be dout.
void gpt_dropout_backward(const struct gpt_dropout *dropout, size_t rows, const real *dout,
                          real *dx);

#endif
