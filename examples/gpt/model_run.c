// See model_run.h. SPDX-License-Identifier: Apache-2.0
#include "model_run.h"

#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double bf16_value(uint16_t stored)
{
    uint32_t bits = (uint32_t)stored << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double run_value(const struct run *run, const void *buffer, bool is_weight, size_t i)
{
    enum gpt_type type = run->plan->config.type;
    if (type == GPT_DOUBLE) {
        return ((const double *)buffer)[i];
    }
    return type == GPT_BF16 && is_weight ? bf16_value(((const uint16_t *)buffer)[i])
                                         : (double)((const float *)buffer)[i];
}

// To nearest, ties up.
static uint16_t to_bf16(double value)
{
    float rounded = (float)value;
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    return (uint16_t)((bits + 0x8000u) >> 16);
}

static void set_weight(const struct run *run, size_t i, double value)
{
    void *weights = gpt_model_weights(run->model);
    if (run->plan->bf16_weights) {
        value = bf16_value(to_bf16(value));
    }
    switch (run->plan->config.type) {
    case GPT_DOUBLE:
        ((double *)weights)[i] = value;
        break;
    case GPT_BF16:
        ((uint16_t *)weights)[i] = to_bf16(value);
        break;
    default:
        ((float *)weights)[i] = (float)value;
    }
}

// Elements of a global matrix by their names and indices: the same on all meshes.
static void set_weights(const struct run *run)
{
    const struct gpt_parameters *table = gpt_model_parameters(run->model);
    for (int n = 0; n < table->count; n++) {
        const struct gpt_parameter *p = &table->all[n];
        for (size_t i = 0; i < gpt_slice_elements(p); i++) {
            size_t row = p->first_row + i / p->slice_columns;
            size_t column = p->first_column + i % p->slice_columns;
            double normal[4];
            gpt_normal(99, gpt_hash(p->name), row * p->columns + column, normal);
            double deviation = p->layer < 0 ? 1 : 1.2 / sqrt((double)p->columns);
            deviation = p->is_norm ? 0.2 : deviation;
            set_weight(run, p->offset + i, p->mean + deviation * normal[0]);
        }
    }
}

static void make_batch(struct run *run)
{
    const struct gpt_config *c = &run->plan->config;
    size_t tokens = (size_t)run->plan->sequences * (size_t)c->context;
    run->tokens = malloc(tokens * sizeof *run->tokens);
    run->targets = malloc(tokens * sizeof *run->targets);
    for (size_t i = 0; i < tokens; i++) {
        const uint32_t counter[4] = {(uint32_t)i, 0, 0, 0};
        uint32_t bits[4];
        gpt_philox(counter, 5, bits);
        run->tokens[i] = (int32_t)(bits[0] % (uint32_t)c->vocabulary);
        run->targets[i] = (int32_t)(bits[1] % (uint32_t)c->vocabulary);
    }
}

static int data_ranks(const struct run_plan *plan)
{
    return plan->dp * plan->ep;
}

// Each parameter is told once, dense ones backward.
static ncclResult_t count_ready(void *context, int parameter)
{
    struct run *run = context;
    const struct gpt_parameters *table = gpt_model_parameters(run->model);
    run->ready_calls++;
    if (table->all[parameter].expert < 0) {
        EXPECT(run->last_ready < 0 || parameter == run->last_ready - 1);
        run->last_ready = parameter;
    }
    return ncclSuccess;
}

static bool open_pipeline(struct run *run)
{
    struct tuttiPipelineOptions options = TUTTI_PIPELINE_OPTIONS_INITIALIZER;
    options.schedule = run->plan->schedule;
    options.microBatches = run->plan->micro_batches;
    options.inputElements = options.outputElements = gpt_stage_elements(run->model);
    options.activationType = gpt_model_data_type(run->model);
    options.gradientType = gpt_model_gradient_type(run->model);
    options.forward = gpt_stage_forward;
    options.backward = gpt_stage_backward;
    options.context = run->model;
    options.stream = run->stream;
    return EXPECT_OK(tuttiPipelineCreate(run->mesh.ppComm, &options, &run->pipeline));
}

bool run_open(struct run *run, const struct run_plan *plan, ncclComm_t comm, cudaStream_t stream)
{
    *run = (struct run){.plan = plan, .stream = stream};
    struct gpt_shape shape = {.sequences = plan->sequences / data_ranks(plan) / plan->micro_batches,
                              .sequence_parallel = plan->sequence_parallel};
    make_batch(run);
    if (!EXPECT_OK(tuttiMeshCreate(comm, plan->dp, plan->pp, plan->ep, plan->tp, &run->mesh)) ||
        !EXPECT_OK(tuttiPipelineInFlight(plan->schedule, plan->pp, plan->micro_batches,
                                         run->mesh.ppRank, &shape.slots)) ||
        !EXPECT_OK(gpt_model_create(&plan->config, &shape, &run->mesh, stream, &run->model))) {
        return false;
    }
    set_weights(run);
    gpt_model_on_gradient(run->model, count_ready, run);
    return open_pipeline(run);
}

void run_close(struct run *run)
{
    EXPECT_OK(tuttiPipelineDestroy(run->pipeline));
    EXPECT_OK(gpt_model_destroy(run->model));
    EXPECT_OK(tuttiMeshDestroy(&run->mesh));
    free(run->tokens);
    free(run->targets);
}

static bool begin(struct run *run, uint64_t step)
{
    const struct run_plan *plan = run->plan;
    size_t context = (size_t)plan->config.context;
    int data_rank = run->mesh.dpRank * plan->ep + run->mesh.epRank;
    int sequences = plan->sequences / data_ranks(plan) / plan->micro_batches;
    bool fine = EXPECT_OK(gpt_model_begin_step(run->model, step, plan->micro_batches,
                                               (size_t)plan->sequences * context, true));
    for (int m = 0; m < plan->micro_batches && fine; m++) {
        size_t first = (size_t)(data_rank * plan->micro_batches + m) * (size_t)sequences;
        fine = EXPECT_OK(gpt_model_set_batch(run->model, m, run->tokens + first * context,
                                             run->targets + first * context, first));
    }
    return fine;
}

static bool sum(struct run *run, void *values, size_t count, ncclDataType_t type, ncclComm_t comm)
{
    return EXPECT_OK(ncclAllReduce(values, values, count, type, ncclSum, comm, run->stream)) &&
           EXPECT_CUDA(cudaStreamSynchronize(run->stream));
}

bool run_step(struct run *run, uint64_t step, struct gpt_losses *losses)
{
    const struct gpt_parameters *table = gpt_model_parameters(run->model);
    ncclDataType_t type = gpt_model_gradient_type(run->model);
    run->ready_calls = 0;
    run->last_ready = -1;
    if (!begin(run, step) || !EXPECT_OK(tuttiPipelineRun(run->pipeline))) {
        return false;
    }
    EXPECT_EQ(run->ready_calls, table->count);
    EXPECT_EQ(run->last_ready, 0);
    char *gradients = gpt_model_gradients(run->model);
    double *sums = NULL;
    *losses = gpt_model_losses(run->model);
    bool fine = EXPECT_CUDA(cudaMallocAsync((void **)&sums, 2 * sizeof *sums, run->stream)) &&
                EXPECT_CUDA(cudaStreamSynchronize(run->stream));
    if (fine) {
        sums[0] = losses->cross_entropy;
        sums[1] = losses->balance;
        fine = sum(run, sums, 2, ncclFloat64, run->mesh.world) &&
               sum(run, gradients, table->dense, type, run->mesh.dataComm) &&
               sum(run, gradients + table->dense * gpt_gradient_bytes(run->plan->config.type),
                   table->experts, type, run->mesh.dpComm);
        *losses = (struct gpt_losses){sums[0], sums[1]};
        EXPECT_CUDA(cudaFreeAsync(sums, run->stream));
    }
    return fine;
}

double run_loss(struct run *run, uint64_t step)
{
    if (!begin(run, step) || !EXPECT_OK(tuttiPipelineEvaluate(run->pipeline))) {
        return NAN;
    }
    struct gpt_losses losses = gpt_model_losses(run->model);
    return losses.cross_entropy + losses.balance;
}
