// Launches of the fused operation, and how those of several groups meet.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CUDA_LAUNCHES_H
#define TT_EXEC_CUDA_LAUNCHES_H

#include "exec/cuda/host.h"

// For all ranks of the group, which have come to the meeting; behind what `stream` has, and done
// when it goes on.
ncclResult_t tt_launch_group(struct tt_host *host, const struct tt_meeting *meeting,
                             cudaStream_t stream);
// For one rank; the ranks' kernels meet. Into a capture, or where there is only one rank.
ncclResult_t tt_launch_rank(struct tt_host *host, const struct tt_rmsnorm *operation,
                            cudaStream_t stream);

#endif
