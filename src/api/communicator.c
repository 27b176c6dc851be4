// Communicators: making, asking, ending. SPDX-License-Identifier: Apache-2.0
#include "api/function.h"
#include "base/gpu.h"
#include "base/log.h"
#include "bootstrap/bootstrap.h"
#include "comm/comm.h"
#include "comm/group.h"

#include <cuda_runtime.h>
#include <string.h>

TT_FUNCTION(ncclResult_t, GetUniqueId, (ncclUniqueId * uniqueId))
{
    if (uniqueId == NULL) {
        return tt_fail(ncclInvalidArgument,
                       "ncclGetUniqueId: uniqueId is NULL, must be where to write the id");
    }
    tt_call_begin("ncclGetUniqueId", -1);
    ncclResult_t result = tt_bootstrap_make_id(TT_REACH_HOST, uniqueId);
    tt_call_end();
    return result;
}

TT_FUNCTION(ncclResult_t, CommInitRank,
            (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank))
{
    return tt_comm_init(comm, nranks, &commId, rank, NULL, "ncclCommInitRank");
}

TT_FUNCTION(ncclResult_t, CommInitRankConfig,
            (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config))
{
    return tt_comm_init(comm, nranks, &commId, rank, config, "ncclCommInitRankConfig");
}

// The ranks meet at the root of the first id, which serves as many as there can be; those of the
// others end.
TT_FUNCTION(ncclResult_t, CommInitRankScalable,
            (ncclComm_t * newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds,
             ncclConfig_t *config))
{
    static const char call[] = "ncclCommInitRankScalable";
    if (nId < 1 || nId > nranks || commIds == NULL) {
        return tt_group_latch(tt_fail(ncclInvalidArgument,
                                      "%s: rank %d: nId is %d and commIds %p, must be 1 to nranks, "
                                      "%d, and as many unique ids",
                                      call, myrank, nId, (void *)commIds, nranks));
    }
    ncclResult_t result = tt_comm_init(newcomm, nranks, &commIds[0], myrank, config, call);
    for (int i = 1; i < nId; i++) {
        if (memcmp(&commIds[i], &commIds[0], sizeof commIds[0]) != 0) {
            tt_bootstrap_drop_id(&commIds[i]);
        }
    }
    return result;
}

TT_FUNCTION(ncclResult_t, CommSplit,
            (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config))
{
    return tt_comm_split(comm, color, key, newcomm, config);
}

TT_FUNCTION(ncclResult_t, CommShrink,
            (ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
             ncclConfig_t *config, int shrinkFlags))
{
    return tt_comm_shrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
}

static ncclResult_t check_device_list(const ncclComm_t *comm, int ndev, const int *devlist)
{
    int count = 0;
    if (comm == NULL) {
        return tt_fail(ncclInvalidArgument,
                       "ncclCommInitAll: comm is NULL, must be an array of ndev communicators");
    }
    TRY(tt_comm_count_devices("ncclCommInitAll", -1, &count));
    if (ndev < 1 || (devlist == NULL && ndev > count)) {
        return tt_fail(ncclInvalidArgument,
                       "ncclCommInitAll: ndev is %d, must be 1 to %d, the number of devices; with "
                       "ncclCommInitRank ranks may share one",
                       ndev, count);
    }
    for (int i = 0; devlist != NULL && i < ndev; i++) {
        if (devlist[i] < 0 || devlist[i] >= count) {
            return tt_fail(ncclInvalidArgument,
                           "ncclCommInitAll: devlist[%d] is %d, must be 0 to %d", i, devlist[i],
                           count - 1);
        }
        for (int k = 0; k < i; k++) {
            if (devlist[k] == devlist[i]) {
                return tt_fail(ncclInvalidUsage,
                               "ncclCommInitAll: devlist[%d] and devlist[%d] are both %s", k, i,
                               tt_gpu(devlist[i])->name);
            }
        }
    }
    return ncclSuccess;
}

TT_FUNCTION(ncclResult_t, CommInitAll, (ncclComm_t * comm, int ndev, const int *devlist))
{
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int before;
    config.blocking = 1;
    TRY(check_device_list(comm, ndev, devlist));
    for (int i = 0; i < ndev; i++) {
        comm[i] = NULL;
    }
    TRY(tt_bootstrap_make_id(TT_REACH_HOST, &id));
    TRY_CUDA(cudaGetDevice(&before));
    tt_group_start();
    for (int i = 0; i < ndev; i++) {
        ncclResult_t result =
            tt_cuda((int)cudaSetDevice(devlist == NULL ? i : devlist[i]), "cudaSetDevice");
        if (result == ncclSuccess) {
            result = tt_comm_init(&comm[i], ndev, &id, i, &config, "ncclCommInitAll");
        }
        tt_group_latch(result);
    }
    ncclResult_t result = tt_group_end("ncclCommInitAll");
    cudaSetDevice(before);
    return result;
}

TT_FUNCTION(ncclResult_t, CommFinalize, (ncclComm_t comm))
{
    return comm == NULL ? ncclSuccess : tt_comm_finalize(comm);
}

TT_FUNCTION(ncclResult_t, CommDestroy, (ncclComm_t comm))
{
    return comm == NULL ? ncclSuccess : tt_comm_destroy(comm);
}

TT_FUNCTION(ncclResult_t, CommAbort, (ncclComm_t comm))
{
    return comm == NULL ? ncclSuccess : tt_comm_abort(comm);
}

TT_FUNCTION(ncclResult_t, CommGetAsyncError, (ncclComm_t comm, ncclResult_t *asyncError))
{
    TRY(tt_comm_enter_any(comm, "ncclCommGetAsyncError"));
    ncclResult_t result = ncclSuccess;
    if (asyncError == NULL) {
        result =
            tt_fail(ncclInvalidArgument, "asyncError is NULL, must be where to write the error");
    } else {
        *asyncError = tt_comm_async_error(comm);
    }
    tt_comm_leave(comm);
    return result;
}

enum question { QUESTION_COUNT, QUESTION_DEVICE, QUESTION_RANK };

static ncclResult_t answer(ncclComm_t comm, enum question question, int *out, const char *call,
                           const char *name)
{
    TRY(tt_comm_enter(comm, call));
    ncclResult_t result = ncclSuccess;
    if (out == NULL) {
        result = tt_fail(ncclInvalidArgument,
                         "%s: rank %d: %s is NULL, must be where to write the answer", call,
                         comm->rank, name);
    } else {
        *out = question == QUESTION_COUNT    ? comm->nranks
               : question == QUESTION_DEVICE ? comm->cuda_device
                                             : comm->rank;
    }
    tt_comm_leave(comm);
    return result;
}

TT_FUNCTION(ncclResult_t, CommCount, (const ncclComm_t comm, int *count))
{
    return answer(comm, QUESTION_COUNT, count, "ncclCommCount", "count");
}

TT_FUNCTION(ncclResult_t, CommCuDevice, (const ncclComm_t comm, int *device))
{
    return answer(comm, QUESTION_DEVICE, device, "ncclCommCuDevice", "device");
}

TT_FUNCTION(ncclResult_t, CommUserRank, (const ncclComm_t comm, int *rank))
{
    return answer(comm, QUESTION_RANK, rank, "ncclCommUserRank", "rank");
}

TT_FUNCTION(ncclResult_t, GroupStart, (void))
{
    tt_group_start();
    return ncclSuccess;
}

TT_FUNCTION(ncclResult_t, GroupEnd, (void))
{
    return tt_group_end("ncclGroupEnd");
}

static ncclResult_t check_simulation(const ncclSimInfo_t *info)
{
    const ncclSimInfo_t right = NCCL_SIM_INFO_INITIALIZER;
    if (info->magic != right.magic || info->size < sizeof right) {
        return tt_fail(ncclInvalidArgument,
                       "ncclGroupSimulateEnd: simInfo has magic 0x%x and size %zu, must have 0x%x "
                       "and %zu, as nccl.h's initializer gives it",
                       info->magic, info->size, right.magic, sizeof right);
    }
    return ncclSuccess;
}

TT_FUNCTION(ncclResult_t, GroupSimulateEnd, (ncclSimInfo_t * simInfo))
{
    if (simInfo == NULL) {
        return tt_group_end("ncclGroupSimulateEnd");
    }
    ncclResult_t wrong = tt_group_latch(check_simulation(simInfo)); // then the group ends, too
    ncclResult_t result = tt_group_simulate_end(&simInfo->estimatedTime);
    return wrong != ncclSuccess ? wrong : result;
}
