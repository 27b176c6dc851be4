// Ending a communicator: finalize, destroy, abort. Destroying it waits for what was enqueued, and
// so for other ranks, 10 s at most. See comm.h.
// SPDX-License-Identifier: Apache-2.0
#include "base/gpu.h"
#include "base/log.h"
#include "base/wait.h"
#include "comm/comm.h"
#include "comm/group.h"
#include "comm/local.h"
#include "comm/meet.h"
#include "window/window.h"

#include <cuda_runtime.h>

enum {
    ABORT_PATIENCE_MS = 500,
    IDLE_PATIENCE_MS = 200, // of ncclCommDestroy for short calls of other threads
};

ncclResult_t tt_comm_finalize(struct ncclComm *comm)
{
    TRY(tt_comm_enter(comm, "ncclCommFinalize"));
    int ready = TT_COMM_READY;
    ncclResult_t result = tt_group_check_ending(comm, comm->rank, "ncclCommFinalize");
    if (result != ncclSuccess) {
        tt_comm_leave(comm);
        return result;
    }
    if (!atomic_compare_exchange_strong(&comm->state, &ready, TT_COMM_FINALIZED)) {
        result = tt_fail(ncclInvalidArgument, "rank %d: the communicator is finalized already",
                         comm->rank);
    } else {
        tt_team_finalize(comm);
    }
    tt_comm_leave(comm);
    return result;
}

// Takes the communicator out of use: only an abort is let in. Questions that other threads ask end
// by themselves, looks of the thread that watches whenever that gets a core; a call that waits for
// other ranks does not.
static ncclResult_t take_idle(struct ncclComm *comm, int rank)
{
    struct tt_wait wait = tt_wait_begin(NULL);
    enum tt_handle_use use = tt_handle_begin_ending(comm);
    while (use == TT_HANDLE_LOOKED_AT ||
           (use == TT_HANDLE_IN_CALL &&
            tt_now_ns() - wait.start_ns < IDLE_PATIENCE_MS * UINT64_C(1000000))) {
        tt_wait_round(&wait);
        use = tt_handle_begin_ending(comm);
    }
    switch (use) {
    case TT_HANDLE_IDLE:
        return ncclSuccess;
    case TT_HANDLE_IN_INIT:
        return tt_fail(ncclInvalidArgument,
                       "ncclCommDestroy: rank %d: the communicator is still being made, by another "
                       "call or in an open group; end that, or use ncclCommAbort",
                       rank);
    case TT_HANDLE_IN_CALL:
        return tt_fail(ncclInvalidArgument,
                       "ncclCommDestroy: rank %d: a call on the communicator is still running; end "
                       "it with ncclCommAbort",
                       rank);
    default:
        return tt_fail(ncclInvalidArgument,
                       "ncclCommDestroy: comm %p was destroyed or aborted by another thread",
                       (void *)comm);
    }
}

// Waits until the device has ended what it ran when the abort flag rose; false where it has not in
// time.
static bool device_settles(const struct ncclComm *comm)
{
    int before;
    cudaEvent_t event;
    bool settled = false;
    if (cudaGetDevice(&before) != cudaSuccess || cudaSetDevice(comm->cuda_device) != cudaSuccess ||
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess) {
        return false;
    }
    if (cudaEventRecord(event, cudaStreamLegacy) == cudaSuccess) {
        struct tt_wait wait = tt_wait_begin(NULL);
        cudaError_t state = cudaEventQuery(event);
        while (state == cudaErrorNotReady &&
               tt_now_ns() - wait.start_ns < ABORT_PATIENCE_MS * UINT64_C(1000000)) {
            tt_wait_round(&wait);
            state = cudaEventQuery(event);
        }
        settled = state != cudaErrorNotReady;
    }
    cudaEventDestroy(event);
    cudaSetDevice(before);
    return settled;
}

// Operations do not end: the communicator's memory, which they use, is left as it is.
static void tell_of_rest(const struct ncclComm *comm)
{
    tt_log(TT_LOG_WARN, TT_LOG_DESTROY,
           "rank %d: operations on %s do not end, though they were given up: another kernel keeps "
           "them from it; the communicator's memory and windows stay",
           comm->rank, comm->name);
}

// The other ranks: once.
static void tell_of_abort(struct ncclComm *comm)
{
    if (comm->bootstrap != NULL || comm->board != NULL) {
        tt_meet_report_failure(comm, "it called ncclCommAbort");
    }
}

// Ends the communicator, whose handle is taken out, after an abort.
static void end_aborted(struct ncclComm *comm)
{
    bool gave_up;
    tt_local_fail(comm, ncclInternalError, "a rank of this process aborted the communicator");
    tell_of_abort(comm);
    if (!tt_team_drain(comm, &gave_up)) {
        tell_of_rest(comm);
        return;
    }
    tt_team_leave(comm);
    if (comm->windows == NULL || device_settles(comm)) {
        tt_windows_destroy(comm);
    } else {
        tt_log(TT_LOG_WARN, TT_LOG_DESTROY,
               "rank %d: a kernel does not end after ncclCommAbort; its windows stay mapped",
               comm->rank);
    }
    tt_comm_free(comm);
    tt_comm_log_rest();
}

// What made operations end before their time while ncclCommDestroy waited for them.
static ncclResult_t why_given_up(struct ncclComm *comm)
{
    if (atomic_load(&comm->is_aborted)) {
        return tt_fail(ncclInternalError,
                       "ncclCommDestroy: rank %d: ncclCommAbort of another thread ended it; what "
                       "operations on %s had not done is given up",
                       comm->rank, comm->name);
    }
    ncclResult_t error = tt_comm_async_error(comm);
    return error != ncclSuccess
               ? error
               : tt_fail(ncclUnhandledCudaError,
                         "ncclCommDestroy: rank %d: %s has dropped operations on %s", comm->rank,
                         tt_gpu(comm->cuda_device)->name, comm->name);
}

ncclResult_t tt_comm_destroy(struct ncclComm *comm)
{
    TRY(tt_comm_enter_any(comm, "ncclCommDestroy"));
    int rank = tt_comm_rank(comm);
    tt_comm_leave(comm);
    TRY(tt_group_check_ending(comm, rank, "ncclCommDestroy"));
    TRY(take_idle(comm, rank));
    tt_comm_log_memory(comm);
    bool had_failed = atomic_load(&comm->async_error) != ncclSuccess;
    if (had_failed) {
        atomic_store(comm->abort_flag, 1); // what it still runs will not end by itself
    }
    bool gave_up;
    bool is_drained = tt_team_drain(comm, &gave_up); // they may still read and write windows
    ncclResult_t result = gave_up && !had_failed ? why_given_up(comm) : ncclSuccess;
    tt_handle_remove_ending(comm);
    tt_handle_await_calls(comm);
    if (atomic_load(&comm->is_aborted)) {
        end_aborted(comm);
    } else if (!is_drained) {
        tell_of_rest(comm);
    } else {
        tt_log(TT_LOG_INFO, TT_LOG_INIT, "comm %p rank %d nranks %d - Destroy COMPLETE",
               (void *)comm, comm->rank, comm->nranks);
        tt_team_leave(comm);
        tt_windows_destroy(comm);
        tt_comm_free(comm);
        tt_comm_log_rest();
    }
    return result;
}

ncclResult_t tt_comm_abort(struct ncclComm *comm)
{
    if (tt_handle_abort_ending(comm)) {
        return ncclSuccess;
    }
    TRY(tt_comm_enter_any(comm, "ncclCommAbort"));
    tt_comm_leave(comm);
    if (!tt_handle_remove(comm)) {
        return tt_handle_abort_ending(comm)
                   ? ncclSuccess
                   : tt_fail(ncclInvalidArgument,
                             "ncclCommAbort: comm %p was destroyed or aborted by another thread",
                             (void *)comm);
    }
    atomic_store(&comm->is_aborted, true);
    atomic_store(comm->abort_flag, 1);
    // First, as operations end once the other ranks have stopped theirs. Before it is made, parts
    // of it belong to another thread.
    if (tt_comm_is_made(comm)) {
        tell_of_abort(comm);
    }
    // Calls that are inside the communicator in other threads see the flag within a slice of their
    // wait. An init that waits in an open group is not inside: the group's end finds it gone.
    tt_handle_await_calls(comm);
    end_aborted(comm);
    return ncclSuccess;
}

ncclResult_t tt_comm_async_error(struct ncclComm *comm)
{
    if (atomic_load(&comm->state) == TT_COMM_INIT) {
        return ncclInProgress;
    }
    bool is_under_way = atomic_load(&comm->under_way) > 0;
    if (atomic_load(&comm->async_error) == ncclSuccess) {
        const char *call = tt_call_rename(NULL); // that has not failed if another rank has
        tt_watch_look(comm);
        (void)tt_call_rename(call);
    }
    ncclResult_t error = (ncclResult_t)atomic_load(&comm->async_error);
    if (error != ncclSuccess && atomic_load_explicit(&comm->told, memory_order_acquire) == 2) {
        tt_restore_error(tt_comm_failure_text(comm));
    }
    return error == ncclSuccess && is_under_way ? ncclInProgress : error;
}
