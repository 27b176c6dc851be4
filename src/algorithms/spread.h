// One rank's vector to all receive buffers, passed on from rank to rank in chunks, along a ring or
// down a tree: Broadcast, and the second half of AllReduce.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_ALGORITHMS_SPREAD_H
#define TT_ALGORITHMS_SPREAD_H

#include "algorithms/share.h"

// A rank's place in the way from `root` to all. Those it passes on to are `to`; those of them that
// pass on in turn get a signal.
struct tt_spread {
    int from; // -1: it is the root
    int to[2], tos;
    bool passes_on[2];
    int depth; // ranks passed from the root to here
};

// The place of a rank, by its distance after the root (0 .. nranks - 1).
typedef void tt_spread_function(int nranks, int root, int distance, struct tt_spread *out);

void tt_spread_broadcast(const struct tt_problem *problem, int rank, struct tt_builder *builder,
                         tt_spread_function *place);
// The reduction along the chain of all ranks (chain.h), then from the last one to all.
void tt_spread_all_reduce(const struct tt_problem *problem, int rank, struct tt_builder *builder,
                          tt_spread_function *place);

#endif
