// Puts, signals and waits for signals of one rank. SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CPU_ONE_SIDED_H
#define TT_EXEC_CPU_ONE_SIDED_H

#include "exec/cpu/host.h"

// See tt_executor's `one_sided`.
ncclResult_t tt_one_sided_launch(struct tt_host *host, const struct tt_one_sided *call,
                                 bool may_wait, cudaStream_t stream);

#endif
