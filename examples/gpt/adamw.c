// SPDX-License-Identifier: Apache-2.0
#include "adamw.h"

#include <math.h>
#include <string.h>

void gpt_adamw_float(const struct gpt_adamw *adamw, float *restrict weights,
                     const float *restrict gradients, float *restrict moment1,
                     float *restrict moment2, size_t count)
{
    const float beta1 = (float)adamw->beta1, beta2 = (float)adamw->beta2;
    const float rest1 = (float)(1 - adamw->beta1), rest2 = (float)(1 - adamw->beta2);
    const float kept = (float)(1 - adamw->rate * adamw->decay), eps = (float)adamw->eps;
    const float scale = (float)(adamw->rate / (1 - pow(adamw->beta1, adamw->step)));
    const float root = (float)(1 / sqrt(1 - pow(adamw->beta2, adamw->step)));
    for (size_t i = 0; i < count; i++) {
        float g = gradients[i];
        float m = beta1 * moment1[i] + rest1 * g;
        float v = beta2 * moment2[i] + rest2 * g * g;
        moment1[i] = m;
        moment2[i] = v;
        weights[i] = weights[i] * kept - scale * m / (sqrtf(v) * root + eps);
    }
}

void gpt_adamw_double(const struct gpt_adamw *adamw, double *restrict weights,
                      const double *restrict gradients, double *restrict moment1,
                      double *restrict moment2, size_t count)
{
    const double kept = 1 - adamw->rate * adamw->decay;
    const double scale = adamw->rate / (1 - pow(adamw->beta1, adamw->step));
    const double root = 1 / sqrt(1 - pow(adamw->beta2, adamw->step));
    for (size_t i = 0; i < count; i++) {
        double g = gradients[i];
        double m = adamw->beta1 * moment1[i] + (1 - adamw->beta1) * g;
        double v = adamw->beta2 * moment2[i] + (1 - adamw->beta2) * g * g;
        moment1[i] = m;
        moment2[i] = v;
        weights[i] = weights[i] * kept - scale * m / (sqrt(v) * root + adamw->eps);
    }
}

void gpt_round_bfloat16(const float *from, uint16_t *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
        uint32_t quiet = bits >> 16 | 0x40; // of a NaN, which must not round to infinity
        to[i] = (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
    }
}

void gpt_widen_bfloat16(const uint16_t *from, float *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(&to[i], &bits, sizeof bits);
    }
}
