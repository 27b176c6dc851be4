// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>

enum { WEIGHTS, GRADIENTS, OPTIMIZER, ACTIVATIONS, SCRATCH, PIPELINE, KINDS, SHOWN_RANKS = 16 };

struct row {
    uint64_t predicted[KINDS], allocated[KINDS];
};

static void fill(uint64_t *kinds, const struct gpt_bytes *bytes, size_t optimizer, size_t pipeline)
{
    kinds[WEIGHTS] = bytes->weights;
    kinds[GRADIENTS] = bytes->gradients;
    kinds[OPTIMIZER] = optimizer;
    kinds[ACTIVATIONS] = bytes->activations;
    kinds[SCRATCH] = bytes->scratch;
    kinds[PIPELINE] = pipeline;
}

// What a stage's end of the pipeline holds, by its documentation: inputs in flight and a gradient
// that comes, where there is a stage before; outputs and gradients that go, two each (one with one
// micro-batch).
static size_t predict_pipeline(const struct gpt_training *training)
{
    const struct tuttiMesh *mesh = &training->mesh;
    size_t elements = gpt_stage_elements(training->model);
    size_t bytes = elements * gpt_type_bytes(training->options->config.type);
    size_t going = training->options->micro_batches == 1 ? 1 : 2, buffers = 0;
    if (mesh->ppRank > 0) {
        buffers += (size_t)training->shape.slots + going;
    }
    if (mesh->ppRank < mesh->pp - 1) {
        buffers += 1 + going;
    }
    return buffers * bytes;
}

static bool measure(struct gpt_training *training, struct row *row, struct gpt_problem *problem)
{
    const struct tuttiMesh *mesh = &training->mesh;
    const struct gpt_place place = {mesh->pp,     mesh->ppRank, mesh->ep,
                                    mesh->epRank, mesh->tp,     mesh->tpRank};
    struct gpt_bytes predicted, allocated = gpt_model_bytes(training->model);
    size_t pipeline = 0;
    if (!gpt_nccl(
            problem,
            gpt_predict_bytes(&training->options->config, &training->shape, &place, &predicted),
            "a prediction") ||
        !gpt_nccl(problem, tuttiPipelineBytes(training->pipeline, &pipeline), "the pipeline")) {
        return false;
    }
    fill(row->predicted, &predicted, gpt_optimizer_predict_bytes(&training->optimizer),
         predict_pipeline(training));
    fill(row->allocated, &allocated, gpt_optimizer_bytes(&training->optimizer), pipeline);
    return true;
}

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

static void print_all(const struct row *rows, int size)
{
    (void)printf("%5s %-10s %12s %12s %12s %12s %12s %12s %13s\n", "rank", "bytes", "weights",
                 "gradients", "optimizer", "activations", "scratch", "pipeline", "all");
    for (int rank = 0; rank < size && rank < SHOWN_RANKS; rank++) {
        char number[16];
        (void)snprintf(number, sizeof number, "%d", rank);
        print(number, "predicted", rows[rank].predicted);
        print("", "allocated", rows[rank].allocated);
    }
    if (size > SHOWN_RANKS) {
        (void)printf("%5s and so on, to rank %d\n", "", size - 1);
    }
    (void)fflush(stdout);
}

bool gpt_memory_table(struct gpt_training *training, struct gpt_problem *problem)
{
    struct gpt_world *world = training->world;
    struct row mine = {{0}, {0}};
    struct row *rows = calloc((size_t)world->size, sizeof *rows);
    if (rows == NULL) {
        return gpt_fail(problem, GPT_FAILED, "no memory for a table");
    }
    bool right = measure(training, &mine, problem) &&
                 gpt_world_gather(world, &mine, sizeof mine, rows, problem);
    if (right && world->rank == 0) {
        print_all(rows, world->size);
    }
    free(rows);
    return right;
}
