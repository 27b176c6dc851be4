// A step begins when the one before it in its lane has ended, and a wait ends a moment after its
// signals. See schedule.h.
// SPDX-License-Identifier: Apache-2.0
#include "plan/schedule.h"

#include <stdlib.h>

// In steps of the largest.
static const double least_time = 0.15;  // of any copy or reduction
static const double signal_time = 0.08; // to give one
static const double latency = 0.15;     // until it is seen

// Bytes that a step touches.
static double weight_of(const struct tt_problem *problem, const struct tt_plan *plan,
                        const struct tt_step *step)
{
    if (step->kind != TT_STEP_REDUCE && step->kind != TT_STEP_COPY) {
        return 0;
    }
    double places = 0;
    for (uint32_t i = 0; i < step->ins; i++) {
        places += plan->place[step->in + i].rank < 0 ? problem->nranks : 1;
    }
    for (uint32_t i = 0; i < step->outs; i++) {
        places += plan->place[step->out + i].rank < 0 ? problem->nranks : 1;
    }
    return places * (double)step->count;
}

struct latest {
    const struct tt_schedule *schedule;
    double time;
};

static void see(void *context, struct tt_walk_signal signal)
{
    struct latest *latest = context;
    const struct tt_schedule *schedule = latest->schedule;
    double time = schedule->end[schedule->first[signal.lane] + signal.step] + latency;
    latest->time = time > latest->time ? time : latest->time;
}

static void run(struct tt_schedule *schedule, const struct tt_problem *problem, double largest)
{
    struct tt_walk *walk = &schedule->walk;
    const struct tt_step *step = NULL;
    for (int lane; (lane = tt_walk_next(walk, &step)) >= 0;) {
        size_t index = schedule->first[lane] + walk->lane[lane].at - 1;
        const struct tt_plan *plan = walk->plans[walk->lane[lane].rank];
        double begin = walk->lane[lane].at > 1 ? schedule->end[index - 1] : 0;
        struct latest latest = {schedule, begin};
        switch (step->kind) {
        case TT_STEP_WAIT:
            tt_walk_seen(walk, lane, step, see, &latest);
            break;
        case TT_STEP_SIGNAL:
            latest.time = begin + signal_time;
            break;
        default:
            latest.time = begin + least_time + weight_of(problem, plan, step) / largest;
            break;
        }
        schedule->begin[index] = begin;
        schedule->end[index] = latest.time;
        schedule->length = latest.time > schedule->length ? latest.time : schedule->length;
    }
}

bool tt_schedule_make(struct tt_schedule *schedule, const struct tt_problem *problem,
                      const struct tt_plan *const *plans)
{
    *schedule = (struct tt_schedule){0};
    if (!tt_walk_lanes(&schedule->walk, plans, problem->nranks) ||
        !tt_walk_begin(&schedule->walk)) {
        return false;
    }
    int lanes = schedule->walk.lanes;
    size_t steps = 0;
    double largest = 1;
    schedule->first = malloc(((size_t)lanes + 1) * sizeof *schedule->first);
    for (int lane = 0; schedule->first != NULL && lane < lanes; lane++) {
        const struct tt_plan *plan = plans[schedule->walk.lane[lane].rank];
        const struct tt_step *step = tt_walk_steps(&schedule->walk, lane);
        schedule->first[lane] = steps;
        steps += schedule->walk.lane[lane].steps;
        for (uint32_t i = 0; i < schedule->walk.lane[lane].steps; i++) {
            double weight = weight_of(problem, plan, &step[i]);
            largest = weight > largest ? weight : largest;
        }
    }
    schedule->begin = calloc(steps + 1, sizeof *schedule->begin);
    schedule->end = calloc(steps + 1, sizeof *schedule->end);
    if (schedule->first == NULL || schedule->begin == NULL || schedule->end == NULL) {
        return false;
    }
    run(schedule, problem, largest);
    for (int lane = 0; lane < lanes; lane++) {
        schedule->is_stuck |= schedule->walk.lane[lane].at < schedule->walk.lane[lane].steps;
    }
    return true;
}

void tt_schedule_free(struct tt_schedule *schedule)
{
    tt_walk_end(&schedule->walk);
    free(schedule->first);
    free(schedule->begin);
    free(schedule->end);
    *schedule = (struct tt_schedule){0};
}
