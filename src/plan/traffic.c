// Counting bytes per link. See traffic.h.
// SPDX-License-Identifier: Apache-2.0
#include "plan/traffic.h"

#include <stdlib.h>

static void count_one(struct tt_traffic *traffic, int rank, int other, uint64_t bytes, bool is_load)
{
    int from = is_load ? other : rank;
    int to = is_load ? rank : other;
    if (from != to) {
        traffic->link[(size_t)from * (size_t)traffic->nranks + (size_t)to] += bytes;
    }
}

static void count_place(struct tt_traffic *traffic, int rank, const struct tt_place *place,
                        uint64_t bytes, bool is_load)
{
    if (place->rank == TT_SWITCH) {
        uint64_t *all = is_load ? traffic->to_switch : traffic->from_switch;
        uint64_t *one = is_load ? traffic->from_switch : traffic->to_switch;
        one[rank] += bytes;
        for (int other = 0; other < traffic->nranks; other++) {
            all[other] += bytes;
        }
        return;
    }
    int first = place->rank == TT_EVERY ? 0 : place->rank;
    int end = place->rank == TT_EVERY ? traffic->nranks : place->rank + 1;
    for (int other = first; other < end; other++) {
        count_one(traffic, rank, other, bytes, is_load);
    }
}

static void count_step(struct tt_traffic *traffic, const struct tt_problem *problem,
                       const struct tt_plan *plan, const struct tt_step *step)
{
    for (uint32_t i = 0; i < step->ins; i++) {
        bool is_partial = i == 0 && (step->flags & TT_PARTIAL_IN) != 0;
        count_place(traffic, plan->rank, &plan->place[step->in + i],
                    step->count * (is_partial ? problem->accumulator : problem->element), true);
    }
    for (uint32_t i = 0; i < step->outs; i++) {
        bool is_partial = (step->flags & TT_PARTIAL_OUT) != 0;
        count_place(traffic, plan->rank, &plan->place[step->out + i],
                    step->count * (is_partial ? problem->accumulator : problem->element), false);
    }
}

bool tt_plan_traffic(const struct tt_problem *problem, const struct tt_plan *const *plans,
                     struct tt_traffic *traffic_out)
{
    size_t nranks = (size_t)problem->nranks;
    struct tt_traffic traffic = {.nranks = problem->nranks,
                                 .link = calloc(nranks * nranks, sizeof(uint64_t)),
                                 .to_switch = calloc(nranks, sizeof(uint64_t)),
                                 .from_switch = calloc(nranks, sizeof(uint64_t))};
    if (traffic.link == NULL || traffic.to_switch == NULL || traffic.from_switch == NULL) {
        tt_traffic_free(&traffic);
        return false;
    }
    for (int rank = 0; rank < problem->nranks; rank++) {
        for (uint32_t i = 0; i < plans[rank]->steps; i++) {
            count_step(&traffic, problem, plans[rank], &plans[rank]->step[i]);
        }
    }
    *traffic_out = traffic;
    return true;
}

void tt_traffic_free(struct tt_traffic *traffic)
{
    free(traffic->link);
    free(traffic->to_switch);
    free(traffic->from_switch);
    *traffic = (struct tt_traffic){0};
}

struct tt_port tt_traffic_port(const struct tt_traffic *traffic, int rank)
{
    size_t nranks = (size_t)traffic->nranks;
    size_t own = (size_t)rank;
    struct tt_port port = {.in = traffic->from_switch[own], .out = traffic->to_switch[own]};
    for (size_t other = 0; other < nranks; other++) {
        port.in += traffic->link[other * nranks + own];
        port.out += traffic->link[own * nranks + other];
    }
    return port;
}
