// The MLP of a layer without experts: a column-parallel matrix (gate and up), the activation, a
// row-parallel one (down). And what it has in common with an expert's.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_MLP_H
#define GPT_MLP_H

#include "pass.h"
#include "real.h"

#define gpt_mlp_forward  GPT_TYPED(gpt_mlp_forward)
#define gpt_mlp_backward GPT_TYPED(gpt_mlp_backward)

// The first matrix's parameter: gate (with up behind it), or up alone.
static inline int gpt_mlp_first(const struct gpt_mlp_parameters *mlp)
{
    return mlp->gate >= 0 ? mlp->gate : mlp->up;
}

// rows -> rows: sums, or with sequence parallelism parts of sums. layer: of the stage.
ncclResult_t gpt_mlp_forward(struct gpt_model *model, int layer, struct gpt_slot *slot);

// dy: [tokens x width], the derivatives by the result. rows: what forward read. The scratch's drows
// receives the derivatives by that: with sequence parallelism parts of sums.
ncclResult_t gpt_mlp_backward(struct gpt_model *model, int layer, struct gpt_slot *slot,
                              const real *dy);

#endif
