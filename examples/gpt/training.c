// SPDX-License-Identifier: Apache-2.0
#include "training.h"

#include "schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- Opening ------------------------------------------------------------------------------------

static bool check_batch(const struct gpt_options *o, const struct gpt_training *training,
                        struct gpt_problem *problem)
{
    long long parts = (long long)training->data_ranks * o->micro_batches;
    return o->batch % parts == 0 ||
           gpt_fail(problem, GPT_USAGE,
                    "--batch is %d, must be a multiple of dp x ep x micro-batches, which is "
                    "%d x %d x %d = %lld",
                    o->batch, training->mesh.dp, training->mesh.ep, o->micro_batches, parts);
}

// The default corpus lies beside the program.
static bool open_corpus(struct gpt_training *training, struct gpt_problem *problem)
{
    char path[GPT_PATH_MAX];
    const char *named = training->options->corpus;
    if (named == NULL && !gpt_path_beside_program(path, "corpus.txt", problem)) {
        return false;
    }
    return gpt_corpus_open(&training->corpus, named != NULL ? named : path,
                           training->options->config.context, problem);
}

static bool open_mesh(struct gpt_training *training, struct gpt_problem *problem)
{
    const struct gpt_options *o = training->options;
    struct tuttiMesh *mesh = &training->mesh;
    if (!gpt_nccl(problem, gpt_config_check(&o->config, o->pp, o->ep, o->tp), "model") ||
        !gpt_options_fit(o, training->world->size, problem) ||
        !gpt_nccl(problem, tuttiMeshCreate(training->world->comm, o->dp, o->pp, o->ep, o->tp, mesh),
                  "mesh")) {
        return gpt_fail_alike(problem);
    }
    training->data_ranks = mesh->dp * mesh->ep;
    training->data_rank = mesh->dpRank * mesh->ep + mesh->epRank;
    training->batch_tokens = (size_t)o->batch * (size_t)o->config.context;
    return check_batch(o, training, problem) || gpt_fail_alike(problem);
}

static bool open_model(struct gpt_training *training, struct gpt_problem *problem)
{
    const struct gpt_options *o = training->options;
    enum tuttiPipelineSchedule schedule =
        o->schedule == GPT_GPIPE ? tuttiPipelineGPipe : tuttiPipeline1F1B;
    struct gpt_shape *shape = &training->shape;
    shape->sequences = o->batch / training->data_ranks / o->micro_batches;
    shape->sequence_parallel = o->sp;
    if (!gpt_nccl(problem,
                  tuttiPipelineInFlight(schedule, o->pp, o->micro_batches, training->mesh.ppRank,
                                        &shape->slots),
                  "pipeline") ||
        !gpt_nccl(problem,
                  gpt_model_create(&o->config, shape, &training->mesh, training->stream,
                                   &training->model),
                  "model")) {
        return gpt_fail_alike(problem);
    }
    struct tuttiPipelineOptions how = TUTTI_PIPELINE_OPTIONS_INITIALIZER;
    how.schedule = schedule;
    how.microBatches = o->micro_batches;
    how.inputElements = how.outputElements = gpt_stage_elements(training->model);
    how.activationType = gpt_model_data_type(training->model);
    how.gradientType = gpt_model_gradient_type(training->model);
    how.forward = gpt_stage_forward;
    how.backward = gpt_stage_backward;
    how.context = training->model;
    how.stream = training->stream;
    return gpt_nccl(problem, tuttiPipelineCreate(training->mesh.ppComm, &how, &training->pipeline),
                    "pipeline");
}

static bool allocate(struct gpt_training *training, struct gpt_problem *problem)
{
    size_t tokens = training->batch_tokens / (size_t)training->data_ranks;
    training->tokens = calloc(tokens, sizeof *training->tokens);
    training->targets = calloc(tokens, sizeof *training->targets);
    training->losses = calloc((size_t)training->world->size, sizeof *training->losses);
    return (training->tokens != NULL && training->targets != NULL && training->losses != NULL) ||
           gpt_fail(problem, GPT_FAILED, "no memory for a batch of %zu tokens", tokens);
}

bool gpt_training_open(struct gpt_training *training, const struct gpt_options *options,
                       struct gpt_world *world, struct gpt_problem *problem)
{
    memset(training, 0, sizeof *training);
    training->options = options;
    training->world = world;
    if (!open_mesh(training, problem)) {
        return false;
    }
    const struct gpt_optimizer_options how = {options->zero, options->stub_communication,
                                              (size_t)options->bucket_bytes};
    if (open_corpus(training, problem)) {
        allocate(training, problem);
    }
    if (!gpt_world_agree(world, problem)) { // of files, ranks may see others
        return false;
    }
    return gpt_cuda(problem, cudaStreamCreateWithFlags(&training->stream, cudaStreamNonBlocking),
                    "a stream") &&
           open_model(training, problem) &&
           gpt_optimizer_open(&training->optimizer, training->model, &training->mesh,
                              training->stream, &how, problem);
}

void gpt_training_close(struct gpt_training *training)
{
    gpt_optimizer_close(&training->optimizer);
    (void)tuttiPipelineDestroy(training->pipeline);
    if (training->model != NULL) {
        (void)gpt_model_destroy(training->model);
    }
    if (training->stream != NULL) {
        (void)cudaStreamDestroy(training->stream);
    }
    (void)tuttiMeshDestroy(&training->mesh);
    gpt_corpus_close(&training->corpus);
    gpt_curve_free(&training->training_curve);
    gpt_curve_free(&training->validation_curve);
    free(training->tokens);
    free(training->targets);
    free(training->losses);
    memset(training, 0, sizeof *training);
}

// ---- Steps --------------------------------------------------------------------------------------

// This rank's sequences of a batch: of the global batch's, those from `first` on.
// round: the step, or the number of a validation's batch.
static void read_batch(struct gpt_training *training, bool validation, uint64_t round, size_t first,
                       size_t count)
{
    const struct gpt_options *o = training->options;
    size_t context = (size_t)o->config.context, batch = (size_t)o->batch;
    for (size_t i = 0; i < count; i++) {
        int32_t *tokens = training->tokens + i * context;
        int32_t *targets = training->targets + i * context;
        if (validation) {
            gpt_corpus_validation(&training->corpus, round * batch + first + i,
                                  (size_t)o->validation_batches * batch, tokens, targets);
        } else {
            gpt_corpus_sequence(&training->corpus, o->config.seed, round, first + i, tokens,
                                targets);
        }
    }
}

// Gives the model this rank's micro-batches.
static bool begin(struct gpt_training *training, bool validation, uint64_t round,
                  struct gpt_problem *problem)
{
    const struct gpt_options *o = training->options;
    size_t sequences = (size_t)training->shape.sequences;
    size_t mine = sequences * (size_t)o->micro_batches, first = mine * (size_t)training->data_rank;
    size_t tokens = sequences * (size_t)o->config.context;
    read_batch(training, validation, round, first, mine);
    if (!gpt_nccl(problem,
                  gpt_model_begin_step(training->model, round, o->micro_batches,
                                       training->batch_tokens, !validation),
                  "a step")) {
        return false;
    }
    for (int m = 0; m < o->micro_batches; m++) {
        if (!gpt_nccl(problem,
                      gpt_model_set_batch(training->model, m, training->tokens + (size_t)m * tokens,
                                          training->targets + (size_t)m * tokens,
                                          first + (size_t)m * sequences),
                      "a micro-batch")) {
            return false;
        }
    }
    return true;
}

// Which rank of the mesh has a loss that is not finite.
static void fail_not_finite(const struct gpt_training *training, const char *what, uint64_t step,
                            int rank, struct gpt_problem *problem)
{
    const struct tuttiMesh *mesh = &training->mesh;
    const struct gpt_losses *losses = &training->losses[rank];
    bool entropy = !isfinite(losses->cross_entropy);
    double value = entropy ? losses->cross_entropy : losses->balance;
    gpt_fail(problem, GPT_FAILED,
             "step %llu: the %s is %s: the first rank with it is %d (dp %d, pp %d, ep %d, "
             "tp %d), in its %s",
             (unsigned long long)step, what, isnan(value) ? "nan" : "infinite", rank,
             rank / (mesh->pp * mesh->ep * mesh->tp), rank / (mesh->ep * mesh->tp) % mesh->pp,
             rank / mesh->tp % mesh->ep, rank % mesh->tp,
             entropy ? "cross-entropy" : "balance loss");
}

// The sums of all ranks' losses, in rank order: the same on all.
static bool sum_losses(struct gpt_training *training, const char *what, uint64_t step,
                       struct gpt_losses *sum, struct gpt_problem *problem)
{
    struct gpt_losses mine = gpt_model_losses(training->model);
    memset(sum, 0, sizeof *sum);
    if (!gpt_world_gather(training->world, &mine, sizeof mine, training->losses, problem)) {
        return false;
    }
    for (int rank = 0; rank < training->world->size; rank++) {
        const struct gpt_losses *losses = &training->losses[rank];
        if (!isfinite(losses->cross_entropy) || !isfinite(losses->balance)) {
            fail_not_finite(training, what, step, rank, problem);
            problem->teller = 0; // all ranks have found it
            return false;
        }
        sum->cross_entropy += losses->cross_entropy;
        sum->balance += losses->balance;
    }
    return true;
}

static bool run(struct gpt_training *training, bool validation, struct gpt_problem *problem)
{
    ncclResult_t result = validation ? tuttiPipelineEvaluate(training->pipeline)
                                     : tuttiPipelineRun(training->pipeline);
    return gpt_nccl(problem, result, validation ? "validation" : "forward and backward");
}

bool gpt_training_step(struct gpt_training *training, struct gpt_step_report *report,
                       struct gpt_problem *problem)
{
    const struct gpt_options *o = training->options;
    const struct gpt_rates rates = {o->learning_rate, o->minimum_rate, o->warmup, o->steps};
    uint64_t step = training->step + 1;
    struct gpt_losses sum;
    if (!begin(training, false, step, problem) || !run(training, false, problem) ||
        !sum_losses(training, "loss", step, &sum, problem)) {
        return false;
    }
    report->rate = gpt_learning_rate(&rates, (int)step);
    const struct gpt_adamw adamw = {report->rate, o->beta1,        o->beta2,
                                    o->adam_eps,  o->weight_decay, (int)step};
    struct gpt_problem why = {0};
    if (!gpt_optimizer_step(&training->optimizer, &adamw, o->clip, &report->norm, &why)) {
        gpt_fail(problem, why.status, "step %llu: %s", (unsigned long long)step, why.text);
        problem->teller = why.teller;
        return false;
    }
    report->loss = sum.cross_entropy + sum.balance;
    training->step = step;
    return true;
}

bool gpt_training_validate(struct gpt_training *training, double *loss, struct gpt_problem *problem)
{
    int batches = training->options->validation_batches;
    *loss = 0;
    if (!gpt_optimizer_wait(&training->optimizer, problem)) {
        return false;
    }
    for (int i = 0; i < batches; i++) {
        struct gpt_losses sum;
        if (!begin(training, true, (uint64_t)i, problem) || !run(training, true, problem) ||
            !sum_losses(training, "validation's loss", training->step, &sum, problem)) {
            return false;
        }
        *loss += sum.cross_entropy / batches;
    }
    return true;
}
