// The test support judged by itself: both kinds of ranks, their collectives, and that a rank which
// fails, crashes or hangs is noticed (those runs are inner processes whose ends are inspected).
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void exchange(int rank, int size)
{
    int word = rank == 0 ? 4711 : 0;
    ranks_broadcast(&word, sizeof word);
    EXPECT_EQ(word, 4711);
    int all[64] = {0};
    int mine = rank * rank;
    ranks_gather(&mine, all, sizeof mine);
    for (int r = 0; r < size; r++) {
        EXPECT_EQ(all[r], r * r);
    }
    for (int i = 0; i < 100; i++) {
        ranks_barrier();
    }
}

static void processes_exchange(void)
{
    EXPECT(run_ranks(1, exchange, 20));
    EXPECT(run_ranks(5, exchange, 20));
}

static void threads_exchange(void)
{
    EXPECT(run_thread_ranks(1, exchange, 20));
    EXPECT(run_thread_ranks(7, exchange, 20));
}

// Rank 0 passes, 1 fails a check, 2 crashes, 3 exits with 5, 4 skips.
static void end_in_every_way(int rank, int size)
{
    EXPECT_EQ(size, 5);
    if (rank == 1) {
        EXPECT(rank == 0);
    } else if (rank == 2) {
        signal(SIGTERM, SIG_DFL);
        raise(SIGTERM);
    } else if (rank == 3) {
        exit(5);
    }
}

static void ends_are_told_apart(void)
{
    int statuses[5];
    EXPECT(run_ranks_status(5, end_in_every_way, 20, statuses));
    EXPECT_EQ(statuses[0], 0);
    EXPECT(WIFEXITED(statuses[1]) && WEXITSTATUS(statuses[1]) == 1);
    EXPECT(WIFSIGNALED(statuses[2]) && WTERMSIG(statuses[2]) == SIGTERM);
    EXPECT(WIFEXITED(statuses[3]) && WEXITSTATUS(statuses[3]) == 5);
    EXPECT_EQ(statuses[4], 0);
}

// Each inner run must itself be judged as failed: the rank process that made it exits with 1.
static void one_fails(int rank, int size)
{
    EXPECT(rank != size - 1);
}

static void one_sleeps(int rank, int size)
{
    EXPECT(size == 2);
    if (rank == 1) {
        sleep(60);
    }
}

// A rank that ends badly while another waits for it in a barrier.
static void one_never_arrives(int rank, int size)
{
    EXPECT(size == 2);
    if (rank == 1) {
        exit(3);
    }
    ranks_barrier();
}

static void inner_processes_fail(int rank, int size)
{
    (void)rank;
    (void)size;
    run_ranks(3, one_fails, 20);
}

static void inner_threads_fail(int rank, int size)
{
    (void)rank;
    (void)size;
    run_thread_ranks(3, one_fails, 20);
}

static void inner_sleeper(int rank, int size)
{
    (void)rank;
    (void)size;
    run_ranks(2, one_sleeps, 1);
}

static void inner_thread_sleeper(int rank, int size)
{
    (void)rank;
    (void)size;
    run_thread_ranks(2, one_sleeps, 1);
}

static void inner_barrier(int rank, int size)
{
    (void)rank;
    (void)size;
    run_ranks(2, one_never_arrives, 20);
}

static void bad_runs_are_failures(void)
{
    const rank_function bad[] = {inner_processes_fail, inner_threads_fail, inner_sleeper,
                                 inner_thread_sleeper, inner_barrier};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int status = 0;
        EXPECT(run_ranks_status(1, bad[i], 10, &status));
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    }
}

// Skips alone exit with 77, a wrong case name with 1; checks return whether they held.
static void only_skip(int rank, int size)
{
    (void)rank;
    (void)size;
    SKIP("to see a skip");
}

static void results(void)
{
    int status = 0;
    EXPECT(run_ranks_status(1, only_skip, 10, &status));
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 77);
    EXPECT(EXPECT_STR("a", "a"));
    EXPECT(EXPECT_CONTAINS("waiting for 3", "for 3"));
    EXPECT(EXPECT_NEAR(1.0, 1.0 + 1e-9, 1e-6));
}

int main(void)
{
    RUN(processes_exchange);
    RUN(threads_exchange);
    RUN(ends_are_told_apart);
    RUN(bad_runs_are_failures);
    RUN(results);
    return expect_result();
}
