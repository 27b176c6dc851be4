// Causal attention: A. Vaswani et al., "Attention Is All You Need", 2017, section 3.2; with fewer
// heads of keys and values than of queries: J. Ainslie et al., "GQA: Training Generalized
// Multi-Query Transformer Models from Multi-Head Checkpoints", 2023. On the heads that a rank has;
// no communication.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_ATTENTION_H
#define GPT_ATTENTION_H

#include "real.h"

#define gpt_attention_forward  GPT_TYPED(gpt_attention_forward)
#define gpt_attention_backward GPT_TYPED(gpt_attention_backward)

// Rows of queries that are computed at once; keys after the last of them are left out.
enum { GPT_ATTENTION_BLOCK = 64 };

struct gpt_attention {
    size_t sequences, length; // tokens = sequences * length
    size_t heads, kv_heads;   // this rank's; query head h has key head h / (heads / kv_heads)
    size_t size;              // of a head
    // A token's row is its query heads, then key heads, then value heads.
    const stored *qkv;     // [tokens x (heads + 2 kv_heads) size], turned
    stored *probabilities; // [sequences x heads x length x length]: written by forward; above the
                           // diagonal some are left as they are
    real *scratch;         // [GPT_ATTENTION_BLOCK x length]
};

// out: [tokens x heads size].
ncclResult_t gpt_attention_forward(const struct gpt_attention *attention, stored *out);

// dout: as out; dqkv: as qkv, receives the derivatives.
ncclResult_t gpt_attention_backward(const struct gpt_attention *attention, const real *dout,
                                    real *dqkv);

#endif
