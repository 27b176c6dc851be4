// One-sided calls between kernels of a stream: what a kernel wrote is put, what was put is read by
// a kernel, without a synchronise; collectives in between; the same as a graph.
// SPDX-License-Identifier: Apache-2.0
#include "../support/member.h"

enum { COUNT = 20000, ROUNDS = 30 };

__global__ void make(int *to, int rank, const int *round)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < COUNT; i += gridDim.x * blockDim.x) {
        to[i] = (rank + 1) * (i % 997) + *round;
    }
}

// Counts elements that are not what rank `from` made in this round.
__global__ void judge(const int *got, int from, const int *round, int *wrong)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < COUNT; i += gridDim.x * blockDim.x) {
        if (got[i] != (from + 1) * (i % 997) + *round) {
            atomicAdd(wrong, 1);
        }
    }
}

__global__ void next_round(int *round)
{
    ++*round;
}

struct work {
    member m;
    int *in, *out, *round, *wrong, *sum;
};

static bool open_work(work *w, int rank, int size)
{
    if (!member_join(&w->m, rank, size) || !member_open_window(&w->m, 2 * COUNT * sizeof(int))) {
        return false;
    }
    w->in = (int *)w->m.memory;
    w->out = w->in + COUNT;
    EXPECT_CUDA(cudaMalloc((void **)&w->round, 3 * sizeof(int)));
    w->wrong = w->round + 1;
    w->sum = w->round + 2;
    return EXPECT_CUDA(cudaMemset(w->round, 0, 3 * sizeof(int)));
}

static void close_work(work *w, int rounds)
{
    int found[3] = {-1, -1, -1};
    EXPECT_CUDA(cudaStreamSynchronize(w->m.stream));
    EXPECT_CUDA(cudaMemcpy(found, w->round, sizeof found, cudaMemcpyDeviceToHost));
    EXPECT_EQ(found[0], rounds);
    EXPECT_EQ(found[1], 0);
    EXPECT_EQ(found[2], 0);
    EXPECT_OK(member_state(&w->m));
    EXPECT_CUDA(cudaFree(w->round));
    member_leave(&w->m);
}

// A kernel makes what goes to the next rank; one judges what came; then all add up what was wrong,
// and the sender hears that its place is free.
static void enqueue(work *w)
{
    member *m = &w->m;
    int next = (m->rank + 1) % m->size, before = (m->rank + m->size - 1) % m->size;
    ncclWaitSignalDesc_t came = {1, before, 0, 0}, is_free = {1, next, 0, 0};
    EXPECT_OK(ncclSignal(before, 0, 0, 0, m->comm, m->stream));
    make<<<3, 64, 0, m->stream>>>(w->out, m->rank, w->round);
    EXPECT_OK(ncclWaitSignal(1, &is_free, m->comm, m->stream));
    EXPECT_OK(
        ncclPutSignal(w->out, COUNT, ncclInt, next, m->window, 0, 0, 0, 0, m->comm, m->stream));
    EXPECT_OK(ncclWaitSignal(1, &came, m->comm, m->stream));
    judge<<<2, 64, 0, m->stream>>>(w->in, before, w->round, w->wrong);
    EXPECT_OK(ncclAllReduce(w->wrong, w->sum, 1, ncclInt, ncclSum, m->comm, m->stream));
    next_round<<<1, 1, 0, m->stream>>>(w->round);
}

static void between_kernels(int rank, int size)
{
    work w;
    if (!open_work(&w, rank, size)) {
        return;
    }
    for (int i = 0; i < ROUNDS; i++) {
        enqueue(&w);
    }
    close_work(&w, ROUNDS);
}

static void in_a_graph(int rank, int size)
{
    work w;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    if (!open_work(&w, rank, size)) {
        return;
    }
    EXPECT_CUDA(cudaStreamBeginCapture(w.m.stream, cudaStreamCaptureModeThreadLocal));
    enqueue(&w);
    enqueue(&w);
    EXPECT_CUDA(cudaStreamEndCapture(w.m.stream, &graph));
    EXPECT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < ROUNDS; i++) {
        EXPECT_CUDA(cudaGraphLaunch(exec, w.m.stream));
        if (i % 2 == 0) {
            enqueue(&w);
        }
    }
    EXPECT_CUDA(cudaStreamSynchronize(w.m.stream));
    EXPECT_CUDA(cudaGraphExecDestroy(exec));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    close_work(&w, 2 * ROUNDS + ROUNDS / 2);
}

static void kernels_around(void)
{
    run_thread_ranks(1, between_kernels, 60);
    run_thread_ranks(3, between_kernels, 60);
#ifndef __SANITIZE_THREAD__ // which does not see other processes
    run_ranks(3, between_kernels, 60);
#endif
}

static void graphs(void)
{
    run_thread_ranks(3, in_a_graph, 60);
#ifndef __SANITIZE_THREAD__
    run_ranks(2, in_a_graph, 60);
#endif
}

int main()
{
    RUN(kernels_around);
    RUN(graphs);
    return expect_result();
}
