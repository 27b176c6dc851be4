// Ranks that end or are killed while others work with them: between operations, inside one, before
// they come to one. What waits ends with an error that names the rank, in time; those that remain
// go on with another communicator.
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

enum { COUNT = 1 << 20, BYTES = COUNT * sizeof(float) };

// `times` all-reduces of ones; whether all sums were right.
static bool sums_are_right(const struct member *m, ncclComm_t comm, int size, int times)
{
    enum { FEW = 1000 };
    float *buffer = NULL, host[FEW];
    size_t wrong = 0;
    EXPECT_CUDA(cudaMalloc((void **)&buffer, sizeof host));
    for (int t = 0; t < times && wrong == 0; t++) {
        for (int i = 0; i < FEW; i++) {
            host[i] = (float)(t + i);
        }
        EXPECT_CUDA(cudaMemcpy(buffer, host, sizeof host, cudaMemcpyHostToDevice));
        EXPECT_OK(ncclAllReduce(buffer, buffer, FEW, ncclFloat, ncclSum, comm, m->stream));
        EXPECT_CUDA(cudaStreamSynchronize(m->stream));
        EXPECT_CUDA(cudaMemcpy(host, buffer, sizeof host, cudaMemcpyDeviceToHost));
        for (int i = 0; i < FEW; i++) {
            wrong += host[i] != (float)(size * (t + i));
        }
    }
    EXPECT_CUDA(cudaFree(buffer));
    return EXPECT_EQ(wrong, 0);
}

static void check_place(ncclComm_t comm, int rank, int size)
{
    int answer = -1;
    EXPECT_OK(ncclCommUserRank(comm, &answer));
    EXPECT_EQ(answer, rank);
    EXPECT_OK(ncclCommCount(comm, &answer));
    EXPECT_EQ(answer, size);
}

static bool add_up(const struct member *m, float *memory)
{
    return ncclAllReduce(memory, memory, COUNT, ncclFloat, ncclSum, m->comm, m->stream) ==
           ncclSuccess;
}

// ---- C58: a rank ends, the others wait, and another thread of each aborts (nccl#1013, nccl#549)
// ---

static void *abort_after_1_s(void *comm)
{
    poll(NULL, 0, 1000);
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(ncclCommAbort(comm));
    EXPECT_WITHIN(watch, 1);
    return NULL;
}

// Waits in a call and in a stream for a rank that never comes, until another thread aborts.
static void wait_for_abort(const struct member *m, ncclComm_t comm, float *memory)
{
    pthread_t thread;
    ncclComm_t child = (ncclComm_t)1;
    EXPECT_EQ(pthread_create(&thread, NULL, abort_after_1_s, comm), 0);
    struct stopwatch watch = stopwatch_start();
    // A rank that has died is known before, and then calls are refused.
    ncclResult_t result = ncclAllReduce(memory, memory, COUNT, ncclFloat, ncclSum, comm, m->stream);
    EXPECT(result == ncclSuccess || result == ncclRemoteError);
    EXPECT(ncclCommSplit(comm, 0, 0, &child, NULL) != ncclSuccess);
    EXPECT(child == NULL);
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    EXPECT_WITHIN(watch, 3);
    pthread_join(thread, NULL);
    EXPECT_EQ(ncclAllReduce(memory, memory, 1, ncclFloat, ncclSum, comm, m->stream),
              ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "was destroyed or aborted");
}

// Rank 2 comes to nothing any more. in_part: of ranks 2 and 3, too.
static void lose_rank_2(int rank, int size, bool dies)
{
    struct member m, fresh;
    ncclComm_t part = NULL;
    float *memory = NULL;
    ncclUniqueId id = share_id(rank);
    if (!member_join(&m, rank, size) || !EXPECT_CUDA(cudaMalloc((void **)&memory, BYTES))) {
        return;
    }
    EXPECT_OK(ncclCommSplit(m.comm, rank / 2, rank, &part, NULL));
    if (rank == 2 && dies) {
        _exit(expect_failures() > 0);
    }
    if (rank != 2) {
        if (rank == 3) {
            wait_for_abort(&m, part, memory);
        }
        wait_for_abort(&m, m.comm, memory);
        if (member_join_id(&fresh, rank == 3 ? 2 : rank, 3, id)) {
            sums_are_right(&fresh, fresh.comm, 3, 3);
            member_leave(&fresh);
        }
    }
    if (rank < 2) { // the other part is unharmed
        sums_are_right(&m, part, 2, 3);
        EXPECT_OK(ncclCommDestroy(part));
    }
    if (!dies) {
        ranks_barrier();
        if (rank == 2) {
            EXPECT_OK(ncclCommAbort(part));
            EXPECT_OK(ncclCommAbort(m.comm));
        }
    }
    m.comm = NULL;
    EXPECT_CUDA(cudaFree(memory));
    member_leave(&m);
}

static void stay_away(int rank, int size)
{
    lose_rank_2(rank, size, false);
}

static void end_early(int rank, int size)
{
    lose_rank_2(rank, size, true);
}

static void aborts_of_all(void)
{
    run_thread_ranks(4, stay_away, 60);
    run_ranks(4, stay_away, 60);
    run_ranks(4, end_early, 60);
}

// ---- C62: one of two is killed (nccl#279)
// ---------------------------------------------------------

enum moment { BETWEEN, BEFORE_THE_OTHER, IN_IT, MOMENTS };

struct kill_order {
    pid_t pid;
    struct stopwatch watch; // since the kill
};

static void kill_now(struct kill_order *order)
{
    EXPECT_EQ(kill(order->pid, SIGKILL), 0);
    order->watch = stopwatch_start();
}

static void *kill_soon(void *order)
{
    poll(NULL, 0, 150);
    kill_now(order);
    return NULL;
}

static ncclResult_t await_failure(const struct member *m, const struct stopwatch *watch)
{
    ncclResult_t state = member_state(m);
    while (state == ncclSuccess && stopwatch_is_within(watch, 2)) {
        poll(NULL, 0, 1);
        state = member_state(m);
    }
    return state;
}

// Rank 0 kills the rank `pid` at a moment of its work, and sees the failure within 2 s.
static void kill_and_see(struct member *m, float *memory, pid_t pid, enum moment moment)
{
    struct kill_order order = {.pid = pid};
    pthread_t thread;
    if (moment == IN_IT) { // large ones, one after the other, until one does not end
        EXPECT_EQ(pthread_create(&thread, NULL, kill_soon, &order), 0);
        while (add_up(m, memory) && cudaStreamSynchronize(m->stream) == cudaSuccess &&
               member_state(m) == ncclSuccess) {
        }
        pthread_join(thread, NULL);
    } else {
        poll(NULL, 0, 100); // the other one waits in its operation by now, or does nothing
        kill_now(&order);
        if (moment == BEFORE_THE_OTHER) {
            (void)add_up(m, memory);
            (void)cudaStreamSynchronize(m->stream);
        }
    }
    EXPECT_EQ(await_failure(m, &order.watch), ncclRemoteError);
    EXPECT_WITHIN(order.watch, 2);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "rank ");
    EXPECT_CONTAINS(ncclGetLastError(NULL), " (process");
    EXPECT_CONTAINS(ncclGetLastError(NULL), " died");
}

static void be_killed(const struct member *m, float *memory, enum moment moment)
{
    while (moment == IN_IT && add_up(m, memory) && cudaStreamSynchronize(m->stream) == 0) {
    }
    if (moment == BEFORE_THE_OTHER) {
        (void)add_up(m, memory);
        (void)cudaStreamSynchronize(m->stream);
    }
    poll(NULL, 0, 30000);
}

static enum moment wanted_moment(void)
{
    return (enum moment)atoi(getenv("TUTTI_TEST_MOMENT")); // NOLINT(cert-err34-c): the test's own
}

static void want_moment(enum moment moment)
{
    char text[2] = {(char)('0' + (int)moment), 0};
    (void)setenv("TUTTI_TEST_MOMENT", text, 1);
}

// The last rank is killed by rank 0.
static bool lose_last(struct member *m, float **memory_out, int rank, int size)
{
    pid_t pid = getpid(), pids[8];
    enum moment moment = wanted_moment();
    if (!member_join(m, rank, size) || !EXPECT_CUDA(cudaMalloc((void **)memory_out, BYTES))) {
        return false;
    }
    EXPECT_CUDA(cudaMemset(*memory_out, 0, BYTES));
    ranks_gather(&pid, pids, sizeof pid);
    for (int i = 0; i < 10; i++) {
        EXPECT(add_up(m, *memory_out));
    }
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    ranks_barrier();
    if (rank == size - 1) {
        be_killed(m, *memory_out, moment);
    } else if (rank == 0) {
        kill_and_see(m, *memory_out, pids[size - 1], moment);
    } else {
        while (member_state(m) == ncclSuccess && (moment != IN_IT || add_up(m, *memory_out))) {
            (void)cudaStreamSynchronize(m->stream);
        }
    }
    return true;
}

static void lose_the_other(int rank, int size)
{
    struct member m;
    float *memory = NULL;
    if (lose_last(&m, &memory, rank, size)) {
        struct stopwatch watch = stopwatch_start();
        EXPECT_OK(ncclCommDestroy(m.comm));
        EXPECT_WITHIN(watch, 1);
        m.comm = NULL;
        EXPECT_CUDA(cudaFree(memory));
        member_leave(&m);
    }
    exit(expect_failures() > 0);
}

static void run_and_lose_last(int size, rank_function function, enum moment moment)
{
    int statuses[8];
    want_moment(moment);
    run_ranks_status(size, function, 60, statuses);
    for (int r = 0; r < size - 1; r++) {
        EXPECT_EQ(statuses[r], 0);
    }
    EXPECT(WIFSIGNALED(statuses[size - 1]) && WTERMSIG(statuses[size - 1]) == SIGKILL);
}

static void one_of_two_is_killed(void)
{
    for (enum moment moment = BETWEEN; moment < MOMENTS; moment++) {
        run_and_lose_last(2, lose_the_other, moment);
    }
}

// ---- C64: one of three is killed in the middle of one; the others shrink (pt PR#180611)
// -----------

static void shrink_and_go_on(int rank, int size)
{
    struct member m;
    float *memory = NULL;
    ncclComm_t smaller = NULL;
    int excluded[] = {size - 1};
    if (!lose_last(&m, &memory, rank, size)) {
        return;
    }
    EXPECT_OK(ncclCommShrink(m.comm, excluded, 1, &smaller, NULL, NCCL_SHRINK_ABORT));
    check_place(smaller, rank, size - 1);
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(ncclCommDestroy(m.comm)); // it does not wait for the dead rank
    EXPECT_WITHIN(watch, 1);
    m.comm = NULL;
    sums_are_right(&m, smaller, size - 1, 1000);
    watch = stopwatch_start();
    EXPECT_OK(ncclCommDestroy(smaller));
    EXPECT_WITHIN(watch, 1);
    EXPECT_CUDA(cudaFree(memory));
    member_leave(&m);
    exit(expect_failures() > 0);
}

static void one_of_three_is_killed(void)
{
    for (enum moment moment = BETWEEN; moment < MOMENTS; moment++) {
        run_and_lose_last(3, shrink_and_go_on, moment);
    }
}

int main(void)
{
    RUN(aborts_of_all);
    RUN(one_of_two_is_killed);
    RUN(one_of_three_is_killed);
    return expect_result();
}
