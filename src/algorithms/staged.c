// Staged: for buffers that other ranks cannot map. A rank touches its own buffers alone; others see
// copies, chunk by chunk, in its scratch.
//
// Rounds, one chunk each, with two slots, so that a chunk is copied in while the one before is
// read:
//   1. each rank that sends copies its chunk into its slot and signals those who read it (READY);
//   2. each rank that receives copies, or reduces, from the others' slots to its own buffer and
//      signals that they are free (DONE). AllReduce and Reduce: each rank reduces its slice of the
//      chunk into the scratch of those who want it, who copy it out once all have signalled DONE.
// In the switch, for buffers that it does not reach, the same, but slots are read by multicast
// loads, or written by multicast stores, so that ranks then read their own.
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/algorithms.h"
#include "algorithms/share.h"

enum {
    SLOT_BYTES = 256 * 1024, // of a lane, for what goes in: a part of the second-level cache
    CHANNELS = 2,            // of a lane: READY, DONE
    MOST_LANES = TT_CHANNELS / CHANNELS,
    MOST_LANES_IN_SWITCH = 4, // whose scratch is bounded
};

struct stage {
    const struct tt_problem *problem;
    struct tt_builder *builder;
    int rank, lane, lanes;
    int senders, receivers; // a rank, or TT_EVERY
    int blocks;             // that a rank sends: 1, or one for each rank
    bool combines;          // AllReduce, Reduce: results come by scratch, too
    bool in_switch;         // slots are read, or written, through the switch
    size_t chunk, rounds;   // chunk: elements of a block
    size_t scratch;         // where the lane's begins
};

static bool can(const struct tt_problem *problem)
{
    return tt_in_place_ok(problem);
}

// What tt_switch does, wherever the buffers are.
static bool can_far_switch(const struct tt_problem *problem)
{
    return tt_switch.can(problem);
}

static int ready(const struct stage *stage)
{
    return stage->lane * CHANNELS;
}

static int done(const struct stage *stage)
{
    return stage->lane * CHANNELS + 1;
}

static bool is_among(int ranks, int rank)
{
    return ranks == TT_EVERY || ranks == rank;
}

static size_t block_bytes(const struct stage *stage)
{
    return stage->chunk * stage->problem->element;
}

static size_t slot_bytes(const struct stage *stage)
{
    return (size_t)(stage->blocks + (stage->combines ? 1 : 0)) * block_bytes(stage);
}

// The place of a block in a round's slot; block number `blocks`: of the result.
static struct tt_place slot(const struct stage *stage, int rank, size_t round, int block)
{
    return tt_place(TT_BUFFER_SCRATCH, rank,
                    stage->scratch + round % 2 * slot_bytes(stage) +
                        (size_t)block * block_bytes(stage));
}

// The lane's piece of a part in a round.
static struct tt_part piece(const struct stage *stage, struct tt_part part, size_t round)
{
    struct tt_part share = tt_share(part, stage->problem->element, stage->lanes, stage->lane);
    return tt_chunk(share, stage->chunk, round);
}

static struct tt_place own(const struct stage *stage, enum tt_buffer buffer, struct tt_part part)
{
    return tt_place(buffer, stage->rank, part.first * stage->problem->element);
}

// Who block `block` is for; where it is for many, one of them.
static int reader(const struct stage *stage, int block)
{
    return stage->blocks > 1 ? block : stage->problem->root;
}

// The block that a rank fills in all ranks' slots by one store: it is there for all of them.
static int block_for_all(const struct stage *stage, int rank)
{
    return stage->problem->function == TT_ALL_GATHER ? rank : 0;
}

static void store_to_all(const struct stage *stage, size_t round)
{
    struct tt_part sent = tt_part_sent(stage->problem, stage->rank, stage->problem->root);
    struct tt_part part = piece(stage, sent, round);
    struct tt_place out = slot(stage, TT_SWITCH, round, block_for_all(stage, stage->rank));
    tt_build_copy(stage->builder, &out, 1, own(stage, TT_BUFFER_SEND, part), part.count);
}

static void copy_blocks(const struct stage *stage, size_t round)
{
    for (int block = 0; block < stage->blocks; block++) {
        struct tt_part sent = tt_part_sent(stage->problem, stage->rank, reader(stage, block));
        struct tt_part part = piece(stage, sent, round);
        struct tt_place out = slot(stage, stage->rank, round, block);
        // What nobody else reads is read where it is; the switch reads all.
        bool is_own =
            stage->receivers == stage->rank || (stage->blocks > 1 && block == stage->rank);
        tt_build_copy(stage->builder, &out, 1, own(stage, TT_BUFFER_SEND, part),
                      is_own && !stage->in_switch ? 0 : part.count);
    }
}

static void copy_in(const struct stage *stage, size_t round)
{
    if (!is_among(stage->senders, stage->rank)) {
        return;
    }
    if (!stage->combines && round >= 2) {
        tt_build_wait(stage->builder, stage->receivers, done(stage), (uint32_t)round - 1);
    }
    if (stage->in_switch && !tt_op_reduces(stage->problem->function)) {
        store_to_all(stage, round);
    } else {
        copy_blocks(stage, round);
    }
    tt_build_signal(stage->builder, stage->receivers, ready(stage));
}

// What rank `from` sends to this one: in its slot, or in the own send buffer; in the own slot where
// the switch has brought it there.
static struct tt_place source(const struct stage *stage, int from, size_t round)
{
    if (from == stage->rank) {
        struct tt_part sent = tt_part_sent(stage->problem, from, stage->rank);
        return own(stage, TT_BUFFER_SEND, piece(stage, sent, round));
    }
    if (stage->in_switch) {
        return slot(stage, stage->rank, round, block_for_all(stage, from));
    }
    return slot(stage, from, round, stage->blocks > 1 ? stage->rank : 0);
}

// Copies, or reduces, from all slots to the own receive buffer.
static void read_slots(const struct stage *stage, size_t round)
{
    const struct tt_problem *problem = stage->problem;
    if (problem->function == TT_REDUCE_SCATTER) {
        struct tt_part received = tt_part_received(problem, stage->rank, 0);
        struct tt_part part = piece(stage, received, round);
        struct tt_place out = own(stage, TT_BUFFER_RECV, part);
        if (stage->in_switch) {
            struct tt_place all = slot(stage, TT_SWITCH, round, stage->rank);
            tt_build_reduce(stage->builder, &out, 1, &all, 1, part.count, 0);
            return;
        }
        struct tt_place *in = tt_build_list(stage->builder, problem->nranks);
        for (int from = 0; in != NULL && from < problem->nranks; from++) {
            in[from] = source(stage, from, round);
        }
        if (in != NULL) {
            tt_build_reduce(stage->builder, &out, 1, in, problem->nranks, part.count, 0);
        }
        return;
    }
    for (int i = 0; i < problem->nranks; i++) {
        int from = (stage->rank + i) % problem->nranks;
        struct tt_part received = tt_part_received(problem, stage->rank, from);
        struct tt_part part = piece(stage, received, round);
        struct tt_place out = own(stage, TT_BUFFER_RECV, part);
        tt_build_copy(stage->builder, &out, 1, source(stage, from, round), part.count);
    }
}

static void receive(const struct stage *stage, size_t round)
{
    if (!is_among(stage->receivers, stage->rank)) {
        return;
    }
    tt_build_wait(stage->builder, stage->senders, ready(stage), (uint32_t)round + 1);
    read_slots(stage, round);
    if (round + 2 < stage->rounds) {
        tt_build_signal(stage->builder, stage->senders, done(stage));
    }
}

// AllReduce, Reduce: the rank's slice of the chunk, then the whole chunk out of the own scratch.
static void combine(const struct stage *stage, size_t round)
{
    const struct tt_problem *problem = stage->problem;
    struct tt_part part = piece(stage, (struct tt_part){0, problem->count}, round);
    struct tt_part slice =
        tt_share((struct tt_part){0, part.count}, problem->element, problem->nranks, stage->rank);
    int to = problem->function == TT_ALL_REDUCE ? TT_EVERY : problem->root;
    int every = stage->in_switch ? TT_SWITCH : TT_EVERY;
    struct tt_place in = slot(stage, every, round, 0);
    struct tt_place out = slot(stage, to == TT_EVERY ? every : to, round, stage->blocks);
    in.offset += slice.first * problem->element;
    out.offset += slice.first * problem->element;
    tt_build_wait(stage->builder, TT_EVERY, ready(stage), (uint32_t)round + 1);
    tt_build_reduce(stage->builder, &out, 1, &in, 1, slice.count, 0);
    tt_build_signal(stage->builder, TT_EVERY, done(stage));
    tt_build_wait(stage->builder, TT_EVERY, done(stage), (uint32_t)round + 1);
    if (is_among(to, stage->rank)) {
        struct tt_place result = own(stage, TT_BUFFER_RECV, part);
        tt_build_copy(stage->builder, &result, 1, slot(stage, stage->rank, round, stage->blocks),
                      part.count);
    }
}

// The largest block that any rank sends to any.
static size_t largest_block(const struct tt_problem *problem)
{
    size_t largest = 0;
    for (int from = 0; from < problem->nranks; from++) {
        for (int to = 0; to < problem->nranks; to++) {
            size_t count = tt_part_sent(problem, from, to).count;
            largest = count > largest ? count : largest;
        }
    }
    return largest;
}

static void build_lane(struct stage *stage)
{
    tt_build_lane(stage->builder);
    for (size_t round = 0; round < stage->rounds; round++) {
        if (round == 0) {
            copy_in(stage, 0);
        }
        if (round + 1 < stage->rounds) {
            copy_in(stage, round + 1);
        }
        if (stage->combines) {
            combine(stage, round);
        } else {
            receive(stage, round);
        }
    }
}

// Elements of a block in a slot, of `share` in all.
static size_t chunk_of(const struct stage *stage, size_t share)
{
    size_t element = stage->problem->element, line = tt_line_elements(element);
    size_t chunk = tt_chunk_elements(SLOT_BYTES / (size_t)stage->blocks, share, element);
    size_t blocks = (size_t)(stage->blocks + (stage->combines ? 1 : 0));
    size_t most = TT_SWITCH_SCRATCH / (2 * (size_t)stage->lanes * blocks) / element / line * line;
    return stage->in_switch && chunk > most ? most : chunk;
}

static void build_stage(const struct tt_problem *problem, int rank, struct tt_builder *builder,
                        bool in_switch)
{
    enum tt_function function = problem->function;
    bool from_root = function == TT_BROADCAST || function == TT_SCATTER;
    bool by_rank = function == TT_ALL_TO_ALL || function == TT_SCATTER ||
                   function == TT_REDUCE_SCATTER || (in_switch && function == TT_ALL_GATHER);
    struct stage stage = {
        .problem = problem, .builder = builder, .rank = rank, .in_switch = in_switch};
    stage.senders = from_root ? problem->root : TT_EVERY;
    stage.receivers = function == TT_GATHER ? problem->root : TT_EVERY;
    stage.blocks = by_rank ? problem->nranks : 1;
    stage.combines = function == TT_ALL_REDUCE || function == TT_REDUCE;
    size_t largest = largest_block(problem);
    stage.lanes = tt_lanes_for(problem, largest, in_switch ? MOST_LANES_IN_SWITCH : MOST_LANES);
    size_t share = tt_share((struct tt_part){0, largest}, problem->element, stage.lanes, 0).count;
    stage.chunk = chunk_of(&stage, share);
    stage.rounds = tt_chunks(share, stage.chunk);
    for (; stage.lane < stage.lanes; stage.lane++) {
        build_lane(&stage);
        stage.scratch += 2 * slot_bytes(&stage);
    }
    tt_build_scratch(builder, largest > 0 ? stage.scratch : 0);
}

static void build(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    build_stage(problem, rank, builder, false);
}

static void build_far_switch(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    build_stage(problem, rank, builder, true);
}

const struct tt_algorithm tt_staged = {
    .name = "staged",
    .is_staged = true,
    .can = can,
    .build = build,
};

const struct tt_algorithm tt_far_switch = {
    .name = "far_switch",
    .nccl_name = "NVLS",
    .needs_multicast = true,
    .is_staged = true,
    .can = can_far_switch,
    .build = build_far_switch,
};
