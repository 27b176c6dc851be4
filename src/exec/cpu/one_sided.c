// One-sided communication. See one_sided.h.
//
// A put copies into the other rank's memory, then counts one signal up in the pair (pair.h); the
// other rank has no part in it. A wait is over when the count has grown by what it asks for, beyond
// what earlier waits asked for. Everything is counted when the work runs, in its turn, so that a
// graph can be launched again and again, and work of graphs and of calls can be mixed.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/one_sided.h"

#include "base/log.h"
#include "exec/cpu/buffers.h"
#include "exec/cpu/pair.h"
#include "exec/cpu/task.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vgpu/device_runtime.h>

// SHORT_BYTES: what the calling thread may copy itself. STEP_BYTES: copied in one step.
enum { SHORT_BYTES = 64 << 10, STEP_BYTES = 1 << 20, LISTED_BYTES = 200 };

static const char *name_of(const struct tt_host *host)
{
    return host->team.comm_name == NULL ? "?" : host->team.comm_name;
}

// ---- Putting ------------------------------------------------------------------------------------

struct put {
    struct tt_task task; // first
    struct tt_op op;     // recv: in the peer's memory
    size_t done;         // bytes
};

static enum tt_progress put_step(struct tt_task *task, unsigned part)
{
    struct put *put = (struct put *)task;
    struct tt_host *host = task->host;
    size_t bytes = put->op.count * tt_type_bytes(put->op.type), left = bytes - put->done;
    size_t step = vgpu_counting ? bytes : STEP_BYTES; // counted as one message
    size_t now = left < step ? left : step;
    (void)part;
    if (tt_host_is_over(host)) {
        return TT_FAILED;
    }
    if (put->done == 0) { // once: the first step moves something, or there is nothing to move
        tt_record_entered(host->line, tt_signal_number(host, put->op.root));
    }
    if (now > 0) {
        tt_buffers_move((char *)put->op.recv + put->done, (const char *)put->op.send + put->done,
                        now);
    }
    put->done += now;
    if (put->done < bytes) {
        return TT_WAITING;
    }
    tt_signal_give(host, put->op.root);
    return TT_DONE;
}

// ---- Waiting ------------------------------------------------------------------------------------

struct waited {
    int peer;
    uint64_t signals;
    uint64_t until; // the count of the peer's signals that ends it; once it has begun
};

struct wait {
    struct tt_task task; // first
    struct tt_op op;
    bool is_begun;
    int late;          // the rank that this one waited for last; -1: for none
    size_t count, met; // all below `met` are there
    struct waited of[];
};

static bool is_there(const struct tt_host *host, const struct waited *waited)
{
    return tt_signal_given(host, waited->peer) >= waited->until;
}

// A signal of the rank itself that is not there cannot come any more: it does one thing at a time.
static bool waits_for_itself(struct tt_host *host, const struct wait *wait)
{
    char call[120];
    for (size_t i = 0; i < wait->count; i++) {
        if (wait->of[i].peer != host->rank || is_there(host, &wait->of[i])) {
            continue;
        }
        tt_op_describe(&wait->op, call, sizeof call);
        (void)tt_host_fail(host, ncclInvalidUsage,
                           "rank %d: %s on %s: it waits for signals of its own that it has not "
                           "given before (%" PRIu64 " of %" PRIu64 "), and does one thing after "
                           "the other: give a signal before waiting for it",
                           host->rank, call, name_of(host), tt_signal_given(host, host->rank),
                           wait->of[i].until);
        return true;
    }
    return false;
}

// False: the communicator has failed.
static bool begin_wait(struct tt_host *host, struct wait *wait)
{
    _Atomic uint64_t *waits = &tt_arena_own(host->arena, host->rank)->waits;
    wait->is_begun = true;
    wait->late = -1;
    host->watch = (struct tt_watch){0};
    for (size_t i = 0; i < wait->count; i++) {
        wait->of[i].until = tt_signal_want(host, wait->of[i].peer, wait->of[i].signals);
    }
    uint64_t before = atomic_load_explicit(waits, memory_order_relaxed);
    tt_record_entered(host->line, before / 2 + 1);
    // What is waited for is visible to who reads that it is.
    atomic_store_explicit(waits, before + 1, memory_order_release);
    return !waits_for_itself(host, wait);
}

static void end_wait(struct tt_host *host, const struct wait *wait)
{
    atomic_fetch_add_explicit(&tt_arena_own(host->arena, host->rank)->waits, 1,
                              memory_order_release);
    if (wait->late >= 0) {
        tt_record_ready(host->line, wait->late);
    }
}

// "rank 2 (1 of 3 signals; its last one was ...), rank 4 (...)": whose signals are not there;
// returns how many ranks.
static int list_late(const struct tt_host *host, const struct wait *wait, char *text, size_t bytes)
{
    size_t used = 0;
    int count = 0, told = 0;
    text[0] = 0;
    for (size_t i = wait->met; i < wait->count; i++) {
        const struct waited *waited = &wait->of[i];
        if (is_there(host, waited)) {
            continue;
        }
        count++;
        if (used + LISTED_BYTES + 24 < bytes) {
            char last[LISTED_BYTES];
            tt_signal_describe(host, waited->peer, last, sizeof last);
            used += (size_t)snprintf(text + used, bytes - used, "%srank %d (%s)",
                                     used > 0 ? ", " : "", waited->peer, last);
            told++;
        }
    }
    if (count > told) {
        (void)snprintf(text + used, bytes - used, "%s%d more", used > 0 ? " and " : "",
                       count - told);
    }
    return count;
}

// Fails where a rank has left that was to give a signal.
static bool have_left(struct tt_host *host, const struct wait *wait)
{
    char call[120];
    for (size_t i = wait->met; i < wait->count; i++) {
        const struct waited *waited = &wait->of[i];
        const char *departure = tt_host_departure(host, waited->peer);
        if (departure == NULL || is_there(host, waited)) {
            continue; // what it did before it left is visible
        }
        tt_op_describe(&wait->op, call, sizeof call);
        (void)tt_host_fail(host, ncclRemoteError,
                           "rank %d: %s on %s: rank %d has %s the communicator and will never "
                           "give its signal",
                           host->rank, call, name_of(host), waited->peer, departure);
        return true;
    }
    return false;
}

static enum tt_progress wait_on(struct tt_host *host, const struct wait *wait)
{
    enum tt_news news = tt_host_wait(host, &host->watch);
    if (news == TT_OVER || have_left(host, wait)) {
        return TT_FAILED;
    }
    if (news == TT_GO_ON) {
        return TT_WAITING;
    }
    char call[120], late[700];
    tt_op_describe(&wait->op, call, sizeof call);
    int count = list_late(host, wait, late, news == TT_LIMIT ? 260 : sizeof late);
    if (count == 0) { // they have come meanwhile
        return TT_WAITING;
    }
    if (news == TT_LIMIT) {
        (void)tt_host_fail(host, ncclTimeout,
                           "rank %d: %s on %s: signals of %d of %d were not given within %" PRIu64
                           " s (TUTTI_TIMEOUT): %s",
                           host->rank, call, name_of(host), count, host->nranks,
                           host->limit_ns / 1000000000, late);
        return TT_FAILED;
    }
    tt_say("rank %d: %s on %s: waiting for signals of %d of %d: %s, for %" PRIu64 " s so far",
           host->rank, call, name_of(host), count, host->nranks, late,
           tt_watch_seconds(&host->watch));
    return TT_WAITING;
}

static enum tt_progress wait_step(struct tt_task *task, unsigned part)
{
    struct wait *wait = (struct wait *)task;
    struct tt_host *host = task->host;
    (void)part;
    if (!wait->is_begun && !begin_wait(host, wait)) {
        return TT_FAILED;
    }
    while (wait->met < wait->count && is_there(host, &wait->of[wait->met])) {
        wait->met++;
    }
    if (wait->met < wait->count) {
        wait->late = wait->of[wait->met].peer;
        return wait_on(host, wait);
    }
    end_wait(host, wait);
    return TT_DONE;
}

// ---- Launching ----------------------------------------------------------------------------------

static ncclResult_t launch_wait(struct tt_host *host, const struct tt_one_sided *call,
                                bool may_wait, cudaStream_t stream)
{
    size_t bytes = sizeof(struct wait) + call->wait_count * sizeof(struct waited);
    struct wait *wait = calloc(1, bytes);
    if (wait == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory to wait for the signals of %zu ranks",
                       host->rank, call->wait_count);
    }
    wait->task = (struct tt_task){.host = host,
                                  .name = tt_function_name(call->op.function),
                                  .step = wait_step,
                                  .parts = 1,
                                  .is_short = may_wait,
                                  .op_offset = offsetof(struct wait, op)};
    wait->op = call->op;
    wait->count = call->wait_count;
    for (size_t i = 0; i < call->wait_count; i++) {
        wait->of[i].peer = call->wait[i].peer;
        wait->of[i].signals = call->wait[i].signals;
    }
    ncclResult_t result = tt_task_launch(&wait->task, bytes, stream);
    free(wait);
    return result;
}

ncclResult_t tt_one_sided_launch(struct tt_host *host, const struct tt_one_sided *call,
                                 bool may_wait, cudaStream_t stream)
{
    if (call->op.function == TT_WAIT_SIGNAL) {
        return launch_wait(host, call, may_wait, stream);
    }
    // It waits for nobody: the calling thread may always do it.
    size_t bytes = call->op.count * tt_type_bytes(call->op.type);
    struct put put = {.task = {.host = host,
                               .name = tt_function_name(call->op.function),
                               .step = put_step,
                               .parts = 1,
                               .is_short = bytes <= SHORT_BYTES,
                               .op_offset = offsetof(struct put, op)},
                      .op = call->op};
    return tt_task_launch(&put.task, sizeof put, stream);
}
