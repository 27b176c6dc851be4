// ncclCommRegister and ncclCommDeregister. SPDX-License-Identifier: Apache-2.0
#include "api/function.h"
#include "base/log.h"
#include "base/params.h"
#include "comm/comm.h"
#include "comm/registrations.h"

static ncclResult_t add(struct ncclComm *comm, const void *buff, size_t size, void **handle)
{
    const char *missing = buff == NULL ? "buff" : handle == NULL ? "handle" : NULL;
    if (missing != NULL) {
        return tt_fail(ncclInvalidArgument, "rank %d: %s is NULL", comm->rank, missing);
    }
    if (tt_param_int(TT_PARAM_LOCAL_REGISTER) == 0) {
        *handle = NULL;
        return ncclSuccess;
    }
    TRY(tt_registration_add(comm, buff, size, handle));
    tt_log(TT_LOG_INFO, TT_LOG_REG, "rank %d: registered %zu bytes at %p", comm->rank, size, buff);
    return ncclSuccess;
}

TT_FUNCTION(ncclResult_t, CommRegister,
            (const ncclComm_t comm, void *buff, size_t size, void **handle))
{
    TRY(tt_comm_enter(comm, "ncclCommRegister"));
    ncclResult_t result = add(comm, buff, size, handle);
    tt_comm_leave(comm);
    return result;
}

TT_FUNCTION(ncclResult_t, CommDeregister, (const ncclComm_t comm, void *handle))
{
    TRY(tt_comm_enter_any(comm, "ncclCommDeregister"));
    ncclResult_t result = ncclSuccess;
    if (handle != NULL && !tt_registration_remove(comm, handle)) {
        result = tt_fail(ncclInvalidUsage,
                         "rank %d: handle is %p, which is no registration of this communicator, or "
                         "was taken back as often as it was made",
                         comm->rank, handle);
    }
    tt_comm_leave(comm);
    return result;
}
