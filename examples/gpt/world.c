// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include <stdlib.h>
#include <string.h>

bool gpt_world_open(struct gpt_world *world, ncclComm_t comm, struct gpt_problem *problem)
{
    memset(world, 0, sizeof *world);
    world->comm = comm;
    return gpt_nccl(problem, ncclCommUserRank(comm, &world->rank), "the number of this rank") &&
           gpt_nccl(problem, ncclCommCount(comm, &world->size), "the number of ranks") &&
           gpt_cuda(problem, cudaStreamCreateWithFlags(&world->stream, cudaStreamNonBlocking),
                    "a stream");
}

void gpt_world_close(struct gpt_world *world)
{
    if (world->stream != NULL) {
        (void)cudaFree(world->words);
        (void)cudaStreamDestroy(world->stream);
    }
    memset(world, 0, sizeof *world);
}

static bool make_room(struct gpt_world *world, size_t bytes, struct gpt_problem *problem)
{
    if (bytes <= world->room) {
        return true;
    }
    (void)cudaFree(world->words);
    world->words = NULL;
    world->room = 0;
    if (!gpt_cuda(problem, cudaMalloc((void **)&world->words, bytes), "memory for all ranks")) {
        return false;
    }
    world->room = bytes;
    return true;
}

bool gpt_world_gather(struct gpt_world *world, const void *mine, size_t bytes, void *all,
                      struct gpt_problem *problem)
{
    size_t every = bytes * (size_t)world->size;
    if (!make_room(world, every, problem)) {
        return false;
    }
    char *own = world->words + bytes * (size_t)world->rank;
    if (!gpt_cuda(problem, cudaMemcpyAsync(own, mine, bytes, cudaMemcpyHostToDevice, world->stream),
                  "a copy to the device") ||
        !gpt_nccl(problem,
                  ncclAllGather(own, world->words, bytes, ncclInt8, world->comm, world->stream),
                  "what ranks tell each other") ||
        !gpt_cuda(problem,
                  cudaMemcpyAsync(all, world->words, every, cudaMemcpyDeviceToHost, world->stream),
                  "a copy to the host") ||
        !gpt_cuda(problem, cudaStreamSynchronize(world->stream), "what ranks tell each other")) {
        return false;
    }
    ncclResult_t state = ncclSuccess;
    return gpt_nccl(problem, ncclCommGetAsyncError(world->comm, &state), "a query") &&
           gpt_nccl(problem, state, "what ranks tell each other");
}

bool gpt_world_agree(struct gpt_world *world, struct gpt_problem *problem)
{
    struct gpt_problem lost = {0};
    int *statuses = calloc((size_t)world->size, sizeof *statuses);
    if (statuses == NULL) { // the others learn of it when this rank ends
        return gpt_fail(problem, GPT_FAILED, "no memory");
    }
    bool well = true;
    if (!gpt_world_gather(world, &problem->status, sizeof problem->status, statuses, &lost)) {
        well = gpt_fail(problem, lost.status, "%s", lost.text);
    }
    for (int rank = 0; well && rank < world->size; rank++) {
        if (statuses[rank] != 0) {
            well = gpt_fail(problem, statuses[rank], "rank %d has failed", rank);
            problem->status = statuses[rank];
            problem->teller = rank;
        }
    }
    free(statuses);
    return well;
}
