// Ring: data moves from each rank to the next one only, in chunks that follow each other.
//
// Broadcast and AllGather are what the name says. Reductions start at rank 0 and end at rank n-1
// (chain.h), for operands must be in rank order; results then go around the ring to all (AllReduce)
// or, by one store, to who asked for them (Reduce, ReduceScatter).
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/algorithms.h"
#include "algorithms/chain.h"
#include "algorithms/spread.h"

enum { MOST_LANES = TT_CHANNELS / TT_CHAIN_CHANNELS };

static bool can(const struct tt_problem *problem)
{
    switch (problem->function) {
    case TT_ALL_REDUCE:
    case TT_REDUCE:
    case TT_BROADCAST:
    case TT_REDUCE_SCATTER:
    case TT_ALL_GATHER:
        return true;
    default:
        return false;
    }
}

static void place(int nranks, int root, int distance, struct tt_spread *out)
{
    int rank = (root + distance) % nranks;
    bool is_last = distance == nranks - 1;
    *out = (struct tt_spread){.from = distance == 0 ? -1 : (rank + nranks - 1) % nranks,
                              .to = {(rank + 1) % nranks},
                              .tos = is_last ? 0 : 1,
                              .passes_on = {distance + 1 < nranks - 1},
                              .depth = distance};
}

// Blocks go around: in hop h the rank passes on what rank - h sent.
static void all_gather(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    size_t element = problem->element;
    int nranks = problem->nranks;
    int next = (rank + 1) % nranks;
    int before = (rank + nranks - 1) % nranks;
    size_t largest = 0;
    for (int from = 0; from < nranks; from++) {
        size_t count = tt_part_sent(problem, from, from).count;
        largest = count > largest ? count : largest;
    }
    int lanes = tt_lanes_for(problem, largest, MOST_LANES);
    for (int lane = 0; lane < lanes; lane++) {
        tt_build_lane(builder);
        for (int hop = 0; hop < nranks - 1 || hop == 0; hop++) {
            int from = (rank - hop + nranks) % nranks;
            struct tt_part sent = tt_part_sent(problem, from, from);
            struct tt_part share = tt_share((struct tt_part){0, sent.count}, element, lanes, lane);
            size_t here = (tt_part_received(problem, rank, from).first + share.first) * element;
            size_t there = (tt_part_received(problem, next, from).first + share.first) * element;
            struct tt_place out[2] = {tt_place(TT_BUFFER_RECV, rank, here),
                                      tt_place(TT_BUFFER_RECV, next, there)};
            struct tt_place own =
                tt_place(TT_BUFFER_SEND, rank, (sent.first + share.first) * element);
            if (hop > 0) {
                tt_build_wait(builder, before, lane, (uint32_t)hop);
            }
            tt_build_copy(builder, hop > 0 ? out + 1 : out, hop > 0 || nranks == 1 ? 1 : 2,
                          hop > 0 ? out[0] : own, share.count);
            if (hop < nranks - 2) {
                tt_build_signal(builder, next, lane);
            }
        }
    }
}

// A vector, or a block, that ends at rank `to`.
struct target {
    int to;
    struct tt_part share, result; // in the send buffers' block, in the receive buffer
};

static int targets(const struct tt_problem *problem)
{
    return problem->function == TT_REDUCE ? 1 : problem->nranks;
}

static struct target target_of(const struct tt_problem *problem, int rank, int lanes, int lane,
                               int index)
{
    int to = problem->function == TT_REDUCE ? problem->root : index;
    struct tt_part sent = tt_part_sent(problem, rank, to);
    struct tt_part result = tt_part_received(problem, to, to);
    return (struct target){to, tt_share(sent, problem->element, lanes, lane),
                           tt_share(result, problem->element, lanes, lane)};
}

// Reduce and ReduceScatter: one target after the other goes along the chain.
static void reduce_to(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    size_t element = problem->element;
    size_t largest = 0;
    for (int i = 0; i < targets(problem); i++) {
        size_t count = target_of(problem, rank, 1, 0, i).share.count;
        largest = count > largest ? count : largest;
    }
    int lanes = tt_lanes_for(problem, largest, MOST_LANES);
    size_t chunk = tt_chunk_elements(TT_CHAIN_CHUNK_BYTES, largest / (size_t)lanes, element);
    size_t scratch = 0;
    for (int lane = 0; lane < lanes; lane++) {
        struct tt_chain chain = {.problem = problem,
                                 .builder = builder,
                                 .rank = rank,
                                 .channel = lane * TT_CHAIN_CHANNELS,
                                 .scratch = scratch,
                                 .slot = chunk};
        for (int i = 0; i < targets(problem); i++) {
            chain.items += tt_chunks(target_of(problem, rank, lanes, lane, i).share.count, chunk);
        }
        scratch += problem->nranks > 1 ? tt_chain_scratch(problem, chunk) : 0;
        tt_build_lane(builder);
        for (int i = 0; i < targets(problem); i++) {
            struct target target = target_of(problem, rank, lanes, lane, i);
            for (size_t k = 0; k < tt_chunks(target.share.count, chunk); k++) {
                struct tt_part part = tt_chunk(target.share, chunk, k);
                size_t result = tt_chunk(target.result, chunk, k).first;
                struct tt_place out = tt_place(TT_BUFFER_RECV, target.to, result * element);
                tt_chain_reduce(&chain, part.first, part.count, &out, 1);
            }
        }
    }
    tt_build_scratch(builder, scratch);
}

static void build(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    switch (problem->function) {
    case TT_BROADCAST:
        tt_spread_broadcast(problem, rank, builder, place);
        break;
    case TT_ALL_REDUCE:
        tt_spread_all_reduce(problem, rank, builder, place);
        break;
    case TT_ALL_GATHER:
        all_gather(problem, rank, builder);
        break;
    default:
        reduce_to(problem, rank, builder);
        break;
    }
}

const struct tt_algorithm tt_ring = {
    .name = "ring",
    .nccl_name = "Ring",
    .can = can,
    .build = build,
};
