// Ending a communicator: finalize, destroy, abort. None of them waits for other ranks. See comm.h.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/wait.h"
#include "bootstrap/bootstrap.h"
#include "comm/comm.h"
#include "comm/local.h"
#include "window/window.h"

#include <cuda_runtime.h>

enum { ABORT_PATIENCE_MS = 500 };

ncclResult_t tt_comm_finalize(struct ncclComm *comm)
{
    TRY(tt_comm_check(comm, "ncclCommFinalize"));
    int ready = TT_COMM_READY;
    if (!atomic_compare_exchange_strong(&comm->state, &ready, TT_COMM_FINALIZED)) {
        return tt_fail(ncclInvalidArgument,
                       "ncclCommFinalize: rank %d: the communicator is finalized already",
                       comm->rank);
    }
    return ncclSuccess;
}

static ncclResult_t check_handle(const struct ncclComm *comm, const char *call)
{
    if (!tt_handle_is_live(comm)) {
        return tt_fail(ncclInvalidArgument,
                       "%s: comm %p is no communicator, or was destroyed or aborted", call,
                       (const void *)comm);
    }
    return ncclSuccess;
}

ncclResult_t tt_comm_destroy(struct ncclComm *comm)
{
    TRY(check_handle(comm, "ncclCommDestroy"));
    if (atomic_load(&comm->state) == TT_COMM_INIT || atomic_load(&comm->users) != 0) {
        return tt_fail(
            ncclInvalidArgument,
            "ncclCommDestroy: rank %d: a call on the communicator is still running; end it with "
            "ncclCommAbort",
            comm->rank);
    }
    if (!tt_handle_remove(comm)) {
        return tt_fail(ncclInvalidArgument,
                       "ncclCommDestroy: comm %p is being destroyed by another thread",
                       (void *)comm);
    }
    tt_log(TT_LOG_INFO, TT_LOG_INIT, "comm %p rank %d nranks %d - Destroy COMPLETE", (void *)comm,
           comm->rank, comm->nranks);
    if (atomic_load(&comm->async_error) != ncclSuccess) {
        atomic_store(comm->abort_flag, 1); // what it still runs will not end by itself
    }
    tt_windows_destroy(comm);
    tt_comm_free(comm, false);
    return ncclSuccess;
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

ncclResult_t tt_comm_abort(struct ncclComm *comm)
{
    TRY(check_handle(comm, "ncclCommAbort"));
    if (!tt_handle_remove(comm)) {
        return tt_fail(ncclInvalidArgument,
                       "ncclCommAbort: comm %p is being ended by another thread", (void *)comm);
    }
    atomic_store(&comm->aborting, 1);
    atomic_store(comm->abort_flag, 1);
    tt_local_fail(comm, ncclInternalError, "a rank of this process aborted the communicator");
    // Calls that are inside the communicator in other threads see the flag within a slice of their
    // wait.
    struct tt_wait wait = tt_wait_begin(NULL);
    while (atomic_load(&comm->users) != 0) {
        tt_wait_round(&wait);
    }
    if (comm->bootstrap != NULL) {
        tt_bootstrap_report_failure(comm->bootstrap, "it called ncclCommAbort");
    }
    bool settled = comm->windows == NULL || device_settles(comm);
    if (settled) {
        tt_windows_destroy(comm);
    } else {
        tt_log(TT_LOG_WARN, TT_LOG_DESTROY,
               "rank %d: a kernel does not end after ncclCommAbort; its windows stay mapped",
               comm->rank);
    }
    tt_comm_free(comm, true);
    return ncclSuccess;
}

ncclResult_t tt_comm_async_error(struct ncclComm *comm)
{
    int state = atomic_load(&comm->state);
    if (state == TT_COMM_INIT) {
        return ncclInProgress;
    }
    int error = atomic_load(&comm->async_error);
    if (error == ncclSuccess && state == TT_COMM_READY) {
        ncclResult_t seen = tt_bootstrap_look(comm->bootstrap);
        if (seen != ncclSuccess) {
            atomic_compare_exchange_strong(&comm->async_error, &error, (int)seen);
            tt_local_fail(comm, seen, tt_thread_error());
        }
        error = atomic_load(&comm->async_error);
    }
    return (ncclResult_t)error;
}
