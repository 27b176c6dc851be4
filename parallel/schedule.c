// GPipe (Huang et al. 2019) and 1F1B (Narayanan et al. 2019, 2021) as lists of actions. See
// schedule.h. SPDX-License-Identifier: Apache-2.0
#include "schedule.h"

#include "fail.h"

#include <math.h>
#include <stdlib.h>

ncclResult_t parallel_schedule_check(const char *name, enum tuttiPipelineSchedule schedule,
                                     int stages, int microBatches)
{
    if (schedule != tuttiPipelineGPipe && schedule != tuttiPipeline1F1B) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: schedule is %d, must be tuttiPipelineGPipe (0) or tuttiPipeline1F1B "
                         "(1)",
                         name, (int)schedule);
    }
    if (stages < 1 || stages > SCHEDULE_MOST) {
        return tuttiFail(ncclInvalidArgument, "%s: stages is %d, must be 1 to %d", name, stages,
                         SCHEDULE_MOST);
    }
    if (microBatches < 1 || microBatches > SCHEDULE_MOST) {
        return tuttiFail(ncclInvalidArgument, "%s: microBatches is %d, must be 1 to %d", name,
                         microBatches, SCHEDULE_MOST);
    }
    return ncclSuccess;
}

static ncclResult_t check_stage(const char *name, int stages, int stage)
{
    return stage >= 0 && stage < stages
               ? ncclSuccess
               : tuttiFail(ncclInvalidArgument, "%s: stage is %d, must be 0 to %d", name, stage,
                           stages - 1);
}

static ncclResult_t check_pointer(const char *name, const char *argument, const void *pointer)
{
    if (pointer == NULL) {
        (void)tuttiFail(ncclInvalidArgument, "%s: %s is NULL", name, argument);
        return ncclInvalidArgument; // so that the analyzer sees that it is not NULL behind this
    }
    return ncclSuccess;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

// Forward actions before the first backward one. In 1F1B those fill the stages from this one on.
static int in_flight(enum tuttiPipelineSchedule schedule, int stages, int microBatches, int stage)
{
    return schedule == tuttiPipelineGPipe ? microBatches : smaller(microBatches, stages - stage);
}

PARALLEL_EXPORT ncclResult_t tuttiPipelineActions(enum tuttiPipelineSchedule schedule, int stages,
                                                  int microBatches, int stage,
                                                  struct tuttiPipelineAction *actions)
{
    TRY(parallel_schedule_check("tuttiPipelineActions", schedule, stages, microBatches));
    TRY(check_stage("tuttiPipelineActions", stages, stage));
    TRY(check_pointer("tuttiPipelineActions", "actions", actions));
    int forward = 0, backward = 0;
    int most = in_flight(schedule, stages, microBatches, stage);
    for (int i = 0; i < 2 * microBatches; i++) {
        bool is_forward = forward < microBatches && forward - backward < most;
        actions[i].kind = is_forward ? tuttiPipelineForward : tuttiPipelineBackward;
        actions[i].microBatch = is_forward ? forward++ : backward++;
    }
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiPipelineInFlight(enum tuttiPipelineSchedule schedule, int stages,
                                                   int microBatches, int stage, int *inFlight)
{
    TRY(parallel_schedule_check("tuttiPipelineInFlight", schedule, stages, microBatches));
    TRY(check_stage("tuttiPipelineInFlight", stages, stage));
    TRY(check_pointer("tuttiPipelineInFlight", "inFlight", inFlight));
    *inFlight = in_flight(schedule, stages, microBatches, stage);
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiPipelineIdealBubble(int stages, int microBatches, double *bubble)
{
    TRY(parallel_schedule_check("tuttiPipelineIdealBubble", tuttiPipelineGPipe, stages,
                                microBatches));
    TRY(check_pointer("tuttiPipelineIdealBubble", "bubble", bubble));
    *bubble = (double)(stages - 1) / (double)(microBatches + stages - 1);
    return ncclSuccess;
}

// ---- Messages -----------------------------------------------------------------------------------

static struct schedule_message message(const struct tuttiPipelineAction *action, int peer,
                                       int stages)
{
    return (struct schedule_message){peer >= 0 && peer < stages, action->kind, action->microBatch,
                                     peer};
}

struct schedule_exchange parallel_schedule_exchange(const struct tuttiPipelineAction *action,
                                                    int actions, int index, int stage, int stages)
{
    struct schedule_exchange exchange = {{false, tuttiPipelineForward, 0, -1},
                                         {false, tuttiPipelineForward, 0, -1}};
    if (index > 0) {
        int next = action[index - 1].kind == tuttiPipelineForward ? stage + 1 : stage - 1;
        exchange.send = message(&action[index - 1], next, stages);
    }
    if (index < actions) {
        int before = action[index].kind == tuttiPipelineForward ? stage - 1 : stage + 1;
        exchange.receive = message(&action[index], before, stages);
    }
    return exchange;
}

// ---- Ideal times --------------------------------------------------------------------------------

struct ideal {
    int stages, microBatches;
    double seconds[2];               // of a forward and of a backward action
    struct tuttiPipelineTime *times; // [stages x 2 * microBatches]
    double *ends;                    // [stages x 2 x microBatches]; negative: not yet
    int *next;                       // [stages]: the action that comes next
};

static double *end_of(const struct ideal *ideal, int stage, enum tuttiPipelineKind kind, int i)
{
    return &ideal->ends[((size_t)stage * 2 + (size_t)kind) * (size_t)ideal->microBatches +
                        (size_t)i];
}

// When what the action needs is there; negative: it is not known yet.
static double ready_at(const struct ideal *ideal, int stage, struct tuttiPipelineAction action)
{
    bool is_forward = action.kind == tuttiPipelineForward;
    int from = is_forward ? stage - 1 : stage + 1;
    return from < 0 || from >= ideal->stages ? 0
                                             : *end_of(ideal, from, action.kind, action.microBatch);
}

// Runs a stage as far as it can. Whether it did anything.
static bool advance(const struct ideal *ideal, int stage)
{
    int actions = 2 * ideal->microBatches;
    struct tuttiPipelineTime *time = ideal->times + (size_t)stage * (size_t)actions;
    bool moved = false;
    while (ideal->next[stage] < actions) {
        int k = ideal->next[stage];
        double ready = ready_at(ideal, stage, time[k].action);
        if (ready < 0) {
            break;
        }
        time[k].begin = k > 0 ? fmax(ready, time[k - 1].end) : ready;
        time[k].end = time[k].begin + ideal->seconds[time[k].action.kind];
        *end_of(ideal, stage, time[k].action.kind, time[k].action.microBatch) = time[k].end;
        ideal->next[stage]++;
        moved = true;
    }
    return moved;
}

static void play(const struct ideal *ideal)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (int stage = 0; stage < ideal->stages; stage++) {
            moved = advance(ideal, stage) || moved;
        }
        for (int stage = ideal->stages - 1; stage >= 0; stage--) {
            moved = advance(ideal, stage) || moved;
        }
    }
}

static ncclResult_t fill_actions(enum tuttiPipelineSchedule schedule, int stages, int microBatches,
                                 struct tuttiPipelineTime *times)
{
    size_t actions = 2 * (size_t)microBatches;
    struct tuttiPipelineAction *list = malloc(actions * sizeof *list);
    if (list == NULL) {
        return tuttiFail(ncclSystemError,
                         "tuttiPipelineIdealTimes: no memory for %zu bytes of actions",
                         actions * sizeof *list);
    }
    for (int stage = 0; stage < stages; stage++) {
        (void)tuttiPipelineActions(schedule, stages, microBatches, stage, list);
        for (size_t k = 0; k < actions; k++) {
            times[(size_t)stage * actions + k] = (struct tuttiPipelineTime){list[k], 0, 0};
        }
    }
    free(list);
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiPipelineIdealTimes(enum tuttiPipelineSchedule schedule,
                                                     int stages, int microBatches, double forward,
                                                     double backward,
                                                     struct tuttiPipelineTime *times)
{
    TRY(parallel_schedule_check("tuttiPipelineIdealTimes", schedule, stages, microBatches));
    TRY(check_pointer("tuttiPipelineIdealTimes", "times", times));
    if (!isfinite(forward) || forward < 0 || !isfinite(backward) || backward < 0) {
        return tuttiFail(ncclInvalidArgument,
                         "tuttiPipelineIdealTimes: forward is %g and backward %g seconds, both "
                         "must be finite and at least 0",
                         forward, backward);
    }
    TRY(fill_actions(schedule, stages, microBatches, times));
    size_t ends = (size_t)stages * 2 * (size_t)microBatches;
    struct ideal ideal = {stages, microBatches, {forward, backward}, times, NULL, NULL};
    ideal.ends = malloc(ends * sizeof *ideal.ends);
    ideal.next = calloc((size_t)stages, sizeof *ideal.next);
    ncclResult_t result = ncclSuccess;
    if (ideal.ends == NULL || ideal.next == NULL) {
        result = tuttiFail(ncclSystemError, "tuttiPipelineIdealTimes: no memory for %zu bytes",
                           ends * sizeof *ideal.ends);
    } else {
        for (size_t i = 0; i < ends; i++) {
            ideal.ends[i] = -1;
        }
        play(&ideal);
    }
    free(ideal.ends);
    free(ideal.next);
    return result;
}

PARALLEL_EXPORT ncclResult_t tuttiPipelineBubble(int stages, int microBatches,
                                                 const struct tuttiPipelineTime *times,
                                                 double *bubble)
{
    TRY(parallel_schedule_check("tuttiPipelineBubble", tuttiPipelineGPipe, stages, microBatches));
    TRY(check_pointer("tuttiPipelineBubble", "times", times));
    TRY(check_pointer("tuttiPipelineBubble", "bubble", bubble));
    double first = times[0].begin, last = times[0].end, busy = 0;
    size_t count = (size_t)stages * 2 * (size_t)microBatches;
    for (size_t i = 0; i < count; i++) {
        first = fmin(first, times[i].begin);
        last = fmax(last, times[i].end);
        busy += times[i].end - times[i].begin;
    }
    double share = last > first ? 1 - busy / ((double)stages * (last - first)) : 0;
    *bubble = fmin(fmax(share, 0), 1); // the sum's rounding
    return ncclSuccess;
}
