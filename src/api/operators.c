// ncclRedOpCreatePreMulSum and ncclRedOpDestroy. SPDX-License-Identifier: Apache-2.0
#include "comm/operators.h"
#include "api/function.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/group.h"

static ncclResult_t create(struct ncclComm *comm, ncclRedOp_t *op, const void *scalar,
                           ncclDataType_t type, ncclScalarResidence_t residence)
{
    const char *missing = op == NULL ? "op" : scalar == NULL ? "scalar" : NULL;
    if (missing != NULL) {
        return tt_fail(ncclInvalidArgument, "rank %d: %s is NULL", comm->rank, missing);
    }
    if (tt_type_bytes(type) == 0) {
        return tt_fail(ncclInvalidArgument, "rank %d: datatype is %d, must be 0 to %d", comm->rank,
                       (int)type, ncclNumTypes - 1);
    }
    if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate) {
        return tt_fail(ncclInvalidArgument,
                       "rank %d: residence is %d, must be ncclScalarDevice (%d) or "
                       "ncclScalarHostImmediate (%d)",
                       comm->rank, (int)residence, (int)ncclScalarDevice,
                       (int)ncclScalarHostImmediate);
    }
    struct tt_operator made = {.type = type};
    if (residence == ncclScalarDevice) {
        made.scale_device = scalar;
    } else {
        made.scale = tt_scalar_of(type, scalar);
    }
    TRY(tt_operator_add(comm, &made));
    *op = made.handle;
    return ncclSuccess;
}

TT_FUNCTION(ncclResult_t, RedOpCreatePreMulSum,
            (ncclRedOp_t * op, void *scalar, ncclDataType_t datatype,
             ncclScalarResidence_t residence, ncclComm_t comm))
{
    ncclResult_t result = tt_comm_enter(comm, "ncclRedOpCreatePreMulSum");
    if (result == ncclSuccess) {
        result = create(comm, op, scalar, datatype, residence);
        tt_comm_leave(comm);
    }
    return tt_group_latch(result);
}

static ncclResult_t destroy(struct ncclComm *comm, ncclRedOp_t op)
{
    if ((int)op >= 0 && op < ncclNumOps) {
        return tt_fail(ncclInvalidArgument,
                       "rank %d: op is %d, which is NCCL's own; only what "
                       "ncclRedOpCreatePreMulSum made can be destroyed",
                       comm->rank, (int)op);
    }
    if (!tt_operator_remove(comm, op)) {
        return tt_fail(ncclInvalidArgument,
                       "rank %d: op is %d, which is no operator of this communicator, or was "
                       "destroyed",
                       comm->rank, (int)op);
    }
    return ncclSuccess;
}

TT_FUNCTION(ncclResult_t, RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm))
{
    ncclResult_t result = tt_comm_enter_any(comm, "ncclRedOpDestroy");
    if (result == ncclSuccess) {
        result = destroy(comm, op);
        tt_comm_leave(comm);
    }
    return tt_group_latch(result);
}
