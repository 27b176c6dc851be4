// Ends of communicators that have work enqueued: of streams and of graphs, with peers that come
// late, never, or have finalized; against an abort of another thread, a device's reset, a fork.
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>
#include <tutti.h>

#include "expect.h"
#include "member.h"
#include "ranks.h"
#include "stopwatch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 2, COUNT = 100 };

// Two ranks of this thread.
struct pair {
    ncclComm_t comm[RANKS];
    cudaStream_t stream[RANKS];
    float *memory[RANKS]; // [COUNT], each 1
    cudaGraph_t graph[RANKS];
    cudaGraphExec_t executable[RANKS];
};

static void open_pair(struct pair *p)
{
    float ones[COUNT];
    memset(p, 0, sizeof *p);
    for (int i = 0; i < COUNT; i++) {
        ones[i] = 1;
    }
    EXPECT_OK(ncclCommInitAll(p->comm, RANKS, NULL));
    for (int r = 0; r < RANKS; r++) {
        EXPECT_CUDA(cudaSetDevice(r));
        EXPECT_CUDA(cudaStreamCreateWithFlags(&p->stream[r], cudaStreamNonBlocking));
        EXPECT_CUDA(cudaMalloc((void **)&p->memory[r], sizeof ones));
        EXPECT_CUDA(cudaMemcpy(p->memory[r], ones, sizeof ones, cudaMemcpyHostToDevice));
    }
}

static void close_pair(struct pair *p)
{
    for (int r = 0; r < RANKS; r++) {
        EXPECT_CUDA(cudaSetDevice(r));
        EXPECT_CUDA(cudaStreamSynchronize(p->stream[r]));
        if (p->graph[r] != NULL) {
            EXPECT_CUDA(cudaGraphExecDestroy(p->executable[r]));
            EXPECT_CUDA(cudaGraphDestroy(p->graph[r]));
        }
        EXPECT_CUDA(cudaFree(p->memory[r]));
        EXPECT_CUDA(cudaStreamDestroy(p->stream[r]));
    }
}

enum operation { ALL_REDUCE, RECEIVE, WAIT_SIGNAL, OPERATIONS };

static void enqueue(struct pair *p, int rank, enum operation operation)
{
    int peer = 1 - rank;
    ncclWaitSignalDesc_t signal = {.opCnt = 1, .peer = peer};
    float *memory = p->memory[rank];
    EXPECT_CUDA(cudaSetDevice(rank));
    EXPECT_OK(operation == ALL_REDUCE ? ncclAllReduce(memory, memory, COUNT, ncclFloat, ncclSum,
                                                      p->comm[rank], p->stream[rank])
              : operation == RECEIVE
                  ? ncclRecv(memory, COUNT, ncclFloat, peer, p->comm[rank], p->stream[rank])
                  : ncclWaitSignal(1, &signal, p->comm[rank], p->stream[rank]));
}

static void capture(struct pair *p, int rank, enum operation operation)
{
    EXPECT_CUDA(cudaSetDevice(rank));
    EXPECT_CUDA(cudaStreamBeginCapture(p->stream[rank], cudaStreamCaptureModeThreadLocal));
    enqueue(p, rank, operation);
    EXPECT_CUDA(cudaStreamEndCapture(p->stream[rank], &p->graph[rank]));
    EXPECT_CUDA(cudaGraphInstantiate(&p->executable[rank], p->graph[rank], 0));
}

static void launch(struct pair *p, int rank)
{
    EXPECT_CUDA(cudaSetDevice(rank));
    EXPECT_CUDA(cudaGraphLaunch(p->executable[rank], p->stream[rank]));
}

static void expect_values(struct pair *p, int rank, float value)
{
    float values[COUNT] = {0};
    EXPECT_CUDA(cudaSetDevice(rank));
    EXPECT_CUDA(cudaStreamSynchronize(p->stream[rank]));
    EXPECT_CUDA(cudaMemcpy(values, p->memory[rank], sizeof values, cudaMemcpyDeviceToHost));
    EXPECT(values[0] == value && values[COUNT - 1] == value);
}

static void CUDART_CB sleep_100_ms(void *argument)
{
    (void)argument;
    usleep(100000);
}

static void delay(struct pair *p, int rank)
{
    EXPECT_CUDA(cudaSetDevice(rank));
    EXPECT_CUDA(cudaLaunchHostFunc(p->stream[rank], sleep_100_ms, NULL));
}

// ---- Graphs -------------------------------------------------------------------------------------

// What was launched before the end is done; what is launched later is left out.
static void graphs_and_destroy(void)
{
    struct pair p;
    open_pair(&p);
    for (int r = 0; r < RANKS; r++) {
        capture(&p, r, ALL_REDUCE);
    }
    for (int r = 0; r < RANKS; r++) {
        delay(&p, r);
        launch(&p, r);
        launch(&p, r);
    }
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(ncclCommDestroy(p.comm[r]));
        expect_values(&p, r, 4);
        launch(&p, r);
        expect_values(&p, r, 4);
    }
    close_pair(&p);
}

// The rank is not told of as gone before what it launched has ended.
static void graphs_and_finalize(void)
{
    struct pair p;
    open_pair(&p);
    for (int r = 0; r < RANKS; r++) {
        capture(&p, r, ALL_REDUCE);
    }
    delay(&p, 0);
    launch(&p, 0);
    EXPECT_OK(ncclCommFinalize(p.comm[0]));
    launch(&p, 1);
    expect_values(&p, 1, 2);
    expect_values(&p, 0, 2);
    launch(&p, 0);
    expect_values(&p, 0, 2); // left out
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(ncclCommDestroy(p.comm[r]));
    }
    close_pair(&p);
}

static void end_waiting_graph(enum operation operation)
{
    struct pair p;
    open_pair(&p);
    capture(&p, 0, operation);
    launch(&p, 0);
    usleep(20000);
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(ncclCommAbort(p.comm[0]));
    EXPECT_WITHIN(watch, 1);
    void *junk[50]; // what was freed is overwritten
    for (size_t i = 0; i < 50; i++) {
        junk[i] = malloc(100 * (i + 1));
        memset(junk[i], 0x5a, 100 * (i + 1));
    }
    EXPECT_OK(ncclCommAbort(p.comm[1]));
    for (size_t i = 0; i < 50; i++) {
        free(junk[i]);
    }
    close_pair(&p);
}

static void graphs_and_abort(void)
{
    for (enum operation operation = ALL_REDUCE; operation < OPERATIONS; operation++) {
        end_waiting_graph(operation);
    }
}

// A peer never comes: after 10 s what waits is given up, and the call says so. Long.
static void give_up(bool in_graph, enum operation operation)
{
    struct pair p;
    open_pair(&p);
    if (in_graph) {
        capture(&p, 0, operation);
        launch(&p, 0);
    } else {
        enqueue(&p, 0, operation);
    }
    struct stopwatch watch = stopwatch_start();
    EXPECT_EQ(ncclCommDestroy(p.comm[0]), ncclRemoteError);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "still wait for other ranks 10 s after");
    EXPECT(stopwatch_s(&watch) > 9 && stopwatch_is_within(&watch, 12));
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_CUDA(cudaStreamSynchronize(p.stream[0]));
    ncclResult_t state = ncclSuccess;
    EXPECT_OK(ncclCommGetAsyncError(p.comm[1], &state));
    EXPECT_EQ(state, ncclRemoteError);
    EXPECT_OK(ncclCommAbort(p.comm[1]));
    close_pair(&p);
}

static void given_up_after_10_s(void)
{
    if (getenv("TUTTI_TEST_FULL") == NULL) {
        return;
    }
    for (enum operation operation = ALL_REDUCE; operation < OPERATIONS; operation++) {
        give_up(true, operation);
    }
    give_up(false, ALL_REDUCE);
}

// ---- An abort of another thread -----------------------------------------------------------------

static void *abort_soon(void *comm)
{
    usleep(100000);
    return (void *)(intptr_t)ncclCommAbort(comm);
}

static void abort_against_destroy(void)
{
    for (int in_graph = 0; in_graph < 2; in_graph++) {
        struct pair p;
        pthread_t thread;
        void *result = NULL;
        open_pair(&p);
        if (in_graph != 0) {
            capture(&p, 0, ALL_REDUCE);
            launch(&p, 0);
        } else {
            enqueue(&p, 0, ALL_REDUCE);
        }
        struct stopwatch watch = stopwatch_start();
        EXPECT_EQ(pthread_create(&thread, NULL, abort_soon, p.comm[0]), 0);
        EXPECT_EQ(ncclCommDestroy(p.comm[0]), ncclInternalError);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "ncclCommAbort of another thread ended it");
        EXPECT_WITHIN(watch, 1);
        pthread_join(thread, &result);
        EXPECT_EQ((intptr_t)result, ncclSuccess);
        EXPECT_EQ(ncclCommAbort(p.comm[0]), ncclInvalidArgument); // it is gone
        ncclResult_t state = ncclSuccess;
        watch = stopwatch_start();
        while (state == ncclSuccess && stopwatch_is_within(&watch, 5)) {
            EXPECT_OK(ncclCommGetAsyncError(p.comm[1], &state));
        }
        EXPECT_EQ(state, ncclRemoteError);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "it called ncclCommAbort");
        EXPECT_OK(ncclCommAbort(p.comm[1]));
        close_pair(&p);
    }
}

// ---- A peer that has finalized ------------------------------------------------------------------

static void finalized(enum operation operation)
{
    struct pair p;
    open_pair(&p);
    delay(&p, 1);
    enqueue(&p, 1, ALL_REDUCE);
    EXPECT_OK(ncclCommFinalize(p.comm[1]));
    enqueue(&p, 0, ALL_REDUCE);
    expect_values(&p, 0, 2); // what it called before, it does
    struct stopwatch watch = stopwatch_start();
    enqueue(&p, 0, operation);
    EXPECT_CUDA(cudaStreamSynchronize(p.stream[0]));
    EXPECT_WITHIN(watch, 2);
    ncclResult_t state = ncclSuccess;
    EXPECT_OK(ncclCommGetAsyncError(p.comm[0], &state));
    EXPECT_EQ(state, ncclRemoteError);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 1 has finalized the communicator and will never");
    expect_values(&p, 1, 2);
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(ncclCommDestroy(p.comm[r]));
    }
    close_pair(&p);
}

static void peer_that_has_finalized(void)
{
    for (enum operation operation = ALL_REDUCE; operation < OPERATIONS; operation++) {
        finalized(operation);
    }
}

static void finalize_alone(int rank, int size)
{
    struct member m;
    float *memory = NULL;
    if (!member_join(&m, rank, size) ||
        !EXPECT_CUDA(cudaMalloc((void **)&memory, COUNT * sizeof(float)))) {
        return;
    }
    if (rank == size - 1) {
        EXPECT_OK(ncclCommFinalize(m.comm));
    } else {
        EXPECT_OK(ncclAllReduce(memory, memory, COUNT, ncclFloat, ncclSum, m.comm, m.stream));
        struct stopwatch watch = stopwatch_start();
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
        EXPECT_WITHIN(watch, 5);
        EXPECT_EQ(member_state(&m), ncclRemoteError);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "has finalized the communicator");
    }
    ranks_barrier();
    member_leave(&m);
    EXPECT_CUDA(cudaFree(memory));
}

static void processes_that_have_finalized(void)
{
    run_ranks(3, finalize_alone, 30);
}

// ---- A device that is reset ---------------------------------------------------------------------

static void reset_with(bool in_graph, bool has_begun)
{
    struct pair p;
    open_pair(&p);
    if (in_graph) {
        capture(&p, 0, ALL_REDUCE);
    }
    if (!has_begun) {
        delay(&p, 0);
    }
    if (in_graph) {
        launch(&p, 0);
    } else {
        enqueue(&p, 0, ALL_REDUCE);
    }
    usleep(20000);
    struct stopwatch watch = stopwatch_start();
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_CUDA(cudaDeviceReset());
    EXPECT_WITHIN(watch, 2);
    // At once, unless the library's own thread is about to tell it.
    ncclResult_t state = ncclSuccess;
    watch = stopwatch_start();
    while (state == ncclSuccess && stopwatch_is_within(&watch, 2)) {
        EXPECT_OK(ncclCommGetAsyncError(p.comm[0], &state));
    }
    EXPECT_EQ(state, ncclUnhandledCudaError);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 0: its GPU 0 (physical 0) was reset");
    state = ncclSuccess;
    watch = stopwatch_start();
    while (state == ncclSuccess && stopwatch_is_within(&watch, 5)) {
        EXPECT_OK(ncclCommGetAsyncError(p.comm[1], &state));
    }
    EXPECT_EQ(state, ncclRemoteError);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 0 failed: its GPU 0 (physical 0) was reset");
    EXPECT_OK(ncclCommAbort(p.comm[0]));
    EXPECT_OK(ncclCommDestroy(p.comm[1]));
    EXPECT_CUDA(cudaMalloc((void **)&p.memory[0], sizeof(float))); // the reset has freed it
    close_pair(&p);
}

static void device_that_is_reset(void)
{
    for (int i = 0; i < 4; i++) {
        reset_with(i % 2 != 0, i / 2 != 0);
    }
}

// ---- Fork ---------------------------------------------------------------------------------------

// A child has none of its parent's communicators: the state says so.
static void state_of_a_child(void)
{
#if defined(__SANITIZE_THREAD__)
    SKIP("the thread sanitizer does not follow a fork of a process with threads");
#else
    struct pair p;
    char path[] = "/tmp/tutti-pending-XXXXXX", text[4096] = "";
    int file = mkstemp(path), status = -1;
    open_pair(&p);
    pid_t child = fork();
    if (child == 0) {
        _exit(tuttiDumpState(NULL, path) == ncclSuccess ? 0 : 1);
    }
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT(read(file, text, sizeof text - 1) > 0);
    EXPECT_CONTAINS(text, "no communicator\nthis process was forked from process ");
    EXPECT(strstr(text, "rank 0 of 2") == NULL);
    EXPECT_OK(tuttiDumpState(NULL, path));
    EXPECT(read(file, text, sizeof text - 1) > 0);
    EXPECT_CONTAINS(text, "rank 0 of 2"); // the parent's has both
    EXPECT_EQ(unlink(path) + close(file), 0);
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(ncclCommDestroy(p.comm[r]));
    }
    close_pair(&p);
#endif
}

int main(void)
{
    RUN(graphs_and_destroy);
    RUN(graphs_and_finalize);
    RUN(graphs_and_abort);
    RUN(given_up_after_10_s);
    RUN(abort_against_destroy);
    RUN(peer_that_has_finalized);
    RUN(processes_that_have_finalized);
    RUN(device_that_is_reset);
    RUN(state_of_a_child);
    return expect_result();
}
