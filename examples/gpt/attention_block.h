// The attention of a layer with its matrices: query, key and value column-parallel by heads, rotary
// positions, attention, output row-parallel.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_ATTENTION_BLOCK_H
#define GPT_ATTENTION_BLOCK_H

#include "pass.h"
#include "real.h"

#define gpt_attention_block_forward  GPT_TYPED(gpt_attention_block_forward)
#define gpt_attention_block_backward GPT_TYPED(gpt_attention_block_backward)

// As gpt_mlp_forward and gpt_mlp_backward (mlp.h).
ncclResult_t gpt_attention_block_forward(struct gpt_model *model, int layer, struct gpt_slot *slot);
ncclResult_t gpt_attention_block_backward(struct gpt_model *model, int layer, struct gpt_slot *slot,
                                          const real *dy);

#endif
