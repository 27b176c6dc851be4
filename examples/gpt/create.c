// How a model is made. SPDX-License-Identifier: Apache-2.0
#include "numbers.h"
#include "pass.h"
#include "try.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct gpt_typed *typed_of(enum gpt_type type)
{
    return type == GPT_DOUBLE ? &gpt_typed_double_
           : type == GPT_BF16 ? &gpt_typed_bf16
                              : &gpt_typed_float_;
}

static struct tuttiTypes types_of(enum gpt_type type)
{
    if (type == GPT_DOUBLE) {
        return (struct tuttiTypes){ncclFloat64, ncclFloat64, ncclFloat64};
    }
    ncclDataType_t stored = type == GPT_BF16 ? ncclBfloat16 : ncclFloat32;
    return (struct tuttiTypes){stored, stored, ncclFloat32};
}

static ncclResult_t make_weights(struct gpt_model *model)
{
    size_t elements = model->parameters.elements;
    model->bytes.weights = elements * model->sizes.stored_bytes;
    model->bytes.gradients = elements * model->sizes.real_bytes;
    TRY_CUDA(cudaMalloc(&model->weights, model->bytes.weights));
    TRY_CUDA(cudaMalloc(&model->gradients, model->bytes.gradients));
    TRY_CUDA(cudaMemset(model->gradients, 0, model->bytes.gradients));
    float *values = malloc(elements * sizeof *values);
    if (values == NULL) {
        return tuttiFail(ncclSystemError, "gpt: no memory for %zu initial values", elements);
    }
    gpt_parameters_initial(&model->parameters, model->config.seed, values);
    model->typed->fill(model->weights, values, elements);
    free(values);
    return ncclSuccess;
}

static ncclResult_t make_slots(struct gpt_model *model)
{
    size_t slots = (size_t)model->shape.slots, layers = (size_t)model->sizes.layers;
    model->slots = calloc(slots, sizeof *model->slots);
    model->slot_layers = calloc(slots * layers, sizeof *model->slot_layers);
    if (model->slots == NULL || model->slot_layers == NULL) {
        return tuttiFail(ncclSystemError, "gpt: no memory for %zu slots", slots);
    }
    model->slots[0].layers = model->slot_layers;
    size_t bytes = gpt_lay_out_slot(&model->sizes, &model->config, NULL, &model->slots[0]);
    model->bytes.activations = slots * bytes;
    TRY_CUDA(cudaMalloc(&model->slot_memory, model->bytes.activations));
    for (size_t i = 0; i < slots; i++) {
        model->slots[i].layers = model->slot_layers + i * layers;
        (void)gpt_lay_out_slot(&model->sizes, &model->config,
                               (char *)model->slot_memory + i * bytes, &model->slots[i]);
    }
    return ncclSuccess;
}

static ncclResult_t make_scratch(struct gpt_model *model)
{
    const struct gpt_shape *shape = &model->shape;
    size_t bytes = gpt_lay_out_scratch(&model->sizes, shape, NULL, &model->scratch);
    model->bytes.scratch = bytes;
    TRY_CUDA(cudaMalloc(&model->scratch_memory, bytes));
    (void)gpt_lay_out_scratch(&model->sizes, shape, model->scratch_memory, &model->scratch);
    model->typed->rotary_table(model);
    model->vocabulary_parts = malloc((size_t)model->place.tp * sizeof *model->vocabulary_parts);
    if (model->vocabulary_parts == NULL) {
        return tuttiFail(ncclSystemError, "gpt: no memory for %d numbers", model->place.tp);
    }
    return tuttiSplitCounts((size_t)model->config.vocabulary, model->place.tp,
                            model->vocabulary_parts, NULL);
}

static ncclResult_t make_numbers(struct gpt_model *model)
{
    size_t layers = (size_t)model->sizes.layers;
    size_t experts = layers * (size_t)(model->config.experts / model->place.ep);
    model->layers = calloc(layers, sizeof *model->layers);
    model->experts = calloc(experts + 1, sizeof *model->experts);
    if (model->layers == NULL || model->experts == NULL) {
        return tuttiFail(ncclSystemError, "gpt: no memory for %zu layers", layers);
    }
    gpt_number_parameters(model);
    return ncclSuccess;
}

static ncclResult_t make_boundary(struct gpt_model *model)
{
    if (!model->shape.sequence_parallel) {
        return ncclSuccess;
    }
    TRY(tuttiBoundaryCreate(&model->norm_kind, model->sizes.tokens, TUTTI_BOUNDARY_AUTO,
                            model->mesh->tpComm, model->stream, &model->boundary));
    model->bytes.scratch += model->sizes.tokens * model->sizes.width * model->sizes.stored_bytes;
    return tuttiBoundaryRows(model->boundary, &model->scratch.rows);
}

// Of every layer with experts, in every slot.
static ncclResult_t make_slot_rows(struct gpt_model *model, size_t rows)
{
    const struct gpt_sizes *sizes = &model->sizes;
    for (int i = 0; i < model->shape.slots * sizes->layers; i++) {
        if (!gpt_is_moe(&model->config, sizes->first_layer + i % sizes->layers)) {
            continue;
        }
        TRY(gpt_grow(&model->slot_layers[i].rows, gpt_expert_bytes(sizes, rows), model->stream));
    }
    return ncclSuccess;
}

// With memory for the first rows. The stages of a pipeline differ in layers, not in this.
static ncclResult_t make_moe(struct gpt_model *model)
{
    const struct gpt_config *config = &model->config;
    const struct gpt_sizes *sizes = &model->sizes;
    if (sizes->moe_layers == 0) {
        return ncclSuccess;
    }
    static const tuttiMoeCapacityRule_t rules[] = {tuttiMoeGrow, tuttiMoeDrop, tuttiMoeError};
    struct tuttiMoeOptions options = TUTTI_MOE_OPTIONS_INITIALIZER;
    options.experts = config->experts;
    options.choices = config->top_k;
    options.hidden = sizes->width;
    options.maxTokens = sizes->tokens;
    options.datatype = model->types.activations;
    options.rule = rules[config->capacity];
    options.capacityFactor = config->capacity == GPT_CAPACITY_GROW ? 0 : config->capacity_factor;
    TRY(tuttiMoeCreate(model->mesh->epComm, &options, &model->moe));
    struct gpt_rows rows = gpt_first_rows(config, &model->shape, &model->place);
    TRY(gpt_grow(&model->scratch.expert_middle, gpt_expert_middle_bytes(sizes, rows.of_expert),
                 model->stream));
    TRY(gpt_grow(&model->scratch.expert_dx, rows.of_rank * sizes->width * sizes->real_bytes,
                 model->stream));
    return make_slot_rows(model, rows.of_rank);
}

static ncclResult_t make_all(struct gpt_model *model)
{
    TRY(gpt_parameters_make(&model->config, &model->place, &model->parameters));
    TRY(gpt_shape_check(&model->shape, &model->config));
    model->sizes = gpt_sizes_of(&model->config, &model->shape, &model->place);
    TRY(make_numbers(model));
    TRY(make_weights(model));
    TRY(make_slots(model));
    TRY(make_scratch(model));
    TRY(make_boundary(model));
    return make_moe(model);
}

ncclResult_t gpt_model_create(const struct gpt_config *config, const struct gpt_shape *shape,
                              const struct tuttiMesh *mesh, cudaStream_t stream,
                              struct gpt_model **model_out)
{
    struct gpt_model *model = calloc(1, sizeof *model);
    *model_out = NULL;
    if (model == NULL) {
        return tuttiFail(ncclSystemError, "gpt: no memory for a model");
    }
    model->config = *config;
    model->shape = *shape;
    model->mesh = mesh;
    model->stream = stream;
    model->place =
        (struct gpt_place){mesh->pp, mesh->ppRank, mesh->ep, mesh->epRank, mesh->tp, mesh->tpRank};
    model->typed = typed_of(config->type);
    model->types = types_of(config->type);
    model->norm_kind =
        (struct tuttiNorm){.kind = config->norm == GPT_NORM_RMS ? TUTTI_RMS_NORM : TUTTI_LAYER_NORM,
                           .width = (size_t)config->width,
                           .eps = config->eps,
                           .types = model->types};
    ncclResult_t result = make_all(model);
    if (result != ncclSuccess) {
        char text[512];
        (void)snprintf(text, sizeof text, "%s", ncclGetLastError(NULL));
        (void)gpt_model_destroy(model);
        return tuttiFail(result, "%s", text);
    }
    *model_out = model;
    return ncclSuccess;
}

static void note(ncclResult_t *first, ncclResult_t result)
{
    *first = *first == ncclSuccess ? result : *first;
}

static void note_cuda(ncclResult_t *first, cudaError_t error)
{
    note(first, gpt_cuda_result(error, "cudaFree"));
}

ncclResult_t gpt_model_destroy(struct gpt_model *model)
{
    if (model == NULL) {
        return ncclSuccess;
    }
    ncclResult_t first = ncclSuccess;
    int layers = model->slot_layers == NULL ? 0 : model->shape.slots * model->sizes.layers;
    for (int i = 0; i < layers; i++) {
        note(&first, tuttiMoeRouteDestroy(model->slot_layers[i].route));
        note_cuda(&first, cudaFree(model->slot_layers[i].rows.data));
    }
    note(&first, tuttiMoeDestroy(model->moe));
    note(&first, tuttiBoundaryDestroy(model->boundary));
    note_cuda(&first, cudaFree(model->scratch.expert_middle.data));
    note_cuda(&first, cudaFree(model->scratch.expert_dx.data));
    note_cuda(&first, cudaFree(model->scratch_memory));
    note_cuda(&first, cudaFree(model->slot_memory));
    note_cuda(&first, cudaFree(model->gradients));
    note_cuda(&first, cudaFree(model->weights));
    gpt_parameters_free(&model->parameters);
    free(model->vocabulary_parts);
    free(model->slots);
    free(model->slot_layers);
    free(model->layers);
    free(model->experts);
    free(model->batches);
    free(model);
    return first;
}
