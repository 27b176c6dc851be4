// See dropout.h. SPDX-License-Identifier: Apache-2.0
#include "dropout.h"

#include "random.h"

enum { FEATURES_AT_ONCE = 256 };
// Keeps these random numbers apart from those of initial values.
static const uint64_t dropout_key = 0x64726f706f757421u;

// factors[i]: of feature first + i of a token: 0, or 1 / (1 - probability). first: divisible by 4.
static void factors_of(const struct gpt_dropout *dropout, size_t token, size_t first,
                       real factors[FEATURES_AT_ONCE])
{
    if (dropout->probability == 0) {
        for (size_t i = 0; i < FEATURES_AT_ONCE; i++) {
            factors[i] = 1;
        }
        return;
    }
    const real kept = (real)(1 / (1 - dropout->probability));
    const uint32_t limit = (uint32_t)(dropout->probability * 0x1p32);
    const uint64_t key = dropout->seed ^ dropout_key;
    const uint32_t site = (uint32_t)dropout->site << 16 | (uint32_t)((uint64_t)token >> 32);
    uint32_t bits[FEATURES_AT_ONCE];
    for (uint32_t block = 0; block < FEATURES_AT_ONCE / 4; block++) {
        const uint32_t counter[4] = {(uint32_t)(first / 4) + block, (uint32_t)token, site,
                                     (uint32_t)dropout->step};
        gpt_philox(counter, key, bits + (size_t)4 * block);
    }
    for (size_t i = 0; i < FEATURES_AT_ONCE; i++) {
        factors[i] = bits[i] < limit ? 0 : kept;
    }
}

void gpt_dropout_add(const struct gpt_dropout *dropout, size_t rows, const stored *x,
                     const stored *residual, stored *out)
{
    size_t width = dropout->width;
    for (size_t row = 0; row < rows; row++) {
        for (size_t first = 0; first < width; first += FEATURES_AT_ONCE) {
            real factors[FEATURES_AT_ONCE];
            size_t count = width - first < FEATURES_AT_ONCE ? width - first : FEATURES_AT_ONCE;
            size_t at = row * width + first;
            factors_of(dropout, dropout->token + row, first, factors);
            for (size_t i = 0; i < count; i++) {
                real added = residual == NULL ? 0 : load(residual[at + i]);
                out[at + i] = keep(load(x[at + i]) * factors[i] + added);
            }
        }
    }
}

void gpt_dropout_backward(const struct gpt_dropout *dropout, size_t rows, const real *dout,
                          real *dx)
{
    size_t width = dropout->width;
    for (size_t row = 0; row < rows; row++) {
        for (size_t first = 0; first < width; first += FEATURES_AT_ONCE) {
            real factors[FEATURES_AT_ONCE];
            size_t count = width - first < FEATURES_AT_ONCE ? width - first : FEATURES_AT_ONCE;
            size_t at = row * width + first;
            factors_of(dropout, dropout->token + row, first, factors);
            for (size_t i = 0; i < count; i++) {
                dx[at + i] = dout[at + i] * factors[i];
            }
        }
    }
}
