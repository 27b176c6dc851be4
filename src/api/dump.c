// tuttiDumpState. SPDX-License-Identifier: Apache-2.0
#include "api/function.h"
#include "comm/comm.h"
#include "record/record.h"
#include "tutti.h"

TT_EXPORT ncclResult_t tuttiDumpState(ncclComm_t comm, const char *path)
{
    if (comm == NULL) {
        return tt_record_dump_to(0, -1, path);
    }
    ncclResult_t result = tt_comm_enter_any(comm, "tuttiDumpState");
    if (result == ncclSuccess) {
        result = tt_record_dump_to(comm->hash, comm->rank, path);
        tt_comm_leave(comm);
    }
    return result;
}
