// A rank's part in the host team: its life, turns, waits, failures. See host.h.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/host.h"

#include "base/log.h"
#include "base/params.h"
#include "base/process.h"
#include "base/wait.h"
#include "exec/cpu/buffers.h"
#include "exec/cpu/choose.h"
#include "exec/cpu/circle.h"
#include "exec/cpu/pair.h"
#include "exec/cpu/run.h"
#include "exec/cpu/uneven.h"
#include "plan/cache.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vgpu/native.h>

// A rank that is this late is named, and again each time the wait has doubled. It is no error.
static const uint64_t late_ns = UINT64_C(10000000000);
// How often a rank that waits looks for whom.
static const uint64_t circle_ns = 100000000;
// How long a rank whose work has failed waits for the others to stop theirs.
static const uint64_t let_go_ns = UINT64_C(500000000);
// How long the end of a communicator waits for ranks that have not called its operations.
static const uint64_t drain_ns = UINT64_C(10000000000);
// Looks between two looks at the clock. Between two looks a worker may sleep a millisecond or more.
enum { LOOKS_PER_CLOCK = 64 };
// Of plans that are kept for operations that come again, by the ranks of a shelf.
enum { PLAN_BYTES = 4 << 20, SHELVES = 64 };

// ---- Plans --------------------------------------------------------------------------------------
// Ranks of one number keep their plans together, whatever communicator they are of: plans of teams
// of one size are the same, and ranks of one team do not wait for each other's lock.

static pthread_mutex_t shelf_mutex = PTHREAD_MUTEX_INITIALIZER; // guards the shelves
static struct {
    struct tt_plan_cache *plans;
    size_t users;
} shelves[SHELVES];

static struct tt_plan_cache *hold_plans(int rank)
{
    pthread_mutex_lock(&shelf_mutex);
    size_t shelf = (size_t)rank % SHELVES;
    if (shelves[shelf].users == 0) {
        shelves[shelf].plans = tt_plan_cache_create(PLAN_BYTES);
    }
    struct tt_plan_cache *plans = shelves[shelf].plans;
    shelves[shelf].users += plans != NULL;
    pthread_mutex_unlock(&shelf_mutex);
    return plans;
}

static void release_plans(int rank, const struct tt_plan_cache *plans)
{
    pthread_mutex_lock(&shelf_mutex);
    size_t shelf = (size_t)rank % SHELVES;
    if (plans != NULL && --shelves[shelf].users == 0) {
        tt_plan_cache_destroy(shelves[shelf].plans);
        shelves[shelf].plans = NULL;
    }
    pthread_mutex_unlock(&shelf_mutex);
}

// ---- Life ---------------------------------------------------------------------------------------

static bool waits_for(const void *team, int rank, const struct tt_op *op, uint64_t sequence)
{
    const struct tt_host *host = team;
    if (op->function == TT_WAIT_SIGNAL) {
        return tt_signal_is_owed(host, host->rank, rank);
    }
    if (rank == host->rank || op->function == TT_PUT_SIGNAL || op->function == TT_SIGNAL) {
        return false;
    }
    if (op->function >= TT_COLLECTIVES) {
        return rank == op->root && tt_message_is_alone(host, op, sequence);
    }
    return atomic_load_explicit(&tt_arena_own(host->arena, rank)->entered, memory_order_acquire) <
           sequence;
}

static void describe_last(const void *team, int rank, const struct tt_op *op, char *text,
                          size_t bytes)
{
    static const char in_collectives[] = "in collectives ";
    size_t used = 0;
    if (op->function == TT_WAIT_SIGNAL) {
        tt_signal_describe(team, rank, text, bytes);
        return;
    }
    if (op->function >= TT_COLLECTIVES) {
        used = sizeof in_collectives - 1;
        (void)snprintf(text, bytes, "%s", in_collectives);
    }
    tt_host_describe_last(team, rank, text + used, bytes - used);
}

static ncclResult_t open_record(struct tt_host *host)
{
    const struct tt_team *team = &host->team;
    struct tt_record_owner owner = {.name = team->comm_name == NULL ? "?" : team->comm_name,
                                    .hash = team->comm_hash,
                                    .rank = host->rank,
                                    .nranks = host->nranks,
                                    .device = team->device,
                                    .team = {host, waits_for, describe_last}};
    return tt_record_open(&owner, &host->record);
}

static pthread_once_t every_once = PTHREAD_ONCE_INIT;
static struct tt_choice every; // algorithm may be chosen

static void choose_every(void)
{
    (void)tt_choice_parse("", &every);
}

ncclResult_t tt_host_join(const struct tt_team *team, struct tt_host **host_out)
{
    struct tt_host *host = aligned_alloc(_Alignof(struct tt_host), sizeof *host);
    int *process = calloc(2 * (size_t)team->nranks, sizeof *process);
    if (host != NULL) {
        memset(host, 0, sizeof *host);
        host->buffers = tt_buffers_new(team->nranks);
        host->plans = hold_plans(team->rank);
    }
    if (host == NULL || process == NULL || host->buffers == NULL || host->plans == NULL) {
        if (host != NULL) {
            tt_buffers_free(host->buffers);
            release_plans(team->rank, host->plans);
        }
        free(host);
        free(process);
        return tt_fail(ncclSystemError, "rank %d: no memory for a team of %d ranks", team->rank,
                       team->nranks);
    }
    int *devices = process + team->nranks;
    for (int rank = 0; rank < team->nranks; rank++) {
        process[rank] = team->process[rank];
        devices[rank] = team->devices == NULL ? -1 : team->devices[rank];
    }
    host->team = *team;
    host->team.process = process;
    host->team.devices = devices;
    host->rank = team->rank;
    host->nranks = team->nranks;
    host->arena = team->arena;
    host->limit_ns = team->limit_ns;
    host->checks = tt_param_int(TT_PARAM_CHECK_CALLS) != 0;
    (void)pthread_once(&every_once, choose_every);
    host->choice = team->choice != NULL ? team->choice : &every;
    host->references = 1;
    tt_arena_hold(host->arena);
    struct tt_own *own = tt_arena_own(host->arena, host->rank);
    atomic_store_explicit(&own->pid, (int32_t)getpid(), memory_order_relaxed);
    atomic_store_explicit(&own->workers, (uint32_t)vgpuWorkerCount(), memory_order_release);
    ncclResult_t result = open_record(host);
    if (result != ncclSuccess) {
        tt_host_release(host);
        return result;
    }
    tt_circle_add(host);
    *host_out = host;
    return ncclSuccess;
}

void tt_host_hold(struct tt_host *host)
{
    atomic_fetch_add(&host->references, 1);
}

void tt_host_release(struct tt_host *host)
{
    if (host == NULL || atomic_fetch_sub(&host->references, 1) > 1) {
        return;
    }
    tt_circle_remove(host);
    tt_record_close(host->record);
    tt_run_free(host->run);
    tt_buffers_free(host->buffers);
    tt_uneven_free(host->uneven);
    tt_choose_end(host);
    release_plans(host->rank, host->plans);
    tt_arena_release(host->arena);
    free((int *)host->team.process);
    free(host);
}

// Whether everything that was called, and launched of graphs, is over.
static bool is_quiet(const struct tt_host *host)
{
    return atomic_load(&host->calls_done) == atomic_load(&host->calls) &&
           atomic_load(&tt_arena_own(host->arena, host->rank)->launches) == 0;
}

// Tells the others, where that is so of a rank that calls nothing any more.
static void tell_end(struct tt_host *host)
{
    uint32_t end = atomic_load(&host->ends);
    if (end != TT_GOES_ON && is_quiet(host)) {
        uint64_t goes_on = TT_GOES_ON;
        (void)atomic_compare_exchange_strong(&tt_arena_own(host->arena, host->rank)->is_over,
                                             &goes_on, tt_host_is_over(host) ? TT_GAVE_UP : end);
    }
}

void tt_host_finish(struct tt_host *host, enum tt_end end)
{
    atomic_store(&host->ends, end);
    tell_end(host);
}

// What was called and launched has ended, or the communicator has failed. What has begun sees a
// failure by itself. The program's own work, in this rank's streams or others', takes what it
// takes.
static void await_end(struct tt_host *host)
{
    struct tt_wait wait = tt_wait_begin(NULL);
    uint64_t next_look_ns = 0, next_report_ns = wait.start_ns + late_ns, alone_ns = wait.start_ns;
    while (!is_quiet(host) && !tt_host_is_over(host)) {
        (void)tt_wait_round(&wait);
        uint64_t now_ns = tt_now_ns();
        if (now_ns < next_look_ns) {
            continue;
        }
        next_look_ns = now_ns + circle_ns;
        bool is_alone = tt_circle_waits_for_idle(host);
        alone_ns = is_alone ? alone_ns : now_ns;
        if (now_ns - alone_ns > drain_ns) {
            (void)tt_host_fail(host, ncclRemoteError,
                               "rank %d: operations on %s still wait for other ranks 10 s after "
                               "the communicator's end was asked for; they are given up",
                               host->rank, host->team.comm_name);
        } else if (!is_alone && now_ns >= next_report_ns) {
            uint64_t waited_ns = now_ns - wait.start_ns;
            next_report_ns += waited_ns;
            tt_say("rank %d: the end of %s waits for its operations, for %" PRIu64
                   " s so far: other work is before them in a stream of this rank or of another",
                   host->rank, host->team.comm_name, waited_ns / 1000000000);
        }
    }
}

bool tt_host_drain(struct tt_host *host, bool *gave_up_out)
{
    bool was_quiet = is_quiet(host);
    tt_host_finish(host, TT_DESTROYED);
    await_end(host);
    bool is_over = tt_host_is_over(host);
    *gave_up_out = is_over && !was_quiet;
    atomic_store(&host->closed, true);
    atomic_store_explicit(&tt_arena_own(host->arena, host->rank)->is_over,
                          is_over ? TT_GAVE_UP : TT_DESTROYED, memory_order_release);
    struct tt_wait wait = tt_wait_begin(NULL);
    while (atomic_load(&host->inside) != 0 && tt_now_ns() - wait.start_ns < drain_ns) {
        (void)tt_wait_round(&wait);
    }
    if (atomic_load(&host->inside) != 0) {
        return false;
    }
    if (is_over) { // puts of others come whatever this rank does
        tt_host_give_up(host);
        while (!tt_host_is_let_go(host)) {
            (void)tt_wait_round(&wait);
        }
    }
    return true;
}

void tt_host_part(struct tt_host *host)
{
    if (host == NULL) {
        return;
    }
    if (!atomic_load(&host->closed)) {
        bool gave_up;
        (void)tt_host_drain(host, &gave_up);
    }
    tt_circle_remove(host);
    if (host->captured != NULL) {
        (void)cudaEventDestroy(host->captured);
    }
    tt_host_release(host);
}

// ---- Turns --------------------------------------------------------------------------------------

// For the other ranks, in steps, as threads may call at once. The count by which turns are given is
// this process's alone.
static void tell_called(struct tt_host *host, uint64_t step)
{
    atomic_fetch_add_explicit(&tt_arena_own(host->arena, host->rank)->called, step,
                              memory_order_release);
}

uint64_t tt_host_call(struct tt_host *host)
{
    uint64_t turn = atomic_fetch_add_explicit(&host->calls, 1, memory_order_relaxed) + 1;
    tell_called(host, 1);
    return turn;
}

void tt_host_uncall(struct tt_host *host)
{
    atomic_fetch_sub_explicit(&host->calls, 1, memory_order_relaxed);
    tell_called(host, UINT64_MAX); // one less
}

bool tt_host_is_idle(const struct tt_host *host)
{
    return atomic_load_explicit(&host->calls_done, memory_order_acquire) ==
               atomic_load_explicit(&host->calls, memory_order_relaxed) &&
           atomic_load_explicit(&tt_arena_own(host->arena, host->rank)->works,
                                memory_order_relaxed) == 0;
}

static void count_done(struct tt_host *host, uint64_t turn)
{
    if (turn > 0) {
        atomic_fetch_add(&host->calls_done, 1);
        tell_end(host);
    }
}

// False: something of this rank works, or the communicator fails, though nobody has told it yet.
static bool begin_to_work(struct tt_host *host)
{
    struct tt_own *own = tt_arena_own(host->arena, host->rank);
    uint32_t nothing = 0;
    if (!atomic_compare_exchange_strong(&own->works, &nothing, 1)) {
        return false;
    }
    if (atomic_load(&tt_arena_header(host->arena)->given_up) == 0) {
        return true;
    }
    atomic_store_explicit(&own->works, 0, memory_order_release);
    return false;
}

static void end_to_work(struct tt_host *host)
{
    atomic_store_explicit(&tt_arena_own(host->arena, host->rank)->works, 0, memory_order_release);
}

static enum tt_progress try_to_begin(struct tt_host *host, uint64_t turn)
{
    if (atomic_load(&host->closed)) {
        return TT_FAILED;
    }
    if (tt_host_is_over(host)) {
        count_done(host, turn);
        return TT_FAILED;
    }
    bool is_next =
        turn == 0 || atomic_load_explicit(&host->calls_done, memory_order_acquire) == turn - 1;
    return is_next && begin_to_work(host) ? TT_DONE : TT_WAITING;
}

enum tt_progress tt_host_begin(struct tt_host *host, uint64_t turn)
{
    // Before `closed` is looked at: whoever sets that then waits for this.
    atomic_fetch_add(&host->inside, 1);
    enum tt_progress progress = try_to_begin(host, turn);
    if (progress != TT_DONE) {
        atomic_fetch_sub_explicit(&host->inside, 1, memory_order_release);
    }
    return progress;
}

void tt_host_end(struct tt_host *host, uint64_t turn)
{
    end_to_work(host);
    count_done(host, turn);
    if (turn > 0) {
        atomic_store_explicit(&tt_arena_own(host->arena, host->rank)->turns, turn,
                              memory_order_release);
    }
    atomic_fetch_sub_explicit(&host->inside, 1, memory_order_release);
}

bool tt_host_launch(struct tt_host *host)
{
    // Before `ends` is looked at: whoever sets that sees this.
    atomic_fetch_add(&tt_arena_own(host->arena, host->rank)->launches, 1);
    if (atomic_load(&host->ends) == TT_GOES_ON) {
        return true;
    }
    tt_host_landed(host);
    return false;
}

void tt_host_landed(struct tt_host *host)
{
    atomic_fetch_sub(&tt_arena_own(host->arena, host->rank)->launches, 1);
    tell_end(host);
}

void tt_host_drop(struct tt_host *host, uint64_t turn, bool has_begun, int device_error)
{
    int none = 0;
    if (!has_begun) {
        atomic_fetch_add(&host->inside, 1); // before `closed` is looked at
    }
    if ((has_begun || !atomic_load(&host->closed)) && host->team.device_error != NULL) {
        (void)atomic_compare_exchange_strong(host->team.device_error, &none, device_error);
    }
    if (has_begun) {
        tt_host_end(host, turn);
        return;
    }
    count_done(host, turn);
    atomic_fetch_sub_explicit(&host->inside, 1, memory_order_release);
}

bool tt_host_take(struct tt_host *host)
{
    // The call is inside the communicator: that does not end meanwhile.
    return !tt_host_is_over(host) && begin_to_work(host);
}

void tt_host_give(struct tt_host *host)
{
    end_to_work(host);
}

uint64_t tt_host_keep(struct tt_host *host)
{
    atomic_fetch_add(&host->inside, 1);
    return tt_host_call(host);
}

// ---- Failing ------------------------------------------------------------------------------------

bool tt_host_is_over(struct tt_host *host)
{
    return tt_failure_is_over(&tt_arena_header(host->arena)->failure, &host->team);
}

void tt_host_give_up(struct tt_host *host)
{
    uint64_t none = 0;
    atomic_store(&tt_arena_header(host->arena)->given_up, 1);
    end_to_work(host);
    (void)atomic_compare_exchange_strong(&host->given_up_ns, &none, tt_now_ns());
}

bool tt_host_is_let_go(struct tt_host *host)
{
    if (tt_now_ns() - atomic_load(&host->given_up_ns) > let_go_ns) {
        return true;
    }
    for (int rank = 0; rank < host->nranks; rank++) {
        const struct tt_own *own = tt_arena_own(host->arena, rank);
        if (rank != host->rank && atomic_load(&own->works) != 0 &&
            !tt_process_has_ended(atomic_load_explicit(&own->pid, memory_order_relaxed))) {
            return false;
        }
    }
    return true;
}

// Whether the program can end the communicator on this rank no more: it does so already.
static bool is_ending(const struct tt_host *host)
{
    return atomic_load(&host->ends) == TT_DESTROYED;
}

ncclResult_t tt_host_fail(struct tt_host *host, ncclResult_t result, const char *format, ...)
{
    char text[TT_FAILURE_TEXT];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return tt_failure_set(&tt_arena_header(host->arena)->failure, &host->team, is_ending(host),
                          result, text);
}

ncclResult_t tt_host_fail_again(struct tt_host *host, ncclResult_t result)
{
    return tt_failure_set_again(&tt_arena_header(host->arena)->failure, &host->team,
                                is_ending(host), result);
}

// ---- Waiting ------------------------------------------------------------------------------------

enum tt_news tt_host_wait(struct tt_host *host, struct tt_watch *watch)
{
    if (tt_host_is_over(host)) {
        return TT_OVER;
    }
    if (++watch->looks % LOOKS_PER_CLOCK != 0) {
        return TT_GO_ON;
    }
    uint64_t now_ns = tt_now_ns();
    if (watch->start_ns == 0) {
        watch->start_ns = now_ns;
        watch->next_report_ns = now_ns + late_ns;
        watch->next_circle_ns = now_ns + circle_ns;
        return TT_GO_ON;
    }
    if (now_ns >= watch->next_circle_ns) {
        watch->next_circle_ns = now_ns + circle_ns;
        tt_circle_look(host);
        if (tt_host_is_over(host)) {
            return TT_OVER;
        }
    }
    if (host->limit_ns > 0 && now_ns - watch->start_ns >= host->limit_ns) {
        return TT_LIMIT;
    }
    if (now_ns >= watch->next_report_ns) {
        watch->next_report_ns += watch->next_report_ns - watch->start_ns;
        return TT_REPORT;
    }
    return TT_GO_ON;
}

uint64_t tt_watch_seconds(const struct tt_watch *watch)
{
    return watch->start_ns == 0 ? 0 : (tt_now_ns() - watch->start_ns) / 1000000000;
}

const char *tt_host_departure(const struct tt_host *host, int rank)
{
    uint64_t end =
        atomic_load_explicit(&tt_arena_own(host->arena, rank)->is_over, memory_order_acquire);
    bool has_left = host->team.has_left != NULL &&
                    atomic_load_explicit(&host->team.has_left[rank], memory_order_acquire) != 0;
    return end == TT_FINALIZED ? "finalized" : end == TT_DESTROYED || has_left ? "destroyed" : NULL;
}
