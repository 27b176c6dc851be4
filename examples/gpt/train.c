// SPDX-License-Identifier: Apache-2.0
#include "train.h"

#include "checkpoint.h"
#include "export.h"
#include "losses.h"
#include "memory.h"
#include "state.h"
#include "training.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// ---- Checkpoints --------------------------------------------------------------------------------

static bool load(struct gpt_training *training, const char *step, struct gpt_problem *problem)
{
    struct gpt_manifest manifest;
    struct gpt_state state = {NULL, 0};
    if (gpt_manifest_read(step, &manifest, problem)) {
        bool right = gpt_state_to_load(&training->optimizer, &state, problem);
        if (right) {
            gpt_checkpoint_load(step, &manifest, state.pieces, state.count, problem);
        }
        training->step = manifest.step;
        gpt_state_free(&state);
        gpt_manifest_free(&manifest);
    }
    return gpt_world_agree(training->world, problem);
}

static bool save(struct gpt_training *training, struct gpt_problem *problem)
{
    const struct gpt_options *o = training->options;
    struct gpt_manifest manifest = {.step = training->step};
    struct gpt_state state = {NULL, 0};
    double begin = gpt_now();
    if (!gpt_optimizer_wait(&training->optimizer, problem)) {
        return false;
    }
    if (gpt_options_settings(o, manifest.settings, sizeof manifest.settings, problem)) {
        gpt_state_to_save(&training->optimizer, &state, problem);
    }
    bool right = gpt_checkpoint_save(training->world, o->checkpoints, &manifest, state.pieces,
                                     state.count, problem);
    gpt_state_free(&state);
    if (right) {
        gpt_progress_say(&training->progress, "saved %s/step-%06llu in %.2f s", o->checkpoints,
                         (unsigned long long)training->step, gpt_now() - begin);
    }
    return right;
}

// ---- Output -------------------------------------------------------------------------------------

// The file of losses, on rank 0.
struct losses {
    FILE *file; // NULL: there is none
    char path[GPT_PATH_MAX];
};

// Whether a file that is written in the end can be, so that this is known before the training. A
// pipe would be waited for until somebody reads it.
static bool can_be_written(const char *path, struct gpt_problem *problem)
{
    struct stat status;
    if (path != NULL && stat(path, &status) == 0 && S_ISFIFO(status.st_mode)) {
        return gpt_fail(problem, GPT_USAGE, "%s: is a pipe, must be a file", path);
    }
    FILE *file = path == NULL ? NULL : fopen(path, "ae");
    if (path != NULL && file == NULL) {
        return gpt_fail_given(problem, path, "cannot be made");
    }
    return file == NULL || gpt_close_file(file, path, problem);
}

static bool open_losses(struct gpt_training *training, struct losses *losses,
                        struct gpt_problem *problem)
{
    const struct gpt_options *o = training->options;
    const char *name = o->losses;
    if (name == NULL && o->export_folder == NULL) {
        return true;
    }
    if (name == NULL) {
        if (!gpt_path_join(losses->path, o->export_folder, "losses.txt", problem)) {
            return false;
        }
    } else if (strlen(name) >= sizeof losses->path) {
        return gpt_fail(problem, GPT_USAGE, "a path is too long: %s", name);
    } else {
        (void)stpcpy(losses->path, name);
    }
    return can_be_written(losses->path, problem) &&
           gpt_losses_open(losses->path, training->step, &training->training_curve, &losses->file,
                           problem);
}

// What rank 0 writes during the training and after it. step: as of train.
static bool open_output(struct gpt_training *training, const char *step, struct losses *losses,
                        struct gpt_problem *problem)
{
    const struct gpt_options *o = training->options;
    if (training->world->rank == 0 && can_be_written(o->curve, problem) &&
        can_be_written(o->pipeline, problem) &&
        (o->checkpoints == NULL || gpt_checkpoint_prepare(o->checkpoints, step, problem)) &&
        (o->export_folder == NULL || gpt_export(o, &training->corpus, problem))) {
        open_losses(training, losses, problem);
    }
    return gpt_world_agree(training->world, problem);
}

// The last step's stages in time.
static bool draw_pipeline(struct gpt_training *training, struct gpt_problem *problem)
{
    const struct gpt_options *o = training->options;
    size_t count = 2 * (size_t)o->pp * (size_t)o->micro_batches;
    struct tuttiPipelineTime *times = calloc(count, sizeof *times);
    double bubble = 0, ideal = 0;
    if (times == NULL) {
        return gpt_fail(problem, GPT_FAILED, "no memory for %zu times", count);
    }
    bool right =
        gpt_nccl(problem, tuttiPipelineTimes(training->pipeline, times), "the pipeline's times") &&
        gpt_nccl(problem, tuttiPipelineBubble(o->pp, o->micro_batches, times, &bubble), "bubble") &&
        gpt_nccl(problem, tuttiPipelineIdealBubble(o->pp, o->micro_batches, &ideal), "bubble");
    if (right) {
        gpt_progress_say(&training->progress,
                         "pipeline: stages wait %.1f %% of the time; the ideal is %.1f %%",
                         100 * bubble, 100 * ideal);
    }
    if (right && training->world->rank == 0) {
        gpt_nccl(problem,
                 tuttiPipelineDraw(
                     o->pipeline, o->schedule == GPT_GPIPE ? tuttiPipelineGPipe : tuttiPipeline1F1B,
                     o->pp, o->micro_batches, times),
                 o->pipeline);
    }
    free(times);
    return right && gpt_world_agree(training->world, problem);
}

static bool close_output(struct gpt_training *training, const struct losses *losses,
                         struct gpt_problem *problem)
{
    const struct gpt_options *o = training->options;
    if (losses->file != NULL) {
        gpt_close_file(losses->file, losses->path, problem);
    }
    if (o->curve != NULL && training->world->rank == 0) {
        gpt_curve_write(o->curve, &training->training_curve, &training->validation_curve, problem);
    }
    return gpt_world_agree(training->world, problem);
}

static void introduce(struct gpt_training *training)
{
    const struct gpt_config *c = &training->options->config;
    const struct tuttiMesh *mesh = &training->mesh;
    const struct gpt_place whole = gpt_place_whole();
    struct gpt_parameters table;
    size_t count = 0;
    if (gpt_parameters_make(c, &whole, &table) == ncclSuccess) {
        for (int i = 0; i < table.count; i++) {
            count += gpt_slice_elements(&table.all[i]);
        }
        gpt_parameters_free(&table);
    }
    gpt_progress_say(&training->progress,
                     "%d layer%s, width %d, %zu parameters; dp %d x pp %d x ep %d x tp %d%s%s; "
                     "%zu bytes of text",
                     c->layers, c->layers == 1 ? "" : "s", c->width, count, mesh->dp, mesh->pp,
                     mesh->ep, mesh->tp, training->options->sp ? ", sp" : "",
                     training->options->zero ? ", zero" : "", training->corpus.bytes);
}

// Ranks that read other texts would train on other batches.
static bool same_corpus(struct gpt_training *training, struct gpt_problem *problem)
{
    struct gpt_world *world = training->world;
    struct read {
        size_t bytes;
        uint64_t mark;
    } const mine = {training->corpus.bytes, training->corpus.mark};
    struct read *all = calloc((size_t)world->size, sizeof *all);
    if (all == NULL) {
        return gpt_fail(problem, GPT_FAILED, "no memory for what %d ranks have", world->size);
    }
    bool right = gpt_world_gather(world, &mine, sizeof mine, all, problem);
    for (int rank = 1; right && rank < world->size; rank++) {
        if (all[rank].bytes != all[0].bytes) {
            gpt_fail(problem, GPT_USAGE,
                     "corpus: has %zu bytes on rank %d, must be as on rank 0, %zu", all[rank].bytes,
                     rank, all[0].bytes);
            right = gpt_fail_alike(problem);
        } else if (all[rank].mark != all[0].mark) {
            gpt_fail(problem, GPT_USAGE,
                     "corpus: has other text on rank %d than on rank 0, in as many bytes", rank);
            right = gpt_fail_alike(problem);
        }
    }
    free(all);
    return right;
}

// ---- The training -------------------------------------------------------------------------------

static bool validate(struct gpt_training *training, struct gpt_problem *problem)
{
    double loss = 0;
    if (!gpt_training_validate(training, &loss, problem)) {
        return false;
    }
    gpt_progress_say(&training->progress, "validation after step %llu: loss %.4f",
                     (unsigned long long)training->step, loss);
    return gpt_curve_add(&training->validation_curve, (int)training->step, loss, problem);
}

static bool is_due(int every, uint64_t step, int steps)
{
    return every > 0 && (step % (uint64_t)every == 0 || step == (uint64_t)steps);
}

// What follows a step.
static bool after(struct gpt_training *training, struct gpt_problem *problem)
{
    const struct gpt_options *o = training->options;
    uint64_t step = training->step;
    bool is_last = step == (uint64_t)o->steps;
    // The checkpoint first, so that nothing else can cost it. The picture before a validation,
    // which is a run of the pipeline too.
    bool right = true;
    if (o->checkpoints != NULL && (is_last || is_due(o->save_every, step, o->steps))) {
        right = save(training, problem);
    }
    if (right && o->pipeline != NULL && is_last) {
        right = draw_pipeline(training, problem);
    }
    if (right && is_due(o->validate_every, step, o->steps)) {
        right = validate(training, problem);
    }
    if (right && o->memory && is_last) {
        right = gpt_memory_table(training, problem);
    }
    gpt_progress_skip(&training->progress);
    return right;
}

static bool run(struct gpt_training *training, FILE *losses, struct gpt_problem *problem)
{
    const struct gpt_options *o = training->options;
    while (training->step < (uint64_t)o->steps) {
        struct gpt_step_report report;
        if (!gpt_training_step(training, &report, problem)) {
            return false;
        }
        int step = (int)training->step;
        gpt_progress_step(&training->progress, step, report.loss, report.rate, report.norm);
        if (losses != NULL) {
            (void)fprintf(losses, "%d %.9g\n", step, report.loss);
            (void)fflush(losses);
        }
        if (!gpt_curve_add(&training->training_curve, step, report.loss, problem) ||
            !after(training, problem)) {
            return false;
        }
    }
    gpt_progress_end(&training->progress);
    return true;
}

// step: the checkpoint that it goes on from; NULL: none.
static bool train(struct gpt_training *training, const char *step, struct gpt_problem *problem)
{
    const struct gpt_options *o = training->options;
    struct losses losses = {NULL, ""};
    if (!same_corpus(training, problem)) {
        return false;
    }
    if (step != NULL && !load(training, step, problem)) {
        return false;
    }
    gpt_progress_open(&training->progress, training->world->rank == 0, (int)training->step,
                      o->steps, training->batch_tokens);
    introduce(training);
    if (training->step >= (uint64_t)o->steps) {
        gpt_progress_say(&training->progress, "nothing to do: %s has step %llu of %d", step,
                         (unsigned long long)training->step, o->steps);
        return true;
    }
    if (!open_output(training, step, &losses, problem)) {
        return false;
    }
    gpt_progress_skip(&training->progress);
    if (!run(training, losses.file, problem)) {
        if (losses.file != NULL) {
            (void)fclose(losses.file);
        }
        return false;
    }
    return close_output(training, &losses, problem);
}

bool gpt_train(const struct gpt_options *options, struct gpt_world *world, const char *step,
               struct gpt_problem *problem)
{
    struct gpt_training training;
    bool right =
        gpt_training_open(&training, options, world, problem) && train(&training, step, problem);
    // A problem that ranks have agreed on leaves them in step: all can be given back. After others
    // the process ends as it is.
    if (right || problem->teller >= 0) {
        (void)cudaDeviceSynchronize();
        gpt_training_close(&training);
    }
    return right;
}
