// Stream order: kernel, collective, kernel without a synchronise; calls that return while earlier
// work is queued; graphs that are replayed; several communicators and streams at once.
// SPDX-License-Identifier: Apache-2.0
#include "../support/member.h"
#include "../support/stopwatch.h"

#include <atomic>
#include <poll.h>
#include <vector>

enum { COUNT = 20000, ROUNDS = 30 };

#include "rounds.cuh"

struct work {
    member m;
    int *data, *sum, *round, *wrong;
};

static bool open_work(work *w, int rank, int size)
{
    if (!member_join(&w->m, rank, size)) {
        return false;
    }
    EXPECT_CUDA(cudaMalloc((void **)&w->data, COUNT * sizeof(int)));
    EXPECT_CUDA(cudaMalloc((void **)&w->sum, COUNT * sizeof(int)));
    EXPECT_CUDA(cudaMalloc((void **)&w->round, 2 * sizeof(int)));
    w->wrong = w->round + 1;
    return EXPECT_CUDA(cudaMemset(w->round, 0, 2 * sizeof(int)));
}

// What the kernels found, after `rounds`; then everything goes.
static void close_work(work *w, int rounds)
{
    int found[2] = {-1, -1};
    EXPECT_CUDA(cudaStreamSynchronize(w->m.stream));
    EXPECT_CUDA(cudaMemcpy(found, w->round, sizeof found, cudaMemcpyDeviceToHost));
    EXPECT_EQ(found[0], rounds);
    EXPECT_EQ(found[1], 0);
    EXPECT_CUDA(cudaFree(w->data));
    EXPECT_CUDA(cudaFree(w->sum));
    EXPECT_CUDA(cudaFree(w->round));
    member_leave(&w->m);
}

static void enqueue(work *w, cudaStream_t stream)
{
    put<<<3, 64, 0, stream>>>(w->data, w->m.rank, w->round);
    EXPECT_OK(ncclAllReduce(w->data, w->sum, COUNT, ncclInt, ncclSum, w->m.comm, stream));
    judge<<<1, 64, 0, stream>>>(w->sum, w->m.size, w->round, w->wrong);
}

static void between_kernels(int rank, int size)
{
    work w;
    if (!open_work(&w, rank, size)) {
        return;
    }
    for (int i = 0; i < ROUNDS; i++) {
        enqueue(&w, w.m.stream);
    }
    close_work(&w, ROUNDS);
}

static void kernels_around(void)
{
    run_thread_ranks(4, between_kernels, 60);
#ifndef __SANITIZE_THREAD__ // which does not see other processes
    run_ranks(4, between_kernels, 60);
#endif
}

// ---- Calls only enqueue
// --------------------------------------------------------------------------

static void CUDART_CB wait_for_flag(void *flag)
{
    while (static_cast<std::atomic<int> *>(flag)->load() == 0) {
        poll(nullptr, 0, 1);
    }
}

static void return_early(int rank, int size)
{
    work w;
    std::atomic<int> flag(0);
    if (!open_work(&w, rank, size)) {
        return;
    }
    EXPECT_CUDA(cudaLaunchHostFunc(w.m.stream, wait_for_flag, &flag));
    struct stopwatch watch = stopwatch_start();
    for (int i = 0; i < ROUNDS; i++) {
        enqueue(&w, w.m.stream);
    }
    EXPECT_WITHIN(watch, 5);
    EXPECT_EQ(cudaStreamQuery(w.m.stream), cudaErrorNotReady);
    flag.store(1);
    close_work(&w, ROUNDS);
}

static void calls_return(void)
{
    run_thread_ranks(3, return_early, 60);
#ifndef __SANITIZE_THREAD__
    run_ranks(3, return_early, 60);
#endif
}

// ---- C46: graphs (nccl#1679)
// ---------------------------------------------------------------------

// kernels: around the collective; without them the graph holds it alone.
static void replay(int rank, int size, bool kernels)
{
    work w;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    size_t nodes = 0;
    if (!open_work(&w, rank, size)) {
        return;
    }
    cudaStream_t stream = w.m.stream;
    EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    if (kernels) {
        enqueue(&w, stream);
    } else {
        EXPECT_OK(ncclAllReduce(w.data, w.sum, COUNT, ncclInt, ncclSum, w.m.comm, stream));
    }
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
    EXPECT_CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
    EXPECT(nodes >= (kernels ? 3u : 1u));
    EXPECT_CUDA(cudaGraphInstantiate(&ready, graph, 0));
    for (int i = 0; i < 10; i++) {
        if (!kernels) {
            put<<<3, 64, 0, stream>>>(w.data, rank, w.round);
        }
        EXPECT_CUDA(cudaGraphLaunch(ready, stream));
        if (!kernels) {
            judge<<<1, 64, 0, stream>>>(w.sum, size, w.round, w.wrong);
        }
        if (i % 3 == 2) { // one that is not of the graph, in between
            enqueue(&w, stream);
        }
    }
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_CUDA(cudaGraphExecDestroy(ready));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    close_work(&w, 13);
}

static void replay_all(int rank, int size)
{
    replay(rank, size, true);
    ranks_barrier();
    replay(rank, size, false);
}

static void graphs(void)
{
    run_thread_ranks(3, replay_all, 60);
#ifndef __SANITIZE_THREAD__
    run_ranks(3, replay_all, 60);
#endif
}

// ---- Streams and communicators
// -------------------------------------------------------------------

// One communicator, calls in two streams in turn and in the NULL stream; events order them. Another
// communicator of the same ranks, in the other order of ranks, in a stream of its own meanwhile.
static void two_streams(int rank, int size)
{
    work w, other;
    cudaStream_t stream[2];
    cudaEvent_t event;
    if (!open_work(&w, rank, size) || !open_work(&other, rank, size)) {
        return;
    }
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream[0], cudaStreamNonBlocking));
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream[1], cudaStreamNonBlocking));
    EXPECT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (int i = 0; i < ROUNDS; i++) {
        cudaStream_t now = i % 3 == 2 ? nullptr : stream[i % 3];
        EXPECT_CUDA(cudaStreamWaitEvent(now, event, 0));
        enqueue(&w, now);
        EXPECT_CUDA(cudaEventRecord(event, now));
        enqueue(&other, other.m.stream);
    }
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_CUDA(cudaEventDestroy(event));
    EXPECT_CUDA(cudaStreamDestroy(stream[0]));
    EXPECT_CUDA(cudaStreamDestroy(stream[1]));
    close_work(&w, ROUNDS);
    close_work(&other, ROUNDS);
}

static void several_streams(void)
{
    run_thread_ranks(4, two_streams, 60);
#ifndef __SANITIZE_THREAD__
    run_ranks(4, two_streams, 60);
#endif
}

// Two streams of one communicator without any order between them: calls have the order in which
// they were made, on all ranks, also where a stream is held up on some.
static void unordered(int rank, int size)
{
    work w[2];
    std::atomic<int> flag(0);
    if (!open_work(&w[0], rank, size) || !open_work(&w[1], rank, size)) {
        return;
    }
    ncclComm_t own = w[1].m.comm;
    w[1].m.comm = w[0].m.comm;
    if (rank == 0) { // its first stream goes on later
        EXPECT_CUDA(cudaLaunchHostFunc(w[0].m.stream, wait_for_flag, &flag));
    }
    for (int i = 0; i < ROUNDS; i++) {
        enqueue(&w[i % 2], w[i % 2].m.stream);
    }
    poll(nullptr, 0, 20);
    flag.store(1);
    EXPECT_CUDA(cudaStreamSynchronize(w[0].m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(w[1].m.stream));
    w[1].m.comm = own;
    close_work(&w[0], ROUNDS / 2);
    close_work(&w[1], ROUNDS / 2);
}

static void streams_without_order(void)
{
    run_thread_ranks(3, unordered, 60);
#ifndef __SANITIZE_THREAD__
    run_ranks(3, unordered, 60);
#endif
}

int main(void)
{
    RUN(kernels_around);
    RUN(calls_return);
    RUN(graphs);
    RUN(several_streams);
    RUN(streams_without_order);
    return expect_result();
}
