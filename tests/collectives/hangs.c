// Nobody hangs in silence: ranks that stop coming, waits in a circle, ranks that abort or die while
// others wait. What waits ends by itself, with an error that names who is missing.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, BYTES = 1 << 20, LIMIT_S = 2 };

static ncclResult_t add_up(struct member *m, const struct area *area, size_t count)
{
    char *recv = area->memory + BYTES / 2;
    return ncclAllReduce(area->memory, recv, count, ncclFloat, ncclSum, m->comm, m->stream);
}

static void abort_and_leave(struct member *m, struct area *area)
{
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(ncclCommAbort(m->comm));
    EXPECT_WITHIN(watch, 1);
    m->comm = NULL;
    leave_with_area(m, area);
}

// ---- C38: a rank takes part no longer, but lives (nccl#1260, pt PR#137523, nccl#1911)
// ------------

static void stop_after_ten(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    struct stopwatch watch = stopwatch_start();
    for (int i = 0; i < (rank == 0 ? 10 : 20); i++) {
        // Those behind the failure may be refused.
        ncclResult_t result =
            ncclAllGather(area.memory, area.memory + BYTES / 2, 100, ncclFloat, m.comm, m.stream);
        EXPECT(result == ncclSuccess || (i > 10 && result == ncclTimeout));
    }
    if (rank != 0) {
        EXPECT_EQ(wait_within(&m, LIMIT_S + 3), ncclTimeout);
        EXPECT(stopwatch_s(&watch) > LIMIT_S - 0.5);
        EXPECT_CONTAINS(ncclGetLastError(m.comm), "AllGather");
        EXPECT_CONTAINS(ncclGetLastError(m.comm), "#11");
        EXPECT_CONTAINS(ncclGetLastError(m.comm), "1 of 4");
        EXPECT_CONTAINS(ncclGetLastError(m.comm), "rank 0 (its last one was AllGather");
        EXPECT_CONTAINS(ncclGetLastError(m.comm), "#10");
    }
    ranks_barrier();
    abort_and_leave(&m, &area);
}

static void rank_that_stops(void)
{
    char seconds[8];
    (void)snprintf(seconds, sizeof seconds, "%d", LIMIT_S);
    (void)setenv("TUTTI_TIMEOUT", seconds, 1);
    run_processes(RANKS, stop_after_ten, 30);
    (void)unsetenv("TUTTI_TIMEOUT");
}

// ---- A rank that is late is no error
// -------------------------------------------------------------

static void come_late(int rank, int size)
{
    struct member m;
    struct area area;
    struct form form = {.type = ncclInt32, .count = 1000};
    int late_ms = is_full() ? 11500 : 300;
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    int ends[2] = {-1, -1}, saved = -1;
    if (rank == 0 && is_full()) {
        EXPECT_EQ(pipe(ends), 0);
        saved = dup(2);
        dup2(ends[1], 2);
    }
    if (rank == size - 1) {
        poll(NULL, 0, late_ms);
    }
    check_form(&m, &area, &form);
    if (saved >= 0) { // after ten seconds the missing one was named
        char text[2048] = "";
        dup2(saved, 2);
        EXPECT(write(ends[1], "end", 3) == 3 && read(ends[0], text, sizeof text - 1) > 0);
        EXPECT_CONTAINS(text, "waiting for 1 of 4 to enter: rank 3");
        EXPECT_CONTAINS(text, "AllReduce");
    }
    EXPECT_EQ(member_state(&m), ncclSuccess);
    leave_with_area(&m, &area);
}

static void late_rank(void)
{
    run_thread_ranks(RANKS, come_late, 30);
    run_processes(RANKS, come_late, 30);
}

// ---- Waits in a circle
// ---------------------------------------------------------------------------

// Two communicators, used in opposite orders in one stream each. Rank 0 waits in the first for rank
// 1, which waits in the second for rank 0.
static void cross(int rank, int size)
{
    struct member first, second;
    struct area area;
    if (!join_with_area(&first, &area, rank, size, BYTES) || !member_join(&second, rank, size)) {
        return;
    }
    ncclComm_t order[2] = {rank == 0 ? first.comm : second.comm,
                           rank == 0 ? second.comm : first.comm};
    ranks_barrier();
    struct stopwatch watch = stopwatch_start();
    for (int i = 0; i < 2; i++) {
        EXPECT_OK(ncclAllReduce(area.memory, area.memory, 1000, ncclFloat, ncclSum, order[i],
                                first.stream));
    }
    (void)cudaStreamSynchronize(first.stream);
    EXPECT_WITHIN(watch, 10);
    EXPECT(member_state(&first) != ncclSuccess);
    EXPECT(member_state(&second) != ncclSuccess);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "circle");
    EXPECT_CONTAINS(ncclGetLastError(NULL), "AllReduce");
    EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 0");
    EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 1");
    ranks_barrier();
    EXPECT_OK(ncclCommAbort(second.comm));
    second.comm = NULL;
    member_leave(&second);
    abort_and_leave(&first, &area);
}

static void crossed_communicators(void)
{
    run_thread_ranks(2, cross, 30);
    run_processes(2, cross, 30);
}

// ---- Aborts and deaths
// ---------------------------------------------------------------------------

static void *abort_it(void *comm)
{
    poll(NULL, 0, 200);
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(ncclCommAbort(comm));
    EXPECT_WITHIN(watch, 1);
    return NULL;
}

// Another thread aborts while this one waits for ranks that never come.
static void wait_for_abort(int rank, int size)
{
    struct member m;
    struct area area;
    pthread_t thread;
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    if (rank != 0) {
        EXPECT_OK(add_up(&m, &area, 1000));
        EXPECT_EQ(pthread_create(&thread, NULL, abort_it, m.comm), 0);
        struct stopwatch watch = stopwatch_start();
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
        EXPECT_WITHIN(watch, 3);
        pthread_join(thread, NULL);
        EXPECT_EQ(add_up(&m, &area, 1), ncclInvalidArgument); // C42: of a communicator that is gone
        EXPECT_CONTAINS(ncclGetLastError(NULL), "was destroyed or aborted");
    }
    ranks_barrier();
    if (rank == 0) {
        EXPECT_OK(ncclCommAbort(m.comm));
    }
    m.comm = NULL;
    leave_with_area(&m, &area);
}

static void aborted_while_waiting(void)
{
    run_thread_ranks(3, wait_for_abort, 30);
    run_processes(3, wait_for_abort, 30);
}

// C62: killed in the middle of one after another (nccl#279).
static void die_in_between(int rank, int size)
{
    struct member m;
    struct area area;
    ncclResult_t state = ncclSuccess;
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    ranks_barrier();
    struct stopwatch watch = stopwatch_start();
    for (int i = 0; state == ncclSuccess && stopwatch_is_within(&watch, 10); i++) {
        if (rank == 1 && i == 300) {
            (void)kill(getpid(), SIGKILL);
        }
        (void)add_up(&m, &area, i % 2 == 0 ? 3 : 100000);
        (void)cudaStreamSynchronize(m.stream);
        state = member_state(&m);
    }
    EXPECT_EQ(state, ncclRemoteError);
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "rank 1 (process");
    EXPECT_WITHIN(watch, 5);
    poll(NULL, 0, 500); // the root's process serves the others
    abort_and_leave(&m, &area);
}

static void killed_while_adding(void)
{
    int statuses[RANKS];
    if (!has_processes()) {
        return;
    }
    run_ranks_status(RANKS, die_in_between, 30, statuses);
    for (int r = 0; r < RANKS; r++) {
        EXPECT(r == 1 ? WIFSIGNALED(statuses[r]) : statuses[r] == 0);
    }
}

int main(void)
{
    RUN(late_rank);
    RUN(aborted_while_waiting);
    RUN(killed_while_adding);
    RUN(rank_that_stops);
    RUN(crossed_communicators);
    return expect_result();
}
