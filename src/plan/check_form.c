// Whether plans are well formed and stay inside the buffers. See check_internal.h.
// SPDX-License-Identifier: Apache-2.0
#include "plan/check_internal.h"

#include <stdio.h>

// Says what is wrong with a step; false, for the caller to pass on.
static bool refuse(struct tt_check *check, int lane, uint32_t step, const char *what)
{
    char where[96];
    tt_check_note(check, TT_PLAN_BOUNDS, "%s: %s",
                  tt_check_step(check, (struct tt_access){lane, step + 1}, where, sizeof where),
                  what);
    return false;
}

static bool stays_inside(struct tt_check *check, int lane, uint32_t step, int rank,
                         struct tt_place place, size_t bytes)
{
    static const char *const names[] = {"send", "receive", "scratch"};
    size_t room = check->rank[rank].bytes[place.buffer];
    if (place.offset <= room && bytes <= room - place.offset) {
        return true;
    }
    char text[200];
    (void)snprintf(text, sizeof text,
                   "bytes %zu to %zu of rank %d's %s buffer are used, which has %zu bytes (element "
                   "%zu)",
                   place.offset, place.offset + bytes, rank, names[place.buffer], room,
                   room / check->problem->element);
    return refuse(check, lane, step, text);
}

static bool check_place(struct tt_check *check, int lane, uint32_t step, struct tt_place place,
                        bool is_partial)
{
    const struct tt_step *steps = tt_walk_steps(&check->walk, lane);
    size_t width = is_partial ? check->problem->accumulator : check->problem->element;
    size_t bytes = 0;
    int nranks = check->problem->nranks;
    if ((unsigned)place.buffer >= TT_BUFFERS || place.rank < TT_SWITCH || place.rank >= nranks) {
        return refuse(check, lane, step, "a place is of no buffer or of no rank");
    }
    if (__builtin_mul_overflow(steps[step].count, width, &bytes)) {
        return refuse(check, lane, step, "its count is larger than memory");
    }
    if (place.offset % width != 0) {
        return refuse(check, lane, step, "an offset is no multiple of the element's size");
    }
    if (place.rank == TT_SWITCH &&
        !check->plans[check->walk.lane[lane].rank]->algorithm->needs_multicast) {
        return refuse(check, lane, step, "a switch is used by an algorithm that needs none");
    }
    int first = place.rank < 0 ? 0 : place.rank;
    int end = place.rank < 0 ? nranks : place.rank + 1;
    for (int rank = first; rank < end; rank++) {
        if (!stays_inside(check, lane, step, rank, place, bytes)) {
            return false;
        }
    }
    return true;
}

static bool check_data(struct tt_check *check, int lane, uint32_t index)
{
    const struct tt_plan *plan = check->plans[check->walk.lane[lane].rank];
    const struct tt_step *step = tt_walk_steps(&check->walk, lane) + index;
    if (step->count == 0 || step->ins == 0 || step->outs == 0) {
        return refuse(check, lane, index, "it has no elements, no input or no output");
    }
    if (step->in > plan->places || step->ins > plan->places - step->in ||
        step->out > plan->places || step->outs > plan->places - step->out) {
        return refuse(check, lane, index, "its places are not in the plan's list");
    }
    const struct tt_place *in = plan->place + step->in;
    bool is_copy = step->kind == TT_STEP_COPY;
    if (is_copy && (step->ins != 1 || in[0].rank < 0 || step->flags != 0)) {
        return refuse(check, lane, index, "a copy has one input, of one rank, and no flags");
    }
    if ((step->flags & ~(unsigned)(TT_PARTIAL_IN | TT_PARTIAL_OUT)) != 0) {
        return refuse(check, lane, index, "it has unknown flags");
    }
    if ((step->flags & TT_PARTIAL_IN) != 0 && in[0].rank < 0) {
        return refuse(check, lane, index, "a partial result comes from one rank");
    }
    for (uint32_t i = 0; i < step->ins; i++) {
        bool is_partial = i == 0 && (step->flags & TT_PARTIAL_IN) != 0;
        if (!check_place(check, lane, index, in[i], is_partial)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < step->outs; i++) {
        if (!check_place(check, lane, index, plan->place[step->out + i],
                         (step->flags & TT_PARTIAL_OUT) != 0)) {
            return false;
        }
    }
    return true;
}

static bool check_one(struct tt_check *check, int lane, uint32_t index)
{
    const struct tt_step *step = tt_walk_steps(&check->walk, lane) + index;
    switch (step->kind) {
    case TT_STEP_REDUCE:
    case TT_STEP_COPY:
        return check_data(check, lane, index);
    case TT_STEP_SIGNAL:
    case TT_STEP_WAIT:
        if (step->peer < TT_EVERY || step->peer >= check->problem->nranks) {
            return refuse(check, lane, index, "its peer is no rank");
        }
        if (step->channel >= TT_CHANNELS) {
            return refuse(check, lane, index, "its channel is not below 64");
        }
        if (step->kind == TT_STEP_WAIT && step->number == 0) {
            return refuse(check, lane, index, "it waits for no signal");
        }
        return true;
    default:
        return refuse(check, lane, index, "it is of no kind");
    }
}

// Enough for walk.c to go through the plans.
static bool check_plan(struct tt_check *check, int rank)
{
    const struct tt_plan *plan = check->plans[rank];
    if (plan == NULL || plan->rank != rank || plan->nranks != check->problem->nranks) {
        tt_check_note(check, TT_PLAN_BOUNDS, "rank %d: this is no plan of rank %d of %d", rank,
                      rank, check->problem->nranks);
        return false;
    }
    for (int i = 0; i < plan->lanes; i++) {
        const struct tt_lane *lane = &plan->lane[i];
        if (lane->step > plan->steps || lane->steps > plan->steps - lane->step) {
            tt_check_note(check, TT_PLAN_BOUNDS,
                          "rank %d, lane %d: steps %u to %u are not in the plan, which has %u",
                          rank, i, lane->step, lane->step + lane->steps, plan->steps);
            return false;
        }
    }
    // Each rank finds the others' scratch by the size that its own plan asks for.
    if (plan->scratch != check->plans[0]->scratch) {
        tt_check_note(check, TT_PLAN_BOUNDS,
                      "rank %d's plan needs %zu bytes of scratch on each rank, rank 0's %zu: all "
                      "must need the same",
                      rank, plan->scratch, check->plans[0]->scratch);
        return false;
    }
    return true;
}

bool tt_check_plans(struct tt_check *check)
{
    for (int rank = 0; rank < check->problem->nranks; rank++) {
        if (!check_plan(check, rank)) {
            return false;
        }
    }
    return true;
}

bool tt_check_form(struct tt_check *check)
{
    const struct tt_walk *walk = &check->walk;
    for (int lane = 0; lane < walk->lanes; lane++) {
        for (uint32_t i = 0; i < walk->lane[lane].steps; i++) {
            if (!check_one(check, lane, i)) {
                return false;
            }
        }
    }
    return true;
}
