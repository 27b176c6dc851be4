// Proves that the plans of all ranks do what their problem asks, whatever the order in which the
// steps of different lanes happen to run, by running them on symbols instead of numbers.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_PLAN_CHECK_H
#define TT_PLAN_CHECK_H

#include "plan/plan.h"

#include <stdbool.h>

enum tt_plan_fault {
    TT_PLAN_RIGHT,
    TT_PLAN_BOUNDS,   // a place lies outside its buffer, or a step is malformed
    TT_PLAN_DEADLOCK, // waits that no signal ends
    TT_PLAN_SIGNAL,   // a signal that nobody waits for
    TT_PLAN_RACE,     // two accesses to one element, one of them a write, that nothing orders
    TT_PLAN_RESULT,   // an element of a result is not what the function asks: a wrong or missing
                      // input, one counted twice, operands not in rank order, rounded too early
    TT_PLAN_STRAY,    // an element is written that the function must leave alone
    TT_PLAN_MEMORY,   // the checker ran out of memory: nothing is proved
};

struct tt_plan_finding {
    enum tt_plan_fault fault;
    char text[400]; // names rank, lane, step, buffer and element
};

// plans: [problem->nranks]. True where all is right; *finding_out then says TT_PLAN_RIGHT.
bool tt_plan_check(const struct tt_problem *problem, const struct tt_plan *const *plans,
                   struct tt_plan_finding *finding_out);

#endif
