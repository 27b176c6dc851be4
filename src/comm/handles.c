// Which communicator handles are alive. A handle is looked up before it is read, so that a freed or
// wild one is an error and no crash.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "comm/comm.h"

#include <pthread.h>
#include <stdlib.h>

enum { GRAVES = 256 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // guards all below
static struct ncclComm **live;
static size_t live_count, live_capacity;
// The last communicators freed: their addresses are not given out again while they lie here.
static struct ncclComm *graves[GRAVES];
static size_t next_grave;

ncclResult_t tt_handle_add(struct ncclComm *comm)
{
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

bool tt_handle_is_live(const struct ncclComm *comm)
{
    pthread_mutex_lock(&mutex);
    bool is_live = place_of(comm) < live_count;
    pthread_mutex_unlock(&mutex);
    return is_live;
}

bool tt_comm_enter(struct ncclComm *comm)
{
    pthread_mutex_lock(&mutex);
    bool is_live = place_of(comm) < live_count;
    if (is_live) {
        atomic_fetch_add(&comm->users, 1);
    }
    pthread_mutex_unlock(&mutex);
    return is_live;
}

void tt_comm_leave(struct ncclComm *comm)
{
    atomic_fetch_sub(&comm->users, 1);
}

void tt_handle_raise_abort(struct ncclComm *comm)
{
    pthread_mutex_lock(&mutex);
    if (place_of(comm) < live_count) {
        atomic_store(comm->abort_flag, 1);
    }
    pthread_mutex_unlock(&mutex);
}

bool tt_handle_remove(struct ncclComm *comm)
{
    pthread_mutex_lock(&mutex);
    size_t i = place_of(comm);
    bool found = i < live_count;
    if (found) {
        live[i] = live[--live_count];
    }
    pthread_mutex_unlock(&mutex);
    return found;
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

ncclResult_t tt_comm_check(const struct ncclComm *comm, const char *call)
{
    if (comm == NULL) {
        return tt_fail(ncclInvalidArgument, "%s: comm is NULL, must be a communicator", call);
    }
    if (!tt_handle_is_live(comm) || comm->magic_start != TT_COMM_MAGIC ||
        comm->magic_end != TT_COMM_MAGIC) {
        return tt_fail(ncclInvalidArgument,
                       "%s: comm %p is no communicator, or was destroyed or aborted", call,
                       (const void *)comm);
    }
    switch (atomic_load(&comm->state)) {
    case TT_COMM_READY:
        break;
    case TT_COMM_INIT:
        return tt_fail(
            ncclInvalidArgument,
            "%s: rank %d: the communicator is still being made; poll ncclCommGetAsyncError", call,
            comm->rank);
    case TT_COMM_FINALIZED:
        return tt_fail(
            ncclInvalidArgument,
            "%s: rank %d: the communicator is finalized; only ncclCommDestroy may follow", call,
            comm->rank);
    default:
        break;
    }
    ncclResult_t error = (ncclResult_t)atomic_load(&comm->async_error);
    if (error != ncclSuccess) {
        return tt_fail(
            error,
            "%s: rank %d: the communicator has failed before (ncclCommGetAsyncError); only "
            "ncclCommAbort may follow",
            call, comm->rank);
    }
    return ncclSuccess;
}
