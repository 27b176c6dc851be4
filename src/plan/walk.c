// Lanes are gone through in turn, each as far as it gets. See walk.h.
// SPDX-License-Identifier: Apache-2.0
#include "plan/walk.h"

#include <stdlib.h>

// The ranks that a signal or a wait is about: [*first_out, end).
static int peers_of(const struct tt_walk *walk, const struct tt_step *step, int *first_out)
{
    if (step->peer == TT_EVERY) {
        *first_out = 0;
        return walk->nranks;
    }
    *first_out = step->peer;
    return step->peer + 1;
}

static void number_lanes(struct tt_walk *walk)
{
    int number = 0;
    for (int rank = 0; rank < walk->nranks; rank++) {
        for (int i = 0; i < walk->plans[rank]->lanes; i++) {
            walk->lane[number++] =
                (struct tt_walk_lane){rank, i, 0, walk->plans[rank]->lane[i].steps};
        }
    }
}

static void count_signals(struct tt_walk *walk, int lane)
{
    const struct tt_step *steps = tt_walk_steps(walk, lane);
    for (uint32_t i = 0; i < walk->lane[lane].steps; i++) {
        if (steps[i].kind != TT_STEP_SIGNAL) {
            continue;
        }
        int first = 0;
        int end = peers_of(walk, &steps[i], &first);
        for (int to = first; to < end; to++) {
            struct tt_walk_route *route =
                tt_walk_route(walk, walk->lane[lane].rank, to, steps[i].channel);
            route->lane = route->total == 0 || route->lane == lane ? lane : -2;
            route->total++;
        }
    }
}

// One more than the highest channel in use.
static int count_channels(const struct tt_plan *const *plans, int nranks)
{
    int channels = 0;
    for (int rank = 0; rank < nranks; rank++) {
        for (uint32_t i = 0; i < plans[rank]->steps; i++) {
            const struct tt_step *step = &plans[rank]->step[i];
            bool uses = step->kind == TT_STEP_SIGNAL || step->kind == TT_STEP_WAIT;
            channels = uses && step->channel >= channels ? step->channel + 1 : channels;
        }
    }
    return channels;
}

bool tt_walk_lanes(struct tt_walk *walk, const struct tt_plan *const *plans, int nranks)
{
    *walk = (struct tt_walk){.plans = plans, .nranks = nranks};
    for (int rank = 0; rank < nranks; rank++) {
        walk->lanes += plans[rank]->lanes;
    }
    walk->lane = calloc((size_t)walk->lanes + 1, sizeof *walk->lane);
    if (walk->lane == NULL) {
        return false;
    }
    number_lanes(walk);
    return true;
}

bool tt_walk_begin(struct tt_walk *walk)
{
    walk->channels = count_channels(walk->plans, walk->nranks);
    size_t routes = (size_t)walk->nranks * (size_t)walk->nranks * (size_t)walk->channels;
    walk->route = calloc(routes + 1, sizeof *walk->route);
    if (walk->route == NULL) {
        return false;
    }
    for (size_t i = 0; i < routes; i++) {
        walk->route[i].lane = -1;
    }
    for (int lane = 0; lane < walk->lanes; lane++) {
        count_signals(walk, lane);
    }
    size_t signals = 0;
    for (size_t i = 0; i < routes; i++) {
        walk->route[i].first = signals;
        signals += walk->route[i].total;
    }
    walk->signals = malloc((signals + 1) * sizeof *walk->signals);
    return walk->signals != NULL;
}

void tt_walk_end(struct tt_walk *walk)
{
    free(walk->lane);
    free(walk->route);
    free(walk->signals);
    *walk = (struct tt_walk){0};
}

bool tt_walk_given(const struct tt_walk *walk, int peer, int rank, const struct tt_step *wait)
{
    return tt_walk_route(walk, peer, rank, wait->channel)->given >= wait->number;
}

static bool can_run(const struct tt_walk *walk, int rank, const struct tt_step *step)
{
    if (step->kind != TT_STEP_WAIT) {
        return true;
    }
    int first = 0;
    int end = peers_of(walk, step, &first);
    for (int peer = first; peer < end; peer++) {
        if (!tt_walk_given(walk, peer, rank, step)) {
            return false;
        }
    }
    return true;
}

static void give(struct tt_walk *walk, int lane, uint32_t index, const struct tt_step *step)
{
    int first = 0;
    int end = peers_of(walk, step, &first);
    for (int to = first; to < end; to++) {
        struct tt_walk_route *route = tt_walk_route(walk, walk->lane[lane].rank, to, step->channel);
        walk->signals[route->first + route->given++] = (struct tt_walk_signal){lane, index};
    }
}

int tt_walk_next(struct tt_walk *walk, const struct tt_step **step_out)
{
    while (walk->idle < walk->lanes) {
        int lane = walk->current;
        struct tt_walk_lane *state = &walk->lane[lane];
        const struct tt_step *step = tt_walk_steps(walk, lane) + state->at;
        if (state->at < state->steps && can_run(walk, state->rank, step)) {
            if (step->kind == TT_STEP_SIGNAL) {
                give(walk, lane, state->at, step);
            }
            state->at++;
            walk->idle = 0;
            *step_out = step;
            return lane;
        }
        walk->current = lane + 1 < walk->lanes ? lane + 1 : 0;
        walk->idle++;
    }
    return -1;
}

// Of a route that several lanes signal on: all but the last `total - number` signals of each lane
// must be among the first `number`.
static void seen_of_several(const struct tt_walk *walk, const struct tt_walk_route *route,
                            uint32_t number,
                            void (*seen)(void *context, struct tt_walk_signal signal),
                            void *context)
{
    const struct tt_walk_signal *signals = walk->signals + route->first;
    uint32_t spare = route->total - number;
    // From the last one given: a signal is certain once `spare` later ones of its lane are known.
    for (uint32_t i = 0; i < route->given; i++) {
        uint32_t later = 0;
        for (uint32_t k = i + 1; k < route->given; k++) {
            later += signals[k].lane == signals[i].lane;
        }
        // Signals of this lane that the walk has not come to yet are later ones, too.
        uint32_t ungiven = 0;
        const struct tt_walk_lane *lane = &walk->lane[signals[i].lane];
        const struct tt_step *steps = tt_walk_steps(walk, signals[i].lane);
        size_t base = (size_t)(route - walk->route);
        int channel = (int)(base % (size_t)walk->channels);
        int to = (int)(base / (size_t)walk->channels % (size_t)walk->nranks);
        for (uint32_t k = lane->at; k < lane->steps; k++) {
            ungiven += steps[k].kind == TT_STEP_SIGNAL && steps[k].channel == channel &&
                       (steps[k].peer == to || steps[k].peer == TT_EVERY);
        }
        if (later + ungiven >= spare) {
            seen(context, signals[i]);
        }
    }
}

void tt_walk_seen(const struct tt_walk *walk, int lane, const struct tt_step *wait,
                  void (*seen)(void *context, struct tt_walk_signal signal), void *context)
{
    int first = 0;
    int end = peers_of(walk, wait, &first);
    for (int peer = first; peer < end; peer++) {
        const struct tt_walk_route *route =
            tt_walk_route(walk, peer, walk->lane[lane].rank, wait->channel);
        if (route->lane >= 0) {
            seen(context, walk->signals[route->first + wait->number - 1]);
        } else {
            seen_of_several(walk, route, wait->number, seen, context);
        }
    }
}
