// TUTTI_CHECK_CALLS=0: a right program runs as before. What is wrong in one that is not, nobody
// says: results are wrong, or ranks wait for each other, until TUTTI_TIMEOUT where that is set.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <tutti.h>

enum { RANKS = 3, BYTES = 4 << 20, LIMIT_S = 1 };

// ---- A right program ----------------------------------------------------------------------------

// Of every function, in the entries, and by plans of one piece and of many.
static void check_forms(struct member *m, const struct area *area)
{
    static const size_t counts[] = {1, 2560, 60000};
    for (int function = 0; function < FUNCTIONS; function++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            struct form form = {.function = (enum function)function,
                                .type = ncclFloat32,
                                .count = counts[i],
                                .root = 1};
            check_form(m, area, &form);
        }
    }
}

// Rank r gives r + 1 elements.
static void check_uneven(struct member *m, const struct area *area)
{
    size_t counts[RANKS], all = 0;
    int host[RANKS * RANKS], wrong = 0, at = 0;
    int *send = (int *)(void *)area->memory, *recv = send + RANKS;
    for (int r = 0; r < RANKS; r++) {
        host[r] = 100 * m->rank + r;
        counts[r] = (size_t)r + 1;
        all += counts[r];
    }
    EXPECT_CUDA(cudaMemcpy(send, host, RANKS * sizeof *host, cudaMemcpyDefault));
    EXPECT_OK(
        tuttiAllGatherV(send, counts[m->rank], recv, counts, NULL, ncclInt, m->comm, m->stream));
    EXPECT_EQ(wait_within(m, 10), ncclSuccess);
    EXPECT_CUDA(cudaMemcpy(host, recv, all * sizeof *host, cudaMemcpyDefault));
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i <= r; i++) {
            wrong += host[at++] != 100 * r + i;
        }
    }
    EXPECT_EQ(wrong, 0);
}

// Rows of equal elements become ones.
static void check_fused(struct member *m)
{
    enum { TOKENS = 8, HIDDEN = 16, COUNT = TOKENS * HIDDEN };
    float host[COUNT];
    for (int i = 0; i < COUNT; i++) {
        host[i] = (float)(1 + i / HIDDEN) * 10;
    }
    EXPECT_CUDA(cudaMemcpy(m->memory, host, sizeof host, cudaMemcpyDefault));
    EXPECT_OK(tuttiAllReduceRMSNorm(m->memory, m->memory, TOKENS, HIDDEN, NULL, ncclFloat, m->comm,
                                    m->stream));
    EXPECT_EQ(wait_within(m, 10), ncclSuccess);
    EXPECT_CUDA(cudaMemcpy(host, m->memory, sizeof host, cudaMemcpyDefault));
    for (int i = 0; i < COUNT; i++) {
        EXPECT_NEAR(host[i], 1, 1e-5);
    }
}

static void call_alike(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, BYTES) || !member_open_window(&m, 4096)) {
        return;
    }
    check_forms(&m, &area);
    check_uneven(&m, &area);
    check_fused(&m);
    ranks_barrier();
    leave_with_area(&m, &area);
}

// Rank 0 compares, the others do not: nothing to compare with.
static void one_compares(int rank, int size)
{
    (void)setenv("TUTTI_CHECK_CALLS", rank == 0 ? "1" : "0", 1);
    call_alike(rank, size);
}

static void calls_alike(void)
{
    run_thread_ranks(RANKS, call_alike, 60);
    run_processes(RANKS, call_alike, 60);
    run_processes(RANKS, one_compares, 60);
}

// ---- A wrong one --------------------------------------------------------------------------------

// One rank takes the maximum of 1, 2, 3, the others the sum: the results are one or the other, and
// not all of them the sum.
static void other_operator(int rank, int size)
{
    enum { COUNT = 2560, ODD = 1 };
    struct member m;
    struct area area;
    static _Thread_local float host[COUNT];
    int wrong = 0, all_wrong[RANKS], sum = 0;
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    for (int i = 0; i < COUNT; i++) {
        host[i] = (float)(rank + 1);
    }
    EXPECT_CUDA(cudaMemcpy(area.memory, host, sizeof host, cudaMemcpyDefault));
    EXPECT_OK(ncclAllReduce(area.memory, area.memory + BYTES / 2, COUNT, ncclFloat,
                            rank == ODD ? ncclMax : ncclSum, m.comm, m.stream));
    EXPECT_EQ(wait_within(&m, 10), ncclSuccess);
    EXPECT_CUDA(cudaMemcpy(host, area.memory + BYTES / 2, sizeof host, cudaMemcpyDefault));
    for (int i = 0; i < COUNT; i++) {
        EXPECT(host[i] == 3 || host[i] == 6);
        wrong += host[i] != 6;
    }
    ranks_gather(&wrong, all_wrong, sizeof wrong);
    for (int r = 0; r < size; r++) {
        sum += all_wrong[r];
    }
    EXPECT(sum > 0);
    leave_with_area(&m, &area);
}

static void results_that_are_wrong(void)
{
    run_thread_ranks(RANKS, other_operator, 30);
    run_processes(RANKS, other_operator, 30);
}

// Along a ring from rank 0, as ranks 1 and 2 see it, and from rank 1, as rank 0 does: each waits
// for the one before.
static void other_root(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    struct form form = {
        .function = BROADCAST, .type = ncclFloat32, .count = 100000, .root = rank == 0};
    EXPECT_CUDA(cudaMemset(area.memory, 0, BYTES));
    ranks_barrier();
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(call_form(&form, area.memory, area.memory + BYTES / 2, &m));
    ncclResult_t state = wait_within(&m, LIMIT_S + 3);
    EXPECT_EQ(state, ncclTimeout);
    EXPECT(stopwatch_s(&watch) > LIMIT_S - 0.5);
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "(TUTTI_TIMEOUT)");
    ranks_barrier();
    EXPECT_OK(ncclCommAbort(m.comm));
    m.comm = NULL;
    leave_with_area(&m, &area);
}

static void waits_that_do_not_end(void)
{
    (void)setenv("NCCL_ALGO", "Ring", 1);
    (void)setenv("TUTTI_TIMEOUT", "1", 1);
    run_processes(RANKS, other_root, 30);
    (void)unsetenv("NCCL_ALGO");
    (void)unsetenv("TUTTI_TIMEOUT");
}

int main(void)
{
    (void)setenv("TUTTI_CHECK_CALLS", "0", 1); // before the library reads it
    RUN(calls_alike);
    RUN(results_that_are_wrong);
    RUN(waits_that_do_not_end);
    return expect_result();
}
