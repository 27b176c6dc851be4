// All ranks of the run: what they tell each other besides the training itself.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_WORLD_H
#define GPT_WORLD_H

#include "problem.h"

#include <cuda_runtime_api.h>
#include <stddef.h>

struct gpt_world {
    ncclComm_t comm; // not owned
    int rank, size;
    cudaStream_t stream;
    char *words; // [room] device memory for what is told
    size_t room; // bytes
};

// comm: of all ranks; used until gpt_world_close.
bool gpt_world_open(struct gpt_world *world, ncclComm_t comm, struct gpt_problem *problem);
void gpt_world_close(struct gpt_world *world);

// all: [size x bytes], receives what every rank has in `mine`, in rank order. Collective and
// synchronous; a barrier too.
bool gpt_world_gather(struct gpt_world *world, const void *mine, size_t bytes, void *all,
                      struct gpt_problem *problem);

// Whether no rank has a problem. Collective. False: every rank then has one, with the status of
// the lowest rank that had; only that rank will tell its text (gpt_tell).
bool gpt_world_agree(struct gpt_world *world, struct gpt_problem *problem);

#endif
