// See memory.h. What is allocated is counted where it is; predictions know the options alone.
// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>

enum { WEIGHTS, GRADIENTS, OPTIMIZER, ACTIVATIONS, SCRATCH, PIPELINE, KINDS, SHOWN_RANKS = 16 };
enum { PREDICTED, AT_MOST, COUNTED, ALLOCATED, LINES };

struct row {
    uint64_t line[LINES][KINDS];
};

// ---- Predictions --------------------------------------------------------------------------------

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

// Elements of the bucket [begin, end) that rank `rank` updates: of its share, those in slices.
static size_t predict_share(const struct gpt_training *training, const struct gpt_set *set,
                            int rank, size_t begin, size_t end)
{
    const struct gpt_parameters *table = gpt_model_parameters(training->model);
    size_t ranks = (size_t)set->ranks, r = (size_t)rank, all = end - begin, extra = all % ranks;
    size_t low = begin + r * (all / ranks) + (r < extra ? r : extra);
    size_t high = low + all / ranks + (r < extra), elements = 0;
    for (int i = 0; i < set->count; i++) {
        const struct gpt_parameter *parameter = &table->all[set->first + i];
        size_t first = parameter->offset - set->base;
        size_t last = first + gpt_slice_elements(parameter);
        first = larger(first, low);
        last = last < high ? last : high;
        elements += last > first ? last - first : 0;
    }
    return elements;
}

// Under ZeRO: each bucket is shared out over the ranks. Buckets hold slices from the last one on,
// as many as fit.
static size_t predict_shares(const struct gpt_training *training, const struct gpt_set *set,
                             int rank)
{
    static const size_t usual_bytes = (size_t)25 << 20; // where --bucket-bytes is 0
    const struct gpt_parameters *table = gpt_model_parameters(training->model);
    const struct gpt_options *o = training->options;
    size_t bytes = o->bucket_bytes > 0 ? (size_t)o->bucket_bytes : usual_bytes;
    size_t most = bytes / gpt_gradient_bytes(o->config.type), begin = 0, end = 0, elements = 0;
    for (int i = set->count - 1; i >= 0; i--) {
        const struct gpt_parameter *parameter = &table->all[set->first + i];
        size_t offset = parameter->offset - set->base, count = gpt_slice_elements(parameter);
        if (count == 0) {
            continue;
        }
        if (end == 0 || end - offset > most) {
            elements += predict_share(training, set, rank, begin, end);
            end = offset + count;
        }
        begin = offset;
    }
    return elements + predict_share(training, set, rank, begin, end);
}

// Two moments of each element that this rank updates, and a master where weights are bf16.
static size_t predict_optimizer(const struct gpt_training *training)
{
    const struct gpt_parameters *table = gpt_model_parameters(training->model);
    const int ranks[2] = {training->data_rank, training->mesh.dpRank};
    enum gpt_type type = training->options->config.type;
    size_t elements = 0;
    for (int s = 0; s < 2; s++) {
        const struct gpt_set *set = &training->optimizer.sets[s];
        if (training->options->zero) {
            elements += predict_shares(training, set, ranks[s]);
            continue;
        }
        for (int i = 0; i < set->count; i++) {
            elements += gpt_slice_elements(&table->all[set->first + i]);
        }
    }
    return larger(elements, 1) * gpt_gradient_bytes(type) * (type == GPT_BF16 ? 3 : 2);
}

static size_t padded(size_t bytes)
{
    return (larger(bytes, 1) + 255) / 256 * 256;
}

// What a stage's ends of the pipeline hold, by its documentation: inputs in flight and gradients
// that go, where there is a stage before; outputs that go and a gradient that comes, where there is
// one after. Two go at once, or one with one micro-batch; each is rounded up to 256 bytes.
static size_t predict_pipeline(const struct gpt_training *training)
{
    const struct tuttiMesh *mesh = &training->mesh;
    enum gpt_type type = training->options->config.type;
    size_t elements = gpt_stage_elements(training->model);
    size_t activations = padded(elements * gpt_type_bytes(type));
    size_t gradients = padded(elements * gpt_gradient_bytes(type));
    size_t going = training->options->micro_batches == 1 ? 1 : 2, bytes = 0;
    if (mesh->ppRank > 0) {
        bytes += (size_t)training->shape.slots * activations + going * gradients;
    }
    if (mesh->ppRank < mesh->pp - 1) {
        bytes += going * activations + gradients;
    }
    return bytes;
}

// ---- This rank's row ----------------------------------------------------------------------------

static struct gpt_place place_of(const struct gpt_training *training)
{
    const struct tuttiMesh *mesh = &training->mesh;
    return (struct gpt_place){mesh->pp,     mesh->ppRank, mesh->ep,
                              mesh->epRank, mesh->tp,     mesh->tpRank};
}

static void fill(uint64_t *kinds, const struct gpt_bytes *bytes, size_t optimizer, size_t pipeline)
{
    kinds[WEIGHTS] = bytes->weights;
    kinds[GRADIENTS] = bytes->gradients;
    kinds[OPTIMIZER] = optimizer;
    kinds[ACTIVATIONS] = bytes->activations;
    kinds[SCRATCH] = bytes->scratch;
    kinds[PIPELINE] = pipeline;
}

static bool measure(struct gpt_training *training, struct row *row, struct gpt_problem *problem)
{
    const struct gpt_config *config = &training->options->config;
    const struct gpt_shape *shape = &training->shape;
    const struct gpt_place place = place_of(training);
    const struct gpt_rows rows[ALLOCATED] = {gpt_first_rows(config, shape, &place),
                                             gpt_most_rows(config, shape, &place),
                                             gpt_model_rows(training->model)};
    size_t pipeline = 0;
    for (int line = 0; line < ALLOCATED; line++) {
        struct gpt_bytes bytes;
        if (!gpt_nccl(problem, gpt_predict_bytes(config, shape, &place, &rows[line], &bytes),
                      "a prediction")) {
            return false;
        }
        fill(row->line[line], &bytes, predict_optimizer(training), predict_pipeline(training));
    }
    struct gpt_bytes allocated = gpt_model_bytes(training->model);
    if (!gpt_nccl(problem, tuttiPipelineBytes(training->pipeline, &pipeline), "the pipeline")) {
        return false;
    }
    fill(row->line[ALLOCATED], &allocated, training->optimizer.bytes, pipeline);
    return true;
}

// ---- The table ----------------------------------------------------------------------------------

static void print(const char *rank, const char *what, const uint64_t *kinds)
{
    uint64_t sum = 0;
    (void)printf("%5s %-10s", rank, what);
    for (int kind = 0; kind < KINDS; kind++) {
        (void)printf(" %12llu", (unsigned long long)kinds[kind]);
        sum += kinds[kind];
    }
    (void)printf(" %13llu\n", (unsigned long long)sum);
}

// How many rows of experts the lines mean, of a layer and a micro-batch.
static void explain(const struct gpt_training *training)
{
    const struct gpt_config *config = &training->options->config;
    struct gpt_place place = place_of(training);
    place.pp = 1; // this stage may have none
    place.pp_rank = 0;
    size_t even = gpt_even_rows(config, &training->shape, &place).of_rank;
    size_t most = gpt_most_rows(config, &training->shape, &place).of_rank;
    if (config->experts == 0) {
        return;
    }
    if (config->capacity == GPT_CAPACITY_GROW) {
        (void)printf("Rows of experts, of a layer and a micro-batch, are the router's choice. "
                     "predicted: %zu, the tokens x experts-per-token of even use; at most: %zu, "
                     "tokens x ep x min(experts-per-token, experts / ep); counted: those that "
                     "came, where more than predicted\n",
                     even, most);
    } else {
        (void)printf("Rows of experts, of a layer and a micro-batch: room for %zu, the least of "
                     "tokens x ep x min(experts-per-token, experts / ep) and experts / ep x "
                     "ceil(capacity-factor x tokens x ep x experts-per-token / experts)\n",
                     most);
    }
}

static void print_all(const struct gpt_training *training, const struct row *rows)
{
    static const char *const names[LINES] = {"predicted", "at most", "counted", "allocated"};
    const struct gpt_config *config = &training->options->config;
    bool is_open = config->experts > 0 && config->capacity == GPT_CAPACITY_GROW;
    int size = training->world->size;
    (void)printf("%5s %-10s %12s %12s %12s %12s %12s %12s %13s\n", "rank", "bytes", "weights",
                 "gradients", "optimizer", "activations", "scratch", "pipeline", "all");
    for (int rank = 0; rank < size && rank < SHOWN_RANKS; rank++) {
        char number[16];
        (void)snprintf(number, sizeof number, "%d", rank);
        for (int line = 0; line < LINES; line++) {
            if (is_open || line == PREDICTED || line == ALLOCATED) {
                print(line == PREDICTED ? number : "", names[line], rows[rank].line[line]);
            }
        }
    }
    if (size > SHOWN_RANKS) {
        (void)printf("%5s and so on, to rank %d\n", "", size - 1);
    }
    explain(training);
    (void)fflush(stdout);
}

bool gpt_memory_table(struct gpt_training *training, struct gpt_problem *problem)
{
    struct gpt_world *world = training->world;
    struct row mine = {{{0}}};
    struct row *rows = calloc((size_t)world->size, sizeof *rows);
    if (rows == NULL) {
        return gpt_fail(problem, GPT_FAILED, "no memory for a table");
    }
    bool right = measure(training, &mine, problem) &&
                 gpt_world_gather(world, &mine, sizeof mine, rows, problem);
    if (right && world->rank == 0) {
        print_all(training, rows);
    }
    free(rows);
    return right;
}
