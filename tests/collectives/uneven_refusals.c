// What the uneven forms refuse: arguments, parts that overlap where they are written, and ranks
// whose calls or counts do not fit together, which is an error on all ranks within a second that
// names both values.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <stdio.h>
#include <tutti.h>

enum { RANKS = 3, ODD = 1, WORDS = 64, MOST_S = 1 };

// ---- Ranks that do not fit together -------------------------------------------------------------

enum fault {
    ALL_GATHER_COUNTS,
    REDUCE_SCATTER_COUNTS,
    REDUCE_SCATTER_OPERATOR,
    ALL_TO_ALL_PAIR,
    GATHER_COUNT,
    SCATTER_COUNT,
    GATHER_ROOT,
    GATHER_TYPE,
    EVEN_AND_UNEVEN,
    FAULTS
};

// What every rank's message must contain.
static const char *const texts[FAULTS][2] = {
    [ALL_GATHER_COUNTS] =
        {"AllGatherV(int32) #2 on ",
         "the count of rank 1 is 0 on rank 0, as on 2 of 3 ranks, and 6 on rank 1"},
    [REDUCE_SCATTER_COUNTS] =
        {"ReduceScatterV(int32, sum) #2 on ",
         "the count of rank 2 is 3 on rank 0, as on 2 of 3 ranks, and 4 on rank 1"},
    [REDUCE_SCATTER_OPERATOR] = {"sum", "max"},
    [ALL_TO_ALL_PAIR] = {"AlltoAllV(int32) #2 on ",
                         "rank 1 sends 5 elements to rank 2, which expects 3"},
    [GATHER_COUNT] = {"int32, root 0) #2 on ",
                      "rank 1 sends 2 elements to rank 0, which expects 0"},
    [SCATTER_COUNT] = {"int32, root 0) #2 on ",
                       "rank 0 sends 0 elements to rank 1, which expects 7"},
    [GATHER_ROOT] = {"root 0", "root 1"},
    [GATHER_TYPE] = {"int32", "float32"},
    [EVEN_AND_UNEVEN] = {"AllGatherV(", "AllGather(count 4"},
};

// counts: {2, 0, 3}; the odd rank changes something.
static ncclResult_t call_fault(enum fault fault, struct member *m, int *send, int *recv)
{
    bool odd = m->rank == ODD;
    size_t counts[RANKS] = {2, 0, 3}, own = counts[m->rank], sends[RANKS], gets[RANKS];
    ncclDataType_t type = odd && fault == GATHER_TYPE ? ncclFloat32 : ncclInt32;
    switch (fault) {
    case EVEN_AND_UNEVEN:
        if (odd) {
            return ncclAllGather(send, recv, 4, type, m->comm, m->stream);
        }
        return tuttiAllGatherV(send, own, recv, counts, NULL, type, m->comm, m->stream);
    case ALL_GATHER_COUNTS:
        counts[1] = odd ? 6 : 0;
        return tuttiAllGatherV(send, counts[m->rank], recv, counts, NULL, type, m->comm, m->stream);
    case REDUCE_SCATTER_COUNTS:
        counts[2] = odd ? 4 : 3;
        return tuttiReduceScatterV(send, recv, counts, type, ncclSum, m->comm, m->stream);
    case REDUCE_SCATTER_OPERATOR:
        return tuttiReduceScatterV(send, recv, counts, type, odd ? ncclMax : ncclSum, m->comm,
                                   m->stream);
    case ALL_TO_ALL_PAIR:
        for (int r = 0; r < RANKS; r++) {
            sends[r] = odd && r == 2 ? 5 : counts[r];
            gets[r] = own;
        }
        return tuttiAllToAllV(send, sends, NULL, recv, gets, NULL, type, m->comm, m->stream);
    case SCATTER_COUNT:
        return tuttiScatterV(send, counts, NULL, recv, odd ? 7 : own, type, 0, m->comm, m->stream);
    default:
        own = fault == GATHER_COUNT && odd ? 2 : own;
        return tuttiGatherV(send, own, recv, counts, NULL, type, fault == GATHER_ROOT && odd,
                            m->comm, m->stream);
    }
}

static void disagree(int rank, int size)
{
    int *memory = NULL;
    for (enum fault fault = 0; fault < FAULTS; fault++) {
        struct member m;
        if (!member_join(&m, rank, size) ||
            !EXPECT_CUDA(cudaMalloc((void **)&memory, 2 * WORDS * sizeof(int)))) {
            return;
        }
        size_t counts[RANKS] = {2, 0, 3};
        int *recv = memory + WORDS, before = expect_failures();
        EXPECT_CUDA(cudaMemset(memory, 0x11, 2 * WORDS * sizeof(int)));
        EXPECT_OK(
            tuttiAllGatherV(memory, counts[rank], recv, counts, NULL, ncclInt32, m.comm, m.stream));
        EXPECT_CUDA(cudaStreamSynchronize(m.stream));
        EXPECT_CUDA(cudaMemset(recv, 0x22, WORDS * sizeof(int)));
        ranks_barrier();
        struct stopwatch watch = stopwatch_start();
        EXPECT_OK(call_fault(fault, &m, memory, recv));
        EXPECT_EQ(wait_within(&m, MOST_S), ncclInvalidUsage);
        EXPECT_WITHIN(watch, MOST_S);
        EXPECT_CONTAINS(ncclGetLastError(m.comm), texts[fault][0]);
        EXPECT_CONTAINS(ncclGetLastError(m.comm), texts[fault][1]);
        int seen[WORDS];
        EXPECT_CUDA(cudaMemcpy(seen, recv, sizeof seen, cudaMemcpyDefault));
        for (int i = 0; i < WORDS; i++) { // nothing was moved
            EXPECT_EQ(seen[i], 0x22222222);
        }
        if (expect_failures() > before) {
            fprintf(stderr, "  (fault %d)\n", (int)fault);
        }
        ranks_barrier();
        EXPECT_OK(ncclCommAbort(m.comm));
        m.comm = NULL;
        EXPECT_CUDA(cudaFree(memory));
        member_leave(&m);
    }
}

static void ranks_that_disagree(void)
{
    run_thread_ranks(RANKS, disagree, 60);
    run_processes(RANKS, disagree, 60);
}

// ---- Arguments ----------------------------------------------------------------------------------

#define REFUSED(text, call)                                                                        \
    do {                                                                                           \
        EXPECT_EQ((call), ncclInvalidArgument);                                                    \
        EXPECT_CONTAINS(ncclGetLastError(m->comm), text);                                          \
    } while (0)

// Rank 0 of two alone calls: none of it reaches the other.
static void refuse_values(struct member *m, int *send, int *recv)
{
    const size_t counts[] = {2, 3}, far[] = {0, SIZE_MAX / 8}, huge[] = {2, SIZE_MAX / 4},
                 others[] = {5, 3};
    int *last = (int *)(UINTPTR_MAX & ~(uintptr_t)15); // 15 bytes have addresses from here on
    ncclComm_t comm = m->comm;
    cudaStream_t stream = m->stream;
    const ncclDataType_t type = ncclInt32;
    REFUSED("recvcounts is NULL, must be 2 counts",
            tuttiAllGatherV(send, 2, recv, NULL, NULL, type, comm, stream));
    REFUSED("recvcounts is NULL",
            tuttiReduceScatterV(send, recv, NULL, type, ncclSum, comm, stream));
    REFUSED("sendcounts is NULL",
            tuttiAllToAllV(send, NULL, NULL, recv, counts, NULL, type, comm, stream));
    REFUSED("recvcounts is NULL",
            tuttiAllToAllV(send, counts, NULL, recv, NULL, NULL, type, comm, stream));
    REFUSED("recvcounts is NULL", tuttiGatherV(send, 2, recv, NULL, NULL, type, 0, comm, stream));
    REFUSED("sendcounts is NULL", tuttiScatterV(send, NULL, NULL, recv, 2, type, 0, comm, stream));
    REFUSED("sendbuff is NULL", tuttiAllGatherV(NULL, 2, recv, counts, NULL, type, comm, stream));
    REFUSED("recvbuff is NULL", tuttiAllGatherV(send, 2, NULL, counts, NULL, type, comm, stream));
    REFUSED("sendcount is 1, but recvcounts[0] is 2",
            tuttiAllGatherV(send, 1, recv, counts, NULL, type, comm, stream));
    REFUSED("sendcount is 1, but recvcounts[0] is 2",
            tuttiGatherV(send, 1, recv, counts, NULL, type, 0, comm, stream));
    REFUSED("sendcounts[0] is 2, but recvcount is 3",
            tuttiScatterV(send, counts, NULL, recv, 3, type, 0, comm, stream));
    REFUSED("sendcounts[0] is 2, but recvcounts[0] is 5",
            tuttiAllToAllV(send, counts, NULL, recv, others, NULL, type, comm, stream));
    REFUSED("root is 2, must be 0 to 1",
            tuttiGatherV(send, 2, recv, counts, NULL, type, 2, comm, stream));
    REFUSED("root is -1", tuttiScatterV(send, counts, NULL, recv, 2, type, -1, comm, stream));
    REFUSED("datatype is 99",
            tuttiAllGatherV(send, 2, recv, counts, NULL, (ncclDataType_t)99, comm, stream));
    REFUSED("op is 77",
            tuttiReduceScatterV(send, recv, counts, type, (ncclRedOp_t)77, comm, stream));
    REFUSED("recvcounts[1] is 3, from element 2305843009213693951 on",
            tuttiAllGatherV(send, 2, recv, counts, far, type, comm, stream));
    REFUSED("recvcounts[1] is 4611686018427387903",
            tuttiReduceScatterV(send, recv, huge, type, ncclSum, comm, stream));
    REFUSED("recvbuff is 0xfffffffffffffff0, from where on 20 bytes are more than there are",
            tuttiAllGatherV(send, 2, last, counts, NULL, type, comm, stream));
    REFUSED("sendbuff is 0xfffffffffffffff0, from where on 16 bytes",
            tuttiGatherV(last, 4, recv, counts, NULL, type, 1, comm, stream));
    REFUSED("sendbuff is 0xfffffffffffffff0, from where on 20 bytes",
            tuttiAllToAllV(last, counts, NULL, recv, counts, NULL, type, comm, stream));
    REFUSED("count is 18446744073709551615",
            tuttiGatherV(send, SIZE_MAX, recv, counts, NULL, type, 1, comm, stream));
    EXPECT_EQ(tuttiAllGatherV(send, 2, recv, counts, NULL, type, NULL, stream),
              ncclInvalidArgument);
}

static void refuse_overlaps(struct member *m, int *send, int *recv)
{
    const size_t counts[] = {2, 3}, clash[] = {3, 1}, apart[] = {3, 0};
    ncclComm_t comm = m->comm;
    cudaStream_t stream = m->stream;
    const ncclDataType_t type = ncclInt32;
    REFUSED("in recvbuff, 2 elements from 3 on of rank 0 overlap 3 elements from 1 on of rank 1",
            tuttiAllGatherV(send, 2, recv, counts, clash, type, comm, stream));
    REFUSED("where ranks write must be apart",
            tuttiAllToAllV(send, counts, clash, recv, counts, clash, type, comm, stream));
    REFUSED("where ranks write must be apart",
            tuttiGatherV(send, 2, recv, counts, clash, type, 0, comm, stream));
    REFUSED("there is no in-place form",
            tuttiAllToAllV(recv, counts, NULL, recv, counts, NULL, type, comm, stream));
    REFUSED("sendbuff and recvbuff overlap", // it is in place where the other's part belongs
            tuttiAllGatherV(recv, 2, recv, counts, apart, type, comm, stream));
    REFUSED("sendbuff and recvbuff overlap",
            tuttiReduceScatterV(send, send + 1, counts, type, ncclSum, comm, stream));
    REFUSED("sendbuff and recvbuff overlap",
            tuttiScatterV(send, counts, NULL, send + 2, 2, type, 0, comm, stream));
    REFUSED("sendbuff and recvbuff overlap",
            tuttiGatherV(recv + 1, 2, recv, counts, apart, type, 0, comm, stream));
}

// Parts that are only read may overlap; what has no elements lies nowhere.
static void allowed(struct member *m, int *send, int *recv)
{
    const size_t counts[] = {2, 2}, same[] = {0, 0}, none[] = {0, 0}, far[] = {SIZE_MAX, SIZE_MAX};
    const ncclDataType_t type = ncclInt32;
    EXPECT_OK(tuttiAllToAllV(send, counts, same, recv, counts, NULL, type, m->comm, m->stream));
    EXPECT_OK(tuttiScatterV(send, counts, same, recv, 2, type, 1, m->comm, m->stream));
    EXPECT_OK(tuttiAllToAllV(NULL, none, far, NULL, none, far, type, m->comm, m->stream));
    EXPECT_OK(tuttiAllGatherV(NULL, 0, NULL, none, NULL, type, m->comm, m->stream));
    EXPECT_OK(tuttiReduceScatterV(NULL, NULL, none, type, ncclSum, m->comm, m->stream));
    EXPECT_OK(tuttiGatherV(NULL, 0, NULL, none, NULL, type, 1, m->comm, m->stream));
    EXPECT_OK(tuttiScatterV(NULL, none, NULL, NULL, 0, type, 0, m->comm, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    EXPECT_EQ(member_state(m), ncclSuccess);
}

static void refuse(int rank, int size)
{
    struct member m;
    int *memory = NULL;
    if (!member_join(&m, rank, size) ||
        !EXPECT_CUDA(cudaMalloc((void **)&memory, 2 * WORDS * sizeof(int)))) {
        return;
    }
    if (rank == 0) {
        refuse_values(&m, memory, memory + WORDS);
        refuse_overlaps(&m, memory, memory + WORDS);
    }
    allowed(&m, memory, memory + WORDS);
    ranks_barrier();
    EXPECT_CUDA(cudaFree(memory));
    member_leave(&m);
}

static void arguments(void)
{
    run_thread_ranks(2, refuse, 30);
}

int main(void)
{
    RUN(ranks_that_disagree);
    RUN(arguments);
    return expect_result();
}
