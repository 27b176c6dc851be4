// Trains a GPT with any combination of parallel strategies, or samples from it: --help has all
// options, README.md examples.
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint.h"
#include "options.h"
#include "sample.h"
#include "train.h"
#include "tutti.h"

#include <unistd.h>

// The checkpoint that a run goes on from, and the settings that it brings.
static bool find_checkpoint(int argc, char **argv, struct gpt_options *options, char *step,
                            struct gpt_problem *problem)
{
    struct gpt_manifest manifest;
    if (!gpt_checkpoint_find(options->resume, step, problem) ||
        !gpt_manifest_read(step, &manifest, problem)) {
        return false;
    }
    bool right = gpt_options_adopt(argc, argv, options, manifest.settings, step, problem);
    gpt_manifest_free(&manifest);
    return right;
}

static bool run(int argc, char **argv, struct gpt_options *options, struct gpt_world *world,
                struct gpt_problem *problem)
{
    char step[GPT_PATH_MAX];
    bool resumes = options->resume != NULL;
    if (problem->status == 0 && resumes) {
        find_checkpoint(argc, argv, options, step, problem);
    }
    if (!gpt_world_agree(world, problem)) {
        return false;
    }
    if (options->sample > 0) {
        return gpt_sample(options, world, step, problem);
    }
    return gpt_train(options, world, resumes ? step : NULL, problem);
}

int main(int argc, char **argv)
{
    struct gpt_options options;
    struct gpt_problem problem = {0};
    struct gpt_world world;
    ncclComm_t comm = NULL;
    gpt_options_read(argc, argv, &options, &problem);
    if (problem.status == 0 && options.help) {
        gpt_options_help(stdout);
        return 0;
    }
    if (!gpt_nccl(&problem, tuttiCommInit(&comm), "start") ||
        !gpt_world_open(&world, comm, &problem)) {
        gpt_tell(&problem, 0, 1);
        return problem.status;
    }
    bool right = run(argc, argv, &options, &world, &problem);
    gpt_tell(&problem, world.rank, world.size);
    if (!right && problem.teller < 0) {
        (void)fflush(stdout);
        _exit(problem.status); // others may be waiting: communicators are not given back
    }
    if (!right) { // a launcher may end all ranks when the first one fails: not before it is told
        struct gpt_problem ignored = {0};
        gpt_world_agree(&world, &ignored);
    }
    gpt_world_close(&world);
    (void)ncclCommDestroy(comm);
    return problem.status;
}
