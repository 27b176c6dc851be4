// The counts of all ranks in an uneven operation.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CPU_UNEVEN_H
#define TT_EXEC_CPU_UNEVEN_H

#include "exec/cpu/host.h"

struct tt_uneven_tables; // of one host: room for them

// Collects what all ranks told when they entered, and compares it: what one rank sends to another
// must be what that expects. The tables stay until the next call. ncclInvalidUsage naming two ranks
// and both counts, the same on all ranks.
ncclResult_t tt_uneven_collect(struct tt_host *host, const struct tt_op *op,
                               struct tt_uneven_all *all_out);
void tt_uneven_free(struct tt_uneven_tables *tables);

#endif
