// What lies between the two matrices of an MLP: SwiGLU or GELU (config.h). Rows of one rank's own
// features; no communication.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_ACTIVATION_H
#define GPT_ACTIVATION_H

#include "config.h"
#include "real.h"

#define gpt_activation_forward  GPT_TYPED(gpt_activation_forward)
#define gpt_activation_backward GPT_TYPED(gpt_activation_backward)

// hidden: [tokens x 2 width], a row is gate, then up (SwiGLU), or [tokens x width] (GELU). out:
// [tokens x width].
void gpt_activation_forward(enum gpt_activation kind, size_t tokens, size_t width,
                            const stored *hidden, stored *out);

struct gpt_activation_gradients {
    const stored *hidden; // as forward read it
    const real *dout;     // [tokens x width]
    real *dhidden;        // as hidden; receives the derivatives
    stored *out;          // [tokens x width]; receives forward's result again
};
void gpt_activation_backward(enum gpt_activation kind, size_t tokens, size_t width,
                             const struct gpt_activation_gradients *gradients);

#endif
