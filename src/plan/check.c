// The checker: form, then one walk through all lanes on symbols, then signals and results. See
// check.h; the parts are in check_*.c.
//
// One walk is enough. Which waits end does not depend on the order in which lanes run, and where
// nothing races, neither do the values. Memory is not looked at element by element but in stretches
// between the bounds of accesses, so the cost does not depend on the count.
// SPDX-License-Identifier: Apache-2.0
#include "plan/check.h"

#include "plan/check_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Texts --------------------------------------------------------------------------------------

// Graver faults hide others, which may be their consequences.
static int gravity(enum tt_plan_fault fault)
{
    static const int gravities[] = {
        [TT_PLAN_RIGHT] = 0,  [TT_PLAN_RESULT] = 1,   [TT_PLAN_STRAY] = 2,  [TT_PLAN_RACE] = 3,
        [TT_PLAN_SIGNAL] = 4, [TT_PLAN_DEADLOCK] = 5, [TT_PLAN_BOUNDS] = 6, [TT_PLAN_MEMORY] = 7,
    };
    return gravities[fault];
}

void tt_check_note(struct tt_check *check, enum tt_plan_fault fault, const char *format, ...)
{
    if (gravity(fault) <= gravity(check->finding->fault)) {
        return;
    }
    check->finding->fault = fault;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(check->finding->text, sizeof check->finding->text, format, arguments);
    va_end(arguments);
}

const char *tt_check_step(const struct tt_check *check, struct tt_access access, char *text,
                          size_t bytes)
{
    static const char *const kinds[] = {"reduce", "copy", "signal", "wait"};
    const struct tt_walk_lane *lane = &check->walk.lane[access.lane];
    const struct tt_step *step = tt_walk_steps(&check->walk, access.lane) + access.epoch - 1;
    (void)snprintf(text, bytes, "rank %d, lane %d, step %u (%s)", lane->rank, lane->index,
                   access.epoch - 1, (unsigned)step->kind < 4 ? kinds[step->kind] : "?");
    return text;
}

const char *tt_check_place(const struct tt_check *check, int rank, enum tt_buffer memory, size_t at,
                           char *text, size_t bytes)
{
    const struct tt_checked_rank *state = &check->rank[rank];
    size_t element = check->problem->element;
    if (memory == TT_BUFFER_SCRATCH) {
        (void)snprintf(text, bytes, "byte %zu of rank %d's scratch", at, rank);
        return text;
    }
    size_t recv = state->base[TT_BUFFER_RECV];
    bool in_recv = memory == state->in[TT_BUFFER_RECV] && at >= recv &&
                   at - recv < state->bytes[TT_BUFFER_RECV];
    size_t base = state->base[in_recv ? TT_BUFFER_RECV : TT_BUFFER_SEND];
    (void)snprintf(text, bytes, "element %zu of rank %d's %s buffer", (at - base) / element, rank,
                   in_recv ? "receive" : "send");
    return text;
}

// ---- Signals ------------------------------------------------------------------------------------

static void tell_stuck(struct tt_check *check, int lane)
{
    const struct tt_walk *walk = &check->walk;
    const struct tt_walk_lane *state = &walk->lane[lane];
    const struct tt_step *wait = tt_walk_steps(walk, lane) + state->at;
    int peer = wait->peer == TT_EVERY ? 0 : wait->peer;
    while (tt_walk_given(walk, peer, state->rank, wait)) {
        peer++; // one of them is missing
    }
    const struct tt_walk_route *route = tt_walk_route(walk, peer, state->rank, wait->channel);
    char step[96];
    char other[160] = "whose lanes have all ended";
    for (int i = 0; i < walk->lanes; i++) {
        const struct tt_walk_lane *there = &walk->lane[i];
        if (there->rank == peer && there->at < there->steps) {
            char name[96];
            struct tt_access access = {i, there->at + 1};
            (void)snprintf(other, sizeof other, "which stands at %s",
                           tt_check_step(check, access, name, sizeof name));
            break;
        }
    }
    tt_check_note(check, TT_PLAN_DEADLOCK,
                  "%s waits for signal %u on channel %u from rank %d, which has given %u and gives "
                  "%u in all, and %s",
                  tt_check_step(check, (struct tt_access){lane, state->at + 1}, step, sizeof step),
                  wait->number, wait->channel, peer, route->given, route->total, other);
}

static void find_deadlock(struct tt_check *check)
{
    for (int lane = 0; lane < check->walk.lanes; lane++) {
        if (check->walk.lane[lane].at < check->walk.lane[lane].steps) {
            tell_stuck(check, lane);
        }
    }
}

// Signals to rank `to` beyond the highest number it awaits. highest: [from][channel], to work in.
static bool find_unawaited(struct tt_check *check, int to, uint32_t *highest)
{
    const struct tt_walk *walk = &check->walk;
    const struct tt_plan *plan = walk->plans[to];
    size_t channels = (size_t)walk->channels;
    memset(highest, 0, (size_t)walk->nranks * channels * sizeof *highest);
    for (uint32_t i = 0; i < plan->steps; i++) {
        const struct tt_step *step = &plan->step[i];
        bool is_wait = step->kind == TT_STEP_WAIT;
        int first = step->peer == TT_EVERY ? 0 : step->peer;
        int end = step->peer == TT_EVERY ? walk->nranks : step->peer + 1;
        for (int from = first; is_wait && from < end; from++) {
            uint32_t *number = &highest[(size_t)from * channels + step->channel];
            *number = step->number > *number ? step->number : *number;
        }
    }
    for (int from = 0; from < walk->nranks; from++) {
        for (int channel = 0; channel < walk->channels; channel++) {
            const struct tt_walk_route *route = tt_walk_route(walk, from, to, channel);
            uint32_t number = highest[(size_t)from * channels + (size_t)channel];
            if (route->given > number) {
                struct tt_walk_signal signal = walk->signals[route->first + number];
                char step[96];
                tt_check_note(check, TT_PLAN_SIGNAL,
                              "%s is signal %u on channel %d to rank %d, which awaits %u",
                              tt_check_step(check, (struct tt_access){signal.lane, signal.step + 1},
                                            step, sizeof step),
                              number + 1, channel, to, number);
                return false;
            }
        }
    }
    return true;
}

static bool find_signals(struct tt_check *check)
{
    size_t routes = (size_t)check->walk.nranks * (size_t)check->walk.channels;
    uint32_t *highest = calloc(routes + 1, sizeof *highest);
    if (highest == NULL) {
        return false;
    }
    for (int to = 0; to < check->walk.nranks; to++) {
        if (!find_unawaited(check, to, highest)) {
            break;
        }
    }
    free(highest);
    return true;
}

// ---- The whole ----------------------------------------------------------------------------------

// Room for clocks and for the operands of the largest step.
static bool make_room(struct tt_check *check)
{
    size_t lanes = (size_t)check->walk.lanes;
    size_t steps = 0;
    size_t operands = 1;
    check->first_step = malloc((lanes + 1) * sizeof *check->first_step);
    if (check->first_step == NULL) {
        return false;
    }
    for (int lane = 0; lane < check->walk.lanes; lane++) {
        const struct tt_step *step = tt_walk_steps(&check->walk, lane);
        check->first_step[lane] = steps;
        steps += check->walk.lane[lane].steps;
        for (uint32_t i = 0; i < check->walk.lane[lane].steps; i++) {
            size_t most = step[i].ins > step[i].outs ? step[i].ins : step[i].outs;
            operands = most > operands ? most : operands;
        }
    }
    operands *= (size_t)check->problem->nranks;
    check->clock = calloc(lanes * lanes + 1, sizeof *check->clock);
    check->kept_row = malloc((steps + 1) * sizeof *check->kept_row);
    check->in = malloc(operands * sizeof *check->in);
    check->out = malloc(operands * sizeof *check->out);
    return check->clock != NULL && check->kept_row != NULL && check->in != NULL &&
           check->out != NULL;
}

// False: no memory.
static bool run(struct tt_check *check)
{
    if (!tt_check_form(check)) {
        return true;
    }
    if (!tt_walk_begin(&check->walk) || !make_room(check)) {
        return false;
    }
    const struct tt_step *step = NULL;
    while ((check->lane = tt_walk_next(&check->walk, &step)) >= 0) {
        check->epoch = check->walk.lane[check->lane].at;
        if (!tt_check_run(check, step)) {
            return false;
        }
    }
    find_deadlock(check);
    tt_check_results(check);
    return find_signals(check);
}

static void release(struct tt_check *check)
{
    for (int rank = 0; check->rank != NULL && rank < check->problem->nranks; rank++) {
        for (int i = 0; i < TT_BUFFERS; i++) {
            free(check->rank[rank].memory[i].stretch);
        }
        free(check->rank[rank].wanted);
    }
    free(check->rank);
    free(check->clock);
    free(check->kept);
    free(check->kept_row);
    free(check->first_step);
    free(check->in);
    free(check->out);
    free(check->result);
    free(check->reads.read);
    tt_operands_free(&check->lists);
    tt_walk_end(&check->walk);
}

// Whether the problem is one that plans can be checked for.
static bool check_problem(struct tt_check *check)
{
    const struct tt_problem *problem = check->problem;
    size_t unused = 0;
    if ((unsigned)problem->function >= TT_FUSED_RMSNORM || problem->nranks < 1 ||
        problem->element == 0 || problem->root < 0 || problem->root >= problem->nranks ||
        (tt_op_reduces(problem->function) && problem->accumulator < problem->element)) {
        tt_check_note(check, TT_PLAN_BOUNDS,
                      "the problem is none: function %d, %d ranks, root %d, elements of %zu bytes, "
                      "accumulators of %zu",
                      problem->function, problem->nranks, problem->root, problem->element,
                      problem->accumulator);
        return false;
    }
    if (problem->in_place && !tt_in_place_first(problem, 0, &unused, &unused)) {
        tt_check_note(check, TT_PLAN_BOUNDS, "%s has no in-place form",
                      tt_function_name(problem->function));
        return false;
    }
    return true;
}

bool tt_plan_check(const struct tt_problem *problem, const struct tt_plan *const *plans,
                   struct tt_plan_finding *finding_out)
{
    *finding_out = (struct tt_plan_finding){TT_PLAN_RIGHT, ""};
    struct tt_check check = {.problem = problem, .plans = plans, .finding = finding_out};
    if (!check_problem(&check) || !tt_check_plans(&check)) {
        return false;
    }
    check.rank = calloc((size_t)problem->nranks, sizeof *check.rank);
    if (check.rank == NULL || !tt_walk_lanes(&check.walk, plans, problem->nranks) ||
        !tt_check_prepare(&check) || !run(&check)) {
        tt_check_note(&check, TT_PLAN_MEMORY, "no memory to check %s for %d ranks",
                      tt_function_name(problem->function), problem->nranks);
    }
    release(&check);
    return finding_out->fault == TT_PLAN_RIGHT;
}
