// In the switch (NVLS): one multicast load combines all ranks' elements in rank order, one
// multicast store reaches all ranks. A rank's port carries the vector once, whatever the number of
// ranks.
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/algorithms.h"
#include "algorithms/share.h"
#include "plan/build.h"
#include "plan/parts.h"

enum { MOST_LANES = 1024 };

// Uneven sizes have no buffers of which the switch is known to reach all that is touched.
static bool can(const struct tt_problem *problem)
{
    switch (problem->function) {
    case TT_ALL_REDUCE:
    case TT_REDUCE:
    case TT_BROADCAST:
    case TT_REDUCE_SCATTER:
    case TT_ALL_GATHER:
        return problem->nranks > 1 && !problem->is_uneven;
    default:
        return false;
    }
}

// What rank does: elements [in.first, ...) of send buffers to [out.first, ...) of receive buffers.
struct work {
    struct tt_part in, out;
    int from, to; // a rank or TT_SWITCH
};

static struct work work_of(const struct tt_problem *problem, int rank)
{
    struct tt_part whole = {0, problem->count};
    struct tt_part slice = tt_share(whole, problem->element, problem->nranks, rank);
    struct tt_part none = {0, 0};
    bool is_root = rank == problem->root;
    switch (problem->function) {
    case TT_ALL_REDUCE:
        return (struct work){slice, slice, TT_SWITCH, TT_SWITCH};
    case TT_REDUCE: // all by the root: a slice elsewhere would cross the switch twice
        return (struct work){is_root ? whole : none, whole, TT_SWITCH, rank};
    case TT_BROADCAST:
        return (struct work){is_root ? whole : none, whole, rank, TT_SWITCH};
    case TT_REDUCE_SCATTER:
        return (struct work){tt_part_sent(problem, rank, rank),
                             tt_part_received(problem, rank, rank), TT_SWITCH, rank};
    default: // AllGather
        return (struct work){tt_part_sent(problem, rank, rank),
                             tt_part_received(problem, rank, rank), rank, TT_SWITCH};
    }
}

static void build(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    size_t element = problem->element;
    struct work work = work_of(problem, rank);
    int lanes = tt_lanes_for(problem, work.in.count, MOST_LANES);
    for (int lane = 0; lane < lanes; lane++) {
        struct tt_part from = tt_share(work.in, element, lanes, lane);
        size_t to = work.out.first + (from.first - work.in.first);
        struct tt_place in = tt_place(TT_BUFFER_SEND, work.from, from.first * element);
        struct tt_place out = tt_place(TT_BUFFER_RECV, work.to, to * element);
        tt_build_lane(builder);
        if (tt_op_reduces(problem->function)) {
            tt_build_reduce(builder, &out, 1, &in, 1, from.count, 0);
        } else {
            tt_build_copy(builder, &out, 1, in, from.count);
        }
    }
}

const struct tt_algorithm tt_switch = {
    .name = "switch",
    .nccl_name = "NVLS",
    .needs_multicast = true,
    .can = can,
    .build = build,
};
