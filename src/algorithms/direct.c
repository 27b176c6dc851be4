// Direct: every rank loads from and stores to every other's buffers, at once, without a signal.
//
// Each rank does its share of the work: reductions by slices of the result, each read from all
// send buffers in rank order; AllGather, AlltoAll and Gather by pushing what the rank sends;
// Broadcast and Scatter, where only the root sends, by pulling what the rank receives. For a vector
// of S bytes AllReduce reads n*S and writes n*S in all: the least there is without a switch.
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/algorithms.h"
#include "algorithms/pieces.h"
#include "algorithms/share.h"

enum { MOST_LANES = 1024 };

static bool can(const struct tt_problem *problem)
{
    return tt_in_place_ok(problem);
}

// AllReduce, Reduce: the rank's slice of the vector.
static void reduce_slice(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    struct tt_part whole = {0, problem->count};
    struct tt_part slice = tt_share(whole, problem->element, problem->nranks, rank);
    int to = problem->function == TT_ALL_REDUCE ? TT_EVERY : problem->root;
    int lanes = tt_lanes_for(problem, slice.count, MOST_LANES);
    for (int lane = 0; lane < lanes; lane++) {
        struct tt_part share = tt_share(slice, problem->element, lanes, lane);
        struct tt_place in = tt_place(TT_BUFFER_SEND, TT_EVERY, share.first * problem->element);
        struct tt_place out = tt_place(TT_BUFFER_RECV, to, share.first * problem->element);
        tt_build_lane(builder);
        tt_build_reduce(builder, &out, 1, &in, 1, share.count, 0);
    }
}

// ReduceScatter: what the rank receives.
static void reduce_block(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    struct tt_part block = tt_part_received(problem, rank, rank);
    int lanes = tt_lanes_for(problem, block.count, MOST_LANES);
    for (int lane = 0; lane < lanes; lane++) {
        struct tt_part share = tt_share(block, problem->element, lanes, lane);
        struct tt_place out = tt_place(TT_BUFFER_RECV, rank, share.first * problem->element);
        tt_build_lane(builder);
        tt_reduce_sent(builder, problem, rank, out, share);
    }
}

static void move(const struct tt_problem *problem, struct tt_builder *builder, int from, int to,
                 struct tt_part share)
{
    struct tt_part sent = tt_part_sent(problem, from, to);
    struct tt_part received = tt_part_received(problem, to, from);
    struct tt_place out =
        tt_place(TT_BUFFER_RECV, to, (received.first + share.first) * problem->element);
    tt_build_copy(builder, &out, 1,
                  tt_place(TT_BUFFER_SEND, from, (sent.first + share.first) * problem->element),
                  share.count);
}

// Each rank starts with the one after it, so that not all turn to the same one. pulls: from the
// others, instead of to them.
static void exchange(const struct tt_problem *problem, int rank, struct tt_builder *builder,
                     bool pulls)
{
    int nranks = problem->nranks;
    size_t total = 0;
    for (int peer = 0; peer < nranks; peer++) {
        total += tt_part_sent(problem, pulls ? peer : rank, pulls ? rank : peer).count;
    }
    int lanes = tt_lanes_for(problem, total, MOST_LANES);
    for (int lane = 0; lane < lanes; lane++) {
        tt_build_lane(builder);
        for (int i = 1; i <= nranks; i++) {
            int peer = (rank + i) % nranks;
            int from = pulls ? peer : rank;
            int to = pulls ? rank : peer;
            struct tt_part part = {0, tt_part_sent(problem, from, to).count};
            move(problem, builder, from, to, tt_share(part, problem->element, lanes, lane));
        }
    }
}

// AllGather: read once, stored to all.
static void push_block(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    struct tt_part block = tt_part_sent(problem, rank, rank);
    int lanes = tt_lanes_for(problem, block.count, MOST_LANES);
    for (int lane = 0; lane < lanes; lane++) {
        struct tt_part share = tt_share(block, problem->element, lanes, lane);
        tt_build_lane(builder);
        tt_copy_received(builder, problem, rank, share);
    }
}

static void build(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    switch (problem->function) {
    case TT_ALL_REDUCE:
    case TT_REDUCE:
        reduce_slice(problem, rank, builder);
        break;
    case TT_REDUCE_SCATTER:
        reduce_block(problem, rank, builder);
        break;
    case TT_ALL_GATHER:
        push_block(problem, rank, builder);
        break;
    case TT_BROADCAST:
    case TT_SCATTER:
        exchange(problem, rank, builder, true);
        break;
    default:
        exchange(problem, rank, builder, false);
        break;
    }
}

const struct tt_algorithm tt_direct = {
    .name = "direct",
    .can = can,
    .build = build,
};
