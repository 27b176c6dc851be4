// Walks through the lanes of all ranks' plans in an order that signals and waits allow. What can be
// walked to the end in one such order can be in every other: signals only ever add up.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_PLAN_WALK_H
#define TT_PLAN_WALK_H

#include "plan/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A lane of some rank; lanes of all ranks are numbered through.
struct tt_walk_lane {
    int rank, index; // index: among its rank's lanes
    uint32_t at;     // the step that comes next, counted from the lane's first
    uint32_t steps;
};

// Where a signal was given.
struct tt_walk_signal {
    int lane; // numbered through
    uint32_t step;
};

// What one rank signals to another on one channel.
struct tt_walk_route {
    uint32_t total, given; // signals in all plans, so far
    int lane;              // the only one that gives them; -1: none, -2: several
    size_t first;          // of its signals in tt_walk.signals, in the order they were given
};

struct tt_walk {
    const struct tt_plan *const *plans; // [nranks]
    int nranks, lanes, channels;
    struct tt_walk_lane *lane;   // [lanes]
    struct tt_walk_route *route; // [from][to][channel]
    struct tt_walk_signal *signals;
    int current, idle; // lane looked at, lanes since the last one that could go on
};

// Numbers the lanes. False: no memory. End the walk in any case.
bool tt_walk_lanes(struct tt_walk *walk, const struct tt_plan *const *plans, int nranks);
// Then counts the signals, whose peers and channels must be in range. False: no memory.
bool tt_walk_begin(struct tt_walk *walk);
void tt_walk_end(struct tt_walk *walk);

// The next step that can run, taken as run: its lane's number; -1 where none can, because all have
// ended or all that have not are stuck.
int tt_walk_next(struct tt_walk *walk, const struct tt_step **step_out);

// The steps of a lane.
static inline const struct tt_step *tt_walk_steps(const struct tt_walk *walk, int lane)
{
    const struct tt_plan *plan = walk->plans[walk->lane[lane].rank];
    return plan->step + plan->lane[walk->lane[lane].index].step;
}

static inline struct tt_walk_route *tt_walk_route(const struct tt_walk *walk, int from, int to,
                                                  int channel)
{
    return &walk->route[((size_t)from * (size_t)walk->nranks + (size_t)to) *
                            (size_t)walk->channels +
                        (size_t)channel];
}

// Whether the wait for `peer` (a rank) has been given its signals.
bool tt_walk_given(const struct tt_walk *walk, int peer, int rank, const struct tt_step *wait);

// Calls `seen` with each signal that surely came before a wait that has run, in whatever order
// lanes run: where several lanes signal on one route, only what must be among the awaited number.
void tt_walk_seen(const struct tt_walk *walk, int lane, const struct tt_step *wait,
                  void (*seen)(void *context, struct tt_walk_signal signal), void *context);

#endif
