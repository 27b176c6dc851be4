// The executor of real GPUs. SPDX-License-Identifier: Apache-2.0
#include "exec/executor.h"

#include "exec/cuda/host.h"

static const struct tt_executor cuda_executor = {
    .name = "cuda",
    .no_device_hint = "NVIDIA's driver (libcuda.so.1) must be installed, for CUDA 13.0 or newer, "
                      "and nvidia-smi must show a GPU that CUDA_VISIBLE_DEVICES names",
    .most_ranks = TT_ARENA_MOST_RANKS,
    .arena_bytes = tt_arena_bytes,
    .arena_map = tt_arena_map,
    .arena_release = tt_arena_release,
    .arena_memory = tt_arena_memory,
    .join = tt_host_join,
    .finalize = tt_host_finalize,
    .drain = tt_host_drain,
    .part = tt_host_part,
    .is_over = tt_host_is_over,
    .all_reduce_rmsnorm = tt_fused_enqueue,
    .owes = tt_fused_owes,
    .settle = tt_fused_settle,
};
const struct tt_executor *const tt_executor = &cuda_executor;
