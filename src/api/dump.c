// tuttiDumpState. SPDX-License-Identifier: Apache-2.0
#include "api/function.h"
#include "base/log.h"
#include "comm/comm.h"
#include "record/record.h"
#include "tutti.h"

TT_EXPORT ncclResult_t tuttiDumpState(ncclComm_t comm, const char *path)
{
    static const char call[] = "tuttiDumpState";
    if (comm == NULL) {
        tt_call_begin(call, -1);
        ncclResult_t all = tt_record_dump_to(0, -1, path);
        tt_call_end();
        return all;
    }
    ncclResult_t result = tt_comm_enter_any(comm, call);
    if (result == ncclSuccess) {
        result = tt_record_dump_to(comm->hash, comm->rank, path);
        tt_comm_leave(comm);
    }
    return result;
}
