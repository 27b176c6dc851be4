// What an operation that all ranks have entered will be: its problem, from all entries alike on all
// ranks; the plan; and where the buffers are that the plan names.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CPU_CHOOSE_H
#define TT_EXEC_CPU_CHOOSE_H

#include "exec/cpu/host.h"

// How a buffer of this rank is told to others: as tt_buffers_tell, 0 where nobody needs it.
uint64_t tt_choose_tell(struct tt_host *host, const void *address, size_t bytes);
// Lanes that every rank can use.
int tt_choose_lanes(struct tt_host *host);
// Chooses the plan of the running operation and fills the buffers of host->run. The plan stays
// until tt_choose_end or the next call. Errors have been told by tt_fail.
ncclResult_t tt_choose(struct tt_host *host, const struct tt_op *op,
                       const struct tt_plan **plan_out);
// The plan goes back to where plans are kept.
void tt_choose_end(struct tt_host *host);

#endif
