// Point to point: matched in the order of calls for each pair, exact, in groups and apart; sizes
// that differ and waits that nobody ends are named.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <stdio.h>

enum { BYTES = 1 << 20, MOST_RANKS = 65 };

// Element i of message `number` from one rank to another.
static int element(int from, int to, int number, int i)
{
    return (int)(mix_bits((uint64_t)(from * 1000 + to) << 32 ^ (uint64_t)(number * 65536 + i)) >>
                 33);
}

static void abort_and_leave(struct member *m, struct area *area)
{
    ranks_barrier();
    EXPECT_OK(ncclCommAbort(m->comm));
    m->comm = NULL;
    leave_with_area(m, area);
}

// ---- Every rank to every rank
// --------------------------------------------------------------------

// What goes from one rank to another: elements, 0 for an empty message, -1 for none.
typedef int pattern(int from, int to, int size);

static int everybody(int from, int to, int size)
{
    return 1 + (from * size + to) % 97 * 11;
}
static int all_empty(int from, int to, int size)
{
    (void)from, (void)to, (void)size;
    return 0;
}
static int nobody_to_two(int from, int to, int size)
{
    return to == 2 ? 0 : 1 + from + size;
}
static int without_two_and_three(int from, int to, int size)
{
    (void)size;
    return from >= 2 || to >= 2 ? -1 : 5 + from * 2 + to;
}
static int some_none(int from, int to, int size)
{
    return (from + to) % 3 == 0 ? -1 : everybody(from, to, size);
}

static pattern *const patterns[] = {everybody, all_empty, nobody_to_two, without_two_and_three,
                                    some_none};

static void exchange(struct member *m, struct area *area, pattern *how, int number)
{
    enum { PART = 1200 };
    int *send = (int *)(void *)area->memory, *recv = send + (size_t)m->size * PART;
    size_t bytes = (size_t)m->size * PART * sizeof(int);
    int *host = malloc(bytes);
    for (int r = 0; r < m->size; r++) {
        for (int i = 0; i < PART; i++) {
            host[r * PART + i] = element(m->rank, r, number, i);
        }
    }
    EXPECT_CUDA(cudaMemcpyAsync(send, host, bytes, cudaMemcpyDefault, m->stream));
    EXPECT_CUDA(cudaMemsetAsync(recv, 0xa5, bytes, m->stream));
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < m->size; r++) {
        int out = how(m->rank, r, m->size), in = how(r, m->rank, m->size);
        if (out >= 0) {
            EXPECT_OK(ncclSend(send + r * PART, (size_t)out, ncclInt, r, m->comm, m->stream));
        }
        if (in >= 0) {
            EXPECT_OK(ncclRecv(recv + r * PART, (size_t)in, ncclInt, r, m->comm, m->stream));
        }
    }
    EXPECT_OK(ncclGroupEnd());
    EXPECT_CUDA(cudaMemcpyAsync(host, recv, bytes, cudaMemcpyDefault, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    int wrong = 0;
    for (int r = 0; r < m->size; r++) {
        for (int i = 0; i < PART; i++) {
            bool inside = i < how(r, m->rank, m->size);
            wrong +=
                host[r * PART + i] != (inside ? element(r, m->rank, number, i) : (int)0xa5a5a5a5);
        }
    }
    EXPECT_EQ(wrong, 0);
    free(host);
}

// C02: sizes of zero, nobody sends to a rank, ranks without any message (horovod#2259). The good
// forms of C03.
static void all_to_all(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    for (int i = 0; i < 10; i++) {
        exchange(&m, &area, patterns[i % 5], i);
    }
    leave_with_area(&m, &area);
}

static void exchanges(void)
{
    for (int i = 0; i < thread_size_count(); i++) {
        run_thread_ranks(test_sizes[i], all_to_all, 60);
    }
    for (int i = 0; has_processes() && i < process_size_count(); i++) {
        run_ranks(test_sizes[i], all_to_all, 60);
    }
}

// C32: two messages to every rank, oneself too, in one group; matched in the order of calls, with
// sends, receives and ranks in any other order (nccl#1021).
static void two_each(int rank, int size)
{
    static const int lengths[2][2] = {{1, 3}, {5, 2}};
    struct member m;
    struct area area;
    int host[4 * 16], right[4 * 16];
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    int *send = (int *)(void *)area.memory, *recv = send + 4 * 16;
    for (int round = 0; round < 2; round++) {
        memset(right, 0xff, sizeof right);
        for (int r = 0; r < size; r++) {
            for (int i = 0; i < 16; i++) {
                host[r * 16 + i] = element(rank, r, round, i);
                bool first = i < lengths[round][0];
                bool second = i >= 8 && i < 8 + lengths[round][1];
                right[r * 16 + i] = first || second ? element(r, rank, round, i) : -1;
            }
        }
        EXPECT_CUDA(cudaMemcpyAsync(send, host, sizeof host, cudaMemcpyDefault, m.stream));
        EXPECT_CUDA(cudaMemsetAsync(recv, 0xff, sizeof host, m.stream));
        EXPECT_OK(ncclGroupStart());
        for (int k = 0; k < 2; k++) {
            for (int r = 0; r < size; r++) {
                EXPECT_OK(ncclSend(send + r * 16 + 8 * k, (size_t)lengths[round][k], ncclInt, r,
                                   m.comm, m.stream));
            }
        }
        for (int r = size - 1; r >= 0; r--) {
            for (int k = 0; k < 2; k++) {
                EXPECT_OK(ncclRecv(recv + r * 16 + 8 * k, (size_t)lengths[round][k], ncclInt, r,
                                   m.comm, m.stream));
            }
        }
        EXPECT_OK(ncclGroupEnd());
        EXPECT_CUDA(cudaMemcpyAsync(host, recv, sizeof host, cudaMemcpyDefault, m.stream));
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
        EXPECT(memcmp(host, right, (size_t)size * 16 * sizeof(int)) == 0);
    }
    leave_with_area(&m, &area);
}

static void in_order(void)
{
    run_thread_ranks(2, two_each, 30);
    run_thread_ranks(4, two_each, 30);
    run_processes(2, two_each, 30);
    run_processes(4, two_each, 30);
}

// ---- Two ranks
// -----------------------------------------------------------------------------------

// In a group or apart, sending first or receiving first, small and large. Both send first without a
// group (C30, nccl#479): right where the message is buffered, else an error that says so.
static bool swap_apart(struct member *m, struct area *area, size_t bytes, bool grouped,
                       bool send_first)
{
    char *send = area->memory, *recv = area->memory + area->bytes / 2;
    int other = 1 - m->rank;
    unsigned char *host = malloc(bytes);
    memset(host, 'a' + m->rank, bytes);
    EXPECT_CUDA(cudaMemcpyAsync(send, host, bytes, cudaMemcpyDefault, m->stream));
    EXPECT_CUDA(cudaMemsetAsync(recv, 0, bytes, m->stream));
    if (grouped) {
        EXPECT_OK(ncclGroupStart());
    }
    for (int i = 0; i < 2; i++) {
        bool sends = (i == 0) == send_first;
        EXPECT_OK(sends ? ncclSend(send, bytes, ncclChar, other, m->comm, m->stream)
                        : ncclRecv(recv, bytes, ncclChar, other, m->comm, m->stream));
    }
    if (grouped) {
        EXPECT_OK(ncclGroupEnd());
    }
    EXPECT_CUDA(cudaMemcpyAsync(host, recv, bytes, cudaMemcpyDefault, m->stream));
    ncclResult_t state = wait_within(m, 10);
    if (state == ncclSuccess) {
        size_t wrong = 0;
        for (size_t i = 0; i < bytes; i++) {
            wrong += host[i] != 'a' + other;
        }
        EXPECT_EQ(wrong, 0);
    } else {
        EXPECT(!grouped && send_first && bytes > 1000);
        EXPECT_CONTAINS(ncclGetLastError(m->comm), "circle");
        EXPECT_CONTAINS(ncclGetLastError(m->comm), "Send");
    }
    free(host);
    return state == ncclSuccess;
}

static void two(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, 8 << 20)) {
        return;
    }
    static const size_t sizes[] = {1, 33, 4097, 4 << 20};
    bool good = true;
    for (int i = 0; i < 4 && good; i++) {
        good = swap_apart(&m, &area, sizes[i], true, true) &&
               swap_apart(&m, &area, sizes[i], true, false) &&
               swap_apart(&m, &area, sizes[i], true, rank == 0) &&
               swap_apart(&m, &area, sizes[i], false, rank == 0);
    }
    ranks_barrier();
    // One in a group, the other apart, in an order that must work (C31, nccl#1279).
    good = good && swap_apart(&m, &area, 4 << 20, rank == 0, rank == 0);
    EXPECT(good);
    ranks_barrier();
    // Last: it may fail.
    if (swap_apart(&m, &area, 4 << 20, false, true)) {
        leave_with_area(&m, &area);
    } else {
        abort_and_leave(&m, &area);
    }
}

static void two_ranks(void)
{
    run_thread_ranks(2, two, 60);
    run_processes(2, two, 60);
}

// C03: other sizes on both sides (nccl#788).
static void differ(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    exchange(&m, &area, everybody, 0);
    ranks_barrier();
    if (rank == 0) {
        EXPECT_OK(ncclSend(area.memory, 300, ncclFloat, 3, m.comm, m.stream));
    } else if (rank == 3) {
        EXPECT_OK(ncclRecv(area.memory, 400, ncclFloat, 0, m.comm, m.stream));
    }
    struct stopwatch watch = stopwatch_start();
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess && stopwatch_is_within(&watch, 1)) {
        state = member_state(&m);
    }
    EXPECT_EQ(state, ncclInvalidUsage); // on ranks that wait for nothing, too
    (void)wait_within(&m, 1);
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "rank 0");
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "rank 3");
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "300");
    EXPECT_CONTAINS(ncclGetLastError(m.comm), "400");
    abort_and_leave(&m, &area);
}

static void sizes_that_differ(void)
{
    run_thread_ranks(4, differ, 30);
    run_processes(4, differ, 30);
}

// C03: rank 0 does not send what rank 3 waits for; it goes on with the next collective, which the
// others enter too.
static void skip(int rank, int size)
{
    struct member m;
    struct area area;
    if (!join_with_area(&m, &area, rank, size, BYTES)) {
        return;
    }
    ranks_barrier();
    if (rank == 3) {
        EXPECT_OK(ncclRecv(area.memory, 400, ncclFloat, 0, m.comm, m.stream));
    }
    (void)ncclAllReduce(area.memory, area.memory, 8, ncclFloat, ncclSum, m.comm, m.stream);
    EXPECT(wait_within(&m, 6) != ncclSuccess);
    if (rank == 3) {
        EXPECT_CONTAINS(ncclGetLastError(m.comm), "Recv");
        EXPECT_CONTAINS(ncclGetLastError(m.comm), "400");
    }
    abort_and_leave(&m, &area);
}

static void send_that_is_missing(void)
{
    (void)setenv("TUTTI_TIMEOUT", "3", 1);
    run_processes(4, skip, 30);
    (void)unsetenv("TUTTI_TIMEOUT");
}

int main(void)
{
    RUN(exchanges);
    RUN(in_order);
    RUN(two_ranks);
    RUN(sizes_that_differ);
    RUN(send_that_is_missing);
    return expect_result();
}
