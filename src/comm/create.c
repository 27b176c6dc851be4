// Making a communicator: the structure at once, its joining in the group's end. See comm.h. SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/wait.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/wire.h"
#include "comm/comm.h"
#include "comm/group.h"
#include "comm/local.h"
#include "comm/operators.h"
#include "comm/registrations.h"
#include "exec/executor.h"
#include "window/window.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct joining {
    ncclUniqueId id;
    int rank, nranks;
    ncclComm_t
        *user_comm; // the caller's variable: NULL is written there when a blocking init fails
};

static ncclResult_t check_device(const char *call, int *device_out)
{
    int count = 0;
    TRY(tt_check_runtime(call));
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
        cudaGetLastError();
        return tt_fail(ncclUnhandledCudaError, "%s: no device: %s (%s)", call,
                       cudaGetErrorString(error == cudaSuccess ? cudaErrorNoDevice : error),
                       tt_executor->no_device_hint);
    }
    return tt_cuda((int)cudaGetDevice(device_out), "cudaGetDevice");
}

static void free_parts(struct ncclComm *comm, bool kernels_may_run)
{
    tt_team_leave(comm);
    tt_operators_free(comm->operators);
    comm->operators = NULL;
    tt_registrations_free(comm->registrations);
    comm->registrations = NULL;
    if (comm->bootstrap != NULL && tt_bootstrap_failure(comm->bootstrap)[0] == 0) {
        tt_local_fail(comm, ncclInvalidUsage,
                      "a rank of this process has destroyed the communicator");
    } // else all ranks are told of the failure
    tt_bootstrap_leave(comm->bootstrap);
    tt_local_leave(comm);
    tt_abort_flag_give(comm->abort_flag, kernels_may_run);
    free(comm->peers);
    comm->bootstrap = NULL;
    comm->peers = NULL;
}

void tt_comm_free(struct ncclComm *comm, bool kernels_may_run)
{
    free_parts(comm, kernels_may_run);
    tt_handle_bury(comm);
}

static ncclResult_t join(struct ncclComm *comm, const ncclUniqueId *id)
{
    TRY(tt_bootstrap_join(id, comm->rank, comm->nranks, comm->abort_flag, &comm->bootstrap));
    TRY(tt_peer_describe(comm->rank, &comm->peers[comm->rank]));
    TRY(tt_bootstrap_allgather(comm->bootstrap, comm->peers, sizeof *comm->peers));
    comm->hash = comm->peers[0].random;
    if (comm->name[0] == 0) {
        (void)snprintf(comm->name, sizeof comm->name, "comm-%016llx",
                       (unsigned long long)comm->hash);
    }
    tt_peers_arrange(comm);
    TRY(tt_local_join(comm));
    TRY(tt_watch_add(comm));
    TRY(tt_team_join(comm));
    return tt_peers_agree(comm);
}

// Tells the ranks that wait for this one that it will not come, and why: this thread's last
// failure. Returns result.
static ncclResult_t tell_others(const ncclUniqueId *id, int nranks, int rank, ncclResult_t result)
{
    char text[512];
    if (nranks > 1) {
        (void)snprintf(text, sizeof text, "%s", tt_thread_error());
        tt_bootstrap_denounce(id, rank, nranks, text);
        tt_restore_error(text);
    }
    return result;
}

static void set_failed(struct ncclComm *comm, ncclResult_t result)
{
    atomic_store(&comm->async_error, (int)result);
    atomic_store(&comm->state, TT_COMM_FAILED);
}

// This rank cannot join, because of this thread's last failure. The other ranks are told that, and
// not only that it has left; those of this process at once.
static void tell_of_failure(struct ncclComm *comm)
{
    char text[512];
    if (comm->bootstrap == NULL) {
        return; // tt_bootstrap_join has told them
    }
    (void)snprintf(text, sizeof text, "rank %d failed: %.460s", comm->rank, tt_thread_error());
    if (tt_bootstrap_failure(comm->bootstrap)[0] == 0) { // else it was told itself
        (void)tt_local_fail(comm, ncclRemoteError, text);
    }
    tt_bootstrap_report_failure(comm->bootstrap, tt_thread_error());
}

// The group's job. Runs in any thread with the communicator's device current.
static ncclResult_t join_job(struct ncclComm *comm, void *argument)
{
    struct joining *joining = argument;
    tt_log_start(comm->rank);
    tt_log(TT_LOG_INFO, TT_LOG_INIT, "[rank %d] comm %p rank %d nranks %d cudaDev %d - Init START",
           comm->rank, (void *)comm, comm->rank, comm->nranks, comm->cuda_device);
    uint64_t start = tt_now_ns();
    ncclResult_t result = join(comm, &joining->id);
    if (result == ncclSuccess) {
        atomic_store(&comm->state, TT_COMM_READY);
        tt_bootstrap_arm(comm->bootstrap);
        tt_log(TT_LOG_INFO, TT_LOG_INIT,
               "comm %p rank %d nranks %d lsa %d of %d - Init COMPLETE in %.1f ms", (void *)comm,
               comm->rank, comm->nranks, comm->lsa_rank, comm->lsa_size,
               (double)(tt_now_ns() - start) / 1e6);
    } else {
        tell_of_failure(comm);
        set_failed(comm, result);
    }
    return result;
}

void tt_comm_cannot_join(struct ncclComm *comm, const void *argument, ncclResult_t result)
{
    const struct joining *joining = argument;
    set_failed(comm, tell_others(&joining->id, joining->nranks, joining->rank, result));
}

void tt_comm_discard(struct ncclComm *comm, const void *argument)
{
    const struct joining *joining = argument;
    if (tt_handle_remove(comm)) {
        *joining->user_comm = NULL;
        tt_handle_await_calls(comm);
        tt_team_leave(comm);
        tt_windows_destroy(comm);
        tt_comm_free(comm, false);
    }
}

void tt_comm_give_up(struct ncclComm *comm, const void *argument)
{
    const struct joining *joining = argument;
    tell_others(&joining->id, joining->nranks, joining->rank, ncclSuccess);
    tt_comm_discard(comm, argument);
}

static ncclResult_t check_arguments(ncclComm_t *comm_out, int nranks, const ncclUniqueId *id,
                                    int rank, const char *call)
{
    if (comm_out == NULL) {
        return tt_fail(ncclInvalidArgument,
                       "%s: comm is NULL, must be where to write the communicator", call);
    }
    *comm_out = NULL;
    if (id == NULL) {
        return tt_fail(ncclInvalidArgument, "%s: the unique id is NULL", call);
    }
    if (nranks < 1) {
        return tt_fail(ncclInvalidArgument, "%s: nranks is %d, must be at least 1", call, nranks);
    }
    if (nranks > TT_MOST_RANKS) {
        return tt_fail(ncclInvalidArgument, "%s: nranks is %d, at most %d are possible", call,
                       nranks, TT_MOST_RANKS);
    }
    if (rank < 0 || rank >= nranks) {
        return tell_others(id, nranks, rank,
                           tt_fail(ncclInvalidArgument, "%s: rank is %d, must be 0 to %d", call,
                                   rank, nranks - 1));
    }
    return ncclSuccess;
}

static ncclResult_t allocate(int nranks, int rank, const ncclConfig_t *config, const char *call,
                             struct ncclComm **comm_out)
{
    ncclConfig_t complete = NCCL_CONFIG_INITIALIZER;
    int device = -1;
    TRY(tt_config_read(config, call, &complete));
    TRY(check_device(call, &device));
    struct ncclComm *comm = calloc(1, sizeof *comm);
    struct tt_peer *peers = calloc((size_t)nranks, sizeof *peers);
    if (comm == NULL || peers == NULL) {
        free(comm);
        free(peers);
        return tt_fail(ncclSystemError, "%s: rank %d: no memory for a communicator of %d ranks",
                       call, rank, nranks);
    }
    comm->magic_start = comm->magic_end = TT_COMM_MAGIC;
    comm->rank = rank;
    comm->nranks = nranks;
    comm->cuda_device = device;
    comm->config = complete;
    comm->peers = peers;
    if (complete.commName != NULL) {
        (void)snprintf(comm->name, sizeof comm->name, "%s", complete.commName);
    }
    ncclResult_t result = tt_abort_flag_take(&comm->abort_flag, &comm->abort_flag_device);
    if (result == ncclSuccess) {
        result = tt_handle_add(comm);
    }
    if (result != ncclSuccess) {
        tt_comm_free(comm, false);
        return result;
    }
    *comm_out = comm;
    return ncclSuccess;
}

static ncclResult_t make_and_submit(ncclComm_t *comm_out, int nranks, const ncclUniqueId *id,
                                    int rank, const ncclConfig_t *config, const char *call)
{
    struct ncclComm *comm = NULL;
    ncclResult_t result = check_arguments(comm_out, nranks, id, rank, call);
    if (result == ncclSuccess) {
        result = allocate(nranks, rank, config, call, &comm);
        if (result != ncclSuccess) {
            tell_others(id, nranks, rank, result);
        }
    }
    if (result != ncclSuccess) {
        return tt_group_latch(result);
    }
    // Another thread may wait for it, to abort: release, pairs with the acquire of who reads it.
    __atomic_store_n(comm_out, comm, __ATOMIC_RELEASE);
    struct joining joining = {.id = *id, .rank = rank, .nranks = nranks, .user_comm = comm_out};
    return tt_group_submit(comm, TT_GROUP_INIT, join_job, &joining, sizeof joining);
}

ncclResult_t tt_comm_init(ncclComm_t *comm_out, int nranks, const ncclUniqueId *id, int rank,
                          const ncclConfig_t *config, const char *call)
{
    tt_call_begin(call, rank);
    ncclResult_t result = make_and_submit(comm_out, nranks, id, rank, config, call);
    tt_call_end();
    return result;
}
