// ncclCommMemStats. Nothing of a communicator's memory can be suspended (ncclCommSuspend): it all
// persists until its end. SPDX-License-Identifier: Apache-2.0
#include "api/function.h"
#include "base/log.h"
#include "comm/comm.h"

static ncclResult_t answer(const struct ncclComm *comm, ncclCommMemStat_t stat, uint64_t *value)
{
    struct tt_comm_memory memory;
    if (value == NULL) {
        return tt_fail(ncclInvalidArgument,
                       "ncclCommMemStats: rank %d: value is NULL, must be where to write the bytes",
                       comm->rank);
    }
    tt_comm_memory(comm, &memory);
    switch (stat) {
    case ncclStatGpuMemSuspend:
    case ncclStatGpuMemSuspended:
        *value = 0;
        return ncclSuccess;
    case ncclStatGpuMemPersist:
    case ncclStatGpuMemTotal:
        *value = memory.scratch + memory.staging + memory.mappings;
        return ncclSuccess;
    default:
        return tt_fail(ncclInvalidArgument,
                       "ncclCommMemStats: rank %d: stat is %d, must be %d to %d", comm->rank,
                       (int)stat, (int)ncclStatGpuMemSuspend, (int)ncclStatGpuMemTotal);
    }
}

TT_FUNCTION(ncclResult_t, CommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value))
{
    TRY(tt_comm_enter(comm, "ncclCommMemStats"));
    ncclResult_t result = answer(comm, stat, value);
    tt_comm_leave(comm);
    return result;
}
