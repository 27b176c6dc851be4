// See stage.h.
//
// A lane is one communicator's jobs in order, and those of what is split from it. Lanes wait at a
// gate until all have their thread, so that a stage begins with all of them
// or not at all. SPDX-License-Identifier: Apache-2.0
#include "comm/stage.h"

#include "base/log.h"
#include "base/thread.h"
#include "comm/comm.h"
#include "comm/local.h"
#include "comm/meet.h"

#include <cuda_runtime.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// After a failed init the group's other new communicators have so long to hear of it by themselves.
enum { GRACE_S = 2 };
enum gate { GATE_SHUT, GATE_OPEN, GATE_CANCELLED };

struct stage {
    pthread_mutex_t mutex; // guards the rest
    pthread_cond_t changed;
    enum gate gate;
    size_t running; // lanes with a thread
    ncclResult_t first_failure;
    char text[512]; // its text
};

struct lane {
    struct stage *stage;
    struct tt_job *first; // the first job of its communicator in this stage
    pthread_t thread;
};

// The current device of a thread that runs jobs, as CUDA is asked for it and told once: for a fresh
// thread the device has to be told even if it is 0. Begins with -1s.
struct place {
    int before, now;
};
static const struct place nowhere = {-1, -1};

static ncclResult_t go_to(struct place *place, int device)
{
    if (place->before < 0) {
        TRY(tt_cuda((int)cudaGetDevice(&place->before), "cudaGetDevice"));
    }
    if (place->now != device) {
        TRY(tt_cuda((int)cudaSetDevice(device), "cudaSetDevice"));
        place->now = device;
    }
    return ncclSuccess;
}

static void go_back(const struct place *place)
{
    if (place->now >= 0 && place->now != place->before) {
        cudaSetDevice(place->before);
    }
}

static ncclResult_t run_on_device(struct tt_job *job, struct place *place)
{
    ncclResult_t result = go_to(place, job->device);
    if (result == ncclSuccess) {
        return job->run(job->comm, job->argument);
    }
    if (job->stage == TT_GROUP_INIT) {
        tt_comm_cannot_join(job->comm, job->argument, result);
    }
    return result;
}

// A failure that the rendezvous has seen is the communicator's end: it is kept, and no rank of this
// process waits for this one.
static void keep_failure(struct ncclComm *comm, ncclResult_t result)
{
    if (tt_meet_look(comm) != ncclSuccess) {
        (void)tt_comm_fail(comm, result, tt_thread_error());
    }
}

static ncclResult_t run_job(struct tt_job *job, struct place *place)
{
    job->begun = true;
    if (!tt_handle_enter(job->comm, job->call)) {
        if (job->stage == TT_GROUP_DEREGISTER) {
            return ncclSuccess; // it went with the communicator
        }
        ncclResult_t result = tt_fail(
            ncclInvalidArgument,
            "%s in a group: its communicator was destroyed or aborted before the group's end",
            job->call);
        if (job->stage == TT_GROUP_INIT) {
            tt_comm_give_up(job->comm, job->argument);
        }
        return result;
    }
    ncclResult_t result = run_on_device(job, place);
    if (result != ncclSuccess && job->stage != TT_GROUP_INIT) {
        keep_failure(job->comm, result);
    }
    tt_comm_leave(job->comm);
    if (result != ncclSuccess && job->stage == TT_GROUP_INIT && job->is_blocking) {
        tt_comm_discard(job->comm, job->argument);
    }
    return result;
}

static bool in_lane(const struct tt_job *job, const struct tt_job *first)
{
    return job->stage == first->stage && job->lane == first->lane;
}

static void note_failure(struct stage *stage, ncclResult_t result)
{
    pthread_mutex_lock(&stage->mutex);
    if (stage->first_failure == ncclSuccess) {
        stage->first_failure = result;
        (void)snprintf(stage->text, sizeof stage->text, "%s", tt_thread_error());
        pthread_cond_broadcast(&stage->changed);
    }
    pthread_mutex_unlock(&stage->mutex);
}

// A failed job ends its lane: the communicator may be gone.
static void run_lane(const struct lane *lane)
{
    struct place place = nowhere;
    ncclResult_t result = ncclSuccess;
    for (struct tt_job *job = lane->first; job != NULL && result == ncclSuccess; job = job->next) {
        if (in_lane(job, lane->first)) {
            result = run_job(job, &place);
        }
    }
    if (result != ncclSuccess) {
        note_failure(lane->stage, result);
    }
    go_back(&place);
}

static void *lane_main(void *argument)
{
    struct lane *lane = argument;
    struct stage *stage = lane->stage;
    pthread_mutex_lock(&stage->mutex);
    while (stage->gate == GATE_SHUT) {
        pthread_cond_wait(&stage->changed, &stage->mutex);
    }
    bool go = stage->gate == GATE_OPEN;
    pthread_mutex_unlock(&stage->mutex);
    if (go) {
        // Once: each return to the first device would make a context there.
        (void)cudaSetDevice(lane->first->device);
        run_lane(lane);
    }
    pthread_mutex_lock(&stage->mutex);
    stage->running--;
    pthread_cond_broadcast(&stage->changed);
    pthread_mutex_unlock(&stage->mutex);
    return NULL;
}

// Collects the stage's lanes; returns the count.
static size_t find_lanes(const struct tt_jobs *jobs, enum tt_group_stage stage, struct lane *lanes)
{
    size_t count = 0;
    for (struct tt_job *job = jobs->first; job != NULL; job = job->next) {
        bool known = job->stage != stage;
        for (size_t i = 0; i < count && !known; i++) {
            known = in_lane(job, lanes[i].first);
        }
        if (!known) {
            lanes[count++] = (struct lane){.first = job};
        }
    }
    return count;
}

// Of what a lane makes.
static void raise_abort(const struct tt_job *first)
{
    for (const struct tt_job *job = first; job != NULL; job = job->next) {
        const struct tt_beginning *beginning = (const void *)job->argument;
        if (in_lane(job, first) && beginning->user_comm != NULL) {
            tt_handle_raise_abort(job->comm);
        }
    }
}

// Waits for the lanes. Where one failed to make its communicator, the others of the stage are given
// up a little later: they may wait for a rank that will never come.
static void await_lanes(struct stage *stage, const struct lane *lanes, size_t count)
{
    pthread_mutex_lock(&stage->mutex);
    while (stage->running > 0 && stage->first_failure == ncclSuccess) {
        pthread_cond_wait(&stage->changed, &stage->mutex);
    }
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += GRACE_S;
    bool is_init = lanes[0].first->stage == TT_GROUP_INIT, in_time = true;
    while (stage->running > 0) {
        if (!is_init || !in_time) {
            pthread_cond_wait(&stage->changed, &stage->mutex);
            continue;
        }
        in_time = pthread_cond_timedwait(&stage->changed, &stage->mutex, &end) == 0;
        for (size_t i = 0; i < count && !in_time; i++) {
            raise_abort(lanes[i].first);
        }
    }
    pthread_mutex_unlock(&stage->mutex);
}

static void run_side_by_side(struct stage *stage, struct lane *lanes, size_t count)
{
    size_t started = 0;
    pthread_mutex_lock(&stage->mutex);
    while (started < count) {
        lanes[started].stage = stage;
        if (tt_thread_start(&lanes[started].thread, lane_main, &lanes[started]) != 0) {
            break;
        }
        started++;
    }
    stage->running = started;
    stage->gate = started == count ? GATE_OPEN : GATE_CANCELLED;
    pthread_cond_broadcast(&stage->changed);
    pthread_mutex_unlock(&stage->mutex);
    if (started == count) {
        await_lanes(stage, lanes, count);
    }
    for (size_t i = 0; i < started; i++) {
        pthread_join(lanes[i].thread, NULL);
    }
    if (started < count) {
        note_failure(stage, tt_fail(ncclSystemError,
                                    "no thread for one of %zu communicators in a group", count));
    }
}

ncclResult_t tt_stage_run_here(struct ncclComm *comm,
                               ncclResult_t (*run)(struct ncclComm *comm, void *argument),
                               void *argument)
{
    int before = -1;
    TRY(tt_cuda((int)cudaGetDevice(&before), "cudaGetDevice"));
    bool moves = before != comm->cuda_device;
    if (moves) {
        TRY(tt_cuda((int)cudaSetDevice(comm->cuda_device), "cudaSetDevice"));
    }
    ncclResult_t result = run(comm, argument);
    if (moves) {
        cudaSetDevice(before);
    }
    if (result != ncclSuccess) {
        keep_failure(comm, result);
    }
    return result;
}

static _Thread_local bool on_several; // this thread launches on several communicators

bool tt_group_may_wait(void)
{
    return !on_several;
}

// From `job` on; NULL: there is none.
static struct tt_job *next_of_stage(struct tt_job *job, enum tt_group_stage stage)
{
    while (job != NULL && job->stage != stage) {
        job = job->next;
    }
    return job;
}

static bool are_on_several(const struct tt_job *first)
{
    for (const struct tt_job *job = first; job != NULL; job = job->next) {
        if (job->stage == first->stage && job->comm != first->comm) {
            return true;
        }
    }
    return false;
}

// Launches, and what comes behind them, in the order of the calls, whichever communicators they are
// on.
static ncclResult_t run_in_order(const struct tt_jobs *jobs, enum tt_group_stage stage)
{
    struct place place = nowhere;
    ncclResult_t result = ncclSuccess;
    struct tt_job *job = next_of_stage(jobs->first, stage);
    if (job == NULL) {
        return ncclSuccess;
    }
    tt_relax_begin(); // once for all of them
    on_several = are_on_several(job);
    // What is to be given back is given back, whatever became of the rest.
    bool goes_on = stage == TT_GROUP_DEREGISTER;
    for (; job != NULL && (result == ncclSuccess || goes_on);
         job = next_of_stage(job->next, stage)) {
        ncclResult_t own = run_job(job, &place);
        result = result == ncclSuccess ? own : result;
    }
    on_several = false;
    go_back(&place);
    tt_relax_end();
    return result;
}

ncclResult_t tt_stage_run(struct tt_jobs *jobs, enum tt_group_stage stage_kind)
{
    if (stage_kind >= TT_GROUP_STREAMS) {
        return run_in_order(jobs, stage_kind);
    }
    size_t count = 0;
    for (const struct tt_job *job = jobs->first; job != NULL; job = job->next) {
        count += job->stage == stage_kind;
    }
    if (count == 0) {
        return ncclSuccess;
    }
    struct lane *lanes = calloc(count, sizeof *lanes);
    if (lanes == NULL) {
        return tt_fail(ncclSystemError, "no memory for a group of %zu calls", count);
    }
    struct stage stage = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    count = find_lanes(jobs, stage_kind, lanes);
    if (count == 1) {
        lanes[0].stage = &stage;
        run_lane(&lanes[0]);
    } else {
        run_side_by_side(&stage, lanes, count);
        if (stage.first_failure != ncclSuccess) {
            tt_restore_error(stage.text);
        }
    }
    free(lanes);
    return stage.first_failure;
}
