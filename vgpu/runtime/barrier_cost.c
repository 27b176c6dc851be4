// Prints what a block's barrier costs: nanoseconds per thread and meeting, the median of rounds.
// Usage: barrier_cost [threads a block, default 256]. SPDX-License-Identifier: Apache-2.0
#include "kernel_by_hand.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BARRIERS = 2000, ROUNDS = 15 };

struct nothing {
    int unused;
};

KERNEL(only_barriers, struct nothing, 0)
{
    (void)data;
    for (int i = 0; i < BARRIERS; i++) {
        vgpu_syncthreads();
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int count, char **words)
{
    char *end = NULL;
    long threads = count > 1 ? strtol(words[1], &end, 10) : 256;
    if ((end && *end) || threads < 1 || threads > 1024) {
        (void)fprintf(stderr, "barrier_cost: threads: must be 1 to 1024\n");
        return 2;
    }
    double ns[ROUNDS];
    for (int i = -1; i < ROUNDS; i++) { // the first round makes the stacks
        struct timespec begin;
        struct timespec stop;
        (void)clock_gettime(CLOCK_MONOTONIC, &begin);
        cudaError_t error = LAUNCH(only_barriers, 1, threads, 0, NULL);
        if (error == cudaSuccess) {
            error = cudaDeviceSynchronize();
        }
        (void)clock_gettime(CLOCK_MONOTONIC, &stop);
        if (error != cudaSuccess) {
            (void)fprintf(stderr, "barrier_cost: %s\n", cudaGetErrorString(error));
            return 1;
        }
        if (i >= 0) {
            ns[i] = ((double)(stop.tv_sec - begin.tv_sec) * 1e9 +
                     (double)(stop.tv_nsec - begin.tv_nsec)) /
                    ((double)threads * BARRIERS);
        }
    }
    qsort(ns, ROUNDS, sizeof(ns[0]), compare);
    printf("%ld threads: %.1f ns per thread and barrier (%.1f to %.1f)\n", threads, ns[ROUNDS / 2],
           ns[0], ns[ROUNDS - 1]);
    return 0;
}
