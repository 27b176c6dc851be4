// Collectives of a host team: enter with the payload or with where the buffers are, choose a plan,
// run it, leave.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CPU_COLLECTIVE_H
#define TT_EXEC_CPU_COLLECTIVE_H

#include "exec/cpu/host.h"

// Enqueues op, which is checked and has at least one element on some rank. Its arrays are copied.
ncclResult_t tt_collective_launch(struct tt_host *host, const struct tt_op *op,
                                  const struct tt_call_context *context, cudaStream_t stream);

#endif
