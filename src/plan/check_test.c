// The checker finds what it is there to find: one planted error of each kind, with a text that
// names rank, lane, step and element; and it accepts what is right in more than one order.
// SPDX-License-Identifier: Apache-2.0
#include "plan/check.h"

#include "expect.h"
#include "plan/build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3, COUNT = 12, ELEMENT = 4 };

typedef void build_function(const struct tt_problem *problem, int rank, struct tt_builder *builder);

static const struct tt_problem all_reduce = {.function = TT_ALL_REDUCE,
                                             .nranks = N,
                                             .count = COUNT,
                                             .element = ELEMENT,
                                             .accumulator = 8,
                                             .lanes = 2};
static const struct tt_problem broadcast = {.function = TT_BROADCAST,
                                            .nranks = N,
                                            .count = COUNT,
                                            .element = ELEMENT,
                                            .accumulator = ELEMENT,
                                            .lanes = 2};

static struct tt_plan_finding check(const struct tt_problem *problem, build_function *build,
                                    bool needs_multicast)
{
    struct tt_algorithm algorithm = {
        .name = "planted", .needs_multicast = needs_multicast, .build = build};
    const struct tt_plan *plans[N] = {NULL};
    struct tt_plan_finding finding;
    for (int rank = 0; rank < N; rank++) {
        plans[rank] = tt_plan_build(&algorithm, problem, rank);
    }
    bool right = tt_plan_check(problem, plans, &finding);
    EXPECT_EQ(right, finding.fault == TT_PLAN_RIGHT);
    for (int rank = 0; rank < N; rank++) {
        tt_plan_free(plans[rank]);
    }
    return finding;
}

// Expects the fault, and each of the words (NULL ends them) in its text.
static void expect_fault(const struct tt_problem *problem, build_function *build,
                         enum tt_plan_fault fault, const char *const *words)
{
    struct tt_plan_finding finding = check(problem, build, false);
    EXPECT_EQ(finding.fault, fault);
    for (int i = 0; words[i] != NULL; i++) {
        EXPECT_CONTAINS(finding.text, words[i]);
    }
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static struct tt_place send(int rank, size_t element)
{
    return tt_place(TT_BUFFER_SEND, rank, element * ELEMENT);
}

static struct tt_place recv(int rank, size_t element)
{
    return tt_place(TT_BUFFER_RECV, rank, element * ELEMENT);
}

static struct tt_place scratch(int rank, size_t byte)
{
    return tt_place(TT_BUFFER_SCRATCH, rank, byte);
}

// ---- What is right ------------------------------------------------------------------------------

// Each rank reduces four elements for all.
static void slices(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    (void)problem;
    struct tt_place in = send(TT_EVERY, 4 * (size_t)rank);
    struct tt_place out = recv(TT_EVERY, 4 * (size_t)rank);
    tt_build_reduce(builder, &out, 1, &in, 1, 4, 0);
}

static void in_switch(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    (void)problem;
    struct tt_place in = send(TT_SWITCH, 4 * (size_t)rank);
    struct tt_place out = recv(TT_SWITCH, 4 * (size_t)rank);
    tt_build_reduce(builder, &out, 1, &in, 1, 4, 0);
}

// A chain of partial results; what a step of rank 1, or the last, does, may be planted.
struct plant {
    unsigned last_flags;
    bool no_wait, twice, swapped, no_round, shifted, extra_signal, missing_signal;
};
static struct plant plant;

static void chain(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    (void)problem;
    struct tt_place in[3] = {scratch(rank, 0), send(rank, plant.shifted && rank == 1 ? 1 : 0),
                             send(rank, 0)};
    struct tt_place next = scratch(rank + 1, 0);
    size_t count = plant.shifted ? COUNT - 1 : COUNT;
    tt_build_scratch(builder, COUNT * 8);
    if (rank > 0 && !(plant.no_wait && rank == 1)) {
        tt_build_wait(builder, rank - 1, 0, 1);
    }
    if (rank == N - 1) {
        struct tt_place out = recv(TT_EVERY, 0);
        tt_build_reduce(builder, &out, 1, in, 2, count,
                        TT_PARTIAL_IN | (plant.no_round ? TT_PARTIAL_OUT : 0));
        return;
    }
    unsigned flags = TT_PARTIAL_OUT | (rank == 0 ? 0 : TT_PARTIAL_IN);
    int ins = (rank == 0 ? 1 : 2) + (plant.twice && rank == 1);
    tt_build_reduce(builder, &next, 1, rank == 0 ? in + 1 : in, ins, count, flags);
    if (plant.no_wait && rank == 1) {
        tt_build_wait(builder, 0, 0, 1); // too late
    }
    if (!(plant.missing_signal && rank == 1)) {
        tt_build_signal(builder, rank + 1, 0);
    }
    if (plant.extra_signal && rank == 0) {
        tt_build_signal(builder, 1, 0);
    }
}

static void right_plans(void)
{
    plant = (struct plant){0};
    EXPECT_STR(check(&all_reduce, slices, false).text, "");
    EXPECT_STR(check(&all_reduce, in_switch, true).text, "");
    EXPECT_STR(check(&all_reduce, chain, false).text, "");
}

// ---- Bounds and form ----------------------------------------------------------------------------

static void past_the_end(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    slices(problem, rank, builder);
    if (rank == 1) {
        struct tt_place out = recv(1, 10);
        tt_build_lane(builder);
        tt_build_copy(builder, &out, 1, send(2, 9), 3);
    }
}

static void past_scratch(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    struct tt_place out = scratch(2, 64);
    (void)problem;
    tt_build_scratch(builder, 64);
    if (rank == 0) {
        tt_build_copy(builder, &out, 1, send(0, 0), 1);
    }
}

// Right in all else: rank 1 alone asks for a scratch that it does not use.
static void other_scratch(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    tt_build_scratch(builder, rank == 1 ? 128 : 64);
    slices(problem, rank, builder);
}

static void no_rank(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    struct tt_place out = recv(N, 0);
    (void)problem;
    if (rank == 2) {
        tt_build_copy(builder, &out, 1, send(2, 0), 1);
    }
}

static void not_aligned(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    struct tt_place out = tt_place(TT_BUFFER_RECV, 0, 2);
    (void)problem;
    if (rank == 0) {
        tt_build_copy(builder, &out, 1, send(0, 0), 1);
    }
}

static void no_send_buffer(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    struct tt_place out = recv(1, 0);
    (void)problem;
    if (rank == 1) { // only the root sends
        tt_build_copy(builder, &out, 1, send(1, 0), 1);
    }
}

static void bad_channel(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    (void)problem;
    if (rank == 1) {
        tt_build_signal(builder, 0, TT_CHANNELS);
    }
}

static void bad_peer(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    (void)problem;
    if (rank == 1) {
        tt_build_wait(builder, N, 0, 1);
    }
}

static void copy_of_many(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    struct tt_place out = recv(0, 0);
    (void)problem;
    if (rank == 0) {
        tt_build_copy(builder, &out, 1, send(TT_EVERY, 0), 1);
    }
}

static void bounds(void)
{
    expect_fault(
        &all_reduce, past_the_end, TT_PLAN_BOUNDS,
        WORDS("rank 1, lane 1, step 0 (copy)", "bytes 40 to 52 of rank 1's receive", "48"));
    expect_fault(&all_reduce, past_scratch, TT_PLAN_BOUNDS,
                 WORDS("rank 0, lane 0, step 0 (copy)", "rank 2's scratch"));
    expect_fault(&all_reduce, other_scratch, TT_PLAN_BOUNDS,
                 WORDS("rank 1's plan needs 128 bytes", "rank 0's 64", "must need the same"));
    expect_fault(&all_reduce, no_rank, TT_PLAN_BOUNDS, WORDS("rank 2, lane 0, step 0", "no rank"));
    expect_fault(&all_reduce, not_aligned, TT_PLAN_BOUNDS, WORDS("multiple"));
    expect_fault(&broadcast, no_send_buffer, TT_PLAN_BOUNDS,
                 WORDS("rank 1, lane 0, step 0", "rank 1's send buffer", "0 bytes"));
    expect_fault(&all_reduce, bad_channel, TT_PLAN_BOUNDS, WORDS("rank 1", "channel"));
    expect_fault(&all_reduce, bad_peer, TT_PLAN_BOUNDS, WORDS("rank 1", "peer"));
    expect_fault(&all_reduce, copy_of_many, TT_PLAN_BOUNDS, WORDS("one input"));
    expect_fault(&all_reduce, in_switch, TT_PLAN_BOUNDS, WORDS("switch"));
    struct tt_problem none = all_reduce;
    none.root = N;
    expect_fault(&none, slices, TT_PLAN_BOUNDS, WORDS("root 3"));
    none = (struct tt_problem){.function = TT_ALL_TO_ALL,
                               .nranks = N,
                               .element = ELEMENT,
                               .accumulator = ELEMENT,
                               .in_place = true,
                               .lanes = 1};
    expect_fault(&none, slices, TT_PLAN_BOUNDS, WORDS("AlltoAll has no in-place form"));
}

// ---- Signals ------------------------------------------------------------------------------------

// All wait for the next before they signal the one before.
static void circle(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    slices(problem, rank, builder);
    tt_build_lane(builder);
    tt_build_wait(builder, (rank + 1) % N, 5, 1);
    tt_build_signal(builder, (rank + N - 1) % N, 5);
}

static void signals(void)
{
    plant = (struct plant){.missing_signal = true};
    expect_fault(&all_reduce, chain, TT_PLAN_DEADLOCK,
                 WORDS("rank 2, lane 0, step 0 (wait)", "signal 1 on channel 0 from rank 1",
                       "gives 0 in all", "all ended"));
    expect_fault(&all_reduce, circle, TT_PLAN_DEADLOCK,
                 WORDS("rank 0, lane 1, step 0 (wait)", "from rank 1",
                       "which stands at rank 1, lane 1, step 0 (wait)"));
    plant = (struct plant){.extra_signal = true};
    expect_fault(
        &all_reduce, chain, TT_PLAN_SIGNAL,
        WORDS("rank 0, lane 0, step 2 (signal)", "signal 2 on channel 0 to rank 1", "awaits 1"));
}

// ---- Races --------------------------------------------------------------------------------------

// Two lanes of one rank write the same.
static void two_writers(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    slices(problem, rank, builder);
    if (rank == 1) {
        struct tt_place in = send(TT_EVERY, 7);
        struct tt_place out = recv(2, 7);
        tt_build_lane(builder);
        tt_build_reduce(builder, &out, 1, &in, 1, 1, 0);
    }
}

// Rank 2 overwrites rank 0's buffer in place while others may still read it.
static void read_and_write(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    (void)problem;
    struct tt_place in = send(TT_EVERY, 0);
    struct tt_place out = recv(rank, 0);
    tt_build_reduce(builder, &out, 1, &in, 1, COUNT, 0);
}

static void overlaps_itself(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    slices(problem, rank, builder);
    if (rank == 0) {
        struct tt_place out = recv(0, 1);
        tt_build_copy(builder, &out, 1, recv(0, 0), 3);
    }
}

// Two lanes of rank 0 give one signal each on one route; rank 1 awaits one: whose is not certain.
static void either_signal(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    (void)problem;
    uint32_t awaited = plant.no_wait ? 1 : 2;
    if (rank == 0) {
        struct tt_place out[2] = {recv(1, 0), recv(0, 0)};
        tt_build_copy(builder, out, 2, send(0, 0), 6);
        tt_build_signal(builder, 1, 3);
        tt_build_lane(builder);
        struct tt_place rest[2] = {recv(1, 6), recv(0, 6)};
        tt_build_copy(builder, rest, 2, send(0, 6), 6);
        tt_build_signal(builder, 1, 3);
    } else if (rank == 1) {
        struct tt_place out = recv(2, 0);
        tt_build_wait(builder, 0, 3, awaited);
        tt_build_copy(builder, &out, 1, recv(1, 0), 12);
        if (awaited == 1) {
            tt_build_wait(builder, 0, 3, 2);
        }
    }
}

static void races(void)
{
    expect_fault(&all_reduce, two_writers, TT_PLAN_RACE,
                 WORDS("rank 1, lane 0, step 0 (reduce)", "rank 1, lane 1, step 0 (reduce)",
                       "element 7 of rank 2's receive buffer"));
    plant = (struct plant){.no_wait = true};
    expect_fault(&all_reduce, chain, TT_PLAN_RACE,
                 WORDS("rank 0, lane 0, step 0 (reduce)", "rank 1, lane 0, step 0 (reduce)",
                       "byte 0 of rank 1's scratch"));
    struct tt_problem in_place = all_reduce;
    EXPECT_STR(check(&in_place, read_and_write, false).text, "");
    in_place.in_place = true;
    expect_fault(&in_place, read_and_write, TT_PLAN_RACE, WORDS("element 0 of rank", "writes"));
    EXPECT_STR(check(&in_place, slices, false).text, "");
    expect_fault(&all_reduce, overlaps_itself, TT_PLAN_RACE,
                 WORDS("rank 0, lane 0, step 1 (copy)", "element 1 of rank 0's receive buffer"));
    plant = (struct plant){.no_wait = true};
    expect_fault(&broadcast, either_signal, TT_PLAN_RACE, WORDS("rank 1, lane 0, step 1 (copy)"));
    plant = (struct plant){0};
    EXPECT_STR(check(&broadcast, either_signal, false).text, "");
}

// ---- Results ------------------------------------------------------------------------------------

static void wrong_order(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    (void)problem;
    struct tt_place in[N] = {send(0, 0), send(2, 0), send(1, 0)};
    struct tt_place out = recv(rank, 0);
    tt_build_reduce(builder, &out, 1, in, N, 5, 0);
    struct tt_place every = send(TT_EVERY, 5);
    struct tt_place rest = recv(rank, 5);
    tt_build_reduce(builder, &rest, 1, &every, 1, COUNT - 5, 0);
}

static void one_left_out(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    (void)problem;
    struct tt_place in[2] = {send(0, 0), send(1, 0)};
    struct tt_place out = recv(rank, 0);
    tt_build_reduce(builder, &out, 1, in, 2, COUNT, 0);
}

static void not_all(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    if (rank != 1) {
        slices(problem, rank, builder);
    }
}

// The sum of rounded sums.
static void rounded_early(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    (void)problem;
    struct tt_place in[2] = {send(0, 0), send(1, 0)};
    struct tt_place pair = scratch(rank, 0);
    struct tt_place both[2] = {pair, send(2, 0)};
    struct tt_place out = recv(rank, 0);
    tt_build_scratch(builder, COUNT * ELEMENT);
    tt_build_reduce(builder, &pair, 1, in, 2, COUNT, 0);
    tt_build_reduce(builder, &out, 1, both, 2, COUNT, 0);
}

static void copied(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    struct tt_place out = recv(rank, 0);
    (void)problem;
    tt_build_copy(builder, &out, 1, send(rank, 0), COUNT);
}

// Rank 2's elements by way of rank 0's scratch: which factor would scale them?
static void moved_input(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    (void)problem;
    tt_build_scratch(builder, COUNT * ELEMENT);
    if (rank == 0) {
        struct tt_place copy = scratch(0, 0);
        struct tt_place in[N] = {send(0, 0), send(1, 0), copy};
        struct tt_place out = recv(TT_EVERY, 0);
        tt_build_copy(builder, &copy, 1, send(2, 0), COUNT);
        tt_build_reduce(builder, &out, 1, in, N, COUNT, 0);
    }
}

static void unwritten(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    (void)problem;
    tt_build_scratch(builder, COUNT * ELEMENT);
    if (rank == 0) {
        struct tt_place out = recv(TT_EVERY, 0);
        tt_build_copy(builder, &out, 1, scratch(0, 0), COUNT);
    }
}

static void results(void)
{
    expect_fault(&all_reduce, wrong_order, TT_PLAN_RESULT,
                 WORDS("element 0 of rank 0's receive buffer", "0 + 2 + 1", "0 + 1 + 2",
                       "not in rank order", "rank 0, lane 0, step 0 (reduce)"));
    expect_fault(&all_reduce, one_left_out, TT_PLAN_RESULT, WORDS("missing", "0 + 1"));
    expect_fault(&all_reduce, not_all, TT_PLAN_RESULT,
                 WORDS("element 4 of rank 0's receive buffer", "nothing", "never written"));
    expect_fault(&all_reduce, rounded_early, TT_PLAN_RESULT,
                 WORDS("rank 0, lane 0, step 1 (reduce)", "rounded too early"));
    expect_fault(&all_reduce, copied, TT_PLAN_RESULT, WORDS("not reduced", "element 0 of rank 0"));
    expect_fault(&all_reduce, moved_input, TT_PLAN_RESULT,
                 WORDS("rank 0, lane 0, step 1 (reduce)", "another rank"));
    expect_fault(&broadcast, unwritten, TT_PLAN_RESULT,
                 WORDS("rank 0, lane 0, step 0 (copy)", "written by nobody"));
    plant = (struct plant){.twice = true};
    expect_fault(&all_reduce, chain, TT_PLAN_RESULT, WORDS("counts twice"));
    plant = (struct plant){.shifted = true};
    expect_fault(&all_reduce, chain, TT_PLAN_RESULT, WORDS("another element"));
    struct tt_problem wide = all_reduce;
    wide.accumulator = ELEMENT;
    plant = (struct plant){.no_round = true};
    expect_fault(&wide, chain, TT_PLAN_RESULT, WORDS("partial result", "not rounded"));
}

// ---- Stray writes -------------------------------------------------------------------------------

static void into_send(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    slices(problem, rank, builder);
    tt_build_signal(builder, TT_EVERY, 0);
    tt_build_wait(builder, TT_EVERY, 0, 1);
    if (rank == 2) {
        struct tt_place out = send(1, 3);
        tt_build_copy(builder, &out, 1, send(2, 3), 1);
    }
}

// In place, a rank's block is its result; the other blocks are inputs that stay.
static void into_other_block(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    size_t block = (size_t)rank * problem->count;
    struct tt_place in = send(TT_EVERY, block);
    struct tt_place out[2] = {recv(rank, 0), send(rank, (size_t)((rank + 1) % N) * problem->count)};
    tt_build_signal(builder, TT_EVERY, 0);
    tt_build_wait(builder, TT_EVERY, 0, 1);
    tt_build_reduce(builder, out, 1, &in, 1, problem->count, 0);
    tt_build_signal(builder, TT_EVERY, 0);
    tt_build_wait(builder, TT_EVERY, 0, 2);
    if (rank == 1 && plant.twice) {
        tt_build_copy(builder, out + 1, 1, out[0], 1);
    }
}

static void into_gap(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    for (int from = 0; from < N; from++) {
        struct tt_place out = recv(rank, problem->uneven.recv_first[from]);
        tt_build_copy(builder, &out, 1, send(from, 0), 1 + (plant.twice && from == 1 ? 1 : 0));
    }
}

static void strays(void)
{
    expect_fault(&all_reduce, into_send, TT_PLAN_STRAY,
                 WORDS("rank 2, lane 0, step 3 (copy)", "element 3 of rank 1's send buffer"));
    struct tt_problem scatter = {.function = TT_REDUCE_SCATTER,
                                 .nranks = N,
                                 .count = 4,
                                 .element = ELEMENT,
                                 .accumulator = ELEMENT,
                                 .in_place = true,
                                 .lanes = 1};
    plant = (struct plant){0};
    EXPECT_STR(check(&scatter, into_other_block, false).text, "");
    plant.twice = true;
    expect_fault(&scatter, into_other_block, TT_PLAN_STRAY,
                 WORDS("rank 1, lane 0, step 5 (copy)", "element 8 of rank 1's send buffer"));
    // One element of each rank, with gaps between them.
    size_t count[N * N] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    size_t first[N * N] = {0, 2, 4, 0, 2, 4, 0, 2, 4};
    struct tt_problem gather = {.function = TT_ALL_GATHER,
                                .nranks = N,
                                .element = ELEMENT,
                                .accumulator = ELEMENT,
                                .is_uneven = true,
                                .uneven = {.recv_count = count, .recv_first = first},
                                .lanes = 1};
    plant.twice = false;
    EXPECT_STR(check(&gather, into_gap, false).text, "");
    plant.twice = true;
    expect_fault(&gather, into_gap, TT_PLAN_BOUNDS, WORDS("rank 1's send buffer"));
}

// A copy of two elements where only one is a result.
static void past_part(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    for (int from = 0; from < N; from++) {
        struct tt_place out[2] = {recv(rank, problem->uneven.recv_first[from]), recv(rank, 3)};
        tt_build_copy(builder, out, rank == 2 && from == 1 ? 2 : 1, send(from, 0), 1);
    }
}

static void gaps(void)
{
    size_t count[N * N] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    size_t first[N * N] = {0, 2, 4, 0, 2, 4, 0, 2, 4};
    struct tt_problem gather = {.function = TT_ALL_GATHER,
                                .nranks = N,
                                .element = ELEMENT,
                                .accumulator = ELEMENT,
                                .is_uneven = true,
                                .uneven = {.recv_count = count, .recv_first = first},
                                .lanes = 1};
    expect_fault(&gather, past_part, TT_PLAN_STRAY,
                 WORDS("rank 2, lane 0, step 1 (copy)", "element 3 of rank 2's receive buffer"));
}

int main(void)
{
    RUN(right_plans);
    RUN(bounds);
    RUN(signals);
    RUN(races);
    RUN(results);
    RUN(strays);
    RUN(gaps);
    return expect_result();
}
