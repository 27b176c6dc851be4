// Waits for signals that nobody gives end by themselves, with an error that names who is missing:
// ranks that leave, die, abort or do not come; waits in a circle, and for oneself. Meanwhile the
// state tells who is waited for.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <tutti.h>
#include <unistd.h>

enum { BYTES = 1 << 16, LIMIT_S = 2 };

static ncclResult_t wait_for(struct member *m, int peer, int times)
{
    ncclWaitSignalDesc_t wait = {.opCnt = times, .peer = peer};
    return ncclWaitSignal(1, &wait, m->comm, m->stream);
}

static void abort_and_leave(struct member *m)
{
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(ncclCommAbort(m->comm));
    EXPECT_WITHIN(watch, 2);
    m->comm = NULL;
    m->window = NULL;
    EXPECT_OK(ncclMemFree(m->memory));
    m->memory = NULL;
    member_leave(m);
}

// ---- Ranks that end -----------------------------------------------------------------------------

// A signal that was given before its rank left is there; another one is not.
static void leave_early(int rank, int size)
{
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    if (rank == 1) {
        EXPECT_OK(ncclSignal(0, 0, 0, 0, m.comm, m.stream));
        EXPECT_EQ(wait_within(&m, 5), ncclSuccess);
        ranks_barrier();
        EXPECT_OK(ncclCommDestroy(m.comm));
        m.comm = NULL;
    } else {
        ranks_barrier();
    }
    if (rank == 0) {
        EXPECT_OK(wait_for(&m, 1, 1));
        EXPECT_EQ(wait_within(&m, 5), ncclSuccess);
        EXPECT_OK(wait_for(&m, 1, 2));
        EXPECT_EQ(wait_within(&m, 5), ncclRemoteError);
        EXPECT_CONTAINS(ncclGetLastError(m.comm), "rank 0: WaitSignal(2 signals, from rank 1) on ");
        EXPECT_CONTAINS(ncclGetLastError(m.comm), "rank 1 has destroyed the communicator");
    }
    ranks_barrier();
    EXPECT_OK(ncclCommAbort(m.comm)); // NULL where it is destroyed
    m.comm = NULL;
    member_leave(&m);
}

static void rank_that_leaves(void)
{
    run_thread_ranks(3, leave_early, 30);
    run_processes(3, leave_early, 30);
}

static void die(int rank, int size)
{
    struct member m;
    if (!member_join(&m, rank, size) || !member_open_window(&m, BYTES)) {
        return;
    }
    ranks_barrier();
    if (rank == 1) {
        (void)raise(SIGKILL);
    }
    (void)wait_for(&m, 1, 1); // it may be known already
    EXPECT(wait_within(&m, 5) != ncclSuccess);
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "rank 1");
    abort_and_leave(&m);
}

static void rank_that_dies(void)
{
    enum { RANKS = 3 };
    int statuses[RANKS];
    if (!has_processes()) {
        return;
    }
    run_ranks_status(RANKS, die, 30, statuses);
    for (int r = 0; r < RANKS; r++) {
        EXPECT(r == 1 ? WIFSIGNALED(statuses[r]) : statuses[r] == 0);
    }
}

static void give_up(int rank, int size)
{
    struct member m;
    if (!member_join(&m, rank, size) || !member_open_window(&m, BYTES)) {
        return;
    }
    if (rank == 0) {
        EXPECT_OK(wait_for(&m, 1, 1));
    }
    ranks_barrier(); // it waits by then
    abort_and_leave(&m);
    ranks_barrier();
}

static void aborted_while_waiting(void)
{
    run_thread_ranks(2, give_up, 30);
    run_processes(2, give_up, 30);
}

// ---- Ranks that do not come ---------------------------------------------------------------------

// The one signal of rank 1 came, and that of rank 2; who is missing is in the state's text, too.
static void miss(int rank, int size)
{
    struct member m;
    ncclWaitSignalDesc_t waits[2] = {{.opCnt = 3, .peer = 1}, {.opCnt = 1, .peer = 2}};
    if (!member_join(&m, rank, size)) {
        return;
    }
    if (rank != 0) {
        EXPECT_OK(ncclSignal(0, 0, 0, 0, m.comm, m.stream));
        EXPECT_EQ(wait_within(&m, 5), ncclSuccess);
    }
    ranks_barrier();
    if (rank == 0) {
        char name[64], text[4096] = "";
        EXPECT_OK(ncclWaitSignal(2, waits, m.comm, m.stream));
        EXPECT(cudaStreamQuery(m.stream) == cudaErrorNotReady);
        (void)snprintf(name, sizeof name, "one_sided_waits.%d", (int)getpid());
        EXPECT_OK(tuttiDumpState(m.comm, name));
        FILE *file = fopen(name, "r");
        EXPECT(file != NULL && fread(text, 1, sizeof text - 1, file) > 0);
        EXPECT(file == NULL || fclose(file) == 0);
        (void)unlink(name);
        EXPECT_CONTAINS(text, "is in #1 WaitSignal(4 signals, from several ranks) for");
        EXPECT_CONTAINS(text, "waits for signals of:\n    rank 1: 1 of 3; in collectives it "
                              "has entered none yet\n");
        EXPECT(strstr(text, "    rank 2: ") == NULL);
        EXPECT_EQ(wait_within(&m, LIMIT_S + 3), ncclTimeout);
        EXPECT_CONTAINS(ncclGetLastError(m.comm), "rank 0: WaitSignal(4 signals, from several");
        EXPECT_CONTAINS(ncclGetLastError(m.comm), "signals of 1 of 3 were not given within 2 s");
        EXPECT_CONTAINS(ncclGetLastError(m.comm), "rank 1 (1 of 3; in collectives");
    }
    ranks_barrier();
    abort_and_leave(&m);
}

static void rank_that_does_not_come(void)
{
    (void)setenv("TUTTI_TIMEOUT", "2", 1);
    run_processes(3, miss, 30);
    (void)unsetenv("TUTTI_TIMEOUT");
}

// A rank that is late is no error; after ten seconds it is named.
static void come_late(int rank, int size)
{
    struct member m;
    int ends[2] = {-1, -1}, saved = -1;
    char text[2048] = "";
    if (!member_join(&m, rank, size)) {
        return;
    }
    if (rank == 0 && is_full()) {
        EXPECT_EQ(pipe(ends), 0);
        saved = dup(2);
        dup2(ends[1], 2);
    }
    if (rank == 1) {
        ranks_barrier();
        (void)usleep(is_full() ? 0 : 300000);
        EXPECT_OK(ncclSignal(0, 0, 0, 0, m.comm, m.stream));
    } else {
        struct stopwatch watch = stopwatch_start();
        EXPECT_OK(wait_for(&m, 1, 1));
        if (saved >= 0) {
            EXPECT(read(ends[0], text, sizeof text - 1) > 0);
            EXPECT(stopwatch_s(&watch) > 9.5);
            EXPECT_WITHIN(watch, 11.5);
            dup2(saved, 2);
        }
        ranks_barrier(); // now rank 1 comes, or is a little late
    }
    EXPECT_EQ(wait_within(&m, 20), ncclSuccess);
    if (saved >= 0) {
        EXPECT_CONTAINS(text, "rank 0: WaitSignal(1 signal, from rank 1)");
        EXPECT_CONTAINS(text, "waiting for signals of 1 of 2: rank 1 (0 of 1");
    }
    ranks_barrier();
    member_leave(&m);
}

static void late_rank(void)
{
    run_thread_ranks(2, come_late, 30);
    run_processes(2, come_late, 30);
}

// ---- Circles ------------------------------------------------------------------------------------

// Everybody waits for the next before giving a signal to the one before.
static void around(int rank, int size)
{
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    ranks_barrier();
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(wait_for(&m, (rank + 1) % size, 1));
    (void)ncclSignal((rank + size - 1) % size, 0, 0, 0, m.comm, m.stream);
    EXPECT_EQ(wait_within(&m, 5), ncclInvalidUsage);
    EXPECT_WITHIN(watch, 1);
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "ranks wait for each other in a circle on ");
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "give the signals that others need before");
    for (int r = 0; r < size; r++) {
        char text[64];
        (void)snprintf(text, sizeof text, "rank %d in WaitSignal(1 signal, from rank %d); ", r,
                       (r + 1) % size);
        EXPECT_CONTAINS(ncclGetLastError(m.comm), text);
    }
    ranks_barrier();
    abort_and_leave(&m);
}

// Rank 0 waits for a signal that rank 1 calls behind a collective.
static void behind_a_collective(int rank, int size)
{
    struct member m;
    if (!member_join(&m, rank, size) || !member_open_window(&m, BYTES)) {
        return;
    }
    ranks_barrier();
    if (rank == 0) {
        EXPECT_OK(wait_for(&m, 1, 1));
    }
    (void)ncclAllReduce(m.memory, m.memory, 7, ncclInt, ncclSum, m.comm, m.stream);
    if (rank == 1) {
        (void)ncclSignal(0, 0, 0, 0, m.comm, m.stream);
    }
    EXPECT_EQ(wait_within(&m, 5), ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "rank 0 in WaitSignal(1 signal, from rank 1); ");
    EXPECT_CONTAINS(ncclGetLastError(m.comm),
                    "rank 1 in AllReduce(count 7, int32, sum) for rank 0");
    ranks_barrier();
    abort_and_leave(&m);
}

static void for_oneself(int rank, int size)
{
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    EXPECT_OK(ncclSignal(rank, 0, 0, 0, m.comm, m.stream));
    EXPECT_OK(wait_for(&m, rank, 1));
    EXPECT_EQ(wait_within(&m, 5), ncclSuccess);
    EXPECT_OK(ncclSignal(rank, 0, 0, 0, m.comm, m.stream));
    ranks_barrier();
    if (rank == 0) {
        (void)wait_for(&m, rank, 2);
        (void)ncclSignal(rank, 0, 0, 0, m.comm, m.stream);
    }
    ranks_barrier();
    EXPECT_EQ(wait_within(&m, 5), rank == 0 ? ncclInvalidUsage : member_state(&m));
    if (rank == 0) {
        EXPECT_CONTAINS(ncclGetLastError(m.comm), "rank 0: WaitSignal(2 signals, from rank 0)");
        EXPECT_CONTAINS(ncclGetLastError(m.comm), "signals of its own");
        EXPECT_CONTAINS(ncclGetLastError(m.comm), "(2 of 3)");
    }
    ranks_barrier();
    abort_and_leave(&m);
}

static void circles(void)
{
    run_thread_ranks(2, around, 30);
    run_thread_ranks(4, around, 30);
    run_processes(3, around, 30);
    run_thread_ranks(3, behind_a_collective, 30);
    run_processes(2, behind_a_collective, 30);
    run_thread_ranks(1, for_oneself, 30);
    run_processes(2, for_oneself, 30);
}

int main(void)
{
    RUN(rank_that_leaves);
    RUN(rank_that_dies);
    RUN(aborted_while_waiting);
    RUN(rank_that_does_not_come);
    RUN(late_rank);
    RUN(circles);
    return expect_result();
}
