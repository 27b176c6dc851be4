// tuttiAllReduceRMSNorm in graphs: replayed in turn with plain calls; captured by ranks that share
// a stream; captured calls that differ.
// SPDX-License-Identifier: Apache-2.0
#include "fused.h"
#include "ranks.h"

static void replay(int rank, int size)
{
    struct member m;
    cudaGraph_t graph;
    cudaGraphExec_t instance;
    if (!join(&m, rank, size)) {
        return;
    }
    // A plain call first and one last: both kinds take turns.
    for (int round = 0; round < 5; round++) {
        fill(&m, round, m.stream);
        if (round == 1) {
            EXPECT_CUDA(cudaStreamBeginCapture(m.stream, cudaStreamCaptureModeThreadLocal));
            EXPECT_OK(call(&m, m.stream));
            EXPECT_CUDA(cudaStreamEndCapture(m.stream, &graph));
            EXPECT_CUDA(cudaGraphInstantiateWithFlags(&instance, graph, 0));
            EXPECT_CUDA(cudaGraphUpload(instance, m.stream));
            EXPECT_CUDA(cudaStreamSynchronize(m.stream));
        }
        ranks_barrier(); // making graphs may wait for what runs, also for kernels of other ranks
        if (round == 0 || round == 4) {
            EXPECT_OK(call(&m, m.stream));
        } else {
            EXPECT_CUDA(cudaGraphLaunch(instance, m.stream));
        }
        check(&m, round, m.stream);
        ranks_barrier();
    }
    EXPECT_CUDA(cudaGraphExecDestroy(instance));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    member_leave(&m);
}

// With the executor of real GPUs the kernels of the ranks would wait for each other in the stream.
static void one_stream_in_a_graph(void)
{
    struct member all[2];
    cudaGraph_t graph;
    cudaGraphExec_t instance;
    if (join_all(all, 2)) {
        EXPECT_CUDA(cudaStreamBeginCapture(all[0].stream, cudaStreamCaptureModeThreadLocal));
        EXPECT_OK(ncclGroupStart());
        for (int r = 0; r < 2; r++) {
            EXPECT_OK(call(&all[r], all[0].stream));
        }
        EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 0 has captured the same call on the same "
                                                "stream");
        EXPECT_CUDA(cudaStreamEndCapture(all[0].stream, &graph));
        EXPECT_CUDA(cudaGraphInstantiateWithFlags(&instance, graph, 0));
        EXPECT_CUDA(cudaGraphLaunch(instance, all[0].stream)); // the failure ends it
        EXPECT_CUDA(cudaStreamSynchronize(all[0].stream));
        EXPECT_CUDA(cudaGraphExecDestroy(instance));
        EXPECT_CUDA(cudaGraphDestroy(graph));
    }
    for (int r = 0; r < 2; r++) {
        EXPECT_EQ(member_state(&all[r]), ncclInvalidUsage);
        EXPECT_OK(ncclCommAbort(all[r].comm));
        EXPECT_OK(ncclMemFree(all[r].memory));
        EXPECT_CUDA(cudaStreamDestroy(all[r].stream));
    }
}

static void graphs(void)
{
    run_thread_ranks(2, replay, 60);
    run_thread_ranks(4, replay, 60);
    run_ranks(2, replay, 60);
}

static ncclResult_t call_with_eps(const struct member *m, float eps)
{
    struct tuttiRMSNormOptions options = TUTTI_RMSNORM_OPTIONS_INITIALIZER;
    options.eps = eps;
    return tuttiAllReduceRMSNorm(m->memory, m->memory + bytes, TOKENS, HIDDEN, &options, ncclFloat,
                                 m->comm, m->stream);
}

// The first captured calls agree, of the second ones that of the last rank differs.
static void differ_in_a_graph(int rank, int size)
{
    struct member m;
    cudaGraph_t graph;
    cudaGraphExec_t instance;
    if (!join(&m, rank, size)) {
        return;
    }
    EXPECT_CUDA(cudaStreamBeginCapture(m.stream, cudaStreamCaptureModeThreadLocal));
    EXPECT_OK(call_with_eps(&m, 0.5f));
    ranks_barrier(); // who finds the difference fails the communicator
    (void)call_with_eps(&m, rank == size - 1 ? 0.25f : 0.5f);
    EXPECT_CUDA(cudaStreamEndCapture(m.stream, &graph));
    EXPECT_CUDA(cudaGraphInstantiateWithFlags(&instance, graph, 0));
    ranks_barrier();
    EXPECT_CUDA(cudaGraphLaunch(instance, m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    EXPECT_EQ(await_error(&m), ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "differs: eps is 0.5 here and 0.25 there");
    ranks_barrier();
    EXPECT_CUDA(cudaGraphExecDestroy(instance));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    end(&m);
}

static void captured_calls_that_differ(void)
{
    run_thread_ranks(3, differ_in_a_graph, 60);
    run_ranks(2, differ_in_a_graph, 60);
}

int main(void)
{
    RUN(graphs);
    RUN(captured_calls_that_differ);
    if (possible_ways() == WAYS) {
        RUN(one_stream_in_a_graph);
    }
    return expect_result();
}
