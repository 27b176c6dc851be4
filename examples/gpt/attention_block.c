// See attention_block.h. SPDX-License-Identifier: Apache-2.0
#include "attention_block.h"

#include "attention.h"
#include "rotary.h"
#include "try.h"

static struct tuttiLinear first_linear(const struct gpt_model *model)
{
    return gpt_linear(model, model->sizes.width, model->sizes.qkv * (size_t)model->place.tp);
}

static struct tuttiLinear second_linear(const struct gpt_model *model)
{
    return gpt_linear(model, model->sizes.attended * (size_t)model->place.tp, model->sizes.width);
}

static struct gpt_attention attention_of(const struct gpt_model *model,
                                         const struct gpt_layer_activations *layer)
{
    return (struct gpt_attention){.sequences = model->extent.sequences,
                                  .length = model->extent.length,
                                  .heads = model->sizes.heads,
                                  .kv_heads = model->sizes.kv_heads,
                                  .size = model->sizes.head_size,
                                  .qkv = layer->qkv,
                                  .probabilities = layer->probabilities,
                                  .scratch = model->scratch.scores};
}

// Of query and key heads, which lie side by side.
static struct gpt_rotary rotary_of(const struct gpt_model *model)
{
    return (struct gpt_rotary){.length = (int)model->extent.length,
                               .heads = (int)(model->sizes.heads + model->sizes.kv_heads),
                               .size = (int)model->sizes.head_size,
                               .stride = model->sizes.qkv,
                               .table = model->scratch.rotary};
}

ncclResult_t gpt_attention_block_forward(struct gpt_model *model, int layer, struct gpt_slot *slot)
{
    const struct gpt_layer_parameters *parameters = &model->layers[layer];
    struct gpt_layer_activations *kept = &slot->layers[layer];
    struct tuttiLinear first = first_linear(model), second = second_linear(model);
    struct gpt_rotary rotary = rotary_of(model);
    struct gpt_attention attention = attention_of(model, kept);
    size_t tokens = model->extent.tokens;
    TRY(tuttiColumnLinearForward(&first, 0, tokens, model->scratch.rows,
                                 gpt_weight(model, parameters->query), kept->qkv));
    TRY(gpt_wait(model));
    gpt_rotary_forward(&rotary, kept->qkv, tokens);
    TRY(gpt_attention_forward(&attention, kept->attended));
    return tuttiRowLinearForward(&second, model->shape.sequence_parallel ? TUTTI_LEAVE_PARTIAL : 0,
                                 tokens, kept->attended, gpt_weight(model, parameters->output),
                                 model->scratch.rows);
}

ncclResult_t gpt_attention_block_backward(struct gpt_model *model, int layer, struct gpt_slot *slot,
                                          const real *dy)
{
    const struct gpt_layer_parameters *parameters = &model->layers[layer];
    const struct gpt_layer_activations *kept = &slot->layers[layer];
    struct tuttiLinear first = first_linear(model), second = second_linear(model);
    struct gpt_rotary rotary = rotary_of(model);
    struct gpt_attention attention = attention_of(model, kept);
    struct gpt_scratch *scratch = &model->scratch;
    size_t tokens = model->extent.tokens;
    struct tuttiLinearGradients backward = {.x = kept->attended,
                                            .weight = gpt_weight(model, parameters->output),
                                            .dy = dy,
                                            .dx = scratch->dmiddle,
                                            .dw = gpt_gradient(model, parameters->output)};
    TRY(tuttiRowLinearBackward(&second, 0, tokens, &backward));
    TRY(gpt_is_ready(model, parameters->output));
    TRY(gpt_wait(model));
    TRY(gpt_attention_backward(&attention, scratch->dmiddle, scratch->dhidden));
    gpt_rotary_backward(&rotary, scratch->dhidden, tokens);
    backward = (struct tuttiLinearGradients){.x = scratch->rows,
                                             .weight = gpt_weight(model, parameters->query),
                                             .dy = scratch->dhidden,
                                             .dx = scratch->drows,
                                             .dw = gpt_gradient(model, parameters->query)};
    TRY(tuttiColumnLinearBackward(&first, model->shape.sequence_parallel ? TUTTI_LEAVE_PARTIAL : 0,
                                  tokens, &backward));
    TRY(gpt_is_ready(model, parameters->value));
    TRY(gpt_is_ready(model, parameters->key));
    return gpt_is_ready(model, parameters->query);
}
