// The ways that messages go: to oneself, out of memory that other processes cannot reach, in
// graphs, on several streams, beside collectives; and what does not fit together.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <stdio.h>

enum { BYTES = 4 << 20, COUNT = 300000 };

static int value(int from, int to, int number, int i)
{
    return (int)(mix_bits((uint64_t)(from * 64 + to) << 40 ^ (uint64_t)(number * 1048576 + i)) >>
                 33);
}

static void fill(int *host, int from, int to, int number, int count)
{
    for (int i = 0; i < count; i++) {
        host[i] = value(from, to, number, i);
    }
}

static int wrong_in(const int *host, int from, int to, int number, int count)
{
    int wrong = 0;
    for (int i = 0; i < count; i++) {
        wrong += host[i] != value(from, to, number, i);
    }
    return wrong;
}

static void abort_and_leave(struct member *m, struct area *area)
{
    ranks_barrier();
    EXPECT_OK(ncclCommAbort(m->comm));
    m->comm = NULL;
    leave_with_area(m, area);
}

// ---- To oneself ---------------------------------------------------------------------------------

static void to_oneself(int rank, int size)
{
    struct member m;
    struct area area;
    int *host = malloc(COUNT * sizeof *host);
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    int *send = (int *)(void *)area.memory, *recv = send + COUNT;
    EXPECT_EQ(ncclSend(send, 5, ncclInt, rank, m.comm, m.stream), ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "the group has no receive");
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclRecv(recv, 5, ncclInt, rank, m.comm, m.stream));
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "Recv(count 5, int32, from rank");
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "the group has no send");
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclRecv(recv, 5, ncclInt, rank, m.comm, m.stream));
    EXPECT_OK(ncclSend(send, 6, ncclInt, rank, m.comm, m.stream));
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "count 6");
    // Errors of a call are no end of the communicator.
    fill(host, rank, rank, 0, COUNT);
    EXPECT_CUDA(cudaMemcpyAsync(send, host, COUNT * sizeof *host, cudaMemcpyDefault, m.stream));
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclSend(send, COUNT, ncclInt, rank, m.comm, m.stream));
    EXPECT_OK(ncclSend(send, 0, ncclInt, rank, m.comm, m.stream));
    EXPECT_OK(ncclRecv(recv, COUNT, ncclInt, rank, m.comm, m.stream));
    EXPECT_OK(ncclRecv(recv, 0, ncclInt, rank, m.comm, m.stream));
    EXPECT_OK(ncclGroupEnd());
    memset(host, 0, COUNT * sizeof *host);
    EXPECT_CUDA(cudaMemcpyAsync(host, recv, COUNT * sizeof *host, cudaMemcpyDefault, m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    EXPECT_EQ(wrong_in(host, rank, rank, 0, COUNT), 0);
    free(host);
    leave_with_area(&m, &area);
}

static void oneself(void)
{
    run_thread_ranks(1, to_oneself, 30);
    run_thread_ranks(3, to_oneself, 30);
    run_processes(2, to_oneself, 30);
}

// ---- Memory of both kinds -----------------------------------------------------------------------

// Both directions at once, from and to memory of each kind; host memory of another process can be
// reached by nobody.
static void all_kinds(int rank, int size)
{
    struct member m;
    struct area area;
    int *host[2] = {malloc(COUNT * sizeof(int)), malloc(COUNT * sizeof(int))};
    int *check = malloc(COUNT * sizeof *check);
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    int *device[2] = {(int *)(void *)area.memory, (int *)(void *)area.memory + COUNT};
    int other = 1 - rank;
    for (int kinds = 0; kinds < 8; kinds++) {
        // Bits: from host memory, to host memory, the other rank the other way.
        bool flip = (kinds & 4) != 0 && rank == 1;
        int *send = ((kinds & 1) != 0) != flip ? host[0] : device[0];
        int *recv = ((kinds & 2) != 0) != flip ? host[1] : device[1];
        fill(check, rank, other, kinds, COUNT);
        EXPECT_CUDA(cudaMemcpy(send, check, COUNT * sizeof(int), cudaMemcpyDefault));
        memset(recv, 0, COUNT * sizeof(int)); // virtual devices' memory is the program's as well
        EXPECT_OK(ncclGroupStart());
        EXPECT_OK(ncclSend(send, COUNT - 7, ncclInt, other, m.comm, m.stream));
        EXPECT_OK(ncclRecv(recv, COUNT - 7, ncclInt, other, m.comm, m.stream));
        EXPECT_OK(ncclSend(send + COUNT - 7, 7, ncclInt, other, m.comm, m.stream));
        EXPECT_OK(ncclRecv(recv + COUNT - 7, 7, ncclInt, other, m.comm, m.stream));
        EXPECT_OK(ncclGroupEnd());
        EXPECT_EQ(wait_within(&m, 10), ncclSuccess);
        EXPECT_CUDA(cudaMemcpy(check, recv, COUNT * sizeof(int), cudaMemcpyDefault));
        EXPECT_EQ(wrong_in(check, other, rank, kinds, COUNT), 0);
    }
    ranks_barrier();
    leave_with_area(&m, &area);
    free(host[0]);
    free(host[1]);
    free(check);
}

static void host_memory(void)
{
    run_thread_ranks(2, all_kinds, 30);
    run_processes(2, all_kinds, 30);
}

// ---- Streams and graphs -------------------------------------------------------------------------

// Around the ring on two streams in one group; then as a graph, launched again and again.
static void two_streams(int rank, int size)
{
    enum { PART = 20000, TIMES = 20 };
    struct member m;
    struct area area;
    cudaStream_t second;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    static _Thread_local int host[PART];
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    int *send = (int *)(void *)area.memory, *recv = send + PART;
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    EXPECT_CUDA(cudaStreamCreate(&second));
    for (int i = 0; i < TIMES; i++) {
        fill(host, rank, next, i, PART);
        EXPECT_CUDA(cudaMemcpyAsync(send, host, sizeof host, cudaMemcpyDefault, m.stream));
        EXPECT_OK(ncclGroupStart());
        EXPECT_OK(ncclSend(send, PART, ncclInt, next, m.comm, m.stream));
        EXPECT_OK(ncclRecv(recv, PART, ncclInt, before, m.comm, second));
        EXPECT_OK(ncclGroupEnd());
        EXPECT_CUDA(cudaMemcpyAsync(host, recv, sizeof host, cudaMemcpyDefault,
                                    i % 2 == 0 ? second : m.stream));
        EXPECT_CUDA(cudaStreamSynchronize(i % 2 == 0 ? second : m.stream));
        EXPECT_EQ(wrong_in(host, before, rank, i, PART), 0);
        EXPECT_CUDA(cudaStreamSynchronize(second));
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    }
    EXPECT_CUDA(cudaStreamBeginCapture(m.stream, cudaStreamCaptureModeThreadLocal));
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclSend(send, PART, ncclInt, next, m.comm, m.stream));
    EXPECT_OK(ncclRecv(recv, PART, ncclInt, before, m.comm, m.stream));
    EXPECT_OK(ncclGroupEnd());
    EXPECT_CUDA(cudaStreamEndCapture(m.stream, &graph));
    EXPECT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < TIMES; i++) {
        fill(host, rank, next, i + 100, PART);
        EXPECT_CUDA(cudaMemcpyAsync(send, host, sizeof host, cudaMemcpyDefault, m.stream));
        EXPECT_CUDA(cudaGraphLaunch(exec, m.stream));
        EXPECT_CUDA(cudaMemcpyAsync(host, recv, sizeof host, cudaMemcpyDefault, m.stream));
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
        EXPECT_EQ(wrong_in(host, before, rank, i + 100, PART), 0);
    }
    // One stream in a graph, the other not.
    EXPECT_CUDA(cudaStreamBeginCapture(m.stream, cudaStreamCaptureModeThreadLocal));
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclSend(send, PART, ncclInt, next, m.comm, m.stream));
    EXPECT_OK(ncclRecv(recv, PART, ncclInt, before, m.comm, second));
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "captured");
    cudaGraph_t empty = NULL;
    EXPECT_CUDA(cudaStreamEndCapture(m.stream, &empty));
    EXPECT_CUDA(cudaGraphDestroy(empty));
    EXPECT_CUDA(cudaGraphExecDestroy(exec));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    EXPECT_CUDA(cudaStreamDestroy(second));
    ranks_barrier();
    leave_with_area(&m, &area);
}

static void streams_and_graphs(void)
{
    run_thread_ranks(3, two_streams, 30);
    run_processes(2, two_streams, 30);
}

// ---- Beside collectives -------------------------------------------------------------------------

// In one group, called in another order on each rank: collectives first, then all messages.
static void mix(int rank, int size)
{
    enum { PART = 5000, TIMES = 10 };
    struct member m;
    struct area area;
    static _Thread_local int host[PART];
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    int *send = (int *)(void *)area.memory, *recv = send + PART, *sum = recv + PART;
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (int i = 0; i < TIMES; i++) {
        fill(host, rank, next, i, PART);
        EXPECT_CUDA(cudaMemcpyAsync(send, host, sizeof host, cudaMemcpyDefault, m.stream));
        EXPECT_OK(ncclGroupStart());
        for (int call = 0; call < 3; call++) {
            switch ((call + rank) % 3) {
            case 0:
                EXPECT_OK(ncclSend(send, PART, ncclInt, next, m.comm, m.stream));
                break;
            case 1:
                EXPECT_OK(ncclRecv(recv, PART, ncclInt, before, m.comm, m.stream));
                break;
            default:
                EXPECT_OK(ncclAllReduce(send, sum, PART, ncclInt, ncclMax, m.comm, m.stream));
            }
        }
        EXPECT_OK(ncclGroupEnd());
        EXPECT_CUDA(cudaMemcpyAsync(host, recv, sizeof host, cudaMemcpyDefault, m.stream));
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
        EXPECT_EQ(wrong_in(host, before, rank, i, PART), 0);
        EXPECT_CUDA(cudaMemcpyAsync(host, sum, sizeof host, cudaMemcpyDefault, m.stream));
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
        int wrong = 0;
        for (int k = 0; k < PART; k++) {
            int most = 0;
            for (int r = 0; r < size; r++) {
                int v = value(r, (r + 1) % size, i, k);
                most = v > most ? v : most;
            }
            wrong += host[k] != most;
        }
        EXPECT_EQ(wrong, 0);
    }
    ranks_barrier();
    leave_with_area(&m, &area);
}

static void beside_collectives(void)
{
    run_thread_ranks(4, mix, 30);
    run_processes(3, mix, 30);
}

// AlltoAll on one rank, the sends and receives that it stands for on the others: NCCL takes that.
static void by_hand(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    int *send = (int *)(void *)area.memory, *recv = send + COUNT;
    ranks_barrier();
    struct stopwatch watch = stopwatch_start();
    if (rank == 0) {
        EXPECT_OK(ncclAlltoAll(send, recv, 1000, ncclInt, m.comm, m.stream));
    } else {
        EXPECT_OK(ncclGroupStart());
        for (int r = 0; r < size; r++) {
            EXPECT_OK(ncclSend(send + 1000 * r, 1000, ncclInt, r, m.comm, m.stream));
            EXPECT_OK(ncclRecv(recv + 1000 * r, 1000, ncclInt, r, m.comm, m.stream));
        }
        EXPECT_OK(ncclGroupEnd());
    }
    EXPECT_EQ(wait_within(&m, 5), ncclInvalidUsage);
    EXPECT_WITHIN(watch, 1);
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "AlltoAll(count 1000, int32)");
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "a collective is not matched by sends and receives");
    abort_and_leave(&m, &area);
}

static void against_collectives(void)
{
    run_thread_ranks(3, by_hand, 30);
    run_processes(3, by_hand, 30);
}

// ---- Circles of more than two -------------------------------------------------------------------

// Everybody sends to the next before receiving from the one before, apart.
static void around(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    int *send = (int *)(void *)area.memory, *recv = send + COUNT;
    ranks_barrier();
    EXPECT_OK(ncclSend(send, COUNT, ncclInt, (rank + 1) % size, m.comm, m.stream));
    (void)ncclRecv(recv, COUNT, ncclInt, (rank + size - 1) % size, m.comm, m.stream);
    EXPECT_EQ(wait_within(&m, 5), ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "in a circle");
    for (int r = 0; r < size; r++) {
        char text[64];
        (void)snprintf(text, sizeof text, "rank %d in Send(count %d", r, COUNT);
        EXPECT_CONTAINS(ncclGetLastError(m.comm), text);
    }
    abort_and_leave(&m, &area);
}

static void circle_of_three(void)
{
    run_thread_ranks(3, around, 30);
    run_processes(3, around, 30);
}

// ---- Partners that leave, or are aborted --------------------------------------------------------

static void wait_in_vain(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    if (rank == 0) {
        EXPECT_OK(ncclRecv(area.memory, 5, ncclInt, 1, m.comm, m.stream));
        ranks_barrier();
        EXPECT_EQ(wait_within(&m, 5), ncclRemoteError);
        EXPECT_CONTAINS(ncclGetLastError(m.comm), "Recv(count 5, int32, from rank 1)");
        EXPECT_CONTAINS(ncclGetLastError(m.comm), "rank 1 has destroyed the communicator");
        EXPECT_OK(ncclCommAbort(m.comm));
        m.comm = NULL;
    } else {
        ranks_barrier();
        EXPECT_OK(ncclCommDestroy(m.comm));
        m.comm = NULL;
    }
    leave_with_area(&m, &area);
}

// Aborted while it sends what nobody takes.
static void give_up(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    if (rank == 0) {
        EXPECT_OK(ncclSend(area.memory, COUNT, ncclInt, 1, m.comm, m.stream));
        struct stopwatch watch = stopwatch_start();
        EXPECT_OK(ncclCommAbort(m.comm));
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
        EXPECT_WITHIN(watch, 2);
        m.comm = NULL;
    }
    if (rank == 0) {
        ranks_barrier();
        leave_with_area(&m, &area);
    } else {
        abort_and_leave(&m, &area);
    }
}

static void partners_that_leave(void)
{
    run_thread_ranks(2, wait_in_vain, 30);
    run_processes(2, wait_in_vain, 30);
    run_thread_ranks(2, give_up, 30);
    run_processes(2, give_up, 30);
}

int main(void)
{
    RUN(partners_that_leave);
    RUN(oneself);
    RUN(host_memory);
    RUN(streams_and_graphs);
    RUN(beside_collectives);
    RUN(against_collectives);
    RUN(circle_of_three);
    return expect_result();
}
