// Ranks whose calls do not fit together: all of them get an error within a second that names both
// calls, whatever differs; nobody gets a half reduced success. (C36: nccl#1394, nccl#1417; C37:
// nccl#296, nccl#531.)
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <stdio.h>

enum { RANKS = 4, BYTES = 4 << 20, MOST_S = 1 };

struct mismatch {
    const char *name;
    struct form usual, odd;            // what most ranks call, and what one calls
    const char *usual_text, *odd_text; // how a message must name them
    int odd_rank;
    int before; // operations that fit come first
};

#define COMMON .type = ncclFloat32, .count = 2560

static const struct mismatch mismatches[] = {
    {"count",
     {COMMON},
     {.type = ncclFloat32, .count = 5120},
     "AllReduce(count 2560, float32, sum)",
     "AllReduce(count 5120, float32, sum)",
     0,
     0},
    {"large count",
     {.type = ncclFloat32, .count = 512000},
     {.type = ncclFloat32, .count = 256000},
     "AllReduce(count 512000, float32, sum)",
     "AllReduce(count 256000, float32, sum)",
     2,
     3},
    {"type",
     {COMMON},
     {.type = ncclInt32, .count = 2560},
     "AllReduce(count 2560, float32, sum)",
     "AllReduce(count 2560, int32, sum)",
     1,
     1},
    {"type of the same size",
     {.type = ncclFloat16, .count = 3, .function = ALL_GATHER},
     {.type = ncclBfloat16, .count = 3, .function = ALL_GATHER},
     "AllGather(count 3, float16)",
     "AllGather(count 3, bfloat16)",
     3,
     0},
    {"operator",
     {COMMON},
     {COMMON, .op = ncclMax},
     "AllReduce(count 2560, float32, sum)",
     "AllReduce(count 2560, float32, max)",
     2,
     0},
    {"operator of a reduction to one",
     {COMMON, .function = REDUCE, .op = ncclAvg},
     {COMMON, .function = REDUCE, .op = ncclProd},
     "Reduce(count 2560, float32, avg, root 0)",
     "Reduce(count 2560, float32, prod, root 0)",
     0,
     0},
    {"root",
     {COMMON, .function = BROADCAST},
     {COMMON, .function = BROADCAST, .root = 1},
     "Broadcast(count 2560, float32, root 0)",
     "Broadcast(count 2560, float32, root 1)",
     2,
     0},
    {"root of a gather",
     {COMMON, .function = GATHER, .root = 3},
     {COMMON, .function = GATHER},
     "Gather(count 2560, float32, root 3)",
     "Gather(count 2560, float32, root 0)",
     3,
     2},
    {"root of a scatter",
     {COMMON, .function = SCATTER, .root = 1},
     {COMMON, .function = SCATTER, .root = 2},
     "Scatter(count 2560, float32, root 1)",
     "Scatter(count 2560, float32, root 2)",
     0,
     0},
    {"function",
     {COMMON},
     {COMMON, .function = BROADCAST},
     "AllReduce(count 2560, float32, sum)",
     "Broadcast(count 2560, float32, root 0)",
     3,
     17},
    {"reduce or gather",
     {COMMON, .function = REDUCE_SCATTER},
     {COMMON, .function = ALL_GATHER},
     "ReduceScatter(count 2560, float32, sum)",
     "AllGather(count 2560, float32)",
     1,
     0},
    {"gather or scatter",
     {COMMON, .function = GATHER},
     {COMMON, .function = SCATTER},
     "Gather(count 2560, float32, root 0)",
     "Scatter(count 2560, float32, root 0)",
     2,
     0},
    {"everybody's gather or one's",
     {COMMON, .function = ALL_TO_ALL},
     {COMMON, .function = ALL_GATHER},
     "AlltoAll(count 2560, float32)",
     "AllGather(count 2560, float32)",
     2,
     0},
    {"one element",
     {.type = ncclFloat32, .count = 1},
     {.type = ncclFloat32, .count = 2},
     "AllReduce(count 1, float32, sum)",
     "AllReduce(count 2, float32, sum)",
     1,
     40},
    {"small or large",
     {.type = ncclInt8, .count = 8},
     {.type = ncclInt8, .count = 1000000},
     "AllReduce(count 8, int8, sum)",
     "AllReduce(count 1000000, int8, sum)",
     2,
     1},
};

enum { MISMATCHES = sizeof mismatches / sizeof mismatches[0] };

enum { ODD = 2 }; // where only one is tried

static const struct mismatch *this_mismatch(void)
{
    const char *number = getenv("TUTTI_TEST_MISMATCH");
    return &mismatches[number != NULL ? strtoul(number, NULL, 10) % MISMATCHES : 0];
}

// The communicator has failed within the time, with a text that contains both parts.
static void has_failed(struct member *m, const struct stopwatch *watch, const char *a,
                       const char *b)
{
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess && stopwatch_is_within(watch, MOST_S)) {
        state = member_state(m);
    }
    EXPECT_EQ(state, ncclInvalidUsage);
    (void)cudaStreamSynchronize(m->stream);
    EXPECT_WITHIN(*watch, MOST_S);
    EXPECT_CONTAINS(ncclGetLastError(m->comm), a);
    EXPECT_CONTAINS(ncclGetLastError(m->comm), b);
}

static void give_up(struct member *m, struct area *area)
{
    ranks_barrier();
    EXPECT_OK(ncclCommAbort(m->comm));
    m->comm = NULL;
    leave_with_area(m, area);
}

static void differ(int rank, int size)
{
    const struct mismatch *this = this_mismatch();
    struct member m;
    struct area area;
    char usual[160], odd[160];
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    struct form good = {.type = ncclFloat32, .count = 10};
    for (int i = 0; i < this->before; i++) {
        check_form(&m, &area, &good);
    }
    char *recv = area.memory + BYTES / 2;
    bool is_odd = rank == this->odd_rank;
    EXPECT_CUDA(cudaMemset(area.memory, 0x11, BYTES / 2));
    EXPECT_CUDA(cudaMemset(recv, 0x22, BYTES / 2));
    ranks_barrier();
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(call_form(is_odd ? &this->odd : &this->usual, area.memory, recv, &m));
    // The same on every rank: what most called, in the words of the first of them, and the odd one.
    (void)snprintf(usual, sizeof usual, "rank %d: %s #%d on ", this->odd_rank == 0 ? 1 : 0,
                   this->usual_text, this->before + 1);
    (void)snprintf(odd, sizeof odd, ", as 3 of 4 ranks, but rank %d called %s: ", this->odd_rank,
                   this->odd_text);
    has_failed(&m, &watch, usual, odd);
    // Nothing was moved, and no further operation is taken.
    unsigned char seen[256];
    EXPECT_CUDA(cudaMemcpy(seen, recv, sizeof seen, cudaMemcpyDefault));
    for (size_t i = 0; i < sizeof seen; i++) {
        EXPECT_EQ(seen[i], 0x22);
    }
    EXPECT_EQ(call_form(&good, area.memory, recv, &m), ncclInvalidUsage);
    give_up(&m, &area);
}

static void calls_that_differ(void)
{
    for (int i = 0; i < MISMATCHES; i++) {
        char number[16];
        (void)snprintf(number, sizeof number, "%d", i);
        (void)setenv("TUTTI_TEST_MISMATCH", number, 1);
        int before = expect_failures();
        run_thread_ranks(RANKS, differ, 30);
        run_processes(RANKS, differ, 30);
        if (expect_failures() > before) {
            fprintf(stderr, "  (in the mismatch of %s)\n", mismatches[i].name);
        }
    }
}

// The other order of two calls that all make.
static void swap(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    struct form form[2] = {{.function = ALL_GATHER, COMMON}, {.function = BROADCAST, COMMON}};
    ranks_barrier();
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(call_form(&form[rank == ODD], area.memory, area.memory + BYTES / 2, &m));
    // The second may be refused already.
    (void)call_form(&form[rank != ODD], area.memory, area.memory + BYTES / 2, &m);
    has_failed(&m, &watch, "rank 0: AllGather(count 2560, float32) #1 on ",
               ", as 3 of 4 ranks, but rank 2 called Broadcast(count 2560, float32, root 0): all "
               "ranks must make the same calls in the same order");
    give_up(&m, &area);
}

static void order_that_differs(void)
{
    run_thread_ranks(RANKS, swap, 30);
    run_processes(RANKS, swap, 30);
}

// One rank calls once more than the others, which leave (C37).
static void one_more(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    struct form form = {COMMON};
    check_form(&m, &area, &form);
    ranks_barrier();
    struct stopwatch watch = stopwatch_start();
    if (rank == ODD) {
        form.function = ALL_GATHER;
        EXPECT_OK(call_form(&form, area.memory, area.memory + BYTES / 2, &m));
        (void)cudaStreamSynchronize(m.stream);
        EXPECT_EQ(member_state(&m), ncclRemoteError);
        EXPECT_WITHIN(watch, 3 * MOST_S);
        EXPECT_CONTAINS(ncclGetLastError(m.comm), "AllGather");
        EXPECT_CONTAINS(ncclGetLastError(m.comm), "destroyed the communicator");
    } else {
        EXPECT_OK(ncclCommDestroy(m.comm));
        m.comm = NULL;
    }
    ranks_barrier();
    if (m.comm != NULL) {
        EXPECT_OK(ncclCommAbort(m.comm));
        m.comm = NULL;
    }
    leave_with_area(&m, &area);
}

static void one_call_too_many(void)
{
    run_thread_ranks(RANKS, one_more, 30);
    run_processes(RANKS, one_more, 30);
}

int main(void)
{
    RUN(calls_that_differ);
    RUN(order_that_differs);
    RUN(one_call_too_many);
    return expect_result();
}
