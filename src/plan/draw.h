// Plans for people: as text, as a picture.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_PLAN_DRAW_H
#define TT_PLAN_DRAW_H

#include "plan/plan.h"

#include <stdbool.h>
#include <stdio.h>

// "copy 250 elements: recv 1 [0, 250) = send 0 [0, 250)" into text; always ended by a null byte.
// Elements of send and receive buffers, bytes of scratch.
void tt_step_describe(const struct tt_problem *problem, const struct tt_plan *plan,
                      const struct tt_step *step, char *text, size_t bytes);

// One rank's lanes and steps.
void tt_plan_print(FILE *file, const struct tt_problem *problem, const struct tt_plan *plan);

// An SVG picture of all ranks' plans: lanes by time (schedule.h), arrows for signals and for data
// from one rank to another; what goes to or comes from all, or the switch, is in words. The plans
// must be well formed. False: no memory, or `file` cannot be written.
bool tt_plan_draw(FILE *file, const struct tt_problem *problem, const struct tt_plan *const *plans);

#endif
