// Messages of groups. See messages.h.
// SPDX-License-Identifier: Apache-2.0
#include "comm/messages.h"

#include "base/log.h"
#include "comm/comm.h"
#include "comm/estimate.h"
#include "comm/group.h"
#include "comm/stage.h"

#include <stdlib.h>
#include <string.h>

// What a group keeps of a message until its end.
struct kept {
    uint64_t hash; // of the communicator
    struct tt_message message;
};

struct batch {
    size_t count;
    struct tt_message message[];
};

static size_t bytes_of(const struct batch *batch)
{
    size_t bytes = 0;
    for (size_t i = 0; i < batch->count; i++) {
        bytes += batch->message[i].op.count * tt_type_bytes(batch->message[i].op.type);
    }
    return bytes;
}

static ncclResult_t run_batch(struct ncclComm *comm, void *argument)
{
    const struct batch *batch = argument;
    if (tt_estimate_instead(comm, bytes_of(batch))) {
        return ncclSuccess;
    }
    return tt_executor->messages(comm->host, batch->message, batch->count, tt_group_may_wait());
}

// ---- Messages to oneself ------------------------------------------------------------------------

static const struct tt_op *next_own(const struct batch *batch, enum tt_function function, int rank,
                                    size_t *at)
{
    while (*at < batch->count &&
           (batch->message[*at].op.function != function || batch->message[*at].op.root != rank)) {
        ++*at;
    }
    return *at < batch->count ? &batch->message[(*at)++].op : NULL;
}

static ncclResult_t check_own(const struct batch *batch, int rank)
{
    size_t send_at = 0, recv_at = 0;
    for (;;) {
        const struct tt_op *send = next_own(batch, TT_SEND, rank, &send_at);
        const struct tt_op *recv = next_own(batch, TT_RECV, rank, &recv_at);
        char a[120] = "", b[120] = "";
        if (send == NULL && recv == NULL) {
            return ncclSuccess;
        }
        if (send != NULL) {
            tt_op_describe(send, a, sizeof a);
        }
        if (recv != NULL) {
            tt_op_describe(recv, b, sizeof b);
        }
        if (send == NULL || recv == NULL) {
            return tt_fail(ncclInvalidUsage,
                           "rank %d: %s: a message to the rank itself, of which the group has no "
                           "%s; ncclSend and ncclRecv of it must be in the same group",
                           rank, send != NULL ? a : b, send != NULL ? "receive" : "send");
        }
        if (send->count != recv->count || send->type != recv->type) {
            return tt_fail(ncclInvalidUsage,
                           "rank %d: %s, but its receive is %s: count and type must be the same",
                           rank, a, b);
        }
    }
}

// ---- Gathering ----------------------------------------------------------------------------------

ncclResult_t tt_message_submit(struct ncclComm *comm, const struct tt_message *message)
{
    if (tt_group_is_open()) {
        struct kept kept = {comm->hash, *message};
        return tt_group_launch(comm, TT_GROUP_MESSAGE, message->stream, NULL, &kept, sizeof kept);
    }
    union {
        struct batch batch;
        char bytes[sizeof(struct batch) + sizeof(struct tt_message)];
    } one = {.batch = {.count = 1}};
    memcpy(one.bytes + offsetof(struct batch, message), message, sizeof *message);
    TRY(check_own(&one.batch, comm->rank));
    return tt_stage_run_here(comm, run_batch, &one.batch);
}

// A communicator's messages on the way into one launch.
struct gathering {
    const struct tt_job *first;
    uint64_t hash;
    size_t count, order;
    struct tt_job *job;
};

static const struct kept *kept_of(const struct tt_job *job)
{
    return (const struct kept *)(const void *)job->argument;
}

static int compare(const void *left, const void *right)
{
    const struct gathering *a = left, *b = right;
    if (a->hash != b->hash) {
        return a->hash < b->hash ? -1 : 1;
    }
    return a->order < b->order ? -1 : a->order > b->order;
}

static struct gathering *find(struct gathering *all, size_t count, const struct tt_job *job,
                              size_t *hint)
{
    if (*hint < count && all[*hint].first->comm == job->comm) {
        return &all[*hint];
    }
    for (*hint = 0; *hint < count; ++*hint) {
        if (all[*hint].first->comm == job->comm) {
            return &all[*hint];
        }
    }
    return NULL;
}

// Counts each communicator's messages; returns how many communicators there are.
static size_t count_messages(const struct tt_jobs *jobs, struct gathering *all)
{
    size_t count = 0, hint = 0;
    for (const struct tt_job *job = jobs->first; job != NULL; job = job->next) {
        if (job->stage != TT_GROUP_MESSAGE) {
            continue;
        }
        struct gathering *place = find(all, count, job, &hint);
        if (place == NULL) {
            place = &all[count];
            *place = (struct gathering){.first = job, .hash = kept_of(job)->hash, .order = count};
            hint = count++;
        }
        place->count++;
    }
    return count;
}

static ncclResult_t make_job(struct gathering *place)
{
    size_t bytes = sizeof(struct batch) + place->count * sizeof(struct tt_message);
    struct tt_job *job = calloc(1, sizeof *job + bytes);
    if (job == NULL) {
        return tt_fail(ncclSystemError, "no memory for %zu messages of a group", place->count);
    }
    *job = *place->first;
    job->next = NULL;
    job->stage = TT_GROUP_LAUNCH;
    job->run = run_batch;
    place->job = job;
    return ncclSuccess;
}

static struct batch *batch_of(struct tt_job *job)
{
    return (struct batch *)(void *)job->argument;
}

static ncclResult_t fill(const struct tt_jobs *jobs, struct gathering *all, size_t count)
{
    ncclResult_t result = ncclSuccess;
    size_t hint = 0;
    for (size_t i = 0; i < count && result == ncclSuccess; i++) {
        result = make_job(&all[i]);
    }
    for (const struct tt_job *job = jobs->first; job != NULL && result == ncclSuccess;
         job = job->next) {
        if (job->stage == TT_GROUP_MESSAGE) {
            struct batch *batch = batch_of(find(all, count, job, &hint)->job);
            batch->message[batch->count++] = kept_of(job)->message;
        }
    }
    for (size_t i = 0; i < count && result == ncclSuccess; i++) {
        result = check_own(batch_of(all[i].job), all[i].job->rank);
    }
    return result;
}

ncclResult_t tt_messages_gather(struct tt_jobs *jobs)
{
    size_t messages = 0;
    for (const struct tt_job *job = jobs->first; job != NULL; job = job->next) {
        messages += job->stage == TT_GROUP_MESSAGE;
    }
    if (messages == 0) {
        return ncclSuccess;
    }
    struct gathering *all = calloc(messages, sizeof *all);
    if (all == NULL) {
        return tt_fail(ncclSystemError, "no memory for %zu messages of a group", messages);
    }
    size_t count = count_messages(jobs, all);
    ncclResult_t result = fill(jobs, all, count);
    // On the same stream, messages of several communicators must come in the same order everywhere.
    qsort(all, count, sizeof *all, compare);
    for (size_t i = 0; i < count; i++) {
        if (all[i].job != NULL) {
            jobs->last->next = all[i].job;
            jobs->last = all[i].job;
        }
    }
    free(all);
    return result;
}
