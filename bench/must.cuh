// Calls that a benchmark cannot go on without: NCCL(call), CUDA(call).
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_MUST_CUH
#define BENCH_MUST_CUH

#include <nccl.h>

#include <stdio.h>
#include <stdlib.h>

static inline void must(bool good, const char *call)
{
    if (!good) {
        fprintf(stderr, "bench: %s: %s; CUDA: %s\n", call, ncclGetLastError(nullptr),
                cudaGetErrorString(cudaGetLastError()));
        exit(1);
    }
}
#define NCCL(call) must((call) == ncclSuccess, #call)
#define CUDA(call) must((call) == cudaSuccess, #call)

#endif
