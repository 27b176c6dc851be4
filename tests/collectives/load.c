// Many ranks on few cores, many communicators, questions all the time: time goes with the work,
// ranks that wait take none. TUTTI_TEST_FULL=1: the sizes of the reports.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <tutti.h>

// ---- C100 (nccl#374, nccl PR#1759, mpich#1103)
// ---------------------------------------------------

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void many_small(int rank, int size)
{
    struct member m;
    struct area area;
    int rounds = is_full() ? 10000 : 500, wait_s = is_full() ? 10 : 2;
    if (!join_with_area(&m, &area, rank, size, 4096)) {
        return;
    }
    int value = rank;
    int *sum = (int *)(void *)area.memory;
    EXPECT_CUDA(cudaMemcpyAsync(sum, &value, sizeof value, cudaMemcpyDefault, m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    struct stopwatch watch = stopwatch_start();
    for (int i = 0; i < rounds; i++) {
        EXPECT_OK(ncclAllReduce(sum, sum + 1, 1, ncclInt, ncclSum, m.comm, m.stream));
        if (i % 10 == 9) {
            EXPECT_CUDA(cudaStreamSynchronize(m.stream));
        }
    }
    // 1 ms each is far from what it takes, and far below a time slice for each rank.
    EXPECT_WITHIN(watch, rounds * 4e-3 + 2);
    EXPECT_CUDA(cudaMemcpyAsync(&value, sum + 1, sizeof value, cudaMemcpyDefault, m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    EXPECT_EQ(value, size * (size - 1) / 2);
    ranks_barrier();
    double used = cpu_s();
    if (rank == size - 1) {
        poll(NULL, 0, wait_s * 1000);
    }
    EXPECT_OK(ncclAllReduce(sum, sum + 1, 1, ncclInt, ncclSum, m.comm, m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    used = cpu_s() - used;
    // Of each second 2%; and what it takes to fall asleep, once.
    if (!EXPECT(used < (0.02 * wait_s + 0.04) * (IS_SANITIZED ? 5 : 1))) {
        fprintf(stderr, "rank %d used %.3f s of a core while it waited for %d s\n", rank, used,
                wait_s);
    }
    leave_with_area(&m, &area);
}

static void many_ranks(void)
{
    run_processes(16, many_small, 120);
}

// All of them on one core.
static void many_ranks_on_one_core(void)
{
    cpu_set_t all, one;
    int core = 0;
    EXPECT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET(core, &all)) {
        core++;
    }
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0); // processes inherit it
    run_processes(16, many_small, 300);
    EXPECT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
}

// ---- C101: questions from before the first operation to after the last (nccl#1669, nccl#1730)
// ----

struct asker {
    _Atomic(ncclComm_t) comm; // NULL: there is none yet
    atomic_int stop;
    int answers;
};

static void *ask(void *argument)
{
    struct asker *asker = argument;
    while (atomic_load(&asker->stop) == 0) {
        ncclComm_t comm = atomic_load(&asker->comm);
        ncclResult_t state = ncclSuccess;
        EXPECT_OK(tuttiDumpState(NULL, "/dev/null"));
        if (comm != NULL) { // it may be gone by now
            ncclResult_t result = ncclCommGetAsyncError(comm, &state);
            EXPECT(result == ncclSuccess || result == ncclInvalidArgument);
            EXPECT_EQ(state, ncclSuccess);
        }
        asker->answers++;
        poll(NULL, 0, 1);
    }
    return NULL;
}

static void ask_and_work(int rank, int size)
{
    struct member m;
    struct area area;
    struct asker asker = {.answers = 0};
    pthread_t thread;
    EXPECT_EQ(pthread_create(&thread, NULL, ask, &asker), 0);
    if (join_with_area(&m, &area, rank, size, 1 << 20)) {
        atomic_store(&asker.comm, m.comm);
        for (unsigned i = 0; i < 30; i++) {
            struct form form = {.type = ncclFloat32, .count = 1 + i * 999, .seed = i};
            if (rank == 1 && i == 15) { // one that is stuck for a while
                poll(NULL, 0, 200);
            }
            check_form(&m, &area, &form);
        }
        leave_with_area(&m, &area);
    }
    poll(NULL, 0, 10);
    atomic_store(&asker.stop, 1);
    pthread_join(thread, NULL);
    EXPECT(asker.answers > 10);
}

static void questions(void)
{
    run_thread_ranks(3, ask_and_work, 60);
    run_processes(3, ask_and_work, 60);
}

// ---- C103: 52 communicators of 8 ranks: pairs, fours, eights (nccl#2379)
// -------------------------

// One communicator of the ranks whose number gives `group`; all make the same ones in one order.
static void make_and_use(struct area *area, int rank, int group_size, int stride, int copy)
{
    ncclUniqueId ids[8], mine;
    struct member m;
    int place = rank / stride % group_size;
    int first = rank - place * stride;
    memset(&mine, 0, sizeof mine);
    if (place == 0) {
        EXPECT_OK(ncclGetUniqueId(&mine));
    }
    ranks_gather(&mine, ids, sizeof mine);
    if (!member_join_id(&m, place, group_size, ids[first])) {
        return;
    }
    struct form form = {.type = ncclInt32, .count = 77, .seed = (unsigned)(first + 8 * copy)};
    check_form(&m, area, &form);
    member_leave(&m);
}

static void layout(int rank, int size)
{
    struct area area;
    int starts = is_full() ? 200 : 2;
    EXPECT_EQ(size, 8);
    if (!make_area(&area, 4096)) {
        return;
    }
    for (int start = 0; start < starts; start++) {
        for (int copy = 0; copy < 4; copy++) { // 4 x (4 + 4 + 2 + 2 + 1) = 52
            make_and_use(&area, rank, 2, 1, copy);
            make_and_use(&area, rank, 2, 4, copy);
            make_and_use(&area, rank, 4, 1, copy);
            make_and_use(&area, rank, 4, 2, copy);
            make_and_use(&area, rank, 8, 1, copy);
        }
    }
    EXPECT_CUDA(cudaFree(area.memory));
}

static void many_communicators(void)
{
    run_processes(8, layout, 600);
    run_thread_ranks(8, layout, 600);
}

int main(void)
{
    RUN(questions);
    RUN(many_communicators);
    RUN(many_ranks);
    if (is_full()) {
        RUN(many_ranks_on_one_core);
    }
    return expect_result();
}
