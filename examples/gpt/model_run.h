// For tests: one step of a model on a mesh of ranks, and the same on one rank to compare with.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_MODEL_RUN_H
#define GPT_MODEL_RUN_H

#include "member.h"
#include "model.h"

#include <tutti_parallel/pipeline.h>

// What is run. The ranks are dp * pp * ep * tp.
struct run_plan {
    struct gpt_config config;
    int sequences;     // of the global batch
    int micro_batches; // of each rank
    int dp, pp, ep, tp;
    bool sequence_parallel;
    bool bf16_weights; // rounded to bf16, whatever the type
    enum tuttiPipelineSchedule schedule;
};

struct run {
    const struct run_plan *plan;
    struct tuttiMesh mesh;
    struct gpt_model *model;
    struct tuttiPipeline *pipeline;
    cudaStream_t stream;
    int32_t *tokens, *targets; // [sequences x context], of the global batch
    int ready_calls, last_ready;
};

// Makes the model over comm; its weights are larger than initial ones and all different, also the
// norms', so that every gradient is far from 0. False, and failed checks, where that went wrong.
bool run_open(struct run *run, const struct run_plan *plan, ncclComm_t comm, cudaStream_t stream);
void run_close(struct run *run);

// One step: losses of the whole mesh, gradients summed over the data ranks. False after an error.
bool run_step(struct run *run, uint64_t step, struct gpt_losses *losses);
// The loss alone, on one rank, without backward: both parts.
double run_loss(struct run *run, uint64_t step);

// Element i of a buffer of weights (is_weight) or gradients, as a double.
double run_value(const struct run *run, const void *buffer, bool is_weight, size_t i);

#endif
