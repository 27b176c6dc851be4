// Plans that run: every kind of step and place, chunks, partial results, lanes that wait for each
// other, and an abort between chunks. Plans come from a builder of this test.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/run.h"

#include "exec/executor.h"
#include "expect.h"
#include "plan/build.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS = 3, COUNT = 50000 };

struct world {
    struct tt_host *host[RANKS];
    _Atomic int errors[RANKS];
    _Atomic uint32_t abort_flag;
    float *send[RANKS], *recv[RANKS];
};

static void make_world(struct world *w)
{
    static const int process[RANKS];
    const struct tt_room room = {.base = mmap(NULL, tt_arena_bytes(RANKS), PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                                 .descriptor = -1};
    struct tt_arena *arena = NULL;
    memset(w, 0, sizeof *w);
    EXPECT_OK(tt_arena_map(&room, RANKS, &arena));
    for (int rank = 0; rank < RANKS; rank++) {
        struct tt_team team = {.rank = rank,
                               .nranks = RANKS,
                               .process = process,
                               .abort_flag = &w->abort_flag,
                               .async_error = &w->errors[rank],
                               .arena = arena};
        static struct tt_record_line line;
        EXPECT_OK(tt_host_join(&team, &w->host[rank]));
        w->host[rank]->line = &line;
        w->host[rank]->run = tt_run_new(RANKS);
        w->send[rank] = calloc(COUNT, sizeof(float));
        w->recv[rank] = calloc(COUNT, sizeof(float));
        for (int i = 0; i < COUNT; i++) {
            w->send[rank][i] = (float)((rank + 1) * (i % 1000));
        }
    }
    tt_arena_release(arena);
}

static void free_world(struct world *w)
{
    for (int rank = 0; rank < RANKS; rank++) {
        tt_host_part(w->host[rank]);
        free(w->send[rank]);
        free(w->recv[rank]);
    }
}

// A rank enters and prepares its plan.
static const struct tt_plan *begin(struct world *w, int rank, const struct tt_algorithm *algorithm,
                                   enum tt_reduce_operator op)
{
    struct tt_problem problem = {.function = TT_ALL_REDUCE,
                                 .nranks = RANKS,
                                 .count = COUNT,
                                 .element = sizeof(float),
                                 .accumulator = sizeof(float),
                                 .lanes = 2};
    struct tt_host *host = w->host[rank];
    struct tt_run *run = host->run;
    struct tt_entry entry = {.call = {.count = COUNT}};
    tt_host_enter(host, &entry, 1);
    const struct tt_plan *plan = tt_plan_build(algorithm, &problem, rank);
    if (!EXPECT(plan != NULL)) {
        exit(1);
    }
    run->type = ncclFloat32;
    run->op = op;
    run->is_scaled = op == TT_REDUCE_SCALED_SUM;
    run->stream = op == TT_REDUCE_AVERAGE; // both ways of storing
    for (int r = 0; r < RANKS; r++) {
        run->send[r] = (char *)w->send[r];
        run->recv[r] = (char *)w->recv[r];
        run->scale[r].float32 = (float)(r + 2);
    }
    if (plan->scratch > 0) {
        run->scratch = tt_arena_scratch(host->arena, plan->scratch, &run->scratch_stride);
    }
    EXPECT(tt_run_begin(run, plan));
    return plan;
}

// Steps all ranks' lanes in turns until all are over.
static void run_all(struct world *w, const struct tt_algorithm *algorithm,
                    enum tt_reduce_operator op)
{
    const struct tt_plan *plan[RANKS];
    bool go = true;
    for (int rank = 0; rank < RANKS; rank++) {
        plan[rank] = begin(w, rank, algorithm, op);
    }
    for (int turn = 0; go && EXPECT(turn < 1000); turn++) {
        go = false;
        for (int rank = RANKS - 1; rank >= 0; rank--) {
            for (int lane = plan[rank]->lanes - 1; lane >= 0; lane--) {
                enum tt_progress progress = tt_run_step(w->host[rank], w->host[rank]->run, lane);
                EXPECT(progress != TT_FAILED);
                go |= progress == TT_WAITING;
            }
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        tt_plan_free(plan[rank]);
    }
}

static bool can(const struct tt_problem *problem)
{
    return problem->nranks == RANKS;
}

static struct tt_place at(enum tt_buffer buffer, int rank, size_t element)
{
    return tt_place(buffer, rank, element * sizeof(float));
}

// Two lanes: the second half waits until the first is done on all ranks; results go to all.
static void build_direct(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    size_t half = problem->count / 2, slice = half / RANKS, first = (size_t)rank * slice;
    size_t count = rank == RANKS - 1 ? half - first : slice;
    for (int lane = 0; lane < 2; lane++) {
        struct tt_place in = at(TT_BUFFER_SEND, TT_EVERY, (size_t)lane * half + first);
        struct tt_place out = at(TT_BUFFER_RECV, TT_EVERY, (size_t)lane * half + first);
        tt_build_lane(builder);
        if (lane == 1) {
            tt_build_wait(builder, TT_EVERY, 5, 1);
        }
        tt_build_reduce(builder, &out, 1, &in, 1, count, 0);
        if (lane == 0) {
            tt_build_signal(builder, TT_EVERY, 5);
        }
    }
}

// A chain of partial results through scratch: rank 0 begins, the last one rounds and copies back.
static void build_chain(const struct tt_problem *problem, int rank, struct tt_builder *builder)
{
    size_t count = problem->count;
    struct tt_place out = at(TT_BUFFER_SCRATCH, rank, 0);
    struct tt_place in[2] = {at(TT_BUFFER_SCRATCH, rank - 1, 0), at(TT_BUFFER_SEND, rank, 0)};
    tt_build_scratch(builder, count * problem->accumulator);
    tt_build_lane(builder);
    if (rank == 0) {
        tt_build_reduce(builder, &out, 1, &in[1], 1, count, TT_PARTIAL_OUT);
        tt_build_signal(builder, 1, 0);
    } else {
        tt_build_wait(builder, rank - 1, 0, 1);
        if (rank < RANKS - 1) {
            tt_build_reduce(builder, &out, 1, in, 2, count, TT_PARTIAL_IN | TT_PARTIAL_OUT);
            tt_build_signal(builder, rank + 1, 0);
        } else {
            struct tt_place result = at(TT_BUFFER_RECV, rank, 0);
            tt_build_reduce(builder, &result, 1, in, 2, count, TT_PARTIAL_IN);
            tt_build_signal(builder, TT_EVERY, 1);
        }
    }
    tt_build_wait(builder, RANKS - 1, 1, 1);
    if (rank < RANKS - 1) {
        struct tt_place result = at(TT_BUFFER_RECV, rank, 0);
        tt_build_copy(builder, &result, 1, at(TT_BUFFER_RECV, RANKS - 1, 0), count);
    }
}

static const struct tt_algorithm direct = {.name = "direct", .can = can, .build = build_direct};
static const struct tt_algorithm chain = {.name = "chain", .can = can, .build = build_chain};

static float wanted(enum tt_reduce_operator op, int i)
{
    float x = (float)(i % 1000);
    switch (op) {
    case TT_REDUCE_AVERAGE:
        return 2 * x;
    case TT_REDUCE_SCALED_SUM: // 1 * 2 + 2 * 3 + 3 * 4
        return 20 * x;
    case TT_REDUCE_MAX:
        return 3 * x;
    default:
        return 6 * x;
    }
}

static void results(void)
{
    static const enum tt_reduce_operator ops[] = {TT_REDUCE_SUM, TT_REDUCE_MAX, TT_REDUCE_AVERAGE,
                                                  TT_REDUCE_SCALED_SUM};
    const struct tt_algorithm *const algorithms[] = {&direct, &chain};
    struct world w;
    make_world(&w);
    for (int a = 0; a < 2; a++) {
        for (int o = 0; o < 4; o++) {
            run_all(&w, algorithms[a], ops[o]);
            int wrong = 0;
            for (int rank = 0; rank < RANKS; rank++) {
                for (int i = 0; i < COUNT; i++) {
                    float difference = w.recv[rank][i] - wanted(ops[o], i);
                    wrong += difference < 0 || difference > 0;
                    w.recv[rank][i] = -1;
                }
            }
            EXPECT_EQ(wrong, 0);
        }
    }
    free_world(&w);
}

// Each chunk looks whether the communicator still lives.
static void abort_ends_lanes(void)
{
    struct world w;
    make_world(&w);
    const struct tt_plan *plan = begin(&w, 0, &direct, TT_REDUCE_SUM);
    EXPECT_EQ(tt_run_step(w.host[0], w.host[0]->run, 1), TT_WAITING);
    atomic_store(&w.abort_flag, 1);
    EXPECT_EQ(tt_run_step(w.host[0], w.host[0]->run, 1), TT_FAILED);
    tt_plan_free(plan);
    struct tt_problem problem = {.function = TT_ALL_REDUCE,
                                 .nranks = RANKS,
                                 .count = COUNT,
                                 .element = sizeof(float),
                                 .accumulator = sizeof(float),
                                 .lanes = 1};
    plan = tt_plan_build(&chain, &problem, 0);
    EXPECT(plan != NULL && tt_run_begin(w.host[0]->run, plan));
    w.host[0]->run->scratch =
        tt_arena_scratch(w.host[0]->arena, plan->scratch, &w.host[0]->run->scratch_stride);
    EXPECT_EQ(tt_run_step(w.host[0], w.host[0]->run, 0), TT_FAILED);
    EXPECT(w.host[0]->run->lane[0].done < COUNT); // not all of the first step
    tt_plan_free(plan);
    free_world(&w);
}

int main(void)
{
    RUN(results);
    RUN(abort_ends_lanes);
    return expect_result();
}
