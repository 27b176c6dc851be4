// The life of communicators through the public API: ranks as threads, processes, both mixed, one
// thread that drives all; questions,
// groups, finalize, destroy, nothing left behind. SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#include "expect.h"
#include "member.h"
#include "ranks.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static int device_count(void)
{
    int count = 0;
    EXPECT_CUDA(cudaGetDeviceCount(&count));
    return count;
}

static void check_answers(ncclComm_t comm, int rank, int size, int device)
{
    int answer = -1;
    ncclResult_t error = ncclInternalError;
    EXPECT_OK(ncclCommCount(comm, &answer));
    EXPECT_EQ(answer, size);
    EXPECT_OK(ncclCommUserRank(comm, &answer));
    EXPECT_EQ(answer, rank);
    EXPECT_OK(ncclCommCuDevice(comm, &answer));
    EXPECT_EQ(answer, device);
    EXPECT_OK(ncclCommGetAsyncError(comm, &error));
    EXPECT_EQ(error, ncclSuccess);
}

static void live(int rank, int size)
{
    int device = rank % device_count();
    EXPECT_CUDA(cudaSetDevice(device));
    ncclUniqueId id = share_id(rank);
    ncclComm_t comm = NULL;
    if (!EXPECT_OK(ncclCommInitRank(&comm, size, id, rank))) {
        return;
    }
    check_answers(comm, rank, size, device);
    int now = -1;
    EXPECT_CUDA(cudaGetDevice(&now));
    EXPECT_EQ(now, device);
    EXPECT_OK(ncclCommFinalize(comm));
    EXPECT_OK(ncclCommDestroy(comm));
    // The process of rank 0 may end at once: the others need nothing of it any more.
}

static void threads(void)
{
    for (int n = 1; n <= 8; n++) {
        run_thread_ranks(n, live, 30);
    }
}

static void many_threads(void)
{
    run_thread_ranks(64, live, 60);
}

static void processes(void)
{
#ifdef VGPU_CUDA_RUNTIME_API_H
    static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8};
#else
    static const int sizes[] = {1, 2, 5}; // each takes a second to start
#endif
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        run_ranks(sizes[i], live, 60);
    }
}

// ---- Threads in processes -----------------------------------------------------------------------

enum { THREADS = 3 };

struct joining {
    ncclUniqueId id;
    int rank, size;
    pthread_t thread;
};

static void *live_as_member(void *argument)
{
    struct joining *m = argument;
    ncclComm_t comm = NULL;
    int device = m->rank % device_count();
    expect_set_rank(m->rank);
    EXPECT_CUDA(cudaSetDevice(device));
    if (EXPECT_OK(ncclCommInitRank(&comm, m->size, m->id, m->rank))) {
        check_answers(comm, m->rank, m->size, device);
        EXPECT_OK(ncclCommDestroy(comm));
    }
    return NULL;
}

static void live_in_threads(int process, int processes_count, int stride, int first)
{
    struct joining member[THREADS];
    ncclUniqueId id = share_id(process);
    for (int i = 0; i < THREADS; i++) {
        member[i] = (struct joining){
            .id = id, .rank = first + i * stride, .size = THREADS * processes_count};
        EXPECT_EQ(pthread_create(&member[i].thread, NULL, live_as_member, &member[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(member[i].thread, NULL);
    }
}

static void neighbours_together(int process, int count)
{
    live_in_threads(process, count, 1, process * THREADS);
}

static void neighbours_apart(int process, int count)
{
    live_in_threads(process, count, count, process);
}

static void mixed(void)
{
    run_ranks(3, neighbours_together, 60);
    run_ranks(3, neighbours_apart, 60);
}

// ---- One thread for all -------------------------------------------------------------------------

static void init_all(void)
{
    ncclComm_t comm[8];
    int list[8], count = device_count();
    count = count < 8 ? count : 8;
    EXPECT_CUDA(cudaSetDevice(count - 1));
    for (int n = 1; n <= count; n++) {
        EXPECT_OK(ncclCommInitAll(comm, n, NULL));
        for (int r = 0; r < n; r++) {
            check_answers(comm[r], r, n, r);
        }
        for (int r = 0; r < n; r++) {
            EXPECT_OK(ncclCommFinalize(comm[r]));
        }
        for (int r = 0; r < n; r++) {
            EXPECT_OK(ncclCommDestroy(comm[r]));
        }
    }
    int device = -1;
    EXPECT_CUDA(cudaGetDevice(&device));
    EXPECT_EQ(device, count - 1);
    for (int r = 0; r < count; r++) {
        list[r] = count - 1 - r;
    }
    EXPECT_OK(ncclCommInitAll(comm, count, list));
    for (int r = 0; r < count; r++) {
        check_answers(comm[r], r, count, list[r]);
        EXPECT_OK(ncclCommDestroy(comm[r]));
    }
}

// Several ranks on one device, in nested groups.
static void group(void)
{
    enum { N = 5 };
    ncclComm_t comm[N];
    ncclUniqueId id;
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_OK(ncclGetUniqueId(&id));
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < N; r++) {
        EXPECT_OK(ncclCommInitRank(&comm[r], N, id, r));
    }
    EXPECT_OK(ncclGroupEnd());
    EXPECT_OK(ncclGroupEnd());
    for (int r = 0; r < N; r++) {
        check_answers(comm[r], r, N, 0);
    }
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < N; r++) {
        EXPECT_OK(ncclCommDestroy(comm[r]));
    }
    EXPECT_OK(ncclGroupEnd());
}

// Two communicators of other ranks in one group.
static void two_in_a_group(void)
{
    ncclComm_t a[2], b[3];
    ncclUniqueId id_a, id_b;
    EXPECT_OK(ncclGetUniqueId(&id_a));
    EXPECT_OK(ncclGetUniqueId(&id_b));
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < 3; r++) {
        if (r < 2) {
            EXPECT_OK(ncclCommInitRank(&a[r], 2, id_a, r));
        }
        EXPECT_OK(ncclCommInitRank(&b[r], 3, id_b, r));
    }
    EXPECT_OK(ncclGroupEnd());
    for (int r = 0; r < 3; r++) {
        if (r < 2) {
            check_answers(a[r], r, 2, 0);
            EXPECT_OK(ncclCommDestroy(a[r]));
        }
        check_answers(b[r], r, 3, 0);
        EXPECT_OK(ncclCommDestroy(b[r]));
    }
}

static void nonblocking(void)
{
    enum { N = 3 };
    ncclComm_t comm[N];
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT_OK(ncclGetUniqueId(&id));
    int count;
    for (int r = 0; r < N; r++) { // no group needed
        EXPECT_EQ(ncclCommInitRankConfig(&comm[r], N, id, r, &config), ncclInProgress);
        EXPECT(comm[r] != NULL);
        if (r < N - 1) {
            ncclResult_t state = ncclSuccess;
            EXPECT_OK(ncclCommGetAsyncError(comm[r], &state));
            EXPECT_EQ(state, ncclInProgress);
            EXPECT_EQ(ncclCommCount(comm[r], &count), ncclInvalidArgument);
            EXPECT_EQ(ncclCommDestroy(comm[r]), ncclInvalidArgument);
        }
    }
    for (int r = 0; r < N; r++) {
        ncclResult_t state = ncclInProgress;
        while (state == ncclInProgress) {
            EXPECT_OK(ncclCommGetAsyncError(comm[r], &state));
            poll(NULL, 0, 1);
        }
        EXPECT_EQ(state, ncclSuccess);
        check_answers(comm[r], r, N, 0);
    }
    for (int r = 0; r < N; r++) {
        EXPECT_OK(ncclCommDestroy(comm[r]));
    }
}

// ---- Nothing left -------------------------------------------------------------------------------

static int count_entries(const char *folder)
{
    int count = 0;
    DIR *directory = opendir(folder);
    if (!EXPECT(directory != NULL)) {
        return 0;
    }
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

static void again_and_again(void)
{
    ncclComm_t comm[4];
    int descriptors = 0, tasks = 0, count = device_count();
    count = count < 4 ? count : 4;
    for (int round = 0; round < 100; round++) {
        if (!EXPECT_OK(ncclCommInitAll(comm, count, NULL))) {
            return;
        }
        for (int r = 0; r < count; r++) {
            EXPECT_OK(ncclCommDestroy(comm[r]));
        }
        if (round == 4) {
            poll(NULL, 0, 200);
            descriptors = count_entries("/proc/self/fd");
            tasks = count_entries("/proc/self/task");
        }
    }
    poll(NULL, 0, 200); // the last root ends
    EXPECT(count_entries("/proc/self/fd") <= descriptors);
    EXPECT(count_entries("/proc/self/task") <= tasks);
}

static void on_alarm(int number)
{
    (void)number;
}

static void live_under_signals(int rank, int size)
{
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < 5; i++) {
        live(rank, size);
        ranks_barrier();
    }
    setitimer(ITIMER_REAL, &never, NULL);
}

static void signals(void)
{
    run_ranks(3, live_under_signals, 60);
}

// What a library cannot do on its GPUs it refuses at the call, so that nothing else of the group
// runs.
static void refused_in_a_group(void)
{
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    float *memory = NULL;
    EXPECT_OK(ncclGetUniqueId(&id));
    if (!EXPECT_OK(ncclCommInitRank(&comm, 1, id, 0))) {
        return;
    }
    EXPECT_CUDA(cudaMalloc((void **)&memory, 64));
    ncclResult_t expected = ncclAllReduce(memory, memory, 4, ncclFloat, ncclSum, comm, NULL);
    EXPECT(expected == ncclSuccess || expected == ncclInvalidUsage);
    EXPECT_OK(ncclGroupStart());
    EXPECT_EQ(ncclAllReduce(memory, memory, 4, ncclFloat, ncclSum, comm, NULL), expected);
    EXPECT_EQ(ncclSend(memory, 4, ncclFloat, 0, comm, NULL), expected);
    EXPECT_EQ(ncclRecv(memory + 8, 4, ncclFloat, 0, comm, NULL), expected);
    EXPECT_EQ(ncclGroupEnd(), expected);
    EXPECT_CUDA(cudaStreamSynchronize(NULL));
    EXPECT_CUDA(cudaFree(memory));
    EXPECT_OK(ncclCommDestroy(comm));
}

int main(void)
{
    RUN(threads);
    RUN(many_threads);
    RUN(processes);
    RUN(mixed);
    RUN(init_all);
    RUN(group);
    RUN(two_in_a_group);
    RUN(nonblocking);
    RUN(again_and_again);
    RUN(signals);
    RUN(refused_in_a_group);
    return expect_result();
}
