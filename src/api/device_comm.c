// Device communicators and the resources that go into them.
// SPDX-License-Identifier: Apache-2.0
#include "api/function.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/group.h"
#include "window/register.h"

#include <limits.h>
#include <string.h>

TT_FUNCTION(ncclResult_t, DevCommCreate,
            (ncclComm_t comm, ncclDevCommRequirements_t const *reqs, ncclDevComm_t *outDevComm))
{
    ncclResult_t result = tt_comm_enter(comm, "ncclDevCommCreate");
    if (result != ncclSuccess) {
        return tt_group_latch(result);
    }
    result = reqs == NULL || outDevComm == NULL
                 ? tt_fail(ncclInvalidArgument, "ncclDevCommCreate: rank %d: %s is NULL",
                           comm->rank, reqs == NULL ? "reqs" : "outDevComm")
                 : tt_dev_comm_create(comm, reqs, outDevComm);
    tt_comm_leave(comm);
    return result == ncclSuccess ? result : tt_group_latch(result);
}

TT_FUNCTION(ncclResult_t, DevCommDestroy, (ncclComm_t comm, ncclDevComm_t const *devComm))
{
    ncclResult_t result = tt_comm_enter(comm, "ncclDevCommDestroy");
    if (result != ncclSuccess) {
        return tt_group_latch(result);
    }
    result = devComm == NULL ? tt_fail(ncclInvalidArgument,
                                       "ncclDevCommDestroy: rank %d: devComm is NULL", comm->rank)
                             : tt_dev_comm_destroy(comm, devComm);
    tt_comm_leave(comm);
    return result == ncclSuccess ? result : tt_group_latch(result);
}

TT_FUNCTION(ncclResult_t, LsaBarrierCreateRequirement,
            (ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t *outHandle,
             ncclDevResourceRequirements_t *outReq))
{
    if (outHandle == NULL || outReq == NULL) {
        return tt_fail(ncclInvalidArgument, "ncclLsaBarrierCreateRequirement: %s is NULL",
                       outHandle == NULL ? "outHandle" : "outReq");
    }
    if (nBarriers < 0 || team.nRanks < 1) {
        return tt_fail(
            ncclInvalidArgument,
            "ncclLsaBarrierCreateRequirement: nBarriers %d, team of %d ranks; expected at "
            "least 0 barriers and 1 rank",
            nBarriers, team.nRanks);
    }
    memset(outReq, 0, sizeof *outReq);
    outReq->bufferSize = (size_t)nBarriers * ncclLsaBarrierWords(team.nRanks) * sizeof(uint32_t);
    outReq->outBufferHandle = &outHandle->bufHandle;
    outHandle->bufHandle = 0;
    outHandle->nBarriers = nBarriers;
    return ncclSuccess;
}

TT_FUNCTION(ncclResult_t, GinBarrierCreateRequirement,
            (ncclComm_t comm, ncclTeam_t team, int nBarriers, ncclGinBarrierHandle_t *outHandle,
             ncclDevResourceRequirements_t *outReq))
{
    TRY(tt_comm_enter(comm, "ncclGinBarrierCreateRequirement"));
    tt_comm_leave(comm); // it is only to be a communicator
    if (outHandle == NULL || outReq == NULL) {
        return tt_fail(ncclInvalidArgument, "ncclGinBarrierCreateRequirement: %s is NULL",
                       outHandle == NULL ? "outHandle" : "outReq");
    }
    if (nBarriers < 0 || team.nRanks < 1 || nBarriers > INT_MAX / team.nRanks) {
        return tt_fail(ncclInvalidArgument,
                       "ncclGinBarrierCreateRequirement: nBarriers %d, team of %d ranks", nBarriers,
                       team.nRanks);
    }
    memset(outReq, 0, sizeof *outReq);
    outReq->ginSignalCount = nBarriers * team.nRanks;
    outReq->outGinSignalStart = &outHandle->signal0;
    return ncclSuccess;
}

TT_FUNCTION(int, LLA2ACalcSlots, (int maxElts, int maxEltSize))
{
    long long slots =
        maxElts < 0 || maxEltSize < 0 ? -1 : (long long)maxElts * ((maxEltSize + 7LL) / 8);
    return slots <= INT_MAX ? (int)slots : -1;
}

TT_FUNCTION(ncclResult_t, LLA2ACreateRequirement,
            (int nBlocks, int nSlots, ncclLLA2AHandle_t *outHandle,
             ncclDevResourceRequirements_t *outReq))
{
    if (outHandle == NULL || outReq == NULL) {
        return tt_fail(ncclInvalidArgument, "ncclLLA2ACreateRequirement: %s is NULL",
                       outHandle == NULL ? "outHandle" : "outReq");
    }
    if (nBlocks < 0 || nSlots < 0) {
        return tt_fail(ncclInvalidArgument,
                       "ncclLLA2ACreateRequirement: nBlocks %d, nSlots %d; expected at least 0",
                       nBlocks, nSlots);
    }
    memset(outReq, 0, sizeof *outReq);
    outReq->bufferSize = ncclLLA2ABytes((size_t)nBlocks, (size_t)nSlots);
    outReq->bufferAlign = NCCL_LL_A2A_LINE;
    outReq->outBufferHandle = &outHandle->bufHandle;
    outHandle->bufHandle = 0;
    outHandle->nSlots = (uint32_t)nSlots;
    outHandle->nBlocks = (uint32_t)nBlocks;
    return ncclSuccess;
}
