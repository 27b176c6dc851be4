// SPDX-License-Identifier: Apache-2.0
#include "optimizer.h"

#include "try.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Gradient `parameter` is complete on this rank: its bucket may go.
static ncclResult_t on_gradient(void *context, int parameter)
{
    struct gpt_optimizer *optimizer = context;
    const struct gpt_set *set = &optimizer->sets[parameter < optimizer->sets[1].first ? 0 : 1];
    return tuttiBucketsReady(set->buckets, parameter - set->first, optimizer->stream);
}

// Weights of the set's layers up to `layer` have come: they travel in the order of the table.
static ncclResult_t wait_for_layer(const struct gpt_optimizer *optimizer, const struct gpt_set *set,
                                   int layer)
{
    const struct gpt_parameter *all = gpt_model_parameters(optimizer->model)->all + set->first;
    int last = set->count - 1;
    while (last >= 0 && all[last].layer > layer) {
        last--;
    }
    return last < 0 ? ncclSuccess : tuttiBucketsGatherWait(set->buckets, last, optimizer->stream);
}

// A forward pass is about to use a layer's weights.
static ncclResult_t on_layer(void *context, int layer)
{
    struct gpt_optimizer *optimizer = context;
    if (layer <= optimizer->arrived) {
        return ncclSuccess;
    }
    for (int s = 0; s < 2; s++) {
        TRY(wait_for_layer(optimizer, &optimizer->sets[s], layer));
    }
    TRY_CUDA(cudaStreamSynchronize(optimizer->stream));
    optimizer->arrived = layer;
    return ncclSuccess;
}

static void *gradients_of(const struct gpt_optimizer *optimizer, const struct gpt_set *set)
{
    size_t bytes = gpt_gradient_bytes(gpt_model_config(optimizer->model)->type);
    return (char *)gpt_model_gradients(optimizer->model) + set->base * bytes;
}

static void *weights_of(const struct gpt_optimizer *optimizer, const struct gpt_set *set)
{
    size_t bytes = gpt_type_bytes(gpt_model_config(optimizer->model)->type);
    return (char *)gpt_model_weights(optimizer->model) + set->base * bytes;
}

// The parts that this rank updates, and how many ranks hold the sum of each.
static bool list_parts(struct gpt_optimizer *optimizer, struct gpt_set *set,
                       struct gpt_problem *problem)
{
    const struct gpt_parameters *table = gpt_model_parameters(optimizer->model);
    int count = 0;
    if (!gpt_nccl(problem, tuttiBucketsOwned(set->buckets, -1, NULL, 0, &count), "parts")) {
        return false;
    }
    set->parts = calloc((size_t)count + 1, sizeof *set->parts);
    set->replicas = calloc((size_t)count + 1, sizeof *set->replicas);
    if (set->parts == NULL || set->replicas == NULL) {
        return gpt_fail(problem, GPT_FAILED, "no memory for %d parts of gradients", count);
    }
    set->part_count = count;
    if (!gpt_nccl(problem, tuttiBucketsOwned(set->buckets, -1, set->parts, count, &count),
                  "parts")) {
        return false;
    }
    set->state = optimizer->elements;
    for (int i = 0; i < count; i++) {
        const struct gpt_parameter *parameter = &table->all[set->first + set->parts[i].gradient];
        set->replicas[i] = (parameter->split == GPT_SPLIT_NONE ? optimizer->mesh->tp : 1) *
                           (optimizer->zero ? 1 : set->ranks);
        optimizer->elements += set->parts[i].count;
    }
    return true;
}

static bool open_set(struct gpt_optimizer *optimizer, struct gpt_set *set, size_t elements,
                     ncclComm_t comm, const struct gpt_optimizer_options *options,
                     struct gpt_problem *problem)
{
    const struct gpt_parameters *table = gpt_model_parameters(optimizer->model);
    struct tuttiBucketsOptions how = TUTTI_BUCKETS_OPTIONS_INITIALIZER;
    if (set->count == 0) {
        return true;
    }
    set->gradients = calloc((size_t)set->count, sizeof *set->gradients);
    if (set->gradients == NULL) {
        return gpt_fail(problem, GPT_FAILED, "no memory for %d gradients", set->count);
    }
    for (int i = 0; i < set->count; i++) {
        const struct gpt_parameter *parameter = &table->all[set->first + i];
        set->gradients[i] = (struct tuttiGradient){parameter->offset - set->base,
                                                   gpt_slice_elements(parameter), parameter->name};
    }
    how.bucketBytes = options->bucket_bytes;
    how.zero = options->zero;
    how.stub = options->stub;
    const struct tuttiGradients gradients = {gradients_of(optimizer, set), elements,
                                             gpt_model_gradient_type(optimizer->model),
                                             set->gradients, set->count};
    return gpt_nccl(problem, tuttiBucketsCreate(&gradients, comm, &how, &set->buckets),
                    "buckets of gradients") &&
           list_parts(optimizer, set, problem);
}

static bool open_sets(struct gpt_optimizer *optimizer, const struct gpt_optimizer_options *options,
                      struct gpt_problem *problem)
{
    const struct gpt_parameters *table = gpt_model_parameters(optimizer->model);
    const struct tuttiMesh *mesh = optimizer->mesh;
    struct gpt_set *dense = &optimizer->sets[0], *experts = &optimizer->sets[1];
    while (dense->count < table->count && table->all[dense->count].expert < 0) {
        dense->count++;
    }
    dense->ranks = mesh->dp * mesh->ep;
    experts->first = dense->count;
    experts->count = table->count - dense->count;
    experts->base = table->dense;
    experts->ranks = mesh->dp;
    return open_set(optimizer, dense, table->dense, mesh->dataComm, options, problem) &&
           open_set(optimizer, experts, table->experts, mesh->dpComm, options, problem);
}

// Masters begin with the values that the weights were rounded from.
static bool fill_masters(struct gpt_optimizer *optimizer, struct gpt_problem *problem)
{
    const struct gpt_parameters *table = gpt_model_parameters(optimizer->model);
    float *values = malloc((table->elements + 1) * sizeof *values);
    if (values == NULL) {
        return gpt_fail(problem, GPT_FAILED, "no memory for %zu weights", table->elements);
    }
    gpt_parameters_initial(table, gpt_model_config(optimizer->model)->seed, values);
    float *master = optimizer->master;
    for (int s = 0; s < 2; s++) {
        const struct gpt_set *set = &optimizer->sets[s];
        for (int i = 0; i < set->part_count; i++) {
            memcpy(master, values + set->base + set->parts[i].offset,
                   set->parts[i].count * sizeof *master);
            master += set->parts[i].count;
        }
    }
    free(values);
    return true;
}

// Memory for all elements of a moment or of masters.
static bool take(struct gpt_optimizer *optimizer, void **memory, struct gpt_problem *problem)
{
    size_t elements = optimizer->elements > 0 ? optimizer->elements : 1;
    size_t bytes = elements * optimizer->element_bytes;
    if (!gpt_cuda(problem, cudaMalloc(memory, bytes), "memory for the optimizer's state")) {
        return false;
    }
    memset(*memory, 0, bytes);
    optimizer->bytes += bytes;
    return true;
}

static bool allocate(struct gpt_optimizer *optimizer, struct gpt_problem *problem)
{
    enum gpt_type type = gpt_model_config(optimizer->model)->type;
    optimizer->element_bytes = gpt_gradient_bytes(type);
    if (!take(optimizer, &optimizer->moment1, problem) ||
        !take(optimizer, &optimizer->moment2, problem)) {
        return false;
    }
    return type != GPT_BF16 || (take(optimizer, (void **)&optimizer->master, problem) &&
                                fill_masters(optimizer, problem));
}

bool gpt_optimizer_open(struct gpt_optimizer *optimizer, struct gpt_model *model,
                        const struct tuttiMesh *mesh, cudaStream_t stream,
                        const struct gpt_optimizer_options *options, struct gpt_problem *problem)
{
    *optimizer = (struct gpt_optimizer){
        .model = model, .mesh = mesh, .stream = stream, .zero = options->zero, .arrived = INT_MAX};
    if (!open_sets(optimizer, options, problem) || !allocate(optimizer, problem)) {
        return false;
    }
    gpt_model_on_gradient(model, on_gradient, optimizer);
    gpt_model_on_layer(model, on_layer, optimizer);
    return true;
}

void gpt_optimizer_close(struct gpt_optimizer *optimizer)
{
    for (int s = 0; s < 2; s++) {
        (void)tuttiBucketsDestroy(optimizer->sets[s].buckets);
        free(optimizer->sets[s].gradients);
        free(optimizer->sets[s].parts);
        free(optimizer->sets[s].replicas);
    }
    (void)cudaFree(optimizer->moment1);
    (void)cudaFree(optimizer->moment2);
    (void)cudaFree(optimizer->master);
    memset(optimizer, 0, sizeof *optimizer);
}

// ---- A step -------------------------------------------------------------------------------------

// The gradient's global norm, and what is to be multiplied.
static bool measure(struct gpt_optimizer *optimizer, double clip, double *norm, double *factor,
                    struct gpt_problem *problem)
{
    ncclDataType_t type = gpt_model_gradient_type(optimizer->model);
    double squares = 0;
    for (int s = 0; s < 2; s++) {
        const struct gpt_set *set = &optimizer->sets[s];
        if (set->buckets != NULL &&
            (!gpt_nccl(problem, tuttiBucketsWait(set->buckets, optimizer->stream), "gradients") ||
             !gpt_nccl(problem,
                       tuttiSumSquares(gradients_of(optimizer, set), type, set->parts,
                                       set->part_count, set->replicas, optimizer->stream, &squares),
                       "the gradient's norm"))) {
            return false;
        }
    }
    ncclResult_t result = tuttiGlobalNorm(squares, optimizer->mesh->world, optimizer->stream, norm);
    if (!gpt_nccl(problem, result, "the gradient's norm")) {
        // Not finite: all ranks have the same text.
        problem->teller = result == ncclInvalidUsage ? 0 : problem->teller;
        return false;
    }
    return gpt_nccl(problem, tuttiClipFactor(*norm, clip > 0 ? clip : INFINITY, factor),
                    "the gradient's norm");
}

// Updates one part. state: where it is in moments and masters, in elements.
static void update(const struct gpt_optimizer *optimizer, const struct gpt_adamw *adamw,
                   char *weights, const char *gradients, size_t state, size_t count)
{
    switch (gpt_model_config(optimizer->model)->type) {
    case GPT_DOUBLE:
        gpt_adamw_double(adamw, (double *)weights, (const double *)gradients,
                         (double *)optimizer->moment1 + state, (double *)optimizer->moment2 + state,
                         count);
        return;
    case GPT_BF16:
        gpt_adamw_float(adamw, optimizer->master + state, (const float *)gradients,
                        (float *)optimizer->moment1 + state, (float *)optimizer->moment2 + state,
                        count);
        gpt_round_bfloat16(optimizer->master + state, (uint16_t *)weights, count);
        return;
    case GPT_FLOAT:
        gpt_adamw_float(adamw, (float *)weights, (const float *)gradients,
                        (float *)optimizer->moment1 + state, (float *)optimizer->moment2 + state,
                        count);
        return;
    }
}

static bool update_set(struct gpt_optimizer *optimizer, const struct gpt_set *set,
                       const struct gpt_adamw *settings, double factor, struct gpt_problem *problem)
{
    const struct gpt_parameters *table = gpt_model_parameters(optimizer->model);
    enum gpt_type type = gpt_model_config(optimizer->model)->type;
    char *weights = weights_of(optimizer, set), *gradients = gradients_of(optimizer, set);
    size_t state = set->state;
    if (!gpt_nccl(problem,
                  tuttiScale(gradients, gpt_model_gradient_type(optimizer->model), set->parts,
                             set->part_count, factor, optimizer->stream),
                  "clipping")) {
        return false;
    }
    for (int i = 0; i < set->part_count; i++) {
        const struct tuttiPart *part = &set->parts[i];
        struct gpt_adamw adamw = *settings;
        if (table->all[set->first + part->gradient].is_norm) {
            adamw.decay = 0;
        }
        update(optimizer, &adamw, weights + part->offset * gpt_type_bytes(type),
               gradients + part->offset * gpt_gradient_bytes(type), state, part->count);
        state += part->count;
    }
    return gpt_nccl(problem,
                    tuttiBucketsGather(set->buckets, weights, gpt_model_data_type(optimizer->model),
                                       optimizer->stream),
                    "weights of other ranks");
}

bool gpt_optimizer_step(struct gpt_optimizer *optimizer, const struct gpt_adamw *settings,
                        double clip, double *norm, struct gpt_problem *problem)
{
    double factor = 1;
    bool right = measure(optimizer, clip, norm, &factor, problem);
    optimizer->arrived = optimizer->zero ? INT_MIN : INT_MAX;
    for (int s = 0; right && s < 2; s++) {
        const struct gpt_set *set = &optimizer->sets[s];
        right = set->buckets == NULL || update_set(optimizer, set, settings, factor, problem);
    }
    return right;
}

bool gpt_optimizer_wait(struct gpt_optimizer *optimizer, struct gpt_problem *problem)
{
    bool right = true;
    for (int s = 0; right && s < 2; s++) {
        struct tuttiBuckets *buckets = optimizer->sets[s].buckets;
        right = buckets == NULL ||
                gpt_nccl(problem, tuttiBucketsGatherWait(buckets, -1, optimizer->stream),
                         "weights of other ranks");
    }
    right = right &&
            gpt_cuda(problem, cudaStreamSynchronize(optimizer->stream), "weights of other ranks");
    optimizer->arrived = right ? INT_MAX : optimizer->arrived;
    return right;
}
