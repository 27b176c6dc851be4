// How communicators begin, through the public API: ids that are used again, ranks that do not come
// and are given up, claims that do not fit, groups that are made at the same time, any number of
// ranks. TUTTI_TEST_FULL=1: the numbers of the reports.
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#include "expect.h"
#include "member.h"
#include "ranks.h"
#include "stopwatch.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static bool is_full(void)
{
    const char *text = getenv("TUTTI_TEST_FULL");
    return text != NULL && text[0] == '1';
}

// The sum over the ranks of a communicator of what each gives, through the device.
static void sum_is(const struct member *m, ncclComm_t comm, int given, int expected)
{
    int *device = NULL, sum = -1;
    EXPECT_CUDA(cudaMalloc((void **)&device, sizeof sum));
    EXPECT_CUDA(cudaMemcpy(device, &given, sizeof given, cudaMemcpyHostToDevice));
    EXPECT_OK(ncclAllReduce(device, device, 1, ncclInt, ncclSum, comm, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    EXPECT_CUDA(cudaMemcpy(&sum, device, sizeof sum, cudaMemcpyDeviceToHost));
    EXPECT_CUDA(cudaFree(device));
    EXPECT_EQ(sum, expected);
}

// ---- C48: an id that is used again (nccl#1038)
// ----------------------------------------------------

static void use_again(int rank, int size)
{
    ncclUniqueId id = share_id(rank);
    ncclComm_t again = (ncclComm_t)1;
    struct member m;
    if (!member_join_id(&m, rank, size, id)) {
        return;
    }
    member_leave(&m);
    ranks_barrier();
    struct stopwatch watch = stopwatch_start();
    EXPECT(ncclCommInitRank(&again, size, id, rank) != ncclSuccess);
    EXPECT_WITHIN(watch, 1);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "already used");
    EXPECT(again == NULL);
    if (member_join(&m, rank, size)) { // a fresh one works
        sum_is(&m, m.comm, 1, size);
        member_leave(&m);
    }
}

static void used_id(void)
{
    run_thread_ranks(2, use_again, 30);
    run_ranks(2, use_again, 30);
}

// ---- C49: three of four ranks come, and another thread gives up (nccl#289)
// ------------------------
// (With a limit: errors_test.c.)

// Where another rank's abort was quicker, there is nothing left to abort.
static void *abort_later(void *place)
{
    poll(NULL, 0, 2000);
    ncclComm_t comm = __atomic_load_n((ncclComm_t *)place, __ATOMIC_ACQUIRE);
    struct stopwatch watch = stopwatch_start();
    ncclResult_t result = ncclCommAbort(comm);
    EXPECT_WITHIN(watch, 1);
    EXPECT(result == ncclSuccess || result == ncclInvalidArgument);
    return NULL;
}

static void wait_until_aborted(int rank, int size)
{
    ncclUniqueId id = share_id(rank);
    ncclComm_t comm = NULL;
    pthread_t thread;
    if (rank < size - 1) {
        EXPECT_EQ(pthread_create(&thread, NULL, abort_later, &comm), 0);
        struct stopwatch watch = stopwatch_start();
        EXPECT(ncclCommInitRank(&comm, size, id, rank) != ncclSuccess);
        EXPECT(stopwatch_s(&watch) > 1.5);
        EXPECT_WITHIN(watch, 4);
        pthread_join(thread, NULL);
    }
    ranks_barrier();
}

static void missing_rank_and_abort(void)
{
    run_thread_ranks(4, wait_until_aborted, 30);
    run_ranks(4, wait_until_aborted, 30);
}

// ---- C50: claims that do not fit; every text has both
// ---------------------------------------------
// (Different versions: src/bootstrap/strangers_test.c.)

static void claim(const ncclUniqueId *id, int nranks, int rank, const char *what)
{
    ncclComm_t comm = (ncclComm_t)1;
    struct stopwatch watch = stopwatch_start();
    EXPECT_EQ(ncclCommInitRank(&comm, nranks, *id, rank), ncclInvalidUsage);
    EXPECT_WITHIN(watch, 5);
    EXPECT(comm == NULL);
    EXPECT_CONTAINS(ncclGetLastError(NULL), what);
}

static void claim_all(int rank, int size)
{
    int pid = (int)getpid(), pids[8];
    char process[32];
    ncclUniqueId id = share_id(rank);
    ranks_gather(&pid, pids, sizeof pid);
    if (rank < 2) { // (a)
        claim(&id, rank == 0 ? 2 : 3, rank, "different numbers of ranks");
        EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 0 of 2");
        EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 1 of 3");
    }
    ranks_barrier();
    id = share_id(rank);
    claim(&id, size, rank == 0 ? 0 : 1, "two ranks of one number"); // (b)
    for (int r = 1; r < 3; r++) {
        (void)snprintf(process, sizeof process, "process %d", pids[r]);
        EXPECT_CONTAINS(ncclGetLastError(NULL), process);
    }
    ranks_barrier();
    id = share_id(rank); // (c)
    if (rank == 2) {
        ncclComm_t comm = NULL;
        EXPECT_EQ(ncclCommInitRank(&comm, size, id, size), ncclInvalidArgument);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "rank is 3, must be 0 to 2");
    } else {
        claim(&id, size, rank, "rank 3 of 3");
    }
    ranks_barrier();
}

static void claims(void)
{
    run_thread_ranks(3, claim_all, 60);
    run_ranks(3, claim_all, 60);
}

// ---- C54: groups {0, 3} and {1, 2} made at the same time (pt#130102)
// ------------------------------
// Through one store, by split, by split in either order. The barrier of one group is over before
// the other group's begins: it waits for its own two members only.

static void wait_for_own(const struct member *m, ncclComm_t group, bool is_outer, int turn)
{
    for (int half = 0; half < 2; half++) {
        if (is_outer == (half == turn % 2)) {
            sum_is(m, group, m->rank, 3);
        }
        ranks_barrier();
    }
    EXPECT_OK(ncclCommDestroy(group));
}

static ncclComm_t make_by_id(const struct member *m, bool is_outer, int turn)
{
    ncclUniqueId mine, ids[4];
    ncclComm_t group = NULL;
    memset(&mine, 0, sizeof mine);
    if (m->rank < 2) {
        EXPECT_OK(ncclGetUniqueId(&mine));
    }
    ranks_gather(&mine, ids, sizeof mine);
    if (turn % 4 == (is_outer ? 1 : 3)) {
        poll(NULL, 0, 1); // the other group comes first
    }
    EXPECT_OK(ncclCommInitRank(&group, 2, ids[is_outer ? 0 : 1], m->rank < 2 ? 0 : 1));
    return group;
}

// Each group by a call of its own, in which the others get none.
static ncclComm_t make_in_order(const struct member *m, bool is_outer, int turn)
{
    ncclComm_t group = NULL, none = NULL;
    for (int call = 0; call < 2; call++) {
        bool makes_outer = call == turn % 2, is_mine = makes_outer == is_outer;
        EXPECT_OK(ncclCommSplit(m->comm, is_mine ? 0 : NCCL_SPLIT_NOCOLOR, m->rank,
                                is_mine ? &group : &none, NULL));
        EXPECT(none == NULL);
    }
    return group;
}

static void make_groups(int rank, int size)
{
    struct member m;
    bool is_outer = rank == 0 || rank == 3;
    int turns = is_full() ? 1000 : SANITIZED ? 10 : 40;
    if (!member_join(&m, rank, size)) {
        return;
    }
    for (int turn = 0; turn < turns && expect_failures() == 0; turn++) {
        ncclComm_t group = NULL;
        wait_for_own(&m, make_by_id(&m, is_outer, turn), is_outer, turn);
        EXPECT_OK(ncclCommSplit(m.comm, is_outer, rank, &group, NULL));
        wait_for_own(&m, group, is_outer, turn);
        wait_for_own(&m, make_in_order(&m, is_outer, turn), is_outer, turn);
    }
    member_leave(&m);
}

static void groups_of_two(void)
{
    run_thread_ranks(4, make_groups, 600);
    run_ranks(4, make_groups, 600);
}

// ---- C80: any number of ranks (uccl#671, nccl#2186, mscclpp#387)
// ----------------------------------
// (What all collectives give: tests/collectives/results.c.)

static void live(int rank, int size)
{
    struct member m;
    ncclComm_t half = NULL;
    int answer = -1, halves = (size + 1 - rank % 2) / 2;
    if (!member_join(&m, rank, size)) {
        return;
    }
    EXPECT_OK(ncclCommCount(m.comm, &answer));
    EXPECT_EQ(answer, size);
    EXPECT_OK(ncclCommUserRank(m.comm, &answer));
    EXPECT_EQ(answer, rank);
    sum_is(&m, m.comm, rank, size * (size - 1) / 2);
    EXPECT_OK(ncclCommSplit(m.comm, rank % 2, -rank, &half, NULL));
    EXPECT_OK(ncclCommUserRank(half, &answer));
    EXPECT_EQ(answer, halves - 1 - rank / 2);
    sum_is(&m, half, 1, halves);
    EXPECT_OK(ncclCommDestroy(half));
    member_leave(&m);
}

static const int sizes[] = {1, 2, 3, 5, 6, 7, 12, 24, 44, 65, 100, 257};

static int size_count(int usual)
{
    return is_full() ? (int)(sizeof sizes / sizeof sizes[0]) : usual;
}

static void numbers_of_threads(void)
{
    for (int i = 0; i < size_count(SANITIZED ? 6 : 8); i++) {
        run_thread_ranks(sizes[i], live, 300);
    }
}

static void numbers_of_processes(void)
{
    for (int i = 0; i < size_count(SANITIZED ? 4 : 6); i++) {
        run_ranks(sizes[i], live, 300);
    }
}

int main(void)
{
    RUN(used_id);
    RUN(missing_rank_and_abort);
    RUN(claims);
    RUN(groups_of_two);
    RUN(numbers_of_threads);
    RUN(numbers_of_processes);
    return expect_result();
}
