// Several streams in one group: its operations begin once the work before them on each of the
// streams is over, whichever stream they are put on themselves, and what comes behind them on each
// waits for all of them. As NCCL's groups do, in graphs too.
// SPDX-License-Identifier: Apache-2.0
#include "../support/member.h"

#include <atomic>
#include <cstdlib>
#include <poll.h>

enum { COUNT = 3000, STREAMS = 3 };

#include "rounds.cuh"

struct work {
    member m;
    int *data, *sum, *round, *wrong, *small; // small: [2]
    cudaStream_t stream[STREAMS];
};

static bool open_work(work *w, int rank, int size)
{
    if (!member_join(&w->m, rank, size)) {
        return false;
    }
    EXPECT_CUDA(cudaMalloc((void **)&w->data, COUNT * sizeof(int)));
    EXPECT_CUDA(cudaMalloc((void **)&w->sum, COUNT * sizeof(int)));
    EXPECT_CUDA(cudaMalloc((void **)&w->round, 4 * sizeof(int)));
    w->wrong = w->round + 1;
    w->small = w->round + 2;
    for (cudaStream_t &stream : w->stream) {
        EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    EXPECT_CUDA(cudaMemset(w->data, 0, COUNT * sizeof(int)));
    return EXPECT_CUDA(cudaMemset(w->round, 0, 4 * sizeof(int)));
}

// What the kernels found, after `rounds`; then everything goes.
static void close_work(work *w, int rounds)
{
    int found[2] = {-1, -1};
    for (cudaStream_t stream : w->stream) {
        EXPECT_CUDA(cudaStreamSynchronize(stream));
    }
    EXPECT_CUDA(cudaMemcpy(found, w->round, sizeof found, cudaMemcpyDeviceToHost));
    EXPECT_EQ(found[0], rounds);
    EXPECT_EQ(found[1], 0);
    for (cudaStream_t stream : w->stream) {
        EXPECT_CUDA(cudaStreamDestroy(stream));
    }
    EXPECT_CUDA(cudaFree(w->data));
    EXPECT_CUDA(cudaFree(w->sum));
    EXPECT_CUDA(cudaFree(w->round));
    member_leave(&w->m);
}

static void run_both(int size, void (*body)(int rank, int size))
{
    run_thread_ranks(size, body, 60);
#ifndef __SANITIZE_THREAD__ // which does not see other processes
    run_ranks(size, body, 60);
#endif
}

static ncclResult_t add(work *w, cudaStream_t stream)
{
    return ncclAllReduce(w->data, w->sum, COUNT, ncclInt, ncclSum, w->m.comm, stream);
}

// ---- What else is in the group, on another stream -----------------------------------------------

enum kind { COLLECTIVE, MESSAGES, SIGNALS, KINDS };

static void other_operation(work *w, enum kind kind, cudaStream_t stream)
{
    int next = (w->m.rank + 1) % w->m.size, before = (w->m.rank + w->m.size - 1) % w->m.size;
    ncclWaitSignalDesc_t wait = {1, before, 0, 0};
    switch (kind) {
    case COLLECTIVE:
        EXPECT_OK(ncclAllReduce(w->small, w->small, 1, ncclInt, ncclMax, w->m.comm, stream));
        break;
    case MESSAGES:
        EXPECT_OK(ncclSend(w->small, 1, ncclInt, next, w->m.comm, stream));
        EXPECT_OK(ncclRecv(w->small + 1, 1, ncclInt, before, w->m.comm, stream));
        break;
    default:
        EXPECT_OK(ncclSignal(next, 0, 0, 0, w->m.comm, stream));
        EXPECT_OK(ncclWaitSignal(1, &wait, w->m.comm, stream));
    }
}

// One group: the sum on one stream, the other operation on the other one, called in either order.
static void group(work *w, enum kind kind, bool sum_first, cudaStream_t sum, cudaStream_t other)
{
    EXPECT_OK(ncclGroupStart());
    if (sum_first) {
        EXPECT_OK(add(w, sum));
    }
    other_operation(w, kind, other);
    if (!sum_first) {
        EXPECT_OK(add(w, sum));
    }
    EXPECT_OK(ncclGroupEnd());
}

// ---- Held up ------------------------------------------------------------------------------------

static void CUDART_CB wait_for_flag(void *flag)
{
    while (static_cast<std::atomic<int> *>(flag)->load() == 0) {
        poll(nullptr, 0, 1);
    }
}

// The input is written on `before`, behind what holds it up; the sum is on `sum`, the result is
// looked at on `after`. None but the group orders the three.
static void hold_up(work *w, enum kind kind, bool sum_first, int before, int sum, int after)
{
    std::atomic<int> flag(0);
    cudaStream_t *stream = w->stream;
    EXPECT_CUDA(cudaLaunchHostFunc(stream[before], wait_for_flag, &flag));
    put<<<1, 64, 0, stream[before]>>>(w->data, w->m.rank, w->round);
    group(w, kind, sum_first, stream[sum], stream[before == sum ? after : before]);
    judge<<<1, 64, 0, stream[after]>>>(w->sum, w->m.size, w->round, w->wrong);
    poll(nullptr, 0, 5);
    EXPECT_EQ(cudaStreamQuery(stream[sum]), cudaErrorNotReady);
    EXPECT_EQ(cudaStreamQuery(stream[after]), cudaErrorNotReady);
    flag.store(1);
    EXPECT_CUDA(cudaStreamSynchronize(stream[after]));
}

static void held_up_ranks(int rank, int size)
{
    work w;
    if (!open_work(&w, rank, size)) {
        return;
    }
    for (int kind = 0; kind < KINDS; kind++) {
        for (int first = 0; first < 2; first++) {
            hold_up(&w, (enum kind)kind, first, 0, 1, 1); // work before, on the other stream
            hold_up(&w, (enum kind)kind, first, 0, 0, 1); // work after, on the other stream
            hold_up(&w, (enum kind)kind, first, 0, 1, 0); // both
        }
    }
    close_work(&w, KINDS * 2 * 3);
}

static void held_up(void)
{
    run_both(3, held_up_ranks);
}

// ---- Any streams --------------------------------------------------------------------------------

// Rounds without a pause, each rank's on streams of its own choice, the NULL stream among them; a
// second communicator with streams in another order in the same groups.
static void any_streams_ranks(int rank, int size)
{
    enum { ROUNDS = 60 };
    work w, other;
    unsigned seed = (unsigned)rank + 7;
    if (!open_work(&w, rank, size) || !open_work(&other, rank, size)) {
        return;
    }
    cudaStream_t stream[STREAMS + 1] = {w.stream[0], w.stream[1], w.stream[2], nullptr};
    int before = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int sum = rand_r(&seed) % (STREAMS + 1), after = rand_r(&seed) % (STREAMS + 1);
        put<<<1, 64, 0, stream[before]>>>(w.data, rank, w.round);
        put<<<1, 64, 0, stream[before]>>>(other.data, rank, other.round);
        EXPECT_OK(ncclGroupStart());
        other_operation(&w, COLLECTIVE, stream[before]);
        other_operation(&other, COLLECTIVE, stream[after]);
        EXPECT_OK(add(&w, stream[sum]));
        EXPECT_OK(add(&other, stream[before]));
        other_operation(&w, MESSAGES, stream[after]);
        EXPECT_OK(ncclGroupEnd());
        judge<<<1, 64, 0, stream[after]>>>(w.sum, size, w.round, w.wrong);
        judge<<<1, 64, 0, stream[after]>>>(other.sum, size, other.round, other.wrong);
        before = after;
    }
    EXPECT_CUDA(cudaDeviceSynchronize());
    close_work(&w, ROUNDS);
    close_work(&other, ROUNDS);
}

static void any_streams(void)
{
    run_both(3, any_streams_ranks);
}

// ---- Graphs -------------------------------------------------------------------------------------

// What comes next on `after` waits for what is on `before`.
static void join(cudaStream_t before, cudaStream_t after)
{
    cudaEvent_t event;
    EXPECT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    EXPECT_CUDA(cudaEventRecord(event, before));
    EXPECT_CUDA(cudaStreamWaitEvent(after, event, 0));
    EXPECT_CUDA(cudaEventDestroy(event));
}

// A long chain of kernels on a stream, so that what does not wait for it comes too early.
static void delay(work *w, cudaStream_t stream)
{
    for (int i = 0; i < 20; i++) {
        EXPECT_CUDA(cudaMemsetAsync(w->data, i, COUNT * sizeof(int), stream));
    }
}

// Two captured streams: the input comes on the second, the sum is on the first, and is looked at on
// the second; then the other way round.
static void capture(work *w, enum kind kind)
{
    cudaStream_t *stream = w->stream;
    EXPECT_CUDA(cudaStreamBeginCapture(stream[0], cudaStreamCaptureModeThreadLocal));
    join(stream[0], stream[1]);
    for (int i = 0; i < 2; i++) {
        delay(w, stream[1 - i]);
        put<<<1, 64, 0, stream[1 - i]>>>(w->data, w->m.rank, w->round);
        group(w, kind, i == 0, stream[i], stream[1 - i]);
        judge<<<1, 64, 0, stream[1 - i]>>>(w->sum, w->m.size, w->round, w->wrong);
        join(stream[1 - i], stream[i]); // the next round's input
    }
    join(stream[1], stream[0]);
}

// The graph has an edge on every way from the second stream's work to the sum and back.
static void replay_ranks(int rank, int size)
{
    enum { LAUNCHES = 8 };
    work w;
    if (!open_work(&w, rank, size)) {
        return;
    }
    for (int kind = 0; kind < KINDS; kind++) {
        cudaGraph_t graph;
        cudaGraphExec_t ready;
        capture(&w, (enum kind)kind);
        if (!EXPECT_CUDA(cudaStreamEndCapture(w.stream[0], &graph))) {
            break;
        }
        EXPECT_CUDA(cudaGraphInstantiate(&ready, graph, 0));
        for (int i = 0; i < LAUNCHES; i++) {
            EXPECT_CUDA(cudaGraphLaunch(ready, w.stream[0]));
        }
        EXPECT_CUDA(cudaStreamSynchronize(w.stream[0]));
        EXPECT_CUDA(cudaGraphExecDestroy(ready));
        EXPECT_CUDA(cudaGraphDestroy(graph));
    }
    close_work(&w, KINDS * LAUNCHES * 2);
}

static void graphs(void)
{
    run_both(3, replay_ranks);
}

// One stream is captured, the other is not: nothing of the group runs, and nothing is lost.
static void half_captured_ranks(int rank, int size)
{
    work w;
    cudaGraph_t graph;
    size_t nodes = 99;
    if (!open_work(&w, rank, size)) {
        return;
    }
    cudaStream_t *stream = w.stream;
    for (int kind = 0; kind < KINDS; kind++) {
        EXPECT_CUDA(cudaStreamBeginCapture(stream[0], cudaStreamCaptureModeThreadLocal));
        EXPECT_OK(ncclGroupStart());
        EXPECT_OK(add(&w, stream[kind % 2]));
        other_operation(&w, (enum kind)kind, stream[1 - kind % 2]);
        EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
        EXPECT_CONTAINS(ncclGetLastError(w.m.comm), "of one group: one is captured into a graph");
        EXPECT_CUDA(cudaStreamEndCapture(stream[0], &graph));
        EXPECT_CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
        EXPECT_EQ(nodes, 0);
        EXPECT_CUDA(cudaGraphDestroy(graph));
        EXPECT_CUDA(cudaStreamQuery(stream[1]));
    }
    hold_up(&w, COLLECTIVE, true, 0, 1, 0);
    close_work(&w, 1);
}

static void half_captured(void)
{
    run_both(2, half_captured_ranks);
}

// ---- Waits in a circle --------------------------------------------------------------------------

// Rank 0's work for `other` waits, on the first stream, for the group's last operation on the
// second, which rank 1 calls behind its own work for `other`.
static void circle_ranks(int rank, int size)
{
    work w, other;
    if (!open_work(&w, rank, size) || !open_work(&other, rank, size)) {
        return;
    }
    if (rank == 0) {
        EXPECT_OK(ncclGroupStart());
        other_operation(&w, COLLECTIVE, w.stream[0]);
        EXPECT_OK(add(&w, w.stream[1]));
        EXPECT_OK(ncclGroupEnd());
        EXPECT_OK(add(&other, w.stream[0]));
    } else {
        other_operation(&w, COLLECTIVE, w.stream[0]);
        EXPECT_CUDA(cudaStreamSynchronize(w.stream[0])); // what the next one is behind is looked at
        EXPECT_OK(add(&other, w.stream[0]));
        EXPECT_OK(add(&w, w.stream[0]));
    }
    EXPECT_CUDA(cudaStreamSynchronize(w.stream[0]));
    EXPECT_CUDA(cudaStreamSynchronize(w.stream[1]));
    for (ncclComm_t comm : {w.m.comm, other.m.comm}) {
        ncclResult_t state = ncclSuccess;
        EXPECT_OK(ncclCommGetAsyncError(comm, &state));
        EXPECT_EQ(state, ncclInvalidUsage);
        EXPECT_CONTAINS(ncclGetLastError(comm), "ranks wait for each other in a circle");
        EXPECT_OK(ncclCommAbort(comm));
    }
    for (work *each : {&w, &other}) {
        EXPECT_CUDA(cudaFree(each->data));
        EXPECT_CUDA(cudaFree(each->sum));
        EXPECT_CUDA(cudaFree(each->round));
    }
}

static void circle(void)
{
    run_thread_ranks(2, circle_ranks, 20);
}

int main(void)
{
    RUN(held_up);
    RUN(any_streams);
    RUN(graphs);
    RUN(half_captured);
    RUN(circle);
    return expect_result();
}
