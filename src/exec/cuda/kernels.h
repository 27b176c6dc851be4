// The fused all-reduce + RMSNorm as launches on the current device, for one or several ranks of
// this process at once. Implemented in kernels/library.cu. One kernel serves two ways: its ranks
// may meet in it, or be ordered by the streams around it.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CUDA_KERNELS_H
#define TT_EXEC_CUDA_KERNELS_H

#include "exec/symmetric.h"
#include "nccl.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ncclDevComm;

// Ranks that one launch covers. More on one device: several launches.
enum { TT_NORM_RANKS = 8 };

// What is a rank's own. Arrays as in struct tt_rmsnorm.
struct tt_norm_rank {
    int rank; // in the team
    const void *gamma, *residual;
    void *residual_out;
    // With barriers: one of a team of all ranks, with at least `blocks` LSA barriers; copied.
    const struct ncclDevComm *device_comm;
};

// One launch. It sums, normalises and stores, into the outputs of all ranks of the team, the own
// tokens (tuttiSplitCounts) of the ranks in `rank`, with a grid of rank_count * blocks blocks. Own
// tokens of an output that is not the input may hold other things until then.
struct tt_norm_launch {
    struct tt_symmetric input, output; // row 0; equal or disjoint
    size_t tokens, hidden;             // hidden at least 1
    float eps;
    ncclDataType_t data_type; // ncclFloat32, ncclFloat16, ncclBfloat16
    int nranks;               // of the team
    // false: what stands before the launch in its stream orders all ranks' inputs before it, and
    // what comes after waits for it. true: block b of each rank meets blocks b of all others,
    // before it reads and after it has stored; all ranks have as many blocks, and all blocks of all
    // ranks of a device must be resident at once.
    bool barriers;
    bool alone;      // no other rank of the team is on this device: peers are behind links
    unsigned blocks; // of each rank, at least 1
    int rank_count;  // 1 .. TT_NORM_RANKS
    struct tt_norm_rank rank[TT_NORM_RANKS];
};

// Loads the kernels of all launches with this type, nranks and `barriers`, whatever their shape, on
// the current device. CUDA otherwise does it at the first launch, and may then wait for everything
// that runs on the device; so before streams or kernels wait for a launch.
cudaError_t tt_norm_load(const struct tt_norm_launch *launch);

// For the next two `blocks` and `rank` may still be unset. Their answers depend on the shape, the
// type, nranks, rank_count, `barriers` and the device alone, so that ranks on equal devices agree.

// The most blocks per rank that are resident at once on the current device where `sharers` ranks
// share it, at least 1; ranks may be in several launches and processes. cudaErrorInvalidValue where
// not even one for each fits.
cudaError_t tt_norm_most_blocks(const struct tt_norm_launch *launch, int sharers,
                                unsigned *blocks_out);
// How many blocks per rank serve best, at least 1: with barriers, no more than that; without, far
// more may be than are resident at once.
cudaError_t tt_norm_wished_blocks(const struct tt_norm_launch *launch, int sharers,
                                  unsigned *blocks_out);
// Enqueues it. cudaErrorInvalidValue for a description that does not fit the above, or CUDA's.
cudaError_t tt_norm_start(const struct tt_norm_launch *launch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
