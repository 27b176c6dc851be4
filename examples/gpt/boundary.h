// What lies between two layers: a layer's result is dropped out and added to the residual stream,
// which is normed for the next layer. With sequence parallelism each tensor rank does so for its
// own tokens, else all do for all tokens. "rows" is the scratch's, [tokens x width].
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_BOUNDARY_H
#define GPT_BOUNDARY_H

#include "pass.h"
#include "real.h"

#define gpt_boundary_norm          GPT_TYPED(gpt_boundary_norm)
#define gpt_boundary_add           GPT_TYPED(gpt_boundary_add)
#define gpt_boundary_forward       GPT_TYPED(gpt_boundary_forward)
#define gpt_boundary_norm_backward GPT_TYPED(gpt_boundary_norm_backward)
#define gpt_boundary_add_backward  GPT_TYPED(gpt_boundary_add_backward)

// Where dropout is and what random numbers it has.
struct gpt_site {
    const struct gpt_slot *slot;
    int number; // dropout.h
};

// rows = norm(x) on every rank. x: [own x width].
ncclResult_t gpt_boundary_norm(struct gpt_model *model, struct gpt_norm_parameters norm,
                               const stored *x);
// x = residual + dropout(rows). residual: [own x width]; NULL: none. rows: sums, or with sequence
// parallelism parts of sums.
ncclResult_t gpt_boundary_add(struct gpt_model *model, struct gpt_site site, const stored *residual,
                              stored *x);
// Both: x = residual + dropout(rows), rows = norm(x).
ncclResult_t gpt_boundary_forward(struct gpt_model *model, struct gpt_site site,
                                  struct gpt_norm_parameters norm, const stored *residual,
                                  stored *x);

// The scratch's dx (+)= the derivatives by x of what has derivatives drows by norm(x). drows: with
// sequence parallelism parts of sums. has_residual: dx holds some already. The norm's gradients are
// complete afterwards.
ncclResult_t gpt_boundary_norm_backward(struct gpt_model *model, struct gpt_norm_parameters norm,
                                        const stored *x, bool has_residual);
// *dy: receives where the derivatives by rows are, [tokens x width], on every rank; dx stays.
ncclResult_t gpt_boundary_add_backward(struct gpt_model *model, struct gpt_site site,
                                       const real **dy);

#endif
