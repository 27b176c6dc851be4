// In the switch (NVLS): one multicast load combines all ranks' elements in rank order, one
// multicast store reaches all ranks. A rank's port carries the vector once, whatever the number of
// ranks.
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/algorithms.h"
#include "algorithms/pieces.h"
#include "algorithms/share.h"

enum { MOST_LANES = 1024 };

// The switch reaches the same place of all buffers.
static bool can(const struct tt_problem *problem)
{
    if (problem->nranks < 2) {
        return false;
    }
    switch (problem->function) {
    case TT_ALL_REDUCE:
    case TT_REDUCE:
    case TT_BROADCAST:
        return true;
    case TT_REDUCE_SCATTER:
        for (int rank = 0; rank < problem->nranks; rank++) {
            if (!tt_sent_alike(problem, rank)) {
                return false;
            }
        }
        return true;
    case TT_ALL_GATHER:
        for (int rank = 0; rank < problem->nranks; rank++) {
            if (!tt_received_alike(problem, rank)) {
                return false;
            }
        }
        return true;
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
