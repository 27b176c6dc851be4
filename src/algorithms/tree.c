// Tree: a binary tree of ranks below the root, down which chunks travel: Broadcast in log2(n) hops.
//
// A tree cannot reduce by the contract on bits: ((a0 + a1) + a2) + a3 has no two sums that could be
// made at the same time. So AllReduce goes along the chain of ranks (chain.h) and comes back from
// the last one down the tree.
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/algorithms.h"
#include "algorithms/spread.h"

static bool can(const struct tt_problem *problem)
{
    return problem->function == TT_BROADCAST || problem->function == TT_ALL_REDUCE;
}

// Positions are numbered as in a heap: below d are 2d + 1 and 2d + 2.
static void place(int nranks, int root, int distance, struct tt_spread *out)
{
    *out = (struct tt_spread){.from = distance == 0 ? -1 : (root + (distance - 1) / 2) % nranks};
    for (int below = 2 * distance + 1; below <= 2 * distance + 2 && below < nranks; below++) {
        out->to[out->tos] = (root + below) % nranks;
        out->passes_on[out->tos++] = 2 * below + 1 < nranks;
    }
    for (int above = distance; above > 0; above = (above - 1) / 2) {
        out->depth++;
    }
}

static void build(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    if (problem->function == TT_BROADCAST) {
        tt_spread_broadcast(problem, rank, builder, place);
    } else {
        tt_spread_all_reduce(problem, rank, builder, place);
    }
}

const struct tt_algorithm tt_tree = {
    .name = "tree",
    .nccl_name = "Tree",
    .can = can,
    .build = build,
};
