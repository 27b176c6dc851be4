// See model.h. The steps of a pass are in stage.c. SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include "pass.h"
#include "try.h"

#include <stdlib.h>
#include <string.h>

const struct gpt_config *gpt_model_config(const struct gpt_model *model)
{
    return &model->config;
}

const struct gpt_parameters *gpt_model_parameters(const struct gpt_model *model)
{
    return &model->parameters;
}

void *gpt_model_weights(struct gpt_model *model)
{
    return model->weights;
}

void *gpt_model_gradients(struct gpt_model *model)
{
    return model->gradients;
}

struct gpt_bytes gpt_model_bytes(const struct gpt_model *model)
{
    struct gpt_bytes bytes = model->bytes;
    for (int i = 0; i < model->shape.slots * model->sizes.layers; i++) {
        bytes.activations += model->slot_layers[i].rows.bytes;
    }
    bytes.scratch += model->scratch.expert_middle.bytes + model->scratch.expert_dx.bytes;
    return bytes;
}

struct gpt_rows gpt_model_rows(const struct gpt_model *model)
{
    const struct gpt_sizes *sizes = &model->sizes;
    struct gpt_rows rows = gpt_first_rows(&model->config, &model->shape, &model->place);
    size_t first = rows.of_rank;
    rows.kept = 0;
    for (int i = 0; i < model->shape.slots * sizes->layers; i++) {
        if (gpt_is_moe(&model->config, sizes->first_layer + i % sizes->layers)) {
            size_t came = model->slot_layers[i].most_rows;
            rows.kept += came > first ? came : first;
        }
    }
    size_t of_layer = model->scratch.most_backward_rows;
    rows.of_rank = of_layer > first ? of_layer : first;
    size_t of_expert = model->scratch.most_expert_rows;
    rows.of_expert = of_expert > rows.of_expert ? of_expert : rows.of_expert;
    return rows;
}

size_t gpt_stage_elements(const struct gpt_model *model)
{
    return model->sizes.own_tokens * model->sizes.width;
}

ncclDataType_t gpt_model_data_type(const struct gpt_model *model)
{
    return model->types.activations;
}

ncclDataType_t gpt_model_gradient_type(const struct gpt_model *model)
{
    return model->types.gradients;
}

void gpt_model_on_gradient(struct gpt_model *model, gpt_gradient_ready ready, void *context)
{
    model->ready = ready;
    model->ready_context = context;
}

void gpt_model_on_layer(struct gpt_model *model, gpt_layer_needed needed, void *context)
{
    model->needed = needed;
    model->needed_context = context;
}

const void *gpt_weight(const struct gpt_model *model, int parameter)
{
    return parameter < 0 ? NULL
                         : (const char *)model->weights +
                               model->parameters.all[parameter].offset * model->sizes.stored_bytes;
}

void *gpt_gradient(const struct gpt_model *model, int parameter)
{
    return parameter < 0 ? NULL
                         : (char *)model->gradients +
                               model->parameters.all[parameter].offset * model->sizes.real_bytes;
}

ncclResult_t gpt_is_ready(struct gpt_model *model, int parameter)
{
    return parameter >= 0 && model->is_last && model->ready != NULL
               ? model->ready(model->ready_context, parameter)
               : ncclSuccess;
}

ncclResult_t gpt_need(const struct gpt_model *model, int layer)
{
    return model->needed != NULL ? model->needed(model->needed_context, layer) : ncclSuccess;
}

ncclResult_t gpt_wait(const struct gpt_model *model)
{
    TRY_CUDA(cudaStreamSynchronize(model->stream));
    return ncclSuccess;
}

struct tuttiLinear gpt_linear(const struct gpt_model *model, size_t in, size_t out)
{
    return (struct tuttiLinear){.in = in,
                                .out = out,
                                .types = model->types,
                                .comm = model->mesh->tpComm,
                                .stream = model->stream};
}

ncclResult_t gpt_model_begin_step(struct gpt_model *model, uint64_t step, int micro_batches,
                                  size_t tokens, bool training)
{
    if (micro_batches < 1 || tokens < 1) {
        return tuttiFail(ncclInvalidArgument,
                         "gpt_model_begin_step: micro_batches is %d and tokens is %zu, must be at "
                         "least 1",
                         micro_batches, tokens);
    }
    model->step = step;
    model->micro_batches = micro_batches;
    model->backward_passes = 0;
    model->step_tokens = tokens;
    model->training = training;
    model->losses = (struct gpt_losses){0, 0};
    if (micro_batches > model->batch_room) {
        struct gpt_batch *batches =
            realloc(model->batches, (size_t)micro_batches * sizeof *batches);
        if (batches == NULL) {
            return tuttiFail(ncclSystemError, "gpt: no memory for %d micro-batches", micro_batches);
        }
        model->batches = batches;
        model->batch_room = micro_batches;
    }
    memset(model->batches, 0, (size_t)micro_batches * sizeof *model->batches);
    if (training) {
        TRY_CUDA(cudaMemsetAsync(model->gradients, 0, model->bytes.gradients, model->stream));
    }
    return gpt_wait(model);
}

// The slot of a micro-batch: micro-batches in flight follow one another.
static struct gpt_slot *slot_of(struct gpt_model *model, int micro_batch)
{
    return &model->slots[micro_batch % model->shape.slots];
}

ncclResult_t gpt_model_set_batch(struct gpt_model *model, int micro_batch, const int32_t *tokens,
                                 const int32_t *targets, size_t first_sequence)
{
    if (micro_batch < 0 || micro_batch >= model->micro_batches) {
        return tuttiFail(ncclInvalidArgument,
                         "gpt_model_set_batch: micro_batch is %d, must be 0 to %d", micro_batch,
                         model->micro_batches - 1);
    }
    model->batches[micro_batch] = (struct gpt_batch){tokens, targets, first_sequence};
    return ncclSuccess;
}

// Sequences of `length` tokens, as many as a slot has room for or fewer.
static ncclResult_t set_extent(struct gpt_model *model, size_t sequences, size_t length)
{
    struct gpt_extent *extent = &model->extent;
    *extent = (struct gpt_extent){sequences, length, sequences * length, 0, sequences * length};
    if (model->shape.sequence_parallel) {
        TRY(tuttiSequenceOwn(extent->tokens, model->mesh->tpComm, &extent->first_own,
                             &extent->own));
    }
    return ncclSuccess;
}

ncclResult_t gpt_stage_forward(void *context, int micro_batch, const void *input, void *output)
{
    struct gpt_model *model = context;
    if (micro_batch < 0 || micro_batch >= model->micro_batches ||
        model->batches[micro_batch].tokens == NULL) {
        return tuttiFail(ncclInvalidArgument,
                         "gpt_stage_forward: micro-batch %d has no data: gpt_model_set_batch",
                         micro_batch);
    }
    struct gpt_slot *slot = slot_of(model, micro_batch);
    TRY(set_extent(model, (size_t)model->shape.sequences, model->sizes.context));
    slot->batch = model->batches[micro_batch];
    return model->typed->forward(model, slot, input, output);
}

ncclResult_t gpt_stage_backward(void *context, int micro_batch, const void *output_gradient,
                                void *input_gradient)
{
    struct gpt_model *model = context;
    TRY(set_extent(model, (size_t)model->shape.sequences, model->sizes.context));
    model->is_last = ++model->backward_passes == model->micro_batches;
    return model->typed->backward(model, slot_of(model, micro_batch), output_gradient,
                                  input_gradient);
}

struct gpt_losses gpt_model_losses(const struct gpt_model *model)
{
    return model->losses;
}

ncclResult_t gpt_model_next(struct gpt_model *model, const int32_t *tokens, int count,
                            float *logits)
{
    if (count < 1 || count > model->config.context) {
        return tuttiFail(ncclInvalidArgument, "gpt_model_next: count is %d, must be 1 to %d", count,
                         model->config.context);
    }
    if (model->place.pp != 1) {
        return tuttiFail(ncclInvalidArgument, "gpt_model_next: pp is %d, must be 1",
                         model->place.pp);
    }
    struct gpt_slot *slot = &model->slots[0];
    model->training = false;
    model->step_tokens = (size_t)count;
    slot->batch = (struct gpt_batch){tokens, NULL, 0};
    TRY(set_extent(model, 1, (size_t)count));
    return model->typed->next(model, slot, logits);
}
