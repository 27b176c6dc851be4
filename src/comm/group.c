// Groups of calls. See group.h.
//
// A thread's group is a list of jobs. Its end runs them stage by stage; in a stage every communicator's jobs go in order on one
// thread, and several communicators have a thread each, because a collective job waits for the others. Communicators with blocking 0
// make the whole end run in a thread of its own; ncclCommGetAsyncError then tells.
// SPDX-License-Identifier: Apache-2.0
#include "comm/group.h"

#include "base/log.h"
#include "base/thread.h"
#include "comm/comm.h"

#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

struct job {
    struct job *next;
    struct ncclComm *comm;
    int device;
    enum tt_group_stage stage;
    ncclResult_t (*run)(struct ncclComm *comm, void *argument);
    ncclResult_t result;
    bool done;
    _Alignas(16) char argument[];
};

// One communicator's share of a stage.
struct lane {
    struct job *first; // the first job of its communicator in this stage
    pthread_t thread;
    bool started;
};

struct jobs {
    struct job *first, *last;
};

static _Thread_local int depth;
static _Thread_local ncclResult_t latched; // first error of a call in the open group
static _Thread_local struct jobs open_group;

ncclResult_t tt_group_latch(ncclResult_t result)
{
    if (depth > 0 && latched == ncclSuccess && result != ncclInProgress) {
        latched = result;
    }
    return result;
}

static void free_jobs(struct jobs *jobs)
{
    while (jobs->first != NULL) {
        struct job *next = jobs->first->next;
        free(jobs->first);
        jobs->first = next;
    }
    jobs->last = NULL;
}

// A job keeps its communicator from being freed by an abort; an initialisation ends that itself.
static void release_comm(const struct job *job)
{
    if (job->stage != TT_GROUP_INIT) {
        atomic_fetch_sub(&job->comm->users, 1);
    }
}

static ncclResult_t run_job(struct job *job)
{
    int before = -1;
    if (cudaGetDevice(&before) != cudaSuccess || cudaSetDevice(job->device) != cudaSuccess) {
        before = -1;
    }
    job->result = job->run(job->comm, job->argument);
    job->done = true;
    release_comm(job);
    if (before >= 0 && before != job->device) {
        cudaSetDevice(before);
    }
    return job->result;
}

static bool same_lane(const struct job *job, const struct job *first)
{
    return !job->done && job->stage == first->stage && job->comm == first->comm;
}

static void *run_lane(void *argument)
{
    struct lane *lane = argument;
    struct job *first = lane->first;
    // The communicator may be gone after a failed job: what follows in the lane is then not run.
    ncclResult_t result = ncclSuccess;
    struct job *next;
    for (struct job *job = first; job != NULL; job = next) {
        next = job->next;
        if (job == first || (job->stage == first->stage && job->comm == first->comm)) {
            if (result == ncclSuccess) {
                result = run_job(job);
            } else {
                job->done = true;
                release_comm(job);
            }
        }
    }
    return NULL;
}

// Collects the lanes of a stage; each lane's first job. Returns the count.
static size_t find_lanes(struct jobs *jobs, enum tt_group_stage stage, struct lane *lanes)
{
    size_t count = 0;
    for (struct job *job = jobs->first; job != NULL; job = job->next) {
        if (job->stage != stage || job->done) {
            continue;
        }
        bool known = false;
        for (size_t i = 0; i < count && !known; i++) {
            known = same_lane(job, lanes[i].first);
        }
        if (!known) {
            lanes[count++] = (struct lane){.first = job};
        }
    }
    return count;
}

static ncclResult_t run_stage(struct jobs *jobs, enum tt_group_stage stage, struct lane *lanes)
{
    size_t count = find_lanes(jobs, stage, lanes);
    for (size_t i = 1; i < count; i++) {
        lanes[i].started = tt_thread_start(&lanes[i].thread, run_lane, &lanes[i]) == 0;
    }
    ncclResult_t result = ncclSuccess;
    for (size_t i = 1; i < count; i++) {
        if (!lanes[i].started) {
            result = tt_fail(ncclSystemError, "no thread for one of %zu communicators in a group", count);
        }
    }
    if (count > 0 && result == ncclSuccess) {
        run_lane(&lanes[0]);
    }
    for (size_t i = 1; i < count; i++) {
        if (lanes[i].started) {
            pthread_join(lanes[i].thread, NULL);
        }
    }
    for (struct job *job = jobs->first; job != NULL && result == ncclSuccess; job = job->next) {
        result = job->stage == stage ? job->result : ncclSuccess;
    }
    return result;
}

// What has not run will not. Communicators that were to be made fail with it.
static void drop_jobs(struct jobs *jobs)
{
    for (struct job *job = jobs->first; job != NULL; job = job->next) {
        if (job->done) {
            continue;
        }
        if (job->stage == TT_GROUP_INIT) {
            tt_comm_give_up(job->comm, job->argument);
        } else {
            release_comm(job);
        }
    }
    free_jobs(jobs);
}

static ncclResult_t run_jobs(struct jobs *jobs)
{
    size_t count = 0;
    for (struct job *job = jobs->first; job != NULL; job = job->next) {
        count++;
    }
    if (count == 0) {
        return ncclSuccess;
    }
    struct lane *lanes = calloc(count, sizeof *lanes);
    if (lanes == NULL) {
        drop_jobs(jobs);
        return tt_fail(ncclSystemError, "no memory for a group of %zu calls", count);
    }
    ncclResult_t result = ncclSuccess;
    for (int stage = TT_GROUP_INIT; stage <= TT_GROUP_LAUNCH && result == ncclSuccess; stage++) {
        result = run_stage(jobs, (enum tt_group_stage)stage, lanes);
    }
    free(lanes);
    drop_jobs(jobs); // those of later stages, after a failure
    return result;
}

static void *run_in_background(void *argument)
{
    struct jobs *jobs = argument;
    run_jobs(jobs); // each communicator keeps its own error
    free(jobs);
    return NULL;
}

static bool is_nonblocking(const struct jobs *jobs)
{
    for (const struct job *job = jobs->first; job != NULL; job = job->next) {
        if (job->comm->config.blocking == 0 && job->stage == TT_GROUP_INIT) {
            return true;
        }
    }
    return false;
}

static ncclResult_t start_in_background(struct jobs *jobs)
{
    struct jobs *moved = malloc(sizeof *moved);
    pthread_t thread;
    if (moved != NULL) {
        *moved = *jobs;
        if (tt_thread_start(&thread, run_in_background, moved) == 0) {
            *jobs = (struct jobs){0};
            pthread_detach(thread);
            return ncclInProgress;
        }
        free(moved);
    }
    return tt_fail(ncclSystemError, "no thread for a nonblocking group");
}

ncclResult_t tt_group_submit(struct ncclComm *comm, enum tt_group_stage stage,
                             ncclResult_t (*run)(struct ncclComm *comm, void *argument), const void *argument,
                             size_t bytes)
{
    struct job *job = calloc(1, sizeof *job + bytes);
    if (job == NULL) {
        return tt_group_latch(tt_fail(ncclSystemError, "no memory for a call in a group"));
    }
    job->comm = comm;
    job->device = comm->cuda_device;
    job->stage = stage;
    job->run = run;
    memcpy(job->argument, argument, bytes);
    if (stage != TT_GROUP_INIT) {
        atomic_fetch_add(&comm->users, 1);
    }
    if (open_group.first == NULL) {
        open_group.first = job;
    } else {
        open_group.last->next = job;
    }
    open_group.last = job;
    if (depth > 0) {
        return ncclSuccess;
    }
    depth = 1;
    return tt_group_end();
}

void tt_group_start(void)
{
    depth++;
}

ncclResult_t tt_group_end(void)
{
    if (depth == 0) {
        return tt_fail(ncclInvalidUsage, "ncclGroupEnd: there was no ncclGroupStart");
    }
    if (--depth > 0) {
        return ncclSuccess;
    }
    struct jobs jobs = open_group;
    ncclResult_t result = latched;
    open_group = (struct jobs){0};
    latched = ncclSuccess;
    if (result != ncclSuccess) {
        drop_jobs(&jobs);
        return result;
    }
    if (is_nonblocking(&jobs)) {
        return start_in_background(&jobs);
    }
    return run_jobs(&jobs);
}
