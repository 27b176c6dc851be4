// The sends and receives of a group: one piece of work, in which all go on side by side, those of
// one pair and direction in order. See messages.h.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/messages.h"

#include "base/log.h"
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

// Says what the work will do to each of its pairs, before any of it begins.
static void announce(struct tt_host *host, struct messages *all)
{
    for (size_t i = 0; i < all->count; i++) {
        tt_message_announce(host, &all->message[i].op);
    }
    atomic_fetch_add_explicit(&tt_arena_own(host->arena, host->rank)->messages, 1,
                              memory_order_release);
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
            tt_message_begin(host, message);
        }
    }
    all->is_begun = true;
}

// One look at each message. False: the communicator has failed. *moved: something has.
static bool look(struct tt_host *host, struct messages *all, bool *moved)
{
    for (size_t i = 0; i < all->count; i++) {
        struct tt_message_run *message = &all->message[i];
        if (message->phase == TT_MESSAGE_QUEUED || message->phase == TT_MESSAGE_OVER) {
            continue;
        }
        enum tt_progress progress = tt_message_step(host, message);
        *moved |= message->has_moved;
        if (progress == TT_FAILED) {
            return false;
        }
        if (progress == TT_DONE) {
            message->phase = TT_MESSAGE_OVER;
            tt_record_ended(message->line);
            all->open--;
            if (message->next != 0) {
                tt_message_begin(host, &all->message[message->next]);
            }
        }
    }
    return true;
}

// A message whose other rank has not come to it, else one that is not over.
static const struct tt_message_run *late_one(const struct tt_host *host, const struct messages *all)
{
    const struct tt_message_run *late = NULL;
    for (size_t i = 0; i < all->count; i++) {
        const struct tt_message_run *message = &all->message[i];
        if (message->phase == TT_MESSAGE_QUEUED || message->phase == TT_MESSAGE_OVER) {
            continue;
        }
        if (tt_message_is_alone(host, message)) {
            return message;
        }
        late = message;
    }
    return late;
}

// Fails where a rank that a message waits for has left.
static bool have_left(struct tt_host *host, const struct messages *all)
{
    for (size_t i = 0; i < all->count; i++) {
        const struct tt_message_run *message = &all->message[i];
        int peer = message->op.root;
        if (message->phase == TT_MESSAGE_QUEUED || message->phase == TT_MESSAGE_OVER ||
            !tt_host_has_left(host, peer) || !tt_message_is_alone(host, message)) {
            continue;
        }
        char call[120];
        tt_op_describe(&message->op, call, sizeof call);
        (void)tt_host_fail(host, ncclRemoteError,
                           "rank %d: %s on %s: rank %d has destroyed the communicator and will "
                           "never call the other side of it",
                           host->rank, call,
                           host->team.comm_name == NULL ? "?" : host->team.comm_name, peer);
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

// ---- Messages to oneself ------------------------------------------------------------------------

struct copy {
    struct tt_task task; // first
    struct tt_op op;     // the send
    void *to;
    size_t done;
};

static enum tt_progress copy_step(struct tt_task *task, unsigned part)
{
    enum { STEP_BYTES = 1 << 20 };
    struct copy *copy = (struct copy *)task;
    size_t bytes = copy->op.count * tt_type_bytes(copy->op.type), left = bytes - copy->done;
    size_t now = left < STEP_BYTES ? left : STEP_BYTES;
    (void)part;
    if (now > 0 && copy->to != copy->op.send) {
        memmove((char *)copy->to + copy->done, (const char *)copy->op.send + copy->done, now);
    }
    copy->done += now;
    return copy->done == bytes ? TT_DONE : tt_host_is_over(task->host) ? TT_FAILED : TT_WAITING;
}

// ---- Streams ------------------------------------------------------------------------------------

// All streams are captured, by the same graph, or none is.
static ncclResult_t check_captures(const struct tt_host *host, const struct tt_message *messages,
                                   size_t count, bool *is_captured)
{
    unsigned long long first = 0;
    for (size_t i = 0; i < count; i++) {
        enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        unsigned long long id = 0;
        if (i > 0 && messages[i].stream == messages[i - 1].stream) {
            continue;
        }
        TRY(tt_cuda(
            (int)cudaStreamGetCaptureInfo(messages[i].stream, &status, &id, NULL, NULL, NULL, NULL),
            "cudaStreamGetCaptureInfo"));
        id = status == cudaStreamCaptureStatusNone ? 0 : id;
        first = i == 0 ? id : first;
        if (id != first) {
            return tt_fail(ncclInvalidUsage,
                           "rank %d: streams %p and %p of one group: one is captured into a graph "
                           "and the other is not, or into another",
                           host->rank, (void *)messages[0].stream, (void *)messages[i].stream);
        }
    }
    *is_captured = first != 0;
    return ncclSuccess;
}

// The stream `after` waits for what is on `before` now.
static ncclResult_t order(cudaStream_t before, cudaStream_t after)
{
    cudaEvent_t event = NULL;
    TRY(tt_cuda((int)cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                "cudaEventCreateWithFlags"));
    ncclResult_t result = tt_cuda((int)cudaEventRecord(event, before), "cudaEventRecord");
    if (result == ncclSuccess) {
        result = tt_cuda((int)cudaStreamWaitEvent(after, event, 0), "cudaStreamWaitEvent");
    }
    (void)cudaEventDestroy(event);
    return result;
}

// Does so between the first message's stream and each other stream of the group.
static ncclResult_t order_streams(const struct tt_message *messages, size_t count, bool is_end)
{
    cudaStream_t first = messages[0].stream;
    ncclResult_t result = ncclSuccess;
    for (size_t i = 1; i < count && result == ncclSuccess; i++) {
        cudaStream_t this = messages[i].stream;
        size_t same = 0;
        while (messages[same].stream != this) {
            same++;
        }
        if (same == i) {
            result = order(is_end ? first : this, is_end ? this : first);
        }
    }
    return result;
}

// ---- Launching ----------------------------------------------------------------------------------

// Copies to oneself, each send with the receive of its number.
static ncclResult_t launch_copies(struct tt_host *host, const struct tt_message *messages,
                                  size_t count, bool may_wait)
{
    size_t receive = 0;
    for (size_t i = 0; i < count; i++) {
        const struct tt_op *op = &messages[i].op;
        if (op->function != TT_SEND || op->root != host->rank) {
            continue;
        }
        while (receive < count && (messages[receive].op.function != TT_RECV ||
                                   messages[receive].op.root != host->rank)) {
            receive++;
        }
        if (receive == count) {
            return tt_bug("rank %d: a message to itself without a receive", host->rank);
        }
        struct copy copy = {.task = {.host = host,
                                     .name = "Send",
                                     .step = copy_step,
                                     .parts = 1,
                                     .is_short = may_wait && op->count <= SHORT_BYTES / 8,
                                     .op_offset = offsetof(struct copy, op)},
                            .op = *op,
                            .to = messages[receive++].op.recv};
        TRY(tt_task_launch(&copy.task, sizeof copy, messages[0].stream));
    }
    return ncclSuccess;
}

// Fills the messages between ranks; returns their bytes.
static size_t fill(struct tt_host *host, struct messages *all, uint32_t *last,
                   const struct tt_message *messages, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const struct tt_op *op = &messages[i].op;
        if (op->root == host->rank) {
            continue;
        }
        uint32_t number = (uint32_t)all->count++;
        uint32_t *before = &last[2 * op->root + (op->function == TT_SEND)];
        all->message[number] = (struct tt_message_run){
            .op = *op, .phase = *before == 0 ? TT_MESSAGE_BEGUN : TT_MESSAGE_QUEUED};
        if (*before != 0) {
            all->message[*before - 1].next = number;
        }
        *before = number + 1;
        bytes += op->count * tt_type_bytes(op->type);
    }
    all->open = all->count;
    return bytes;
}

static void record_calls(struct tt_host *host, struct messages *all,
                         const struct tt_message *messages, size_t count)
{
    size_t number = 0;
    for (size_t i = 0; i < count; i++) {
        if (messages[i].op.root != host->rank) {
            all->message[number++].line =
                tt_record_called(&host->record->calls, &messages[i].op, messages[i].stream);
        }
    }
}

static ncclResult_t launch(struct tt_host *host, const struct tt_message *messages, size_t count,
                           bool may_wait, bool is_captured)
{
    size_t bytes = sizeof(struct messages) + count * sizeof(struct tt_message_run);
    struct messages *all = calloc(1, bytes);
    uint32_t *last = calloc(2 * (size_t)host->nranks, sizeof *last);
    ncclResult_t result = ncclSuccess;
    if (all == NULL || last == NULL) {
        result = tt_fail(ncclSystemError, "rank %d: no memory for %zu messages", host->rank, count);
    } else {
        size_t moved = fill(host, all, last, messages, count);
        if (!is_captured) {
            record_calls(host, all, messages, count);
        }
        all->task = (struct tt_task){.host = host,
                                     .name = "SendRecv",
                                     .step = step,
                                     .parts = 1,
                                     .is_short = may_wait && moved <= SHORT_BYTES};
        if (all->count > 0) {
            result = tt_task_launch(&all->task, bytes, messages[0].stream);
        }
    }
    free(last);
    free(all);
    return result;
}

ncclResult_t tt_messages_launch(struct tt_host *host, const struct tt_message *messages,
                                size_t count, bool may_wait)
{
    bool is_captured = false;
    TRY(check_captures(host, messages, count, &is_captured));
    TRY(order_streams(messages, count, false));
    TRY(launch_copies(host, messages, count, may_wait));
    TRY(launch(host, messages, count, may_wait, is_captured));
    return order_streams(messages, count, true);
}
