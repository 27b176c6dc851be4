// What a communicator can do, and why not.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "comm/comm.h"
#include "exec/executor.h"
#include "window/register.h"
#include "window/window_internal.h"

const char *tt_symmetric_obstacle(const struct ncclComm *comm)
{
    for (int r = 0; r < comm->nranks; r++) {
        if (!comm->peers[r].device_memory) {
            return "a rank cannot share device memory (no virtual memory management, or "
                   "NCCL_CUMEM_ENABLE=0 or "
                   "NCCL_WIN_ENABLE=0)";
        }
    }
    return comm->peer_access ? NULL
                             : "the devices of the LSA team cannot map each other's memory (no "
                               "NVLink or peer access)";
}

const char *tt_one_sided_obstacle(const struct ncclComm *comm)
{
    const char *obstacle = tt_symmetric_obstacle(comm);
    if (comm->config.numRmaCtx == 0) {
        return "numRmaCtx of its configuration is 0";
    }
    if (obstacle == NULL && comm->lsa_size != comm->nranks) {
        obstacle = "its ranks are not one LSA team, and there is no network between teams";
    }
    if (obstacle == NULL && (comm->host == NULL || tt_executor->one_sided == NULL)) {
        obstacle = "not implemented yet on real GPUs";
    }
    return obstacle;
}

ncclResult_t tt_query_properties(struct ncclComm *comm, ncclCommProperties_t *properties)
{
    if (properties->magic != NCCL_API_MAGIC) {
        return tt_fail(ncclInvalidUsage,
                       "ncclCommQueryProperties: props has magic 0x%x, expected 0x%x; start from "
                       "NCCL_COMM_PROPERTIES_INITIALIZER",
                       properties->magic, NCCL_API_MAGIC);
    }
    if (properties->version > NCCL_VERSION_CODE || properties->size < sizeof *properties) {
        return tt_fail(ncclInvalidUsage,
                       "ncclCommQueryProperties: props is of version %u with %zu bytes, this "
                       "library is version %d with "
                       "%zu; recompile with its header",
                       properties->version, properties->size, NCCL_VERSION_CODE,
                       sizeof *properties);
    }
    properties->rank = comm->rank;
    properties->nRanks = comm->nranks;
    properties->cudaDev = comm->cuda_device;
    properties->nvmlDev = comm->cuda_device;
    properties->deviceApiSupport = tt_symmetric_obstacle(comm) == NULL;
    properties->multimemSupport = properties->deviceApiSupport && tt_multicast_possible(comm);
    properties->ginType = NCCL_GIN_TYPE_NONE;
    properties->nLsaTeams = comm->nranks / comm->lsa_size;
    properties->hostRmaSupport = tt_one_sided_obstacle(comm) == NULL;
    properties->railedGinType = NCCL_GIN_TYPE_NONE;
    return ncclSuccess;
}
