// Which communicator handles are alive, and which calls are inside them. A handle is looked up
// before it is read, so that a freed or wild one is an error and no crash.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/wait.h"
#include "comm/comm.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { GRAVES = 256 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // guards all below but owner
static struct ncclComm **live;
static size_t live_count, live_capacity;
// The last communicators freed: their addresses are not given out again while they lie here.
static struct ncclComm *graves[GRAVES];
static size_t next_grave;
// The process that made them; 0: none were made. In a child made by fork() it is another's number.
static _Atomic pid_t owner;

static bool is_inherited(void)
{
    pid_t made = atomic_load(&owner);
    return made != 0 && made != getpid();
}

ncclResult_t tt_handle_add(struct ncclComm *comm)
{
    if (is_inherited()) { // the parent's communicators and locks mean nothing here
        pthread_mutex_init(&mutex, NULL);
        live_count = 0;
    }
    atomic_store(&owner, getpid());
    pthread_mutex_lock(&mutex);
    if (live_count == live_capacity) {
        size_t capacity = live_capacity == 0 ? 64 : 2 * live_capacity;
        struct ncclComm **grown = realloc(live, capacity * sizeof(struct ncclComm *));
        if (grown == NULL) {
            pthread_mutex_unlock(&mutex);
            return tt_fail(ncclSystemError, "no memory for another communicator");
        }
        live = grown;
        live_capacity = capacity;
    }
    live[live_count++] = comm;
    pthread_mutex_unlock(&mutex);
    return ncclSuccess;
}

// Its place among the live ones, live_count where it is not there. With the mutex held.
static size_t place_of(const struct ncclComm *comm)
{
    size_t i = 0;
    while (i < live_count && live[i] != comm) {
        i++;
    }
    return i;
}

// ---- Entering -----------------------------------------------------------------------------------

bool tt_handle_enter(struct ncclComm *comm, const char *call)
{
    if (is_inherited()) {
        return false;
    }
    pthread_mutex_lock(&mutex);
    bool is_live = place_of(comm) < live_count;
    if (is_live) {
        atomic_fetch_add(&comm->users, 1);
    }
    pthread_mutex_unlock(&mutex);
    if (is_live) {
        tt_call_begin(call, comm->rank);
    }
    return is_live;
}

struct ncclComm *tt_handle_enter_nth(size_t n)
{
    pthread_mutex_lock(&mutex);
    struct ncclComm *comm = n < live_count ? live[n] : NULL;
    if (comm != NULL) {
        atomic_fetch_add(&comm->users, 1);
        tt_call_begin(NULL, comm->rank);
    }
    pthread_mutex_unlock(&mutex);
    return comm;
}

ncclResult_t tt_comm_enter_any(struct ncclComm *comm, const char *call)
{
    if (comm == NULL) {
        return tt_fail(ncclInvalidArgument, "%s: comm is NULL, must be a communicator", call);
    }
    if (is_inherited()) {
        return tt_fail(
            ncclInvalidUsage,
            "%s: comm %p belongs to process %d, this is process %d, its child by fork(): "
            "a child cannot use its parent's communicators; make new ones here",
            call, (const void *)comm, (int)atomic_load(&owner), (int)getpid());
    }
    if (!tt_handle_enter(comm, call)) {
        return tt_fail(ncclInvalidArgument,
                       "%s: comm %p is no communicator, or was destroyed or aborted", call,
                       (const void *)comm);
    }
    if (comm->magic_start != TT_COMM_MAGIC || comm->magic_end != TT_COMM_MAGIC) {
        tt_comm_leave(comm);
        return tt_fail(ncclInvalidArgument, "%s: comm %p was overwritten", call,
                       (const void *)comm);
    }
    return ncclSuccess;
}

void tt_comm_leave(struct ncclComm *comm)
{
    tt_call_end();
    // Release alone: who waits for the last user may free the communicator at once.
    atomic_fetch_sub_explicit(&comm->users, 1, memory_order_release);
}

// Whether the communicator can be used now.
static ncclResult_t check_state(struct ncclComm *comm)
{
    switch (atomic_load(&comm->state)) {
    case TT_COMM_INIT:
        return tt_fail(ncclInvalidArgument,
                       "rank %d: the communicator is still being made; end its group, or poll "
                       "ncclCommGetAsyncError",
                       comm->rank);
    case TT_COMM_FINALIZED:
        return tt_fail(ncclInvalidArgument,
                       "rank %d: the communicator is finalized; only ncclCommDestroy may follow",
                       comm->rank);
    default:
        break;
    }
    ncclResult_t error = (ncclResult_t)atomic_load(&comm->async_error);
    if (error != ncclSuccess) {
        bool is_told = atomic_load_explicit(&comm->told, memory_order_acquire) == 2;
        return tt_fail(error,
                       "rank %d: the communicator has failed before (ncclCommGetAsyncError); only "
                       "ncclCommAbort may follow%s%s",
                       comm->rank, is_told ? "; it was: " : "", is_told ? comm->failure_text : "");
    }
    return ncclSuccess;
}

ncclResult_t tt_comm_enter(struct ncclComm *comm, const char *call)
{
    TRY(tt_comm_enter_any(comm, call));
    ncclResult_t result = check_state(comm);
    if (result != ncclSuccess) {
        tt_comm_leave(comm);
    }
    return result;
}

// ---- Ending -------------------------------------------------------------------------------------

void tt_handle_raise_abort(struct ncclComm *comm)
{
    pthread_mutex_lock(&mutex);
    if (place_of(comm) < live_count) {
        atomic_store(comm->abort_flag, 1);
    }
    pthread_mutex_unlock(&mutex);
}

static void take_out(size_t place)
{
    live[place] = live[--live_count];
}

bool tt_handle_remove(struct ncclComm *comm)
{
    pthread_mutex_lock(&mutex);
    size_t i = place_of(comm);
    bool found = i < live_count;
    if (found) {
        take_out(i);
    }
    pthread_mutex_unlock(&mutex);
    return found;
}

enum tt_handle_use tt_handle_remove_idle(struct ncclComm *comm)
{
    pthread_mutex_lock(&mutex);
    enum tt_handle_use use = TT_HANDLE_GONE;
    size_t i = place_of(comm);
    if (i < live_count) {
        use = atomic_load(&comm->state) == TT_COMM_INIT ? TT_HANDLE_IN_INIT
              : atomic_load(&comm->users) > 0           ? TT_HANDLE_IN_CALL
                                                        : TT_HANDLE_IDLE;
    }
    if (use == TT_HANDLE_IDLE) {
        take_out(i);
    }
    pthread_mutex_unlock(&mutex);
    return use;
}

void tt_handle_await_calls(const struct ncclComm *comm)
{
    struct tt_wait wait = tt_wait_begin(NULL);
    while (atomic_load(&comm->users) != 0) {
        tt_wait_round(&wait);
    }
}

void tt_handle_bury(struct ncclComm *comm)
{
    comm->magic_start = comm->magic_end = 0;
    pthread_mutex_lock(&mutex);
    struct ncclComm *oldest = graves[next_grave];
    graves[next_grave] = comm;
    next_grave = (next_grave + 1) % GRAVES;
    pthread_mutex_unlock(&mutex);
    free(oldest);
}
