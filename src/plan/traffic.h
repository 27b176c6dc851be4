// Bytes that plans move between ranks, counted from their places. See draw.h for a table.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_PLAN_TRAFFIC_H
#define TT_PLAN_TRAFFIC_H

#include "plan/plan.h"

#include <stdbool.h>

// A load moves bytes from the rank whose memory it is to the one whose step it is, a store the
// other way; what stays within a rank does not count. A load of the switch takes the bytes from
// every rank's port once, and to the loading rank's once; a store takes them from one port to all.
struct tt_traffic {
    int nranks;
    uint64_t *link;                    // [from * nranks + to]: without the switch
    uint64_t *to_switch, *from_switch; // [rank]
};

// What crosses a rank's port, all links and the switch together.
struct tt_port {
    uint64_t in, out;
};

// Counts what all ranks' plans move. False: no memory.
bool tt_plan_traffic(const struct tt_problem *problem, const struct tt_plan *const *plans,
                     struct tt_traffic *traffic_out);
void tt_traffic_free(struct tt_traffic *traffic);
struct tt_port tt_traffic_port(const struct tt_traffic *traffic, int rank);

#endif
