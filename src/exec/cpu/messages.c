// The sends and receives of a group: one piece of work, in which all go on side by side, those of
// one pair and direction in order. A message to oneself is one copy. See messages.h.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/messages.h"

#include "base/log.h"
#include "base/stream.h"
#include "exec/cpu/behind.h"
#include "exec/cpu/pair.h"
#include "exec/cpu/task.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT_BYTES = 64 << 10 }; // as of collectives

struct messages {
    struct tt_task task; // first
    bool is_begun;
    size_t count, open;
    struct tt_message_run message[];
};

// ---- Running ------------------------------------------------------------------------------------

static bool is_own(const struct tt_host *host, const struct tt_message_run *message)
{
    return message->op.root == host->rank;
}

// Whether it goes on.
static bool is_running(const struct tt_message_run *message)
{
    return message->phase == TT_MESSAGE_BEGUN || message->phase == TT_MESSAGE_OPEN;
}

// Says what the work will do to each of its pairs, before any of it begins.
static void announce(struct tt_host *host, struct messages *all)
{
    for (size_t i = 0; i < all->count; i++) {
        if (!is_own(host, &all->message[i])) {
            tt_message_announce(host, &all->message[i].op);
        }
    }
    atomic_fetch_add_explicit(&tt_arena_own(host->arena, host->rank)->messages, 1,
                              memory_order_release);
}

// Begins a message that is the next of its pair, or holds it.
static void begin_or_hold(struct tt_host *host, struct messages *all,
                          struct tt_message_run *message)
{
    if (message->is_behind && tt_behind_look(host, all->message, all->count, message)) {
        message->phase = TT_MESSAGE_HELD;
    } else {
        tt_message_begin(host, message);
    }
}

static void begin(struct tt_host *host, struct messages *all)
{
    host->watch = (struct tt_watch){0};
    announce(host, all);
    for (size_t i = 0; i < all->count; i++) {
        struct tt_message_run *message = &all->message[i];
        if (message->line == NULL) { // of a graph
            message->line = tt_record_called(&host->record->replays, &message->op, NULL);
        }
        if (message->phase != TT_MESSAGE_QUEUED) { // first of its pair
            begin_or_hold(host, all, message);
        }
    }
    all->is_begun = true;
}

// Copies on to the rank itself.
static enum tt_progress copy_on(struct tt_host *host, struct tt_message_run *message)
{
    enum { STEP_BYTES = 1 << 20 };
    size_t bytes = message->op.count * tt_type_bytes(message->op.type);
    size_t left = bytes - message->moved, now = left < STEP_BYTES ? left : STEP_BYTES;
    if (now > 0 && message->op.recv != message->op.send) {
        memmove((char *)message->op.recv + message->moved,
                (const char *)message->op.send + message->moved, now);
    }
    message->moved += now;
    message->has_moved = true;
    return message->moved == bytes ? TT_DONE : tt_host_is_over(host) ? TT_FAILED : TT_WAITING;
}

static enum tt_progress go_on(struct tt_host *host, struct messages *all,
                              struct tt_message_run *message)
{
    message->has_moved = false;
    if (message->phase == TT_MESSAGE_HELD) {
        begin_or_hold(host, all, message);
        message->has_moved = message->phase != TT_MESSAGE_HELD;
        return TT_WAITING;
    }
    return is_own(host, message) ? copy_on(host, message) : tt_message_step(host, message);
}

// One look at each message. False: the communicator has failed. *moved: something has.
static bool look(struct tt_host *host, struct messages *all, bool *moved)
{
    for (size_t i = 0; i < all->count; i++) {
        struct tt_message_run *message = &all->message[i];
        if (message->phase == TT_MESSAGE_QUEUED || message->phase == TT_MESSAGE_OVER) {
            continue;
        }
        enum tt_progress progress = go_on(host, all, message);
        *moved |= message->has_moved;
        if (progress == TT_FAILED) {
            return false;
        }
        if (progress == TT_DONE) {
            message->phase = TT_MESSAGE_OVER;
            tt_record_ended(message->line);
            all->open--;
            if (message->next != 0) {
                begin_or_hold(host, all, &all->message[message->next]);
            }
        }
    }
    return true;
}

// A message whose other rank has not come to it, else one that goes on, else any that is not over.
static const struct tt_message_run *late_one(const struct tt_host *host, const struct messages *all)
{
    const struct tt_message_run *late = NULL;
    for (size_t i = 0; i < all->count; i++) {
        const struct tt_message_run *message = &all->message[i];
        bool goes_on = is_running(message) && !is_own(host, message);
        if (goes_on && tt_message_is_alone(host, &message->op, message->number)) {
            return message;
        }
        if (goes_on || (late == NULL && message->phase != TT_MESSAGE_OVER)) {
            late = message;
        }
    }
    return late;
}

// Fails where a rank that a message waits for has left.
static bool have_left(struct tt_host *host, const struct messages *all)
{
    for (size_t i = 0; i < all->count; i++) {
        const struct tt_message_run *message = &all->message[i];
        int peer = message->op.root;
        const char *departure = tt_host_departure(host, peer);
        if (!is_running(message) || is_own(host, message) || departure == NULL ||
            !tt_message_is_alone(host, &message->op, message->number)) {
            continue;
        }
        char call[120];
        tt_op_describe(&message->op, call, sizeof call);
        (void)tt_host_fail(host, ncclRemoteError,
                           "rank %d: %s on %s: rank %d has %s the communicator and will never "
                           "call the other side of it",
                           host->rank, call,
                           host->team.comm_name == NULL ? "?" : host->team.comm_name, peer,
                           departure);
        return true;
    }
    return false;
}

static enum tt_progress wait_on(struct tt_host *host, const struct messages *all)
{
    enum tt_news news = tt_host_wait(host, &host->watch);
    if (news == TT_OVER || have_left(host, all)) {
        return TT_FAILED;
    }
    if (news == TT_GO_ON) {
        return TT_WAITING;
    }
    const struct tt_message_run *late = late_one(host, all);
    char call[120], last[160];
    tt_op_describe(&late->op, call, sizeof call);
    tt_host_describe_last(host, late->op.root, last, sizeof last);
    const char *name = host->team.comm_name == NULL ? "?" : host->team.comm_name;
    if (news == TT_LIMIT) {
        (void)tt_host_fail(host, ncclTimeout,
                           "rank %d: %s, message %" PRIu64 " of this pair on %s: rank %d did not "
                           "%s it within %" PRIu64 " s (TUTTI_TIMEOUT); in collectives %s",
                           host->rank, call, late->number, name, late->op.root,
                           late->op.function == TT_SEND ? "receive" : "send",
                           host->limit_ns / 1000000000, last);
        return TT_FAILED;
    }
    tt_say("rank %d: %s, message %" PRIu64 " of this pair on %s: waiting for rank %d to %s it, "
           "for %" PRIu64 " s so far; in collectives %s",
           host->rank, call, late->number, name, late->op.root,
           late->op.function == TT_SEND ? "receive" : "send", tt_watch_seconds(&host->watch), last);
    return TT_WAITING;
}

static void fail_lines(const struct tt_host *host, struct messages *all)
{
    int error = atomic_load_explicit(host->team.async_error, memory_order_relaxed);
    for (size_t i = 0; i < all->count; i++) {
        if (all->message[i].phase != TT_MESSAGE_OVER) {
            tt_record_failed(all->message[i].line, (ncclResult_t)error);
        }
    }
}

static enum tt_progress step(struct tt_task *task, unsigned part)
{
    struct messages *all = (struct messages *)task;
    struct tt_host *host = task->host;
    bool moved = false;
    (void)part;
    if (!all->is_begun) {
        begin(host, all);
    }
    enum tt_progress progress = TT_FAILED;
    if (look(host, all, &moved)) {
        if (moved) {
            host->watch = (struct tt_watch){0};
        }
        progress = all->open == 0 ? TT_DONE : moved ? TT_WAITING : wait_on(host, all);
    }
    if (progress == TT_FAILED) {
        fail_lines(host, all);
    }
    if (progress == TT_DONE) {
        atomic_fetch_add_explicit(&tt_arena_own(host->arena, host->rank)->messages, 1,
                                  memory_order_release);
    }
    return progress;
}

// ---- Launching ----------------------------------------------------------------------------------

// The receive of a message to oneself that is the number of its send; `*at`: where to look on.
static ncclResult_t find_own_receive(const struct tt_host *host, const struct tt_message *messages,
                                     size_t count, size_t *at, struct tt_message_run *message)
{
    while (*at < count &&
           (messages[*at].op.function != TT_RECV || messages[*at].op.root != host->rank)) {
        ++*at;
    }
    if (*at == count) {
        return tt_bug("rank %d: a message to itself without a receive", host->rank);
    }
    message->writes_at = (uint32_t)*at;
    message->op.recv = messages[(*at)++].op.recv;
    return ncclSuccess;
}

static bool is_own_receive(const struct tt_host *host, const struct tt_op *op)
{
    return op->function == TT_RECV && op->root == host->rank; // part of the send
}

// Fills the messages; *bytes_out: how many they move.
static ncclResult_t fill(const struct tt_host *host, struct messages *all, uint32_t *last,
                         const struct tt_message *messages, size_t count, size_t *bytes_out)
{
    size_t own_receive = 0;
    for (size_t i = 0; i < count; i++) {
        const struct tt_op *op = &messages[i].op;
        if (is_own_receive(host, op)) {
            continue;
        }
        bool sends = op->function == TT_SEND;
        uint32_t number = (uint32_t)all->count++;
        uint32_t *before = &last[2 * op->root + sends];
        struct tt_message_run *message = &all->message[number];
        *message =
            (struct tt_message_run){.op = *op,
                                    .phase = *before == 0 ? TT_MESSAGE_BEGUN : TT_MESSAGE_QUEUED,
                                    .reads_at = sends ? (uint32_t)i : TT_MESSAGE_NEVER,
                                    .writes_at = sends ? TT_MESSAGE_NEVER : (uint32_t)i};
        TRY(op->root == host->rank ? find_own_receive(host, messages, count, &own_receive, message)
                                   : ncclSuccess);
        if (*before != 0) {
            all->message[*before - 1].next = number;
        }
        *before = number + 1;
        *bytes_out += op->count * tt_type_bytes(op->type);
    }
    all->open = all->count;
    tt_behind_mark(all->message, all->count);
    return ncclSuccess;
}

static void record_calls(struct tt_host *host, struct messages *all,
                         const struct tt_message *messages, size_t count)
{
    size_t number = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_own_receive(host, &messages[i].op)) {
            all->message[number++].line =
                tt_record_called(&host->record->calls, &messages[i].op, messages[i].stream);
        }
    }
}

ncclResult_t tt_messages_launch(struct tt_host *host, const struct tt_message *messages,
                                size_t count, bool may_wait)
{
    unsigned long long capture = 0;
    TRY(tt_stream_capture(host->rank, messages[0].stream, &capture));
    size_t bytes = sizeof(struct messages) + count * sizeof(struct tt_message_run);
    struct messages *all = calloc(1, bytes);
    uint32_t *last = calloc(2 * (size_t)host->nranks, sizeof *last);
    size_t moved = 0;
    if (all == NULL || last == NULL) {
        free(last);
        free(all);
        return tt_fail(ncclSystemError, "rank %d: no memory for %zu messages", host->rank, count);
    }
    ncclResult_t result = fill(host, all, last, messages, count, &moved);
    if (result == ncclSuccess) {
        if (capture == 0) {
            record_calls(host, all, messages, count);
        }
        all->task = (struct tt_task){.host = host,
                                     .name = "SendRecv",
                                     .step = step,
                                     .parts = 1,
                                     .is_short = may_wait && moved <= SHORT_BYTES};
        result = tt_task_launch(&all->task, bytes, messages[0].stream);
    }
    free(last);
    free(all);
    return result;
}
