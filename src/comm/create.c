// Making a communicator: the structure at once, its joining in the group's end. See comm.h. SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/wait.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/wire.h"
#include "comm/board.h"
#include "comm/comm.h"
#include "comm/group.h"
#include "comm/init_log.h"
#include "comm/local.h"
#include "comm/meet.h"
#include "comm/operators.h"
#include "comm/registrations.h"
#include "exec/executor.h"
#include "launch/launch.h"
#include "window/window.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct joining {
    struct tt_beginning beginning;
    ncclUniqueId id;
    int rank, nranks;
};

ncclResult_t tt_comm_count_devices(const char *call, int rank, int *count_out)
{
    TRY(tt_check_runtime(call));
    TRY(tt_handle_check_process(call));
    cudaError_t error = cudaGetDeviceCount(count_out);
    if (error != cudaSuccess || *count_out == 0) {
        char why[320], host[64] = "", who[32] = "the caller";
        if (rank >= 0) {
            (void)snprintf(who, sizeof who, "rank %d", rank);
        }
        (void)snprintf(why, sizeof why, "%s", tt_cuda_detail());
        cudaGetLastError();
        (void)gethostname(host, sizeof host - 1);
        return tt_fail(ncclUnhandledCudaError, "%s: %s (process %d on %s) has no device: %s: %s",
                       call, who, (int)getpid(), host,
                       cudaGetErrorString(error == cudaSuccess ? cudaErrorNoDevice : error),
                       why[0] != 0 ? why : tt_executor->no_device_hint);
    }
    return ncclSuccess;
}

static void free_parts(struct ncclComm *comm)
{
    tt_team_leave(comm);
    tt_operators_free(comm->operators);
    comm->operators = NULL;
    tt_registrations_free(comm->registrations);
    comm->registrations = NULL;
    if ((comm->bootstrap != NULL || comm->board != NULL) && !tt_meet_has_failed(comm)) {
        tt_local_fail(comm, ncclInvalidUsage,
                      "a rank of this process has destroyed the communicator");
    } // else all ranks are told of the failure
    tt_meet_leave(comm);
    tt_local_leave(comm);
    tt_abort_flag_give(comm->abort_flag);
    tt_shrinks_free(comm->shrinks);
    comm->shrinks = NULL;
    free(comm->peers);
    free(comm->failure_text);
    comm->peers = NULL;
    comm->failure_text = NULL;
    if (comm->holds_launch) {
        comm->holds_launch = false;
        tt_launch_release();
    }
}

void tt_comm_name(struct ncclComm *comm)
{
    if (comm->name[0] == 0) {
        (void)snprintf(comm->name, sizeof comm->name, "comm-%016llx",
                       (unsigned long long)comm->hash);
    }
}

void tt_comm_free(struct ncclComm *comm)
{
    free_parts(comm);
    tt_handle_bury(comm);
}

// The ranks share memory, where they are on one machine: the first communicator of a family.
static ncclResult_t found_family(struct ncclComm *comm)
{
    struct tt_family *family = NULL;
    if (comm->nranks == 1 || !tt_team_is_possible(comm)) {
        return ncclSuccess;
    }
    int *process = malloc((size_t)comm->nranks * sizeof *process);
    if (process == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for %d ranks", comm->rank,
                       comm->nranks);
    }
    for (int r = 0; r < comm->nranks; r++) {
        process[r] = comm->peers[r].process;
    }
    ncclResult_t result = tt_family_found(comm, &family);
    if (result == ncclSuccess) {
        result = tt_board_open(family, TT_FIRST_SLOT, process, comm->nranks, &comm->board);
        if (comm->rank == 0) { // those have it who have opened it
            tt_family_leave(family, TT_FIRST_SLOT.number);
        }
        tt_family_release(family); // the board has it
        result = result == ncclRemoteError ? tt_leaders_reason(comm, result) : result;
    }
    free(process);
    return result;
}

static ncclResult_t join(struct ncclComm *comm, const ncclUniqueId *id)
{
    TRY(tt_bootstrap_join(id, comm->rank, comm->nranks, comm->abort_flag, &comm->bootstrap));
    TRY(tt_peer_describe(comm->rank, &comm->peers[comm->rank]));
    TRY(tt_bootstrap_allgather(comm->bootstrap, comm->peers, sizeof *comm->peers));
    comm->hash = comm->peers[0].random;
    tt_comm_name(comm);
    tt_peers_arrange(comm);
    tt_peers_tell_shared(comm);
    TRY(tt_local_join(comm));
    TRY(tt_watch_add(comm));
    TRY(found_family(comm));
    TRY(tt_team_join(comm));
    if (comm->nranks > 1) {
        return tt_peers_agree(comm);
    }
    comm->peer_access = true;
    tt_bootstrap_leave(comm->bootstrap); // nobody is there whom it could meet
    comm->bootstrap = NULL;
    return ncclSuccess;
}

// See tt_beginning.tell_others.
static ncclResult_t denounce(const ncclUniqueId *id, int nranks, int rank, ncclResult_t result)
{
    char text[512];
    if (nranks > 1) {
        (void)snprintf(text, sizeof text, "%s", tt_thread_error());
        tt_bootstrap_denounce(id, rank, nranks, text);
        tt_restore_error(text);
    }
    return result;
}

static ncclResult_t tell_others(const void *argument, ncclResult_t result)
{
    const struct joining *joining = argument;
    return denounce(&joining->id, joining->nranks, joining->rank, result);
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
    if (comm->bootstrap == NULL && comm->board == NULL) {
        return; // tt_bootstrap_join has told them
    }
    (void)snprintf(text, sizeof text, "rank %d failed: %.460s", comm->rank, tt_thread_error());
    if (!tt_meet_has_failed(comm)) { // else it was told itself
        (void)tt_local_fail(comm, ncclRemoteError, text);
    }
    (void)snprintf(text, sizeof text, "%s", tt_thread_error());
    tt_meet_report_failure(comm, text);
}

ncclResult_t tt_comm_begun(struct ncclComm *comm, ncclResult_t result, uint64_t start_ns)
{
    if (result != ncclSuccess) {
        tell_of_failure(comm);
        set_failed(comm, result);
        return result;
    }
    atomic_store(&comm->state, TT_COMM_READY);
    if (comm->bootstrap != NULL) {
        tt_bootstrap_arm(comm->bootstrap);
    }
    tt_init_log_complete(comm, start_ns);
    return ncclSuccess;
}

// The group's job. Runs in any thread with the communicator's device current.
static ncclResult_t join_job(struct ncclComm *comm, void *argument)
{
    struct joining *joining = argument;
    uint64_t start = tt_now_ns();
    tt_init_log_start(comm);
    return tt_comm_begun(comm, join(comm, &joining->id), start);
}

void tt_comm_cannot_join(struct ncclComm *comm, const void *argument, ncclResult_t result)
{
    const struct tt_beginning *beginning = argument;
    (void)beginning->tell_others(argument, result);
    if (beginning->user_comm != NULL) {
        set_failed(comm, result);
    }
}

void tt_comm_discard(struct ncclComm *comm, const void *argument)
{
    const struct tt_beginning *beginning = argument;
    if (beginning->user_comm != NULL && tt_handle_remove(comm)) {
        __atomic_store_n(beginning->user_comm, NULL, __ATOMIC_RELEASE); // as it was written
        tt_handle_await_calls(comm);
        tt_team_leave(comm);
        tt_windows_destroy(comm);
        tt_comm_free(comm);
    }
}

void tt_comm_give_up(struct ncclComm *comm, const void *argument)
{
    const struct tt_beginning *beginning = argument;
    (void)beginning->tell_others(argument, ncclSuccess);
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
        return denounce(id, nranks, rank,
                        tt_fail(ncclInvalidArgument, "%s: rank is %d, must be 0 to %d", call, rank,
                                nranks - 1));
    }
    return ncclSuccess;
}

ncclResult_t tt_comm_allocate(int nranks, int rank, const ncclConfig_t *config, const char *call,
                              struct ncclComm **comm_out)
{
    int devices = 0, device = -1;
    TRY(tt_comm_count_devices(call, rank, &devices));
    TRY_CUDA(cudaGetDevice(&device));
    struct ncclComm *comm = calloc(1, sizeof *comm);
    struct tt_peer *peers = nranks > 0 ? calloc((size_t)nranks, sizeof *peers) : NULL;
    if (comm == NULL || (nranks > 0 && peers == NULL)) {
        free(comm);
        free(peers);
        return tt_fail(ncclSystemError, "%s: rank %d: no memory for a communicator of %d ranks",
                       call, rank, nranks);
    }
    comm->magic_start = comm->magic_end = TT_COMM_MAGIC;
    comm->rank = rank;
    comm->nranks = nranks;
    comm->cuda_device = device;
    comm->config = *config;
    comm->peers = peers;
    if (config->commName != NULL) {
        (void)snprintf(comm->name, sizeof comm->name, "%s", config->commName);
    }
    comm->config.commName = comm->config.netName = NULL; // the caller's texts
    ncclResult_t result = tt_abort_flag_take(&comm->abort_flag, &comm->abort_flag_device);
    if (result == ncclSuccess) {
        result = tt_handle_add(comm);
    }
    if (result != ncclSuccess) {
        tt_comm_free(comm);
        return result;
    }
    *comm_out = comm;
    return ncclSuccess;
}

static ncclResult_t make_and_submit(ncclComm_t *comm_out, int nranks, const ncclUniqueId *id,
                                    int rank, const ncclConfig_t *config, const char *call)
{
    struct ncclComm *comm = NULL;
    ncclConfig_t complete = NCCL_CONFIG_INITIALIZER;
    ncclResult_t result = check_arguments(comm_out, nranks, id, rank, call);
    if (result == ncclSuccess) {
        result = tt_config_read(config, NULL, call, &complete);
        if (result == ncclSuccess) {
            result = tt_comm_allocate(nranks, rank, &complete, call, &comm);
        }
        if (result != ncclSuccess) {
            (void)denounce(id, nranks, rank, result);
        }
    }
    if (result != ncclSuccess) {
        return tt_group_latch(result);
    }
    // Another thread may wait for it, to abort: release, pairs with the acquire of who reads it.
    __atomic_store_n(comm_out, comm, __ATOMIC_RELEASE);
    struct joining joining = {.beginning = {.user_comm = comm_out, .tell_others = tell_others},
                              .id = *id,
                              .rank = rank,
                              .nranks = nranks};
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
