// SPDX-License-Identifier: Apache-2.0
// Lesson 06: the eight collectives, every number printed.
//
// Four ranks. Before each operation rank r has the numbers r0, r1, r2, r3 (rank 2: 20 21 22 23), so
// that each number afterwards tells whose it was and where it lay. Sums are sums of such numbers.
// Each operation is done twice: from one buffer into another, and in place.
#include "lesson.h"

#include <cuda_runtime.h>
#include <nccl.h>
#include <string.h>

enum { RANKS = 4, ROOT = 1, NUMBERS = RANKS * RANKS };

enum operation {
    BROADCAST,
    REDUCE,
    ALL_REDUCE,
    GATHER,
    SCATTER,
    REDUCE_SCATTER,
    ALL_GATHER,
    ALL_TO_ALL,
    OPERATIONS
};

// What a rank brings and gets, in numbers; in place: where the own part lies in the larger buffer.
struct shape {
    const char *title;
    int sends, gets;
    bool root_alone_gets;
    bool has_in_place;
};

static const struct shape shapes[OPERATIONS] = {
    {"broadcast from rank 1", RANKS, RANKS, false, true},
    {"reduce (sum) to rank 1", RANKS, RANKS, true, true},
    {"all-reduce (sum)", RANKS, RANKS, false, true},
    {"gather to rank 1", 1, RANKS, true, true},
    {"scatter from rank 1", RANKS, 1, false, true},
    {"reduce-scatter (sum)", RANKS, 1, false, true},
    {"all-gather", 1, RANKS, false, true},
    {"all-to-all", RANKS, RANKS, false, false},
};

struct rank {
    ncclComm_t comm;
    cudaStream_t stream;
    int *send, *recv; // device memory, [NUMBERS] each
};

static ncclResult_t call(enum operation operation, const struct rank *r, const int *send, int *recv)
{
    switch (operation) {
    case BROADCAST:
        return ncclBroadcast(send, recv, RANKS, ncclInt, ROOT, r->comm, r->stream);
    case REDUCE:
        return ncclReduce(send, recv, RANKS, ncclInt, ncclSum, ROOT, r->comm, r->stream);
    case ALL_REDUCE:
        return ncclAllReduce(send, recv, RANKS, ncclInt, ncclSum, r->comm, r->stream);
    case GATHER: // from here on the count is that of one rank's part
        return ncclGather(send, recv, 1, ncclInt, ROOT, r->comm, r->stream);
    case SCATTER:
        return ncclScatter(send, recv, 1, ncclInt, ROOT, r->comm, r->stream);
    case REDUCE_SCATTER:
        return ncclReduceScatter(send, recv, 1, ncclInt, ncclSum, r->comm, r->stream);
    case ALL_GATHER:
        return ncclAllGather(send, recv, 1, ncclInt, r->comm, r->stream);
    default:
        return ncclAlltoAll(send, recv, 1, ncclInt, r->comm, r->stream);
    }
}

// What rank `rank` must have at place i.
static int expected(enum operation operation, int rank, int i)
{
    switch (operation) {
    case BROADCAST:
        return 10 * ROOT + i;
    case SCATTER:
        return 10 * ROOT + rank;
    case REDUCE_SCATTER:
        return 60 + 4 * rank;
    case GATHER:
    case ALL_GATHER:
        return 10 * i;
    case ALL_TO_ALL:
        return 10 * i + rank;
    default: // 0i + 1i + 2i + 3i
        return 60 + 4 * i;
    }
}

// Prints the numbers of all ranks, one line for each rank.
static void print(const struct lesson_rank *self, const int *before, int sends, const int *after,
                  int gets)
{
    int all[RANKS][2 * RANKS] = {{0}};
    int *shared = (int *)lesson_share(self, sizeof all);
    memcpy(shared + (size_t)self->rank * 2 * RANKS, before, RANKS * sizeof(int));
    memcpy(shared + (size_t)self->rank * 2 * RANKS + RANKS, after, RANKS * sizeof(int));
    lesson_all(self, true);
    memcpy(all, shared, sizeof all);
    for (int rank = 0; rank < RANKS; rank++) {
        lesson_say(self, "  rank %d  ", rank);
        for (int i = 0; i < RANKS; i++) {
            lesson_say(self, i < sends ? " %3d" : "    ", all[rank][i]);
        }
        lesson_say(self, "   ->");
        for (int i = 0; i < gets && all[rank][RANKS + i] >= 0; i++) {
            lesson_say(self, " %3d", all[rank][RANKS + i]);
        }
        lesson_say(self, "\n");
    }
    lesson_unshare(self, shared, sizeof all);
}

// One operation, from one buffer into another or in place. after: [RANKS] what this rank got, -1:
// nothing.
static void run(const struct lesson_rank *self, const struct rank *r, enum operation operation,
                bool in_place, int *before, int *after)
{
    const struct shape *shape = &shapes[operation];
    const int nothing[NUMBERS] = {-1, -1, -1, -1};
    const int *send = r->send;
    int *recv = r->recv;
    if (in_place && shape->gets < shape->sends) { // (reduce-)scatter: the own part of the input
        recv = r->send + self->rank;
    } else if (in_place) { // (all-)gather: the own part of the output; else the same buffer
        send = recv + (shape->sends < shape->gets ? self->rank : 0);
    }
    for (int i = 0; i < RANKS; i++) {
        before[i] = 10 * self->rank + i;
    }
    CHECK_CUDA(cudaMemcpy(r->recv, nothing, RANKS * sizeof(int), cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy((void *)send, before, (size_t)shape->sends * sizeof(int),
                          cudaMemcpyHostToDevice));
    CHECK_NCCL(call(operation, r, send, recv));
    CHECK_CUDA(cudaStreamSynchronize(r->stream));
    CHECK_CUDA(cudaMemcpy(after, recv, (size_t)shape->gets * sizeof(int), cudaMemcpyDeviceToHost));
    if (shape->root_alone_gets && self->rank != ROOT) {
        after[0] = -1; // in place its input is still there
    }
}

static bool check(const struct lesson_rank *self, enum operation operation, const int *after)
{
    const struct shape *shape = &shapes[operation];
    for (int i = 0; i < shape->gets; i++) {
        if (after[i] != expected(operation, self->rank, i) &&
            !(shape->root_alone_gets && self->rank != ROOT)) {
            printf("rank %d: %s: number %d is %d, should be %d\n", self->rank, shape->title, i,
                   after[i], expected(operation, self->rank, i));
            return false;
        }
    }
    return true;
}

static bool run_rank(const struct lesson_rank *self)
{
    struct rank r;
    ncclUniqueId id;
    int before[RANKS], after[RANKS] = {0}, again[RANKS] = {0};
    bool right = true;

    // Step 1: a communicator of four ranks, and two buffers on each.
    CHECK_CUDA(cudaSetDevice(self->device));
    if (self->rank == 0) {
        CHECK_NCCL(ncclGetUniqueId(&id));
    }
    lesson_broadcast(self, &id, sizeof id);
    CHECK_NCCL(ncclCommInitRank(&r.comm, self->ranks, id, self->rank));
    CHECK_CUDA(cudaStreamCreate(&r.stream));
    CHECK_CUDA(cudaMalloc((void **)&r.send, NUMBERS * sizeof(int)));
    CHECK_CUDA(cudaMalloc((void **)&r.recv, NUMBERS * sizeof(int)));

    // Step 2: each operation, and once more in place, which must give the same.
    for (int i = 0; i < OPERATIONS; i++) {
        enum operation operation = (enum operation)i;
        const struct shape *shape = &shapes[i];
        lesson_say(self, "%s\n", shape->title);
        run(self, &r, operation, false, before, after);
        print(self, before, shape->sends, after, shape->gets);
        bool good = check(self, operation, after);
        if (shape->has_in_place) {
            run(self, &r, operation, true, before, again);
            good = check(self, operation, again) && good;
        }
        lesson_say(self, shape->has_in_place ? "  in place: the same\n" : "  no in-place form\n");
        right = lesson_all(self, good) && right;
    }

    // Step 3: give everything back.
    CHECK_CUDA(cudaFree(r.send));
    CHECK_CUDA(cudaFree(r.recv));
    CHECK_CUDA(cudaStreamDestroy(r.stream));
    CHECK_NCCL(ncclCommDestroy(r.comm));
    return lesson_report(self, right);
}

int main(int argc, char **argv)
{
    struct lesson_options defaults = {RANKS, 1, 1, 0, LESSON_FLOAT, 1, RANKS, 0};
    return lesson_run(argc, argv, "Lesson 06: the eight collectives", &defaults, run_rank);
}
