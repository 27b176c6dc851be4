// When each step of all ranks' plans would run if every rank had its own memory system: for
// pictures, not for predictions. Times are in steps of the plans' largest one.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_PLAN_SCHEDULE_H
#define TT_PLAN_SCHEDULE_H

#include "plan/walk.h"

struct tt_schedule {
    struct tt_walk walk; // its lanes are those below
    size_t *first;       // [lane]: its first step in the lists below
    double *begin, *end; // [step]
    double length;       // when the last one ends
    bool is_stuck;       // some steps never run; theirs are 0
};

// The plans must be well formed, as tt_plan_check says. False: no memory. End it in any case.
bool tt_schedule_make(struct tt_schedule *schedule, const struct tt_problem *problem,
                      const struct tt_plan *const *plans);
void tt_schedule_free(struct tt_schedule *schedule);

#endif
