// Ranks of one process, each a thread with a GPU of its own, that meet before and after what is
// measured. SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_MOE_TEAM_H
#define BENCH_MOE_TEAM_H

#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti.h>
#include <tutti_parallel/expert.h>

enum { RANKS = 4, EXPERTS = 64, MOST_CHOICES = 8 };

// Ends the program where a call fails.
void must(int result, const char *call, int line);
#define NCCL(call) must((int)(call), #call, __LINE__)
#define CUDA(call) must((int)(call), #call, __LINE__)

struct rank {
    int number;
    ncclComm_t comm;
    cudaStream_t stream;
    size_t tokens, hidden; // of this rank
    int choices;
    void *token, *out, *weights;
    int32_t *indices;
};

// Runs `function` as all ranks; returns when all have ended.
void run_team(void (*function)(struct rank *self, void *argument), void *argument);
// All ranks meet; the seconds of the clock when the last has come, the same on all.
double meet(void);
// Memory of the rank's GPU, touched.
void *touched(size_t bytes);
// bf16 tokens and weights, and different experts for each token. skew: 0: all equally likely; else
// expert e with a weight of 1 / (e + 1)^skew.
void fill_rank(struct rank *self, size_t tokens, size_t hidden, int choices, double skew);
void empty_rank(struct rank *self);
double median(double *values, int count);

#endif
