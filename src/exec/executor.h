// The executor's contract: what differs per kind of device. One const table per kind; the CPU build has cpu/, the CUDA build
// cuda/. Plans (algorithms as data) will run through it too.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXECUTOR_H
#define TT_EXECUTOR_H

#include "nccl.h"
#include "tutti.h"

#include <cuda_runtime.h>
#include <stddef.h>

struct ncclComm;
struct tt_window;

// One fused all-reduce + RMSNorm, checked: pointers resolved to windows. Shapes: tokens x hidden, row-major, contiguous.
struct tt_rmsnorm {
    struct ncclComm *comm;
    const struct tt_window *input_window, *output_window;
    size_t input_offset, output_offset;  // bytes in the windows, equal on all ranks
    size_t tokens, hidden;
    const void *gamma;                   // [hidden] in data type, or NULL
    const void *residual;                // [tokens x hidden] on this rank, or NULL; read for this rank's own tokens only
    void *residual_out;                  // [tokens x hidden] on this rank, or NULL; written for this rank's own tokens only
    float eps;
    ncclDataType_t data_type;            // ncclFloat32, ncclFloat16, ncclBfloat16
};

struct tt_executor {
    const char *name;
    // Enqueues the operation on `stream`; returns before it has run. Stream-ordered on every rank.
    ncclResult_t (*all_reduce_rmsnorm)(const struct tt_rmsnorm *operation, cudaStream_t stream);
};

extern const struct tt_executor *const tt_executor;

#endif
