// tuttiDumpState. SPDX-License-Identifier: Apache-2.0
#include "api/function.h"
#include "base/log.h"
#include "comm/comm.h"
#include "record/record.h"
#include "tutti.h"

#include <stdio.h>

static ncclResult_t dump(const struct ncclComm *comm, const char *path)
{
    char text[100];
    int state = atomic_load(&comm->state), rank = tt_comm_rank(comm);
    int nranks = __atomic_load_n(&comm->nranks, __ATOMIC_RELAXED); // 0: a child's, not known yet
    if (state != TT_COMM_INIT && comm->hash != 0) {
        return tt_record_dump_to(comm->hash, rank, NULL, path);
    }
    if (state == TT_COMM_INIT && nranks > 0) {
        (void)snprintf(text, sizeof text, "rank %d of %d: the communicator is being made", rank,
                       nranks);
    } else {
        (void)snprintf(text, sizeof text, "rank %d%s: the communicator %s", rank,
                       nranks > 0 ? "" : " of the parent",
                       state == TT_COMM_INIT ? "is being made" : "could not be made");
    }
    return tt_record_dump_to(0, rank, text, path);
}

TT_EXPORT ncclResult_t tuttiDumpState(ncclComm_t comm, const char *path)
{
    static const char call[] = "tuttiDumpState";
    if (comm == NULL) {
        tt_call_begin(call, -1);
        ncclResult_t all = tt_record_dump_to(0, -1, NULL, path);
        tt_call_end();
        return all;
    }
    ncclResult_t result = tt_comm_enter_any(comm, call);
    if (result == ncclSuccess) {
        result = dump(comm, path);
        tt_comm_leave(comm);
    }
    return result;
}
