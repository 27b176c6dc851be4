// Rotary positions: pairs of a head's elements are turned by an angle that grows with the token's
// position in its sequence. J. Su et al., "RoFormer: Enhanced Transformer with Rotary Position
// Embedding", 2021. Elements i and i + size / 2 are a pair, turned by position * theta^(-2i /
// size).
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_ROTARY_H
#define GPT_ROTARY_H

#include "real.h"

#define gpt_rotary_table    GPT_TYPED(gpt_rotary_table)
#define gpt_rotary_forward  GPT_TYPED(gpt_rotary_forward)
#define gpt_rotary_backward GPT_TYPED(gpt_rotary_backward)

// Cosines and sines: table [context x size], each row size / 2 cosines, then as many sines.
void gpt_rotary_table(int context, int size, double theta, real *table);

struct gpt_rotary {
    int length, heads, size; // of a sequence; heads to turn; of a head
    size_t stride;           // elements from one token's row to the next
    const real *table;       // [at least length x size]
};

// Turns heads [tokens x heads x size], rows `stride` apart, in place; token t is at position
// t % length.
void gpt_rotary_forward(const struct gpt_rotary *rotary, stored *heads, size_t tokens);
// Turns their derivatives back.
void gpt_rotary_backward(const struct gpt_rotary *rotary, real *heads, size_t tokens);

#endif
