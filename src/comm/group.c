// Groups of calls. See group.h.
//
// A thread's group is a list of jobs. Its end runs them stage by stage; in a stage every
// communicator's jobs go in order in one lane, and several lanes have a thread each, because a
// collective job waits for the others. Launches only enqueue: they share the caller's thread.
// Communicators with blocking 0 make the whole end run in a thread of its own;
// ncclCommGetAsyncError then tells.
// SPDX-License-Identifier: Apache-2.0
#include "comm/group.h"

#include "base/log.h"
#include "base/thread.h"
#include "comm/comm.h"
#include "comm/estimate.h"
#include "comm/messages.h"
#include "comm/stage.h"
#include "comm/streams.h"
#include "exec/executor.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local int depth;
static _Thread_local ncclResult_t latched; // first error of a call in the open group
static _Thread_local struct tt_jobs open_group;

ncclResult_t tt_group_latch(ncclResult_t result)
{
    if (depth > 0 && latched == ncclSuccess && result != ncclInProgress) {
        latched = result;
    }
    return result;
}

static void free_jobs(struct tt_jobs *jobs)
{
    while (jobs->first != NULL) {
        struct tt_job *next = jobs->first->next;
        free(jobs->first);
        jobs->first = next;
    }
    jobs->last = NULL;
}

// The jobs that were not run will not be. Communicators that they were to make are given up. A job
// whose communicator was aborted meanwhile finds it gone; only its handle is looked at before.
static void drop_jobs(struct tt_jobs *jobs)
{
    for (struct tt_job *job = jobs->first; job != NULL; job = job->next) {
        if (job->stage == TT_GROUP_INIT && !job->begun) {
            tt_comm_give_up(job->comm, job->argument);
        }
    }
    free_jobs(jobs);
}

static ncclResult_t settle_round(const struct tt_jobs *jobs, bool may_wait)
{
    ncclResult_t result = ncclSuccess;
    for (struct tt_job *job = jobs->first; job != NULL; job = job->next) {
        if (job->stage != TT_GROUP_LAUNCH || !tt_handle_enter(job->comm, job->call)) {
            continue;
        }
        ncclResult_t settled =
            job->comm->host != NULL ? tt_executor->settle(job->comm->host, may_wait) : ncclSuccess;
        result = result == ncclSuccess ? settled : result;
        tt_comm_leave(job->comm);
    }
    return result;
}

// What launches have left for the time when all of the group's are made.
static ncclResult_t settle_launches(const struct tt_jobs *jobs)
{
    if (tt_executor->owes == NULL || !tt_executor->owes()) {
        return ncclSuccess;
    }
    ncclResult_t result = settle_round(jobs, false), waited = settle_round(jobs, true);
    return result == ncclSuccess ? waited : result;
}

static ncclResult_t run_jobs(struct tt_jobs *jobs, enum tt_group_stage first)
{
    ncclResult_t result = ncclSuccess;
    for (int stage = first; stage <= TT_GROUP_LAUNCH && result == ncclSuccess; stage++) {
        result = tt_stage_run(jobs, (enum tt_group_stage)stage);
    }
    ncclResult_t settled = settle_launches(jobs);
    result = result == ncclSuccess ? settled : result;
    if (result == ncclSuccess) {
        result = tt_stage_run(jobs, TT_GROUP_JOIN);
    }
    if (result == ncclSuccess && first == TT_GROUP_INIT) { // an estimate leaves what there is
        result = tt_stage_run(jobs, TT_GROUP_DEREGISTER);
    }
    drop_jobs(jobs);
    return result;
}

// A group that goes on in the background.
struct background {
    struct tt_jobs jobs;
    size_t count;
    struct ncclComm *busy[]; // [count] communicators that its calls are on, or split; held
};

static void free_background(struct background *group)
{
    for (size_t i = 0; i < group->count; i++) {
        atomic_fetch_sub(&group->busy[i]->under_way, 1);
        tt_handle_let_go(group->busy[i]);
    }
    free(group);
}

static void *run_in_background(void *argument)
{
    struct background *group = argument;
    (void)cudaSetDevice(group->jobs.first->device); // the thread's, from now on
    (void)run_jobs(&group->jobs, TT_GROUP_INIT);    // each communicator keeps its own error
    free_background(group);
    return NULL;
}

// Communicators that are made are in progress anyway; the others are until the group is over.
static struct background *make_background(const struct tt_jobs *jobs)
{
    size_t most = 0;
    for (const struct tt_job *job = jobs->first; job != NULL; job = job->next) {
        most++;
    }
    struct background *group = calloc(1, sizeof *group + most * sizeof(struct ncclComm *));
    if (group == NULL) {
        return NULL;
    }
    group->jobs = *jobs;
    for (const struct tt_job *job = jobs->first; job != NULL; job = job->next) {
        bool known = job->stage == TT_GROUP_INIT && job->lane == job->comm &&
                     ((const struct tt_beginning *)(const void *)job->argument)->user_comm != NULL;
        for (size_t i = 0; i < group->count && !known; i++) {
            known = group->busy[i] == job->lane;
        }
        if (!known && tt_handle_hold(job->lane)) {
            atomic_fetch_add(&job->lane->under_way, 1);
            group->busy[group->count++] = job->lane;
        }
    }
    return group;
}

static ncclResult_t start_in_background(struct tt_jobs *jobs)
{
    struct background *group = make_background(jobs);
    pthread_t thread;
    if (group != NULL && tt_thread_start(&thread, run_in_background, group) == 0) {
        pthread_detach(thread);
        return ncclInProgress;
    }
    if (group != NULL) {
        free_background(group);
    }
    drop_jobs(jobs);
    return tt_fail(ncclSystemError, "no thread for a nonblocking group");
}

// How many of the group's new communicators are blocking, and how many are not.
static void count_kinds(const struct tt_jobs *jobs, int *blocking_out, int *nonblocking_out)
{
    for (const struct tt_job *job = jobs->first; job != NULL; job = job->next) {
        if (job->stage == TT_GROUP_INIT) {
            *(job->is_blocking ? blocking_out : nonblocking_out) += 1;
        }
    }
}

// Adds a job to the thread's group, open or not.
static ncclResult_t add_job(struct ncclComm *comm, enum tt_group_stage stage,
                            ncclResult_t (*run)(struct ncclComm *comm, void *argument),
                            const void *argument, size_t bytes, struct tt_job **job_out)
{
    struct tt_job *job = malloc(sizeof *job + bytes); // calloc takes longer
    if (job == NULL) {
        (void)tt_fail(ncclSystemError, "no memory for a call in a group");
        if (stage == TT_GROUP_INIT) {
            tt_comm_give_up(comm, argument);
        }
        return tt_group_latch(ncclSystemError);
    }
    *job = (struct tt_job){.comm = comm,
                           .lane = comm,
                           .rank = comm->rank,
                           .device = comm->cuda_device,
                           .is_blocking = comm->config.blocking != 0,
                           .call = tt_call_name(),
                           .stage = stage,
                           .run = run};
    const struct tt_beginning *beginning = argument; // in that stage
    if (stage == TT_GROUP_INIT && beginning->parent != NULL) {
        job->lane = beginning->parent;
    }
    if (stage == TT_GROUP_INIT && beginning->user_comm == NULL) {
        job->is_blocking = !beginning->is_nonblocking;
    }
    memcpy(job->argument, argument, bytes);
    if (open_group.first == NULL) {
        open_group.first = job;
    } else {
        open_group.last->next = job;
    }
    open_group.last = job;
    *job_out = job;
    return ncclSuccess;
}

ncclResult_t tt_group_submit(struct ncclComm *comm, enum tt_group_stage stage,
                             ncclResult_t (*run)(struct ncclComm *comm, void *argument),
                             const void *argument, size_t bytes)
{
    struct tt_job *job = NULL;
    TRY(add_job(comm, stage, run, argument, bytes, &job));
    if (depth > 0) {
        return ncclSuccess;
    }
    depth = 1;
    return tt_group_end("ncclGroupEnd");
}

ncclResult_t tt_group_launch(struct ncclComm *comm, enum tt_group_stage stage, cudaStream_t stream,
                             ncclResult_t (*run)(struct ncclComm *comm, void *argument),
                             void *argument, size_t bytes)
{
    struct tt_job *job = NULL;
    if (depth == 0) {
        return tt_stage_run_here(comm, run, argument);
    }
    TRY(add_job(comm, stage, run, argument, bytes, &job));
    job->stream = stream;
    return ncclSuccess;
}

ncclResult_t tt_group_check_ending(const struct ncclComm *comm, int rank, const char *call)
{
    for (const struct tt_job *job = open_group.first; job != NULL; job = job->next) {
        // A communicator that the group makes is refused for not being made yet.
        if (job->comm == comm && job->stage != TT_GROUP_INIT && job->stage != TT_GROUP_DEREGISTER) {
            return tt_group_latch(
                tt_fail(ncclInvalidUsage,
                        "%s: rank %d: the open group has %s on this communicator, which its end "
                        "would carry out; call ncclGroupEnd first, or ncclCommAbort",
                        call, rank, job->call));
        }
    }
    return ncclSuccess;
}

bool tt_group_is_open(void)
{
    return depth > 0;
}

void tt_group_start(void)
{
    depth++;
}

// Takes what the outermost end finds: the jobs, and how many communicators they make that do not
// block. An error: they have been dropped.
static ncclResult_t close_group(const char *call, struct tt_jobs *jobs_out, int *nonblocking_out)
{
    struct tt_jobs jobs = open_group;
    ncclResult_t result = latched;
    int blocking = 0;
    *nonblocking_out = 0;
    open_group = (struct tt_jobs){0};
    latched = ncclSuccess;
    count_kinds(&jobs, &blocking, nonblocking_out);
    if (result == ncclSuccess && blocking > 0 && *nonblocking_out > 0) {
        result = tt_fail(ncclInvalidArgument,
                         "%s: the group makes %d blocking and %d nonblocking communicators; "
                         "config->blocking must be equal for all in a group",
                         call, blocking, *nonblocking_out);
    }
    if (result == ncclSuccess) {
        result = tt_messages_gather(&jobs);
    }
    if (result != ncclSuccess) {
        drop_jobs(&jobs);
    }
    *jobs_out = jobs;
    return result;
}

// Leaves one level; false: no group is left to end, *result is the call's.
static bool leave_level(const char *call, ncclResult_t *result)
{
    *result = depth == 0 ? tt_fail(ncclInvalidUsage, "%s: there was no ncclGroupStart", call)
                         : ncclSuccess;
    return depth > 0 && --depth == 0;
}

ncclResult_t tt_group_end(const char *call)
{
    ncclResult_t result = ncclSuccess;
    struct tt_jobs jobs;
    int nonblocking = 0;
    if (!leave_level(call, &result)) {
        return result;
    }
    TRY(close_group(call, &jobs, &nonblocking));
    result = tt_streams_gather(&jobs);
    if (result != ncclSuccess) {
        drop_jobs(&jobs);
        return result;
    }
    return nonblocking > 0 ? start_in_background(&jobs) : run_jobs(&jobs, TT_GROUP_INIT);
}

// Communicators that the group would make are forgotten. Nobody is told: the other ranks may be
// about to do the same.
static void discard_new(struct tt_jobs *jobs)
{
    for (struct tt_job *job = jobs->first; job != NULL; job = job->next) {
        if (job->stage == TT_GROUP_INIT) {
            tt_comm_discard(job->comm, job->argument);
            job->begun = true;
        }
    }
}

ncclResult_t tt_group_simulate_end(float *us_out)
{
    static const char call[] = "ncclGroupSimulateEnd";
    ncclResult_t result = ncclSuccess;
    struct tt_jobs jobs;
    int nonblocking = 0;
    if (!leave_level(call, &result)) {
        return result;
    }
    discard_new(&open_group);
    TRY(close_group(call, &jobs, &nonblocking));
    tt_estimate_begin();
    result = run_jobs(&jobs, TT_GROUP_ONE_SIDED); // which are estimated instead
    float us = tt_estimate_end();
    if (result == ncclSuccess) {
        *us_out = us;
    }
    return result;
}
