// AdamW: I. Loshchilov and F. Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm 2,
// with the learning rate as the schedule's multiplier. Per element, with gradient g:
//     w = w * (1 - rate * decay)
//     m = beta1 * m + (1 - beta1) * g
//     v = beta2 * v + (1 - beta2) * g^2
//     w = w - rate * m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps)
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_ADAMW_H
#define GPT_ADAMW_H

#include <stddef.h>
#include <stdint.h>

struct gpt_adamw {
    double rate, beta1, beta2, eps;
    double decay; // 0 for norms
    int step;     // from 1 on
};

// One step of `count` elements. moment1, moment2: m and v; 0 before the first step.
void gpt_adamw_float(const struct gpt_adamw *adamw, float *weights, const float *gradients,
                     float *moment1, float *moment2, size_t count);
void gpt_adamw_double(const struct gpt_adamw *adamw, double *weights, const double *gradients,
                      double *moment1, double *moment2, size_t count);

// bf16 from float, rounded to the nearest, ties to even; NaN stays NaN.
void gpt_round_bfloat16(const float *from, uint16_t *to, size_t count);
// And back, exactly.
void gpt_widen_bfloat16(const uint16_t *from, float *to, size_t count);

#endif
