// Groups in which a send reads what an earlier receive of the same group writes: the data goes on,
// as if the calls were made one after the other. Where that cannot be, nobody hangs.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

enum { MOST = 1 << 16, CHAIN = 40000 };

static int element(int rank, int i)
{
    return (int)(mix_bits((uint64_t)rank << 32 ^ (uint64_t)i) >> 33);
}

// An all-gather in log2(size) rounds of one group, each of which sends on what the rounds before
// brought. COUNT elements of each rank.
static void gather_in_rounds(struct member *m, int *parts, size_t count)
{
    EXPECT_OK(ncclGroupStart());
    for (int mask = 1; mask < m->size; mask <<= 1) {
        size_t mine = (size_t)(m->rank & ~(mask - 1)), theirs = mine ^ (size_t)mask;
        int peer = m->rank ^ mask;
        size_t all = count * (size_t)mask;
        EXPECT_OK(ncclSend(parts + mine * count, all, ncclInt, peer, m->comm, m->stream));
        EXPECT_OK(ncclRecv(parts + theirs * count, all, ncclInt, peer, m->comm, m->stream));
    }
    EXPECT_OK(ncclGroupEnd());
}

// What the parts are before: the rank's own, and nothing else.
static void fill_parts(const struct member *m, int *parts, int *host, size_t count)
{
    memset(host, 0xff, (size_t)m->size * count * sizeof *host);
    for (size_t i = 0; i < count; i++) {
        host[(size_t)m->rank * count + i] = element(m->rank, (int)i);
    }
    EXPECT_CUDA(cudaMemcpyAsync(parts, host, (size_t)m->size * count * sizeof *host,
                                cudaMemcpyDefault, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
}

static void check_parts(const struct member *m, const int *parts, int *host, size_t count)
{
    size_t wrong = 0;
    EXPECT_CUDA(cudaMemcpyAsync(host, parts, (size_t)m->size * count * sizeof *host,
                                cudaMemcpyDefault, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    for (size_t i = 0; i < (size_t)m->size * count; i++) {
        wrong += host[i] != element((int)(i / count), (int)(i % count));
    }
    EXPECT_EQ(wrong, 0);
}

// Small ones travel in the offers, large ones are copied in pieces; then as a graph.
static void rounds(int rank, int size)
{
    static const size_t counts[] = {1, 3, 1000, MOST};
    struct member m;
    struct area area;
    cudaGraph_t graph;
    cudaGraphExec_t run;
    if (!join_with_area(&m, &area, rank, size, (size_t)size * MOST * sizeof(int))) {
        return;
    }
    int *parts = (int *)(void *)area.memory, *host = malloc(area.bytes);
    for (int i = 0; i < 4; i++) {
        fill_parts(&m, parts, host, counts[i]);
        gather_in_rounds(&m, parts, counts[i]);
        check_parts(&m, parts, host, counts[i]);
    }
    EXPECT_CUDA(cudaStreamBeginCapture(m.stream, cudaStreamCaptureModeThreadLocal));
    gather_in_rounds(&m, parts, 1000);
    EXPECT_CUDA(cudaStreamEndCapture(m.stream, &graph));
    EXPECT_CUDA(cudaGraphInstantiate(&run, graph, 0));
    for (int i = 0; i < 2; i++) {
        fill_parts(&m, parts, host, 1000);
        EXPECT_CUDA(cudaGraphLaunch(run, m.stream));
        check_parts(&m, parts, host, 1000);
    }
    EXPECT_CUDA(cudaGraphExecDestroy(run));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    free(host);
    leave_with_area(&m, &area);
}

static void hypercube(void)
{
    run_thread_ranks(8, rounds, 60);
    run_processes(4, rounds, 60);
}

// From rank to rank, on each through a message to itself, all in one group; receives to oneself are
// called before their sends.
static void hand_on(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, 3 * CHAIN * sizeof(int))) {
        return;
    }
    int *in = (int *)(void *)area.memory, *own = in + CHAIN, *out = own + CHAIN;
    int *host = calloc(CHAIN, sizeof *host);
    for (int i = 0; i < CHAIN && rank == 0; i++) {
        host[i] = element(7, i);
    }
    EXPECT_CUDA(cudaMemsetAsync(area.memory, 0, area.bytes, m.stream));
    EXPECT_CUDA(cudaMemcpyAsync(in, host, CHAIN * sizeof *host, cudaMemcpyDefault, m.stream));
    EXPECT_OK(ncclGroupStart());
    if (rank > 0) {
        EXPECT_OK(ncclRecv(in, CHAIN, ncclInt, rank - 1, m.comm, m.stream));
    }
    EXPECT_OK(ncclRecv(own, CHAIN, ncclInt, rank, m.comm, m.stream));
    EXPECT_OK(ncclSend(in, CHAIN, ncclInt, rank, m.comm, m.stream));
    EXPECT_OK(ncclSend(own, CHAIN, ncclInt, rank, m.comm, m.stream));
    EXPECT_OK(ncclRecv(out, CHAIN, ncclInt, rank, m.comm, m.stream));
    if (rank + 1 < size) {
        EXPECT_OK(ncclSend(out, CHAIN, ncclInt, rank + 1, m.comm, m.stream));
    }
    EXPECT_OK(ncclGroupEnd());
    EXPECT_CUDA(cudaMemcpyAsync(host, out, CHAIN * sizeof *host, cudaMemcpyDefault, m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    int wrong = 0;
    for (int i = 0; i < CHAIN; i++) {
        wrong += host[i] != element(7, i);
    }
    EXPECT_EQ(wrong, 0);
    free(host);
    leave_with_area(&m, &area);
}

static void chain(void)
{
    run_thread_ranks(1, hand_on, 30);
    run_thread_ranks(5, hand_on, 30);
    run_processes(3, hand_on, 30);
}

// Each rank receives into the buffer that it then sends: around, and between two; and to itself,
// crosswise. What arrives is undefined, but all ends, and the next group is right.
static inline void around(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, (size_t)size * CHAIN * sizeof(int))) {
        return;
    }
    int *memory = (int *)(void *)area.memory, *host = malloc(area.bytes);
    char *bytes = area.memory;
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    for (int i = 0; i < 3; i++) {
        size_t count = i == 0 ? 4 : CHAIN;
        EXPECT_OK(ncclGroupStart());
        EXPECT_OK(ncclRecv(memory, count, ncclInt, left, m.comm, m.stream));
        EXPECT_OK(ncclSend(memory, count, ncclInt, right, m.comm, m.stream));
        EXPECT_OK(ncclRecv(bytes, count, ncclChar, rank, m.comm, m.stream));
        EXPECT_OK(ncclRecv(bytes + count, count, ncclChar, rank, m.comm, m.stream));
        EXPECT_OK(ncclSend(bytes + count, count, ncclChar, rank, m.comm, m.stream));
        EXPECT_OK(ncclSend(bytes, count, ncclChar, rank, m.comm, m.stream));
        EXPECT_OK(ncclGroupEnd());
        EXPECT_EQ(wait_within(&m, 5), ncclSuccess);
    }
    fill_parts(&m, memory, host, 1000);
    gather_in_rounds(&m, memory, 1000);
    check_parts(&m, memory, host, 1000);
    free(host);
    leave_with_area(&m, &area);
}

static void circles(void)
{
#ifdef __SANITIZE_THREAD__
    SKIP("the ranks of a circle read and write one buffer at once, as the sanitizer says");
#else
    run_thread_ranks(2, around, 60);
    run_thread_ranks(8, around, 60);
    run_processes(4, around, 60);
#endif
}

int main(void)
{
    RUN(hypercube);
    RUN(chain);
    RUN(circles);
    return expect_result();
}
