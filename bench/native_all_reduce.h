// The yardstick of all-reduce kernels: the same work in C, with the library's element kernels, on
// native blocks of the same virtual GPUs.
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_NATIVE_ALL_REDUCE_H
#define BENCH_NATIVE_ALL_REDUCE_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BENCH_RANKS = 16 };

// One all-reduce (sum, two-shot) of ranks whose memory this process sees.
struct bench_all_reduce {
    int rank, ranks; // at most BENCH_RANKS
    char *in[BENCH_RANKS], *out[BENCH_RANKS];
    size_t count;
    ncclDataType_t type;
    // Arrivals of all ranks' blocks since the start, shared by all ranks: zero at first. `before`:
    // arrivals that earlier calls have made, 2 * ranks * blocks each.
    unsigned *arrivals;
    unsigned before;
};

// Enqueues this rank's part with `blocks` native blocks, the same on all ranks.
cudaError_t bench_native_all_reduce(const struct bench_all_reduce *work, unsigned blocks,
                                    cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
