// What a collective costs the rank that comes last to it, for callgrind: N ranks in one thread, of
// which the last one's calls are made in counted_calls, which bench/checks.sh counts instructions
// in. The others' calls return before theirs are over, and the last one finds them waiting: it does
// no more and no less than a collective of that many ranks needs.
// SPDX-License-Identifier: Apache-2.0
#include "usage.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_RANKS = 8, MOST_CALLS = 1000000, COUNT = 2 };

struct rank {
    ncclComm_t comm;
    cudaStream_t stream;
    float *in, *out;
};

static void nccl(ncclResult_t result, const char *what)
{
    if (result != ncclSuccess) {
        (void)fprintf(stderr, "bench: %s: %s\n", what, ncclGetLastError(NULL));
        exit(1);
    }
}

static void cuda(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        (void)fprintf(stderr, "bench: %s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}

static void call(const struct rank *rank)
{
    nccl(ncclAllReduce(rank->in, rank->out, COUNT, ncclFloat, ncclSum, rank->comm, rank->stream),
         "ncclAllReduce");
}

__attribute__((noinline)) void counted_call(const struct rank *rank);
void counted_call(const struct rank *rank)
{
    call(rank);
}

static void open_rank(struct rank *rank, int device)
{
    cuda(cudaSetDevice(device), "cudaSetDevice");
    cuda(cudaStreamCreate(&rank->stream), "cudaStreamCreate");
    nccl(ncclMemAlloc((void **)&rank->in, COUNT * sizeof(float)), "ncclMemAlloc");
    nccl(ncclMemAlloc((void **)&rank->out, COUNT * sizeof(float)), "ncclMemAlloc");
    rank->in[0] = rank->in[1] = (float)(device + 1);
}

int main(int argc, char **argv)
{
    struct rank rank[MOST_RANKS];
    ncclComm_t comm[MOST_RANKS];
    int ranks = 2, calls = 20;
    for (int i = 1; i < argc; i++) {
        char *end;
        long number = strtol(argv[i], &end, 10);
        if (i > 2 || *end != '\0' || number < 1 || number > (i == 1 ? MOST_RANKS : MOST_CALLS)) {
            return bench_usage(argv[i], "checks [RANKS [CALLS]]   1 to 8 ranks (2), calls (20)");
        }
        *(i == 1 ? &ranks : &calls) = (int)number;
    }
    nccl(ncclCommInitAll(comm, ranks, NULL), "ncclCommInitAll");
    for (int r = 0; r < ranks; r++) {
        rank[r].comm = comm[r];
        open_rank(&rank[r], r);
    }
    for (int i = -5; i < calls; i++) { // some to warm up
        for (int r = 0; r < ranks; r++) {
            cuda(cudaSetDevice(r), "cudaSetDevice");
            (r == ranks - 1 && i >= 0 ? counted_call : call)(&rank[r]);
        }
        for (int r = 0; r < ranks; r++) {
            cuda(cudaStreamSynchronize(rank[r].stream), "cudaStreamSynchronize");
        }
    }
    for (int r = 0; r < ranks; r++) {
        if (rank[r].out[0] != (float)(ranks * (ranks + 1)) / 2) {
            (void)fprintf(stderr, "bench: rank %d: the sum is %g\n", r, (double)rank[r].out[0]);
            return 1;
        }
        nccl(ncclCommDestroy(comm[r]), "ncclCommDestroy");
    }
    return 0;
}
