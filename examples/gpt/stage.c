// The passes of a stage: its layers, with the embedding before the first and the loss behind the
// last. Forward keeps the residual stream between layers, and what the layers keep; backward
// computes the norms of it again. SPDX-License-Identifier: Apache-2.0
#include "attention_block.h"
#include "boundary.h"
#include "mlp.h"
#include "moe_block.h"
#include "rotary.h"
#include "try.h"

// Sites of dropout: 0 behind the embedding, then two in each layer of the whole model.
static struct gpt_site attention_site(const struct gpt_model *model, const struct gpt_slot *slot,
                                      int layer)
{
    return (struct gpt_site){slot, 1 + 2 * (model->sizes.first_layer + layer)};
}

static struct gpt_site mlp_site(const struct gpt_model *model, const struct gpt_slot *slot,
                                int layer)
{
    return (struct gpt_site){slot, 2 + 2 * (model->sizes.first_layer + layer)};
}

static struct tuttiEmbedding embedding_of(const struct gpt_model *model)
{
    return (struct tuttiEmbedding){.vocabulary = (size_t)model->config.vocabulary,
                                   .width = model->sizes.width,
                                   .types = model->types,
                                   .comm = model->mesh->tpComm,
                                   .stream = model->stream};
}

static struct tuttiCrossEntropy entropy_of(const struct gpt_model *model)
{
    return (struct tuttiCrossEntropy){.vocabulary = (size_t)model->config.vocabulary,
                                      .logits = (ncclDataType_t)GPT_REAL_NCCL,
                                      .comm = model->mesh->tpComm,
                                      .stream = model->stream};
}

// The residual stream before the first layer, and rows normed for it.
static ncclResult_t enter(struct gpt_model *model, struct gpt_slot *slot, const void *input)
{
    struct gpt_layer_activations *first = &slot->layers[0];
    if (!model->sizes.first_stage) {
        TRY(gpt_need(model, model->sizes.first_layer));
        first->attention_in = (void *)(uintptr_t)input; // only read
        return gpt_boundary_norm(model, model->layers[0].norm1, input);
    }
    struct tuttiEmbedding embedding = embedding_of(model);
    TRY(gpt_need(model, -1));
    TRY(tuttiEmbeddingForward(&embedding, model->shape.sequence_parallel ? TUTTI_LEAVE_PARTIAL : 0,
                              model->extent.tokens, slot->batch.tokens,
                              gpt_weight(model, model->embedding), model->scratch.rows));
    TRY(gpt_need(model, model->sizes.first_layer));
    return gpt_boundary_forward(model, (struct gpt_site){slot, 0}, model->layers[0].norm1, NULL,
                                first->attention_in);
}

// What follows the last layer: the last norm, or the next stage.
static ncclResult_t leave(struct gpt_model *model, struct gpt_slot *slot, void *output)
{
    int last = model->sizes.layers - 1;
    struct gpt_site site = mlp_site(model, slot, last);
    const stored *residual = slot->layers[last].mlp_in;
    if (!model->sizes.last_stage) {
        return gpt_boundary_add(model, site, residual, output);
    }
    TRY(gpt_need(model, model->config.layers));
    return gpt_boundary_forward(model, site, model->norm, residual, slot->head_in);
}

static ncclResult_t forward_layer(struct gpt_model *model, struct gpt_slot *slot, int layer)
{
    const struct gpt_layer_parameters *parameters = &model->layers[layer];
    struct gpt_layer_activations *kept = &slot->layers[layer];
    TRY(gpt_attention_block_forward(model, layer, slot));
    TRY(gpt_boundary_forward(model, attention_site(model, slot, layer), parameters->norm2,
                             kept->attention_in, kept->mlp_in));
    TRY(parameters->experts == NULL ? gpt_mlp_forward(model, layer, slot)
                                    : gpt_moe_forward(model, layer, slot));
    if (layer + 1 == model->sizes.layers) {
        return ncclSuccess;
    }
    TRY(gpt_need(model, model->sizes.first_layer + layer + 1));
    return gpt_boundary_forward(model, mlp_site(model, slot, layer), parameters[1].norm1,
                                kept->mlp_in, kept[1].attention_in);
}

static ncclResult_t forward_layers(struct gpt_model *model, struct gpt_slot *slot,
                                   const void *input, void *output)
{
    TRY(enter(model, slot, input));
    for (int layer = 0; layer < model->sizes.layers; layer++) {
        TRY(forward_layer(model, slot, layer));
    }
    return leave(model, slot, output);
}

// logits [count x own vocabulary] of count rows from `rows` on: in real also where weights are
// bf16, because a loss needs more than 8 bits of them.
static ncclResult_t head(struct gpt_model *model, size_t count, const stored *rows, real *logits)
{
    struct tuttiProduct p = TUTTI_PRODUCT_INITIALIZER;
    p.rows = count;
    p.columns = model->sizes.vocabulary;
    p.inner = model->sizes.width;
    p.transposeB = 1;
    p.typeA = p.typeB = (ncclDataType_t)GPT_STORED_NCCL;
    p.typeC = (ncclDataType_t)GPT_REAL_NCCL;
    TRY(gpt_wait(model));
    return tuttiMatmul(&p, rows, gpt_weight(model, model->head), logits);
}

static ncclResult_t forward_loss(struct gpt_model *model, struct gpt_slot *slot)
{
    struct tuttiCrossEntropy entropy = entropy_of(model);
    size_t tokens = model->extent.tokens;
    double *losses = model->scratch.losses;
    TRY(head(model, tokens, model->scratch.rows, slot->logits));
    TRY(tuttiCrossEntropyForward(&entropy, tokens, slot->logits, slot->batch.targets, losses,
                                 slot->sums));
    double sum = 0;
    for (size_t token = 0; token < tokens; token++) {
        sum += losses[token];
    }
    if (model->place.tp_rank == 0) {
        model->losses.cross_entropy += sum / (double)model->step_tokens;
    }
    return ncclSuccess;
}

static ncclResult_t forward(struct gpt_model *model, struct gpt_slot *slot, const void *input,
                            void *output)
{
    TRY(forward_layers(model, slot, input, output));
    if (model->sizes.last_stage) {
        TRY(forward_loss(model, slot));
    }
    return gpt_wait(model);
}

// From the loss to the residual stream behind the last layer.
static ncclResult_t backward_loss(struct gpt_model *model, struct gpt_slot *slot)
{
    struct tuttiCrossEntropy entropy = entropy_of(model);
    struct tuttiLinear linear =
        gpt_linear(model, model->sizes.width, (size_t)model->config.vocabulary);
    size_t tokens = model->extent.tokens;
    TRY(tuttiCrossEntropyBackward(&entropy, tokens, slot->logits, slot->batch.targets, slot->sums,
                                  1 / (double)model->step_tokens));
    TRY(gpt_boundary_norm(model, model->norm, slot->head_in));
    const struct tuttiLinearGradients backward = {.x = model->scratch.rows,
                                                  .weight = gpt_weight(model, model->head),
                                                  .dy = slot->logits,
                                                  .dx = model->scratch.drows,
                                                  .dw = gpt_gradient(model, model->head)};
    TRY(tuttiColumnLinearBackward(&linear, model->shape.sequence_parallel ? TUTTI_LEAVE_PARTIAL : 0,
                                  tokens, &backward));
    TRY(gpt_is_ready(model, model->head));
    return gpt_boundary_norm_backward(model, model->norm, slot->head_in, false);
}

static ncclResult_t backward_layer(struct gpt_model *model, struct gpt_slot *slot, int layer)
{
    const struct gpt_layer_parameters *parameters = &model->layers[layer];
    const struct gpt_layer_activations *kept = &slot->layers[layer];
    const real *dy;
    TRY(gpt_boundary_add_backward(model, mlp_site(model, slot, layer), &dy));
    TRY(gpt_boundary_norm(model, parameters->norm2, kept->mlp_in));
    TRY(parameters->experts == NULL ? gpt_mlp_backward(model, layer, slot, dy)
                                    : gpt_moe_backward(model, layer, slot, dy));
    TRY(gpt_boundary_norm_backward(model, parameters->norm2, kept->mlp_in, true));
    TRY(gpt_boundary_add_backward(model, attention_site(model, slot, layer), &dy));
    TRY(gpt_boundary_norm(model, parameters->norm1, kept->attention_in));
    TRY(gpt_attention_block_backward(model, layer, slot, dy));
    return gpt_boundary_norm_backward(model, parameters->norm1, kept->attention_in, true);
}

static ncclResult_t backward_embedding(struct gpt_model *model, struct gpt_slot *slot)
{
    struct tuttiEmbedding embedding = embedding_of(model);
    const real *dy;
    TRY(gpt_boundary_add_backward(model, (struct gpt_site){slot, 0}, &dy));
    TRY(tuttiEmbeddingBackward(&embedding, model->extent.tokens, slot->batch.tokens, dy,
                               gpt_gradient(model, model->embedding)));
    return gpt_is_ready(model, model->embedding);
}

// The embedding's gradient on the first stage; on others the input's, of that many bytes.
static ncclResult_t backward_leave(struct gpt_model *model, struct gpt_slot *slot,
                                   void *input_gradient, size_t bytes)
{
    if (model->sizes.first_stage) {
        TRY(backward_embedding(model, slot));
    }
    TRY(gpt_wait(model));
    if (!model->sizes.first_stage && bytes > 0) {
        memcpy(input_gradient, model->scratch.dx, bytes);
    }
    return ncclSuccess;
}

static ncclResult_t backward(struct gpt_model *model, struct gpt_slot *slot,
                             const void *output_gradient, void *input_gradient)
{
    const size_t bytes = model->extent.own * model->sizes.width * sizeof(real);
    TRY(gpt_wait(model));
    if (model->sizes.last_stage) {
        TRY(backward_loss(model, slot));
    } else if (bytes > 0) {
        memcpy(model->scratch.dx, output_gradient, bytes);
    }
    for (int layer = model->sizes.layers - 1; layer >= 0; layer--) {
        TRY(backward_layer(model, slot, layer));
    }
    return backward_leave(model, slot, input_gradient, bytes);
}

static ncclResult_t next(struct gpt_model *model, struct gpt_slot *slot, float *logits)
{
    const stored *rows = model->scratch.rows;
    const real *all = model->scratch.next_logits;
    TRY(forward_layers(model, slot, NULL, NULL));
    TRY(head(model, 1, rows + (model->extent.tokens - 1) * model->sizes.width, slot->logits));
    TRY(tuttiAllGatherV(slot->logits, model->sizes.vocabulary, model->scratch.next_logits,
                        model->vocabulary_parts, NULL, (ncclDataType_t)GPT_REAL_NCCL,
                        model->mesh->tpComm, model->stream));
    TRY(gpt_wait(model));
    for (int word = 0; word < model->config.vocabulary; word++) {
        logits[word] = (float)all[word];
    }
    return ncclSuccess;
}

static void fill(void *weights, const float *values, size_t elements)
{
    stored *out = weights;
    for (size_t i = 0; i < elements; i++) {
        out[i] = keep(values[i]);
    }
}

static void rotary_table(struct gpt_model *model)
{
    gpt_rotary_table(model->config.context, (int)model->sizes.head_size, model->config.rope_theta,
                     model->scratch.rotary);
}

const struct gpt_typed GPT_TYPED(gpt_typed) = {fill, rotary_table, forward, backward, next};
