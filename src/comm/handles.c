// Which communicator handles are alive, and which calls are inside them. A handle is looked up
// before it is read, so that a freed or wild one is an error and no crash.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/wait.h"
#include "comm/comm.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

enum { GRAVES = 256 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // guards all below but owner
static struct ncclComm **live;
static size_t live_count, live_capacity;
// The last communicators freed: their addresses are not given out again while they lie here.
static struct ncclComm *graves[GRAVES];
static size_t next_grave;
// Grows whenever a handle is about to be taken out: what a thread knows of handles (below) is then
// looked up anew.
static _Atomic uint64_t removals = 1;
static _Atomic pid_t owner; // the process that made them; 0: none were made
// This is a child made by fork(), and they are its parent's. Written there before it has a second
// thread: to ask for the process's number would be a system call at every call.
static _Atomic bool is_inherited;

static bool was_inherited(void)
{
    return atomic_load_explicit(&is_inherited, memory_order_relaxed);
}

static void note_fork(void)
{
    atomic_store_explicit(&is_inherited, atomic_load(&owner) != 0, memory_order_relaxed);
    atomic_fetch_add(&removals, 1);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, note_fork);
}

ncclResult_t tt_handle_check_process(const char *call)
{
    return !was_inherited()
               ? ncclSuccess
               : tt_fail(ncclInvalidUsage,
                         "%s: this is process %d, a child by fork() of process %d, which had "
                         "communicators: CUDA does not go on in a child; fork before the first one "
                         "is made, or exec a new program",
                         call, (int)getpid(), (int)atomic_load(&owner));
}

ncclResult_t tt_handle_add(struct ncclComm *comm)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch_forks);
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

// Handles that this thread found alive last, by their addresses, and `removals` at that time.
// Several: a thread may call for all ranks in turn.
struct known {
    const struct ncclComm *comm;
    uint64_t removals;
};
enum { KNOWN_BITS = 5 };
static _Thread_local struct known known_handles[1 << KNOWN_BITS];

static struct known *known_place(const struct ncclComm *comm)
{
    uint64_t mixed = (uintptr_t)comm * UINT64_C(0x9e3779b97f4a7c15); // Fibonacci hashing
    return &known_handles[mixed >> (64 - KNOWN_BITS)];
}

// Enters without the mutex, where nothing was taken out since this thread found the handle alive.
// Counting and looking again are in one order with bumping and waiting for the count (all
// sequentially consistent): either this thread sees the removal, or that sees this thread. The
// memory of a communicator that is gone lies in a grave meanwhile.
static bool enter_known(struct ncclComm *comm)
{
    const struct known *known = known_place(comm);
    if (known->comm != comm || known->removals != atomic_load(&removals)) {
        return false;
    }
    atomic_fetch_add(&comm->users, 1);
    if (known->removals == atomic_load(&removals)) {
        return true;
    }
    atomic_fetch_sub(&comm->users, 1);
    return false;
}

// also_ending: also where ncclCommDestroy ends it.
static bool enter_listed(struct ncclComm *comm, bool also_ending)
{
    pthread_mutex_lock(&mutex);
    bool may = place_of(comm) < live_count && (also_ending || !comm->is_ending);
    if (may) {
        atomic_fetch_add(&comm->users, 1);
    }
    if (may && !comm->is_ending) {
        *known_place(comm) = (struct known){comm, atomic_load(&removals)};
    }
    pthread_mutex_unlock(&mutex);
    return may;
}

bool tt_handle_enter(struct ncclComm *comm, const char *call)
{
    if (was_inherited() || !(enter_known(comm) || enter_listed(comm, call == NULL))) {
        return false;
    }
    tt_call_begin(call, tt_comm_rank(comm));
    return true;
}

struct ncclComm *tt_handle_look_at_nth(size_t n)
{
    pthread_mutex_lock(&mutex);
    struct ncclComm *comm = n < live_count ? live[n] : NULL;
    if (comm != NULL) {
        atomic_fetch_add(&comm->lookers, 1);
        atomic_fetch_add(&comm->users, 1);
        tt_call_begin(NULL, tt_comm_rank(comm));
    }
    pthread_mutex_unlock(&mutex);
    return comm;
}

bool tt_handle_look(struct ncclComm *comm)
{
    if (!tt_handle_enter(comm, NULL)) {
        return false;
    }
    atomic_fetch_add(&comm->lookers, 1);
    return true;
}

void tt_handle_looked(struct ncclComm *comm)
{
    atomic_fetch_sub(&comm->lookers, 1);
    tt_comm_leave(comm);
}

ncclResult_t tt_comm_enter_any(struct ncclComm *comm, const char *call)
{
    if (comm == NULL) {
        return tt_fail(ncclInvalidArgument, "%s: comm is NULL, must be a communicator", call);
    }
    if (was_inherited()) {
        return tt_fail(
            ncclInvalidUsage,
            "%s: comm %p belongs to process %d, this is process %d, its child by fork(), which "
            "can neither use it nor make new ones: CUDA does not go on in a child",
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

bool tt_handle_hold(struct ncclComm *comm)
{
    return !was_inherited() && enter_listed(comm, true);
}

void tt_handle_let_go(struct ncclComm *comm)
{
    // Release alone: who waits for the last user may free the communicator at once.
    atomic_fetch_sub_explicit(&comm->users, 1, memory_order_release);
}

void tt_comm_leave(struct ncclComm *comm)
{
    tt_call_end();
    tt_handle_let_go(comm);
}

// Whether the communicator can be used now.
static ncclResult_t check_state(struct ncclComm *comm)
{
    switch (atomic_load(&comm->state)) {
    case TT_COMM_INIT:
        return tt_fail(ncclInvalidArgument,
                       "rank %d: the communicator is still being made; end its group, or poll "
                       "ncclCommGetAsyncError",
                       tt_comm_rank(comm));
    case TT_COMM_FINALIZED:
        return tt_fail(ncclInvalidArgument,
                       "rank %d: the communicator is finalized; only ncclCommGetAsyncError, "
                       "ncclCommDestroy and ncclCommAbort may follow",
                       comm->rank);
    default:
        break;
    }
    ncclResult_t error = (ncclResult_t)atomic_load(&comm->async_error);
    if (error == ncclSuccess && atomic_load(&comm->under_way) > 0) {
        return tt_fail(ncclInvalidArgument,
                       "rank %d: a group with calls on the communicator is still under way; poll "
                       "ncclCommGetAsyncError",
                       comm->rank);
    }
    if (error != ncclSuccess) {
        bool is_told = atomic_load_explicit(&comm->told, memory_order_acquire) == 2;
        return tt_fail(error,
                       "rank %d: the communicator has failed before (ncclCommGetAsyncError); only "
                       "ncclCommAbort, ncclCommDestroy and ncclCommShrink with NCCL_SHRINK_ABORT "
                       "may follow%s%s",
                       comm->rank, is_told ? "; it was: " : "",
                       is_told ? tt_comm_failure_text(comm) : "");
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

// Before it is seen whether calls are inside. With the mutex held.
static void announce_removal(void)
{
    atomic_fetch_add(&removals, 1);
}

static void take_out(size_t place)
{
    live[place] = live[--live_count];
}

bool tt_handle_remove(struct ncclComm *comm)
{
    pthread_mutex_lock(&mutex);
    size_t i = place_of(comm);
    bool may = i < live_count && !comm->is_ending;
    if (may) {
        announce_removal();
        take_out(i);
    }
    pthread_mutex_unlock(&mutex);
    return may;
}

void tt_handle_remove_ending(struct ncclComm *comm)
{
    pthread_mutex_lock(&mutex);
    announce_removal();
    take_out(place_of(comm));
    pthread_mutex_unlock(&mutex);
}

bool tt_handle_abort_ending(struct ncclComm *comm)
{
    bool is_ending = !was_inherited(), first = true;
    struct tt_wait wait = tt_wait_begin(NULL);
    while (is_ending) {
        pthread_mutex_lock(&mutex);
        is_ending = place_of(comm) < live_count && comm->is_ending;
        if (is_ending) {
            atomic_store(&comm->is_aborted, true);
            atomic_store(comm->abort_flag, 1);
        }
        pthread_mutex_unlock(&mutex);
        if (!is_ending) {
            break;
        }
        first = false;
        (void)tt_wait_round(&wait);
    }
    return !first;
}

// Waits a moment until no call is inside; false: one still is. With the mutex held and the removal
// announced, so that none enters: a thread that asks again and again is caught between two calls.
static bool await_idle(const struct ncclComm *comm)
{
    enum { ROUNDS = 64 };
    for (int round = 0; round < ROUNDS && atomic_load(&comm->users) > 0; round++) {
        sched_yield();
    }
    return atomic_load(&comm->users) == 0;
}

enum tt_handle_use tt_handle_begin_ending(struct ncclComm *comm)
{
    pthread_mutex_lock(&mutex);
    enum tt_handle_use use = TT_HANDLE_GONE;
    if (place_of(comm) < live_count && !comm->is_ending) {
        announce_removal();
        use = atomic_load(&comm->state) == TT_COMM_INIT ? TT_HANDLE_IN_INIT
              : await_idle(comm)                        ? TT_HANDLE_IDLE
              : atomic_load(&comm->lookers) > 0         ? TT_HANDLE_LOOKED_AT
                                                        : TT_HANDLE_IN_CALL;
    }
    if (use == TT_HANDLE_IDLE) {
        comm->is_ending = true;
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
