// The launches of tuttiMoe's kernels (kernels/moe.cu). C and C++. SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_MOE_LAUNCH_H
#define PARALLEL_MOE_LAUNCH_H

#include "moe_job.h"
#include "nccl_device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MOE_INTERNAL __attribute__((visibility("hidden")))

enum moe_stage { MOE_DISPATCH, MOE_COMBINE, MOE_BACKWARD, MOE_SCATTER };

// Who the kernels of a rank meet: blocks of the same number on all ranks.
struct moe_team {
    ncclWindow_t window;
    const struct ncclDevComm *comm; // with that many barriers
    unsigned blocks;                // equal on all ranks
};

MOE_INTERNAL cudaError_t moe_launch(enum moe_stage stage, const struct moe_job *job,
                                    const struct moe_team *team, cudaStream_t stream);
// The most blocks that may wait for each other here, where rows are of `type`.
MOE_INTERNAL ncclResult_t moe_most_blocks(ncclComm_t comm, ncclDataType_t type, int *blocks);

#ifdef __cplusplus
}
#endif
#endif
