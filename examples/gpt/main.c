// Trains a GPT with any combination of parallel strategies, or samples from it: --help has all
// options, README.md examples.
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint.h"
#include "options.h"
#include "sample.h"
#include "train.h"
#include "tutti.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <tutti_parallel/matmul.h>
#include <unistd.h>

// The checkpoint that a run goes on from, and the settings that it brings. trained: receives the
// steps that it has.
static bool find_checkpoint(int argc, char **argv, struct gpt_options *options, char *step,
                            uint64_t *trained, struct gpt_problem *problem)
{
    struct gpt_manifest manifest;
    if (!gpt_checkpoint_find(options->resume, step, problem) ||
        !gpt_manifest_read(step, &manifest, problem)) {
        return false;
    }
    bool right = gpt_options_adopt(argc, argv, options, manifest.settings, step, problem);
    *trained = manifest.step;
    gpt_manifest_free(&manifest);
    return right;
}

// What must be the same on all ranks.
struct common {
    uint64_t options[GPT_OPTIONS_MOST];
    uint64_t trained; // steps of the checkpoint
};

// Compares what a rank has with rank 0's. The same problem on all ranks.
static bool compare(const struct common *all, int rank, int options, struct gpt_problem *problem)
{
    for (int i = 0; i < options; i++) {
        if (all[rank].options[i] != all[0].options[i]) {
            gpt_fail(problem, GPT_USAGE, "--%s is another on rank %d, must be as on rank 0",
                     gpt_options_name(i), rank);
            return gpt_fail_alike(problem);
        }
    }
    if (all[rank].trained != all[0].trained) {
        gpt_fail(problem, GPT_USAGE,
                 "--resume: rank %d finds step %" PRIu64 ", must be as on rank 0, step %" PRIu64,
                 rank, all[rank].trained, all[0].trained);
        return gpt_fail_alike(problem);
    }
    return true;
}

static bool have_the_same(struct gpt_world *world, const struct gpt_options *options,
                          uint64_t trained, struct gpt_problem *problem)
{
    struct common mine = {.trained = trained};
    struct common *all = calloc((size_t)world->size, sizeof *all);
    if (all == NULL) {
        return gpt_fail(problem, GPT_FAILED, "no memory for what %d ranks have", world->size);
    }
    int count = gpt_options_mark(options, mine.options);
    bool right = gpt_world_gather(world, &mine, sizeof mine, all, problem);
    for (int rank = 1; right && rank < world->size; rank++) {
        right = compare(all, rank, count, problem);
    }
    free(all);
    return right;
}

// Whether all that was printed has arrived, as far as this is known.
static bool end_output(struct gpt_world *world, struct gpt_problem *problem)
{
    errno = EIO; // of an earlier write
    if (fflush(stdout) != 0 || ferror(stdout)) {
        gpt_fail_errno(problem, "standard output", "cannot be written");
    }
    return gpt_world_agree(world, problem);
}

static bool run(int argc, char **argv, struct gpt_options *options, struct gpt_world *world,
                struct gpt_problem *problem)
{
    char step[GPT_PATH_MAX];
    uint64_t trained = 0;
    bool resumes = options->resume != NULL;
    const char *library; // loaded now: one that cannot be is not to be found out in a first step
    if (problem->status == 0) {
        gpt_nccl(problem, tuttiMatmulLibrary(&library), "");
    }
    if (problem->status == 0 && resumes) {
        find_checkpoint(argc, argv, options, step, &trained, problem);
    }
    if (!gpt_world_agree(world, problem) || !have_the_same(world, options, trained, problem)) {
        return false;
    }
    bool right = options->sample > 0 ? gpt_sample(options, world, step, problem)
                                     : gpt_train(options, world, resumes ? step : NULL, problem);
    return right && end_output(world, problem);
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
