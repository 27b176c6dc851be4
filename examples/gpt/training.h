// A training: everything that one rank needs for it, and its steps.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_TRAINING_H
#define GPT_TRAINING_H

#include "corpus.h"
#include "curve.h"
#include "optimizer.h"
#include "options.h"
#include "progress.h"
#include "storage.h"
#include "world.h"

#include <tutti_parallel/pipeline.h>

struct gpt_training {
    const struct gpt_options *options;
    struct gpt_world *world;
    struct tuttiMesh mesh;
    cudaStream_t stream;
    struct gpt_corpus corpus;
    struct gpt_model *model;
    struct gpt_optimizer optimizer;
    struct tuttiPipeline *pipeline;
    struct gpt_shape shape;
    int data_rank, data_ranks; // of the ranks with other sequences
    size_t batch_tokens;       // of the global batch
    int32_t *tokens, *targets; // [micro-batches x sequences x context], this rank's of a step
    struct gpt_losses *losses; // [ranks], of a step
    struct gpt_curve training_curve, validation_curve;
    struct gpt_progress progress;
    uint64_t step; // steps done
};

// Makes mesh, model, optimizer and pipeline as the options say. Collective. A mesh that does not
// fit the model or the batch is a problem with status GPT_USAGE, told by rank 0 alone.
bool gpt_training_open(struct gpt_training *training, const struct gpt_options *options,
                       struct gpt_world *world, struct gpt_problem *problem);
void gpt_training_close(struct gpt_training *training);

// What a step tells.
struct gpt_step_report {
    double loss; // of the batch, the balance loss included
    double rate, norm;
};

// Step training->step + 1: forward, backward, update. Collective. A loss that is not finite is a
// problem that names the first rank that has it; nothing is updated then.
bool gpt_training_step(struct gpt_training *training, struct gpt_step_report *report,
                       struct gpt_problem *problem);

// The cross-entropy of the validation's sequences, without dropout. Collective.
bool gpt_training_validate(struct gpt_training *training, double *loss,
                           struct gpt_problem *problem);

#endif
