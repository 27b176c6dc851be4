// SPDX-License-Identifier: Apache-2.0
// Lesson 07: one thread, four devices.
//
// A thread that serves several ranks makes their calls one after the other. Between ncclGroupStart
// and ncclGroupEnd the calls are only collected; at the end all of them begin at once, so that none
// waits for one that this thread has yet to make.
//   all-reduce   one call for each rank, in a group
//   ring         each rank sends to the next and receives from the one before, in a group: a send
//                and a receive go on side by side
//   no group     the same ring without: each rank's send comes before its receive, in the order of
//                its stream, and every send waits for a receive. A circle: an error names it.
#include "lesson.h"

#include <cuda_runtime.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

// A message of more than a pair's buffers hold, so that a send must wait for its receive.
enum { RANKS = 4, NUMBERS = 1 << 20 };

struct all {
    ncclComm_t comm[RANKS];
    cudaStream_t stream[RANKS];
    int *send[RANKS], *recv[RANKS]; // [NUMBERS]
};

// Rank r's numbers are all r + 1.
static void open_all(struct all *all)
{
    // One call for all ranks of a process: device r is rank r. (It is a group itself, of
    // ncclCommInitRank.)
    CHECK_NCCL(ncclCommInitAll(all->comm, RANKS, NULL));
    int *numbers = (int *)malloc(NUMBERS * sizeof(int));
    for (int rank = 0; rank < RANKS; rank++) {
        CHECK_CUDA(cudaSetDevice(rank));
        CHECK_CUDA(cudaStreamCreate(&all->stream[rank]));
        CHECK_CUDA(cudaMalloc((void **)&all->send[rank], NUMBERS * sizeof(int)));
        CHECK_CUDA(cudaMalloc((void **)&all->recv[rank], NUMBERS * sizeof(int)));
        for (int i = 0; i < NUMBERS; i++) {
            numbers[i] = rank + 1;
        }
        CHECK_CUDA(
            cudaMemcpy(all->send[rank], numbers, NUMBERS * sizeof(int), cudaMemcpyHostToDevice));
    }
    free(numbers);
}

static void close_all(struct all *all, bool has_failed)
{
    for (int rank = 0; rank < RANKS; rank++) {
        CHECK_CUDA(cudaSetDevice(rank));
        // A communicator that has failed can only be aborted.
        CHECK_NCCL(has_failed ? ncclCommAbort(all->comm[rank]) : ncclCommDestroy(all->comm[rank]));
        CHECK_CUDA(cudaFree(all->send[rank]));
        CHECK_CUDA(cudaFree(all->recv[rank]));
        CHECK_CUDA(cudaStreamDestroy(all->stream[rank]));
    }
}

// Waits for all, then whether every number of every rank is what it should be.
static bool check(const struct all *all, const int *expected)
{
    int *numbers = (int *)malloc(NUMBERS * sizeof(int));
    bool right = true;
    for (int rank = 0; rank < RANKS; rank++) {
        CHECK_CUDA(cudaStreamSynchronize(all->stream[rank]));
        CHECK_CUDA(
            cudaMemcpy(numbers, all->recv[rank], NUMBERS * sizeof(int), cudaMemcpyDeviceToHost));
        for (int i = 0; i < NUMBERS && right; i++) {
            right = numbers[i] == expected[rank];
            if (!right) {
                printf("rank %d: number %d is %d, should be %d\n", rank, i, numbers[i],
                       expected[rank]);
            }
        }
        printf("  rank %d: %d\n", rank, numbers[0]);
    }
    free(numbers);
    return right;
}

// Step 1: a collective. The calls' arguments are checked at once; nothing runs before the end.
static bool all_reduce(const struct all *all)
{
    const int expected[RANKS] = {10, 10, 10, 10};
    printf("all-reduce, in a group\n");
    CHECK_NCCL(ncclGroupStart());
    for (int rank = 0; rank < RANKS; rank++) {
        CHECK_NCCL(ncclAllReduce(all->send[rank], all->recv[rank], NUMBERS, ncclInt, ncclSum,
                                 all->comm[rank], all->stream[rank]));
    }
    CHECK_NCCL(ncclGroupEnd());
    return check(all, expected);
}

// Each rank's part of the ring.
static ncclResult_t send_and_receive(const struct all *all, int rank)
{
    ncclResult_t result = ncclSend(all->send[rank], NUMBERS, ncclInt, (rank + 1) % RANKS,
                                   all->comm[rank], all->stream[rank]);
    return result != ncclSuccess
               ? result
               : ncclRecv(all->recv[rank], NUMBERS, ncclInt, (rank + RANKS - 1) % RANKS,
                          all->comm[rank], all->stream[rank]);
}

// Step 2: messages. In one group a send and a receive have no order.
static bool ring(const struct all *all)
{
    const int expected[RANKS] = {4, 1, 2, 3};
    printf("ring, in a group\n");
    CHECK_NCCL(ncclGroupStart());
    for (int rank = 0; rank < RANKS; rank++) {
        CHECK_NCCL(send_and_receive(all, rank));
    }
    CHECK_NCCL(ncclGroupEnd());
    return check(all, expected);
}

// Step 3: the same without. The calls return, as what they enqueue has not run; rank 0's send waits
// for rank 1's receive, which its stream holds behind its own send, and so on round the ring.
// NCCL waits for good; tutti finds the circle and ends the communicators with an error.
static bool no_group(const struct all *all)
{
    printf("ring, without a group\n");
    ncclResult_t state = ncclSuccess;
    for (int rank = 0; rank < RANKS && state == ncclSuccess; rank++) {
        state = send_and_receive(all, rank);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        (void)cudaStreamSynchronize(all->stream[rank]);
        CHECK_NCCL(ncclCommGetAsyncError(all->comm[rank], &state));
        bool is_named = strstr(ncclGetLastError(all->comm[rank]), "circle") != NULL;
        printf("  rank %d: %s%s\n", rank, ncclGetErrorString(state),
               is_named ? ", in a circle" : "");
        if (state != ncclInvalidUsage || !is_named) {
            printf("  rank %d: %s\n", rank, ncclGetLastError(all->comm[rank]));
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    struct all all;
    if (argc > 1) {
        bool asks = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
        if (!asks) {
            fprintf(stderr, "%s: what is that?\n", argv[1]);
        }
        fprintf(asks ? stdout : stderr, "usage: groups   (no options)\n");
        return asks ? 0 : 1;
    }
    int devices = 0;
    printf("Lesson 07: one thread, four devices\n");
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < RANKS) {
        printf("REFUSED: this lesson needs %d GPUs, there are %d\n", RANKS, devices);
        return 1;
    }
    open_all(&all);
    bool right = all_reduce(&all) && ring(&all);
    bool is_found = right && no_group(&all);
    close_all(&all, true);
    printf(is_found ? "SUCCESS: Example completed successfully!\n" : "FAILED\n");
    return is_found ? 0 : 1;
}
