// A layer with experts in place of one MLP: a router, the tokens' ways to their experts' ranks and
// back, and the experts, each an MLP. Tensor ranks have parts of every expert's matrices, as of a
// dense MLP's, and send the same tokens: what comes back is each rank's part of a sum. Sources: see
// tutti_parallel/expert.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_MOE_BLOCK_H
#define GPT_MOE_BLOCK_H

#include "pass.h"
#include "real.h"

#define gpt_moe_forward  GPT_TYPED(gpt_moe_forward)
#define gpt_moe_backward GPT_TYPED(gpt_moe_backward)

// As gpt_mlp_forward and gpt_mlp_backward (mlp.h). Adds the layer's balance loss to the model's.
ncclResult_t gpt_moe_forward(struct gpt_model *model, int layer, struct gpt_slot *slot);
ncclResult_t gpt_moe_backward(struct gpt_model *model, int layer, struct gpt_slot *slot,
                              const real *dy);

#endif
