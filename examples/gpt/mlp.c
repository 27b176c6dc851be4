// See mlp.h. SPDX-License-Identifier: Apache-2.0
#include "mlp.h"

#include "activation.h"
#include "try.h"

static struct tuttiLinear first_linear(const struct gpt_model *model)
{
    return gpt_linear(model, model->sizes.width, model->sizes.hidden * (size_t)model->place.tp);
}

static struct tuttiLinear second_linear(const struct gpt_model *model)
{
    return gpt_linear(model, model->sizes.mlp * (size_t)model->place.tp, model->sizes.width);
}

ncclResult_t gpt_mlp_forward(struct gpt_model *model, int layer, struct gpt_slot *slot)
{
    const struct gpt_mlp_parameters *mlp = &model->layers[layer].mlp;
    struct tuttiLinear first = first_linear(model), second = second_linear(model);
    struct gpt_scratch *scratch = &model->scratch;
    void *hidden = slot->layers[layer].hidden;
    size_t tokens = model->extent.tokens;
    TRY(tuttiColumnLinearForward(&first, 0, tokens, scratch->rows,
                                 gpt_weight(model, gpt_mlp_first(mlp)), hidden));
    TRY(gpt_wait(model));
    gpt_activation_forward(model->config.activation, tokens, model->sizes.mlp, hidden,
                           scratch->act);
    return tuttiRowLinearForward(&second, model->shape.sequence_parallel ? TUTTI_LEAVE_PARTIAL : 0,
                                 tokens, scratch->act, gpt_weight(model, mlp->down), scratch->rows);
}

ncclResult_t gpt_mlp_backward(struct gpt_model *model, int layer, struct gpt_slot *slot,
                              const real *dy)
{
    const struct gpt_mlp_parameters *mlp = &model->layers[layer].mlp;
    struct tuttiLinear first = first_linear(model), second = second_linear(model);
    struct gpt_scratch *scratch = &model->scratch;
    size_t tokens = model->extent.tokens;
    struct tuttiLinearGradients backward = {
        .weight = gpt_weight(model, mlp->down), .dy = dy, .dx = scratch->dmiddle};
    TRY(tuttiRowLinearBackward(&second, 0, tokens, &backward));
    TRY(gpt_wait(model));
    const struct gpt_activation_gradients activation = {.hidden = slot->layers[layer].hidden,
                                                        .dout = scratch->dmiddle,
                                                        .dhidden = scratch->dhidden,
                                                        .out = scratch->act};
    gpt_activation_backward(model->config.activation, tokens, model->sizes.mlp, &activation);
    backward = (struct tuttiLinearGradients){
        .x = scratch->act, .dy = dy, .dw = gpt_gradient(model, mlp->down)};
    TRY(tuttiRowLinearBackward(&second, 0, tokens, &backward));
    TRY(gpt_is_ready(model, mlp->down));
    backward = (struct tuttiLinearGradients){.x = scratch->rows,
                                             .weight = gpt_weight(model, gpt_mlp_first(mlp)),
                                             .dy = scratch->dhidden,
                                             .dx = scratch->drows,
                                             .dw = gpt_gradient(model, gpt_mlp_first(mlp))};
    TRY(tuttiColumnLinearBackward(&first, model->shape.sequence_parallel ? TUTTI_LEAVE_PARTIAL : 0,
                                  tokens, &backward));
    TRY(gpt_is_ready(model, mlp->up));
    return gpt_is_ready(model, mlp->gate);
}
