// This rank's experts: MLPs, each on its rows of what a dispatch has brought. No communication.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_EXPERTS_H
#define GPT_EXPERTS_H

#include "pass.h"
#include "real.h"

#define gpt_experts_forward  GPT_TYPED(gpt_experts_forward)
#define gpt_experts_backward GPT_TYPED(gpt_experts_backward)

// Where the rows of a layer lie in its memory: in and out [rows x width], hidden [rows x hidden].
struct gpt_expert_rows {
    stored *in, *hidden, *out;
};
static inline struct gpt_expert_rows gpt_expert_rows(const struct gpt_model *model,
                                                     const struct gpt_layer_activations *layer,
                                                     size_t rows)
{
    stored *in = layer->rows.data;
    stored *hidden = in == NULL ? NULL : in + rows * model->sizes.width;
    stored *out = in == NULL ? NULL : hidden + rows * model->sizes.hidden;
    return (struct gpt_expert_rows){in, hidden, out};
}

// Takes the received rows into the layer's memory and computes `out` there: this tensor rank's part
// of it.
ncclResult_t gpt_experts_forward(struct gpt_model *model, int layer, struct gpt_slot *slot,
                                 const struct tuttiMoeReceived *received);

// dout: [rows x width], derivatives by out. The scratch's expert_dx receives those by `in`, this
// tensor rank's part of them.
ncclResult_t gpt_experts_backward(struct gpt_model *model, int layer, struct gpt_slot *slot,
                                  const struct tuttiMoeReceived *received, const real *dout);

#endif
