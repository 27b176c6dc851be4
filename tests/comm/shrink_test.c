// The ranks that remain when some are left out, or have died: they shrink the communicator and go
// on. Deaths in communicators that were split from others.
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#include "expect.h"
#include "member.h"
#include "ranks.h"
#include "stopwatch.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILS(call, code, text)                                                                    \
    do {                                                                                           \
        EXPECT_EQ(call, code);                                                                     \
        EXPECT_CONTAINS(ncclGetLastError(NULL), text);                                             \
    } while (0)

// `times` all-reduces of a vector; whether all sums were right.
static bool sums_are(const struct member *m, ncclComm_t comm, int ranks, int times)
{
    enum { COUNT = 1000 };
    float *buffer = NULL, host[COUNT];
    bool right = EXPECT_CUDA(cudaMalloc((void **)&buffer, sizeof host));
    for (int t = 0; t < times && right; t++) {
        for (int i = 0; i < COUNT; i++) {
            host[i] = (float)(t + i);
        }
        right =
            EXPECT_CUDA(cudaMemcpy(buffer, host, sizeof host, cudaMemcpyHostToDevice)) &&
            EXPECT_OK(ncclAllReduce(buffer, buffer, COUNT, ncclFloat, ncclSum, comm, m->stream)) &&
            EXPECT_CUDA(cudaStreamSynchronize(m->stream)) &&
            EXPECT_CUDA(cudaMemcpy(host, buffer, sizeof host, cudaMemcpyDeviceToHost));
        for (int i = 0; i < COUNT && right; i++) {
            right = EXPECT_NEAR(host[i], ranks * (t + i), 0);
        }
    }
    EXPECT_CUDA(cudaFree(buffer));
    return right;
}

static void check_place(ncclComm_t comm, int rank, int size)
{
    int answer = -1;
    EXPECT_OK(ncclCommUserRank(comm, &answer));
    EXPECT_EQ(answer, rank);
    EXPECT_OK(ncclCommCount(comm, &answer));
    EXPECT_EQ(answer, size);
}

// ---- Nobody has died ----------------------------------------------------------------------------

// Rank 1 is left out, twice; the parent works on, with all its ranks. Then only rank 0 remains.
static void left_out(int rank, int size)
{
    struct member m;
    ncclComm_t child = NULL;
    int excluded[] = {1, 1}, most[16], count = 0;
    if (!member_join(&m, rank, size)) {
        return;
    }
    for (int times = 1; times <= 2 && rank != 1; times++) {
        EXPECT_OK(ncclCommShrink(m.comm, excluded, times, &child, NULL, NCCL_SHRINK_DEFAULT));
        check_place(child, rank > 1 ? rank - 1 : 0, size - 1);
        sums_are(&m, child, size - 1, 2);
        EXPECT_OK(ncclCommDestroy(child));
    }
    sums_are(&m, m.comm, size, 1);
    for (int r = size - 1; r > 0; r--) {
        most[count++] = r;
    }
    if (rank == 0) {
        EXPECT_OK(ncclCommShrink(m.comm, most, count, &child, NULL, NCCL_SHRINK_DEFAULT));
        check_place(child, 0, 1);
        sums_are(&m, child, 1, 2);
        EXPECT_OK(ncclCommDestroy(child));
        EXPECT_EQ(most[0], size - 1); // the caller's list is as it was
    }
    sums_are(&m, m.comm, size, 1);
    member_leave(&m);
}

// A rank that is left out of a shrink comes to the next one before the others begin the first:
// nobody's list is another one.
static void ahead_of_the_others(int rank, int size)
{
    struct member m;
    ncclComm_t child = NULL;
    int first = 0, last = size - 1;
    if (!member_join(&m, rank, size)) {
        return;
    }
    if (rank != first) {
        poll(NULL, 0, 60);
        EXPECT_OK(ncclCommShrink(m.comm, &first, 1, &child, NULL, NCCL_SHRINK_DEFAULT));
        check_place(child, rank - 1, size - 1);
        EXPECT_OK(ncclCommDestroy(child));
        poll(NULL, 0, 60);
    }
    if (rank != last) {
        EXPECT_OK(ncclCommShrink(m.comm, &last, 1, &child, NULL, NCCL_SHRINK_DEFAULT));
        check_place(child, rank, size - 1);
        sums_are(&m, child, size - 1, 1);
        EXPECT_OK(ncclCommDestroy(child));
    }
    member_leave(&m);
}

static void without_a_death(void)
{
    run_thread_ranks(3, ahead_of_the_others, 30);
    run_ranks(4, ahead_of_the_others, 60);
    run_thread_ranks(2, left_out, 30);
    run_thread_ranks(8, left_out, 30);
    run_ranks(3, left_out, 60);
}

static void wrong_calls_of(int rank, int size)
{
    struct member m;
    ncclComm_t child = (ncclComm_t)1;
    int list[] = {rank == 0 ? 1 : 0, size, -1, rank};
    if (!member_join(&m, rank, size)) {
        return;
    }
    FAILS(ncclCommShrink(m.comm, NULL, 1, &child, NULL, 0), ncclInvalidArgument, "at least one");
    EXPECT(child == NULL);
    FAILS(ncclCommShrink(m.comm, list, 0, &child, NULL, 0), ncclInvalidArgument, "at least one");
    FAILS(ncclCommShrink(m.comm, list, 1, NULL, NULL, 0), ncclInvalidArgument, "newcomm is NULL");
    FAILS(ncclCommShrink(m.comm, list, 1, &child, NULL, 2), ncclInvalidArgument,
          "shrinkFlags is 2, must be");
    FAILS(ncclCommShrink(m.comm, list, 2, &child, NULL, 0), ncclInvalidArgument,
          "excludeRanksList[1] is");
    FAILS(ncclCommShrink(m.comm, list + 2, 1, &child, NULL, 0), ncclInvalidArgument,
          "excludeRanksList[0] is -1, must be 0 to");
    FAILS(ncclCommShrink(m.comm, list + 3, 1, &child, NULL, 0), ncclInvalidArgument,
          "is this rank");
    // What one rank gets wrong is told to those that remain with it.
    if (rank > 0) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.cgaClusterSize = 9;
        if (rank == 1) {
            FAILS(ncclCommShrink(m.comm, list, 1, &child, &config, 0), ncclInvalidArgument,
                  "cgaClusterSize is 9, must be 0 to 8");
            FAILS(ncclCommShrink(m.comm, list, 1, NULL, NULL, 0), ncclInvalidArgument,
                  "newcomm is NULL");
        } else {
            FAILS(ncclCommShrink(m.comm, list, 1, &child, NULL, 0), ncclRemoteError, "rank 1 of");
            FAILS(ncclCommShrink(m.comm, list, 1, &child, NULL, 0), ncclRemoteError,
                  "newcomm is NULL");
        }
        EXPECT_OK(ncclCommShrink(m.comm, list, 1, &child, NULL, 0));
        check_place(child, rank - 1, size - 1);
        EXPECT_OK(ncclCommDestroy(child));
    }
    // Lists that differ: each of the two waits for ranks that the other leaves out.
    if (rank < 2 && size > 3) {
        int other[] = {2, 3};
        ncclResult_t result =
            ncclCommShrink(m.comm, other + rank, 2 - rank, &child, NULL, NCCL_SHRINK_DEFAULT);
        const char *text = ncclGetLastError(NULL);
        EXPECT_CONTAINS(text, "another list");
        EXPECT_EQ(result, strstr(text, " failed: ") != NULL ? ncclRemoteError : ncclInvalidUsage);
        EXPECT(child == NULL);
    }
    ranks_barrier();
    sums_are(&m, m.comm, size, 1);
    member_leave(&m);
}

static void wrong_calls(void)
{
    int list[] = {0};
    ncclComm_t child = (ncclComm_t)1;
    FAILS(ncclCommShrink(NULL, list, 1, &child, NULL, 0), ncclInvalidArgument, "comm is NULL");
    run_thread_ranks(4, wrong_calls_of, 30);
}

// An abort ends what the parent still does: rank 2 never comes to the all-reduce.
static void aborted_work(int rank, int size)
{
    struct member m;
    ncclComm_t child = NULL;
    float *buffer = NULL;
    int excluded[] = {2};
    if (!member_join(&m, rank, size)) {
        return;
    }
    EXPECT_CUDA(cudaMalloc((void **)&buffer, 1000 * sizeof *buffer));
    if (rank != 2) {
        EXPECT_OK(ncclAllReduce(buffer, buffer, 1000, ncclFloat, ncclSum, m.comm, m.stream));
    }
    ranks_barrier(); // an abort would refuse a call that comes later
    if (rank != 2) {
        EXPECT_OK(ncclCommShrink(m.comm, excluded, 1, &child, NULL, NCCL_SHRINK_ABORT));
        check_place(child, rank > 2 ? rank - 1 : rank, size - 1);
        sums_are(&m, child, size - 1, 3);
        EXPECT(member_state(&m) != ncclSuccess);
        FAILS(ncclCommShrink(m.comm, excluded, 1, &child, NULL, NCCL_SHRINK_DEFAULT),
              member_state(&m), "NCCL_SHRINK_ABORT");
        EXPECT(child == NULL);
        EXPECT_OK(ncclCommShrink(m.comm, excluded, 1, &child, NULL, NCCL_SHRINK_ABORT));
        sums_are(&m, child, size - 1, 1);
        EXPECT_OK(ncclCommDestroy(child));
    }
    ranks_barrier();
    EXPECT_OK(ncclCommAbort(m.comm));
    m.comm = NULL;
    EXPECT_CUDA(cudaFree(buffer));
    member_leave(&m);
}

static void aborts(void)
{
    run_thread_ranks(4, aborted_work, 30);
    run_ranks(4, aborted_work, 60);
}

// ---- Deaths -------------------------------------------------------------------------------------

// Whether the statuses are of ranks of which `killed` were killed.
static void check_statuses(const int *statuses, int size, unsigned killed)
{
    for (int r = 0; r < size; r++) {
        if ((killed >> r & 1) != 0) {
            EXPECT(WIFSIGNALED(statuses[r]) && WTERMSIG(statuses[r]) == SIGKILL);
        } else {
            EXPECT(WIFEXITED(statuses[r]) && WEXITSTATUS(statuses[r]) == 0);
        }
    }
}

// C64: rank 2 is killed in an all-reduce; the others shrink, and go on.
static void killed_in_work(int rank, int size)
{
    struct member m;
    ncclComm_t child = NULL;
    float *buffer = NULL;
    int excluded[] = {2};
    if (!member_join(&m, rank, size)) {
        return;
    }
    EXPECT_CUDA(cudaMalloc((void **)&buffer, 1000 * sizeof *buffer));
    sums_are(&m, m.comm, size, 1);
    if (rank == 2) {
        poll(NULL, 0, 30);
        (void)kill(getpid(), SIGKILL);
    }
    ncclResult_t result = ncclAllReduce(buffer, buffer, 1000, ncclFloat, ncclSum, m.comm, m.stream);
    EXPECT(result == ncclSuccess || result == ncclRemoteError); // this rank may be late
    struct stopwatch watch = stopwatch_start();
    (void)cudaStreamSynchronize(m.stream);
    while (member_state(&m) == ncclSuccess && stopwatch_is_within(&watch, 5)) {
        poll(NULL, 0, 1);
    }
    EXPECT_EQ(member_state(&m), ncclRemoteError);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 2 (process");
    EXPECT_WITHIN(watch, 2);
    EXPECT_OK(ncclCommShrink(m.comm, excluded, 1, &child, NULL, NCCL_SHRINK_ABORT));
    check_place(child, rank, 2);
    EXPECT_OK(ncclCommAbort(m.comm));
    m.comm = NULL;
    sums_are(&m, child, 2, 1000);
    EXPECT_OK(ncclCommDestroy(child));
    EXPECT_CUDA(cudaFree(buffer));
    member_leave(&m);
    exit(expect_failures() > 0);
}

static void killed_while_it_works(void)
{
    int statuses[3];
    run_ranks_status(3, killed_in_work, 60, statuses);
    check_statuses(statuses, 3, 1u << 2);
}

// C62 in a child; then rank after rank dies, rank 0, which made the id, first, and those that
// remain shrink what they have. A rank that has left in good order before it dies is no death.
static void killed_one_by_one(int rank, int size)
{
    struct member m;
    ncclComm_t comm = NULL, smaller = NULL;
    if (!member_join(&m, rank, size)) {
        return;
    }
    EXPECT_OK(ncclCommSplit(m.comm, 0, 0, &comm, NULL));
    EXPECT_OK(ncclCommDestroy(m.comm));
    m.comm = NULL;
    int mine = rank, ranks = size;
    for (; ranks > 2; ranks--) {
        sums_are(&m, comm, ranks, 1);
        if (mine == 0) {
            (void)kill(getpid(), SIGKILL);
        }
        struct stopwatch watch = stopwatch_start();
        ncclResult_t state = ncclSuccess;
        while (state == ncclSuccess && stopwatch_is_within(&watch, 5)) {
            EXPECT_OK(ncclCommGetAsyncError(comm, &state));
            poll(NULL, 0, 1);
        }
        EXPECT_EQ(state, ncclRemoteError);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 0 (process");
        EXPECT_WITHIN(watch, 2);
        int excluded[] = {0};
        EXPECT_OK(ncclCommShrink(comm, excluded, 1, &smaller, NULL, NCCL_SHRINK_ABORT));
        EXPECT_OK(ncclCommAbort(comm));
        comm = smaller;
        mine--;
        check_place(comm, mine, ranks - 1);
    }
    sums_are(&m, comm, ranks, 1);
    EXPECT_OK(ncclCommDestroy(comm));
    member_leave(&m);
    if (mine == 1) {
        (void)kill(getpid(), SIGKILL);
    }
    poll(NULL, 0, 300);
    exit(expect_failures() > 0);
}

static void killed_after_another(void)
{
    int statuses[5];
    run_ranks_status(5, killed_one_by_one, 60, statuses);
    check_statuses(statuses, 5, 1u | 1u << 1 | 1u << 2 | 1u << 4);
}

// A rank dies while the others wait for it in the making of a child.
static void killed_before_it_comes(int rank, int size)
{
    struct member m;
    ncclComm_t child = (ncclComm_t)1;
    int excluded[] = {1};
    if (!member_join(&m, rank, size)) {
        return;
    }
    if (rank == 1) {
        poll(NULL, 0, 50);
        (void)kill(getpid(), SIGKILL);
    }
    struct stopwatch watch = stopwatch_start();
    FAILS(ncclCommSplit(m.comm, 0, 0, &child, NULL), ncclRemoteError, "rank 1 (process");
    EXPECT_WITHIN(watch, 2);
    EXPECT(child == NULL);
    EXPECT_OK(ncclCommShrink(m.comm, excluded, 1, &child, NULL, NCCL_SHRINK_ABORT));
    sums_are(&m, child, size - 1, 1);
    EXPECT_OK(ncclCommDestroy(child));
    EXPECT_OK(ncclCommAbort(m.comm));
    m.comm = NULL;
    member_leave(&m);
    exit(expect_failures() > 0);
}

static void killed_in_a_split(void)
{
    int statuses[3];
    run_ranks_status(3, killed_before_it_comes, 60, statuses);
    check_statuses(statuses, 3, 1u << 1);
}

// C65: all ranks are killed at moments of their own, in the making and ending of children or
// before; the next ones start as if nothing had been. That nothing of it is left on the machine is
// seen where this runs under tests/support/leaves_nothing. TUTTI_TEST_FULL=1: 100 times.
static void *kill_later(void *argument)
{
    poll(NULL, 0, *(const int *)argument);
    (void)kill(getpid(), SIGKILL);
    return NULL;
}

static void killed_at_random(int rank, int size)
{
    struct member m;
    pthread_t thread;
    ncclComm_t child = NULL;
    int after_ms = 20 + (int)((unsigned)getpid() * 2654435761u >> 26); // 20 to 83
    EXPECT_EQ(pthread_create(&thread, NULL, kill_later, &after_ms), 0);
    if (!member_join(&m, rank, size)) {
        poll(NULL, 0, 1000);
    }
    while (ncclCommSplit(m.comm, 0, rank, &child, NULL) == ncclSuccess) {
        (void)ncclCommAbort(child);
    }
    poll(NULL, 0, 1000);
}

static void start(int rank, int size)
{
    struct member m;
    ncclComm_t child = NULL;
    if (member_join(&m, rank, size)) {
        EXPECT_OK(ncclCommSplit(m.comm, 0, rank, &child, NULL));
        sums_are(&m, child, size, 2);
        EXPECT_OK(ncclCommDestroy(child));
        member_leave(&m);
    }
}

static void killed_and_started_again(void)
{
    int statuses[8], rounds = getenv("TUTTI_TEST_FULL") != NULL ? 100 : 3;
    for (int round = 0; round < rounds && expect_failures() == 0; round++) {
        run_ranks_status(8, killed_at_random, 60, statuses);
        check_statuses(statuses, 8, 0xff);
        run_ranks(8, start, 60);
    }
}

int main(void)
{
    RUN(without_a_death);
    RUN(wrong_calls);
    RUN(aborts);
    RUN(killed_while_it_works);
    RUN(killed_after_another);
    RUN(killed_in_a_split);
    RUN(killed_and_started_again);
    return expect_result();
}
