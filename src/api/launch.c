// tuttiCommInit: from a launcher to a communicator in one call.
// SPDX-License-Identifier: Apache-2.0
#include "launch/launch.h"

#include "api/function.h"
#include "base/gpu.h"
#include "base/log.h"
#include "base/params.h"
#include "base/quote.h"
#include "bootstrap/bootstrap.h"
#include "comm/comm.h"
#include "comm/group.h"
#include "comm/meet.h"
#include "tutti.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_US = 1000 }; // between two looks at a communicator that others make

// Makes the device of the process's number on its host current: one of those that it sees, in turn.
static ncclResult_t pick_device(const struct tt_place *place)
{
    int count = 0;
    TRY(tt_check_runtime("tuttiCommInit"));
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
        char why[320], host[64] = "?";
        const char *visible = tt_param_of_launcher("CUDA_VISIBLE_DEVICES");
        (void)snprintf(why, sizeof why, "%s", tt_cuda_detail());
        if (why[0] == 0) {
            (void)snprintf(why, sizeof why, "CUDA_VISIBLE_DEVICES is %s%s",
                           visible == NULL ? "not set" : tt_quote(visible).text,
                           visible != NULL && *visible == 0 ? "empty" : "");
        }
        (void)gethostname(host, sizeof host - 1);
        (void)cudaGetLastError();
        return tt_fail(ncclUnhandledCudaError,
                       "rank %d (task %d of host %s, pid %d) sees no GPU: %s: %s", place->rank,
                       place->local_rank, host, (int)getpid(),
                       cudaGetErrorString(error == cudaSuccess ? cudaErrorNoDevice : error), why);
    }
    return tt_cuda((int)cudaSetDevice(place->local_rank % count), "cudaSetDevice");
}

static void describe(struct tt_seat *seat, int device)
{
    const struct tt_gpu *gpu = tt_gpu(device);
    *seat = (struct tt_seat){.pid = (int)getpid()};
    if (gethostname(seat->host, sizeof seat->host - 1) != 0) {
        (void)snprintf(seat->host, sizeof seat->host, "?");
    }
    (void)snprintf(seat->gpu, sizeof seat->gpu, "%s", gpu->name);
    (void)snprintf(seat->pci, sizeof seat->pci, "%s", gpu->pci);
}

// Rank 0 says on stderr who is where, for the first communicator. Collective. What ends it is
// small: rank 0 may then end at once, although ranks that have no core yet have still to read it.
static ncclResult_t tell_map(const struct tt_launch *launch, struct ncclComm *comm)
{
    if (launch->exchange.turn > 0) {
        return ncclSuccess;
    }
    struct tt_seat *seats = calloc((size_t)comm->nranks, sizeof *seats);
    if (seats == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for %d ranks", comm->rank,
                       comm->nranks);
    }
    struct tt_seat *own = &seats[comm->rank];
    describe(own, comm->cuda_device);
    if (*tt_param_text(TT_PARAM_FAKE_HOSTS) != 0) { // pretended hosts have no names
        size_t used = strnlen(own->host, sizeof own->host - sizeof "/2147483647");
        (void)snprintf(own->host + used, sizeof own->host - used, "/%d",
                       comm->peers[comm->rank].host);
    }
    ncclResult_t result = tt_meet_allgather(comm, seats, sizeof *seats);
    if (result == ncclSuccess) {
        result = tt_meet_barrier(comm);
    }
    if (result == ncclSuccess && comm->rank == 0 && tt_param_int(TT_PARAM_MAP) != 0) {
        tt_launch_tell_map(launch, seats);
    }
    free(seats);
    return result;
}

// With a launch that has begun. The ranks that wait for this one hear why it does not come.
static ncclResult_t start(struct tt_launch *launch, ncclComm_t *comm)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const struct tt_place *place = &launch->place;
    config.blocking = 1;
    TRY(tt_launch_exchange(launch));
    ncclResult_t result = pick_device(place);
    if (result != ncclSuccess) {
        char text[512];
        (void)snprintf(text, sizeof text, "%s", tt_thread_error());
        tt_bootstrap_denounce(&launch->id, place->rank, place->size, text);
        tt_restore_error(text);
        return result;
    }
    result = tt_comm_init(comm, place->size, &launch->id, place->rank, &config, "tuttiCommInit");
    while (result == ncclSuccess || result == ncclInProgress) {
        TRY(tt_comm_enter_any(*comm, "tuttiCommInit")); // else another thread has aborted it
        result = tt_comm_async_error(*comm);
        if (result == ncclSuccess) {
            result = tell_map(launch, *comm);
            (*comm)->holds_launch = result == ncclSuccess && tt_launch_hold(launch);
        }
        tt_comm_leave(*comm);
        if (result == ncclSuccess) {
            return ncclSuccess;
        }
        usleep(LOOK_US); // NCCL_COMM_BLOCKING=0
    }
    if (*comm != NULL) {
        (void)tt_comm_abort(*comm);
        *comm = NULL;
    }
    if (result == ncclInvalidUsage || result == ncclSystemError || result == ncclTimeout) {
        tt_launch_tell_meeting(launch); // what is wrong may be there: not what a rank has told
    }
    return result;
}

TT_EXPORT ncclResult_t tuttiCommInit(ncclComm_t *comm)
{
    struct tt_launch launch;
    if (comm == NULL) {
        return tt_fail(ncclInvalidArgument,
                       "tuttiCommInit: comm is NULL, must be where to write the communicator");
    }
    *comm = NULL;
    if (tt_group_is_open()) {
        return tt_group_latch(tt_fail(ncclInvalidUsage,
                                      "tuttiCommInit: not between ncclGroupStart and ncclGroupEnd: "
                                      "it makes one rank of a process"));
    }
    tt_call_begin("tuttiCommInit", -1);
    ncclResult_t result = tt_launch_begin(&launch);
    if (result == ncclSuccess) {
        tt_call_end();
        tt_call_begin("tuttiCommInit", launch.place.rank);
        result = start(&launch, comm);
        tt_launch_end(&launch, result);
    }
    tt_call_end();
    return result;
}
