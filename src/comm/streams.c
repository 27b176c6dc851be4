// Streams of a group. See streams.h.
//
// Events join them: one stream waits for all others, then all others for that one. While streams
// are captured, the same calls make edges of the graph.
// SPDX-License-Identifier: Apache-2.0
#include "comm/streams.h"

#include "base/log.h"
#include "base/stream.h"
#include "comm/comm.h"
#include "comm/stage.h"
#include "exec/executor.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

// A communicator's use of a stream in the group.
struct use {
    const struct tt_job *job; // the first
    bool is_first;            // of the communicator's uses
};

struct streams {
    size_t count;
    cudaStream_t stream[];
};

// ---- Joining ------------------------------------------------------------------------------------

// What comes next on `after` waits for what is on `before` now.
static ncclResult_t put_behind(const struct ncclComm *comm, cudaEvent_t event, cudaStream_t before,
                               cudaStream_t after)
{
    TRY(tt_cuda((int)cudaEventRecord(event, before), "cudaEventRecord"));
    TRY(tt_cuda((int)cudaStreamWaitEvent(after, event, 0), "cudaStreamWaitEvent"));
    if (comm->host != NULL && tt_executor->joined != NULL) {
        tt_executor->joined(comm->host, before, after);
    }
    return ncclSuccess;
}

static ncclResult_t run_join(struct ncclComm *comm, void *argument)
{
    const struct streams *streams = argument;
    const cudaStream_t *stream = streams->stream;
    ncclResult_t result = ncclSuccess;
    cudaEvent_t event = NULL;
    TRY(tt_cuda((int)cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                "cudaEventCreateWithFlags"));
    for (size_t i = 1; i < streams->count && result == ncclSuccess; i++) {
        result = put_behind(comm, event, stream[i], stream[0]);
    }
    for (size_t i = 1; i < streams->count && result == ncclSuccess; i++) {
        result = put_behind(comm, event, stream[0], stream[i]);
    }
    (void)cudaEventDestroy(event);
    return result;
}

// ---- Capturing ----------------------------------------------------------------------------------

static ncclResult_t compare_captures(int rank, const struct streams *streams)
{
    unsigned long long first = 0, id = 0;
    TRY(tt_stream_capture(rank, streams->stream[0], &first));
    for (size_t i = 1; i < streams->count; i++) {
        TRY(tt_stream_capture(rank, streams->stream[i], &id));
        if (id != first) {
            return tt_fail(ncclInvalidUsage,
                           "rank %d: streams %p and %p of one group: one is captured into a graph "
                           "and the other is not, or into another",
                           rank, (void *)streams->stream[0], (void *)streams->stream[i]);
        }
    }
    return ncclSuccess;
}

// All are captured by the same graph, or none is.
static ncclResult_t check_captures(const struct tt_job *job, const struct streams *streams)
{
    int before = -1;
    TRY(tt_cuda((int)cudaGetDevice(&before), "cudaGetDevice"));
    TRY(tt_cuda((int)cudaSetDevice(job->device), "cudaSetDevice")); // of streams without a handle
    ncclResult_t result = compare_captures(job->rank, streams);
    (void)cudaSetDevice(before);
    return result;
}

// ---- Gathering ----------------------------------------------------------------------------------

static bool is_launch(const struct tt_job *job)
{
    return job->stage == TT_GROUP_ONE_SIDED || job->stage == TT_GROUP_LAUNCH ||
           job->stage == TT_GROUP_MESSAGE;
}

// Counts the launches; 0: all are of one communicator on one stream.
static size_t count_launches(const struct tt_jobs *jobs)
{
    const struct tt_job *first = NULL;
    size_t launches = 0;
    bool are_alike = true;
    for (const struct tt_job *job = jobs->first; job != NULL; job = job->next) {
        if (is_launch(job)) {
            first = first == NULL ? job : first;
            are_alike = are_alike && job->comm == first->comm && job->stream == first->stream;
            launches++;
        }
    }
    return are_alike ? 0 : launches;
}

// Each communicator with each of its streams, once; returns how many. A search begins where the
// last one ended: calls often take turns.
static size_t collect(const struct tt_jobs *jobs, struct use *use)
{
    size_t count = 0, at = 0;
    for (const struct tt_job *job = jobs->first; job != NULL; job = job->next) {
        if (!is_launch(job)) {
            continue;
        }
        bool is_known = false, is_first = true;
        for (size_t looks = 0; looks < count && !is_known; looks++) {
            at = looks == 0 ? at : (at + 1) % count;
            is_first = is_first && use[at].job->comm != job->comm;
            is_known = use[at].job->comm == job->comm && use[at].job->stream == job->stream;
        }
        if (!is_known) {
            at = count++;
            use[at] = (struct use){job, is_first};
        }
    }
    return count;
}

// The communicator's launch that is made last.
static struct tt_job *last_launch(const struct tt_jobs *jobs, const struct ncclComm *comm)
{
    struct tt_job *last = NULL;
    for (struct tt_job *job = jobs->first; job != NULL; job = job->next) {
        if (job->comm == comm && (job->stage == TT_GROUP_LAUNCH ||
                                  (job->stage == TT_GROUP_ONE_SIDED &&
                                   (last == NULL || last->stage == TT_GROUP_ONE_SIDED)))) {
            last = job;
        }
    }
    return last;
}

// A job that joins the streams of the communicator that `use` begins with; NULL: no memory.
static struct tt_job *make_job(const struct use *use, size_t count, size_t streams,
                               enum tt_group_stage stage)
{
    struct tt_job *job =
        calloc(1, sizeof *job + sizeof(struct streams) + streams * sizeof(cudaStream_t));
    if (job == NULL) {
        return NULL;
    }
    *job = *use->job;
    job->stage = stage;
    job->run = run_join;
    struct streams *all = (struct streams *)(void *)job->argument;
    for (size_t i = 0; i < count; i++) {
        if (use[i].job->comm == job->comm) {
            all->stream[all->count++] = use[i].job->stream;
        }
    }
    return job;
}

static void insert_behind(struct tt_jobs *jobs, struct tt_job *before, struct tt_job *job)
{
    job->next = before->next;
    before->next = job;
    jobs->last = jobs->last == before ? job : jobs->last;
}

// Joins the streams of the communicator that `use` begins with, where it has several.
static ncclResult_t add_joins(struct tt_jobs *jobs, const struct use *use, size_t count)
{
    size_t streams = 0;
    for (size_t i = 0; i < count; i++) {
        streams += use[i].job->comm == use->job->comm;
    }
    if (streams < 2) {
        return ncclSuccess;
    }
    struct tt_job *last = last_launch(jobs, use->job->comm);
    struct tt_job *begin = make_job(use, count, streams, TT_GROUP_STREAMS);
    struct tt_job *end =
        make_job(use, count, streams, tt_executor->settle == NULL ? last->stage : TT_GROUP_JOIN);
    if (begin == NULL || end == NULL) {
        free(begin);
        free(end);
        return tt_fail(ncclSystemError, "no memory to join %zu streams of a group", streams);
    }
    insert_behind(jobs, last, end);
    insert_behind(jobs, jobs->last, begin);
    return check_captures(begin, (const struct streams *)(const void *)begin->argument);
}

ncclResult_t tt_streams_gather(struct tt_jobs *jobs)
{
    size_t launches = count_launches(jobs);
    if (launches == 0) {
        return ncclSuccess;
    }
    struct use some[16], *use = some;
    if (launches > sizeof some / sizeof some[0]) {
        use = calloc(launches, sizeof *use);
    }
    if (use == NULL) {
        return tt_fail(ncclSystemError, "no memory for the streams of a group of %zu calls",
                       launches);
    }
    ncclResult_t result = ncclSuccess;
    size_t count = collect(jobs, use);
    for (size_t i = 0; i < count && result == ncclSuccess; i++) {
        if (use[i].is_first) {
            result = add_joins(jobs, use + i, count - i);
        }
    }
    if (use != some) {
        free(use);
    }
    return result;
}
