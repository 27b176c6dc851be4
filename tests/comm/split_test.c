// Communicators that are split from others: who is in them, what they do, what they are told when
// something is wrong, how they end, before and after their parents. Ranks as threads and as
// processes.
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#include "expect.h"
#include "member.h"
#include "ranks.h"
#include "stopwatch.h"

#include <poll.h>
#include <stdlib.h>

// The sum over the ranks of a communicator of what each gives, through the device.
static bool sum_is(const struct member *m, ncclComm_t comm, float given, float expected)
{
    float *device = NULL, sum = -1;
    EXPECT_CUDA(cudaMalloc((void **)&device, sizeof sum));
    EXPECT_CUDA(cudaMemcpy(device, &given, sizeof given, cudaMemcpyHostToDevice));
    EXPECT_OK(ncclAllReduce(device, device, 1, ncclFloat, ncclSum, comm, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    EXPECT_CUDA(cudaMemcpy(&sum, device, sizeof sum, cudaMemcpyDeviceToHost));
    EXPECT_CUDA(cudaFree(device));
    return EXPECT_NEAR(sum, expected, 0);
}

static void check_place(ncclComm_t comm, int rank, int size)
{
    int answer = -1;
    EXPECT_OK(ncclCommUserRank(comm, &answer));
    EXPECT_EQ(answer, rank);
    EXPECT_OK(ncclCommCount(comm, &answer));
    EXPECT_EQ(answer, size);
}

static ncclResult_t await_state(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress && EXPECT_OK(ncclCommGetAsyncError(comm, &state))) {
        poll(NULL, 0, 1);
    }
    return state;
}

// ---- Who is in them -----------------------------------------------------------------------------

// C52: colours 0, 0, 1, 1, none, ...; reversed keys.
static void colours_of(int rank, int size)
{
    struct member m;
    ncclComm_t child = (ncclComm_t)1;
    int answer = 0;
    if (!member_join(&m, rank, size)) {
        return;
    }
    int color = rank < 4 ? rank / 2 : NCCL_SPLIT_NOCOLOR;
    EXPECT_OK(ncclCommSplit(m.comm, color, -rank, &child, NULL));
    EXPECT_EQ(child == NULL, rank >= 4);
    if (rank < 4 && EXPECT(child != NULL)) {
        check_place(child, 1 - rank % 2, 2);
        sum_is(&m, child, (float)rank, color == 0 ? 0 + 1 : 2 + 3);
        EXPECT_OK(ncclCommDestroy(child));
    } else {
        EXPECT_EQ(ncclCommCount(child, &answer), ncclInvalidArgument);
    }
    sum_is(&m, m.comm, 1, (float)size);
    member_leave(&m);
}

static void colours(void)
{
    run_thread_ranks(8, colours_of, 30);
    run_ranks(8, colours_of, 60);
}

// One colour; keys that are equal leave ranks in their order. A rank's child and its child again.
static void generations_of(int rank, int size)
{
    struct member m;
    ncclComm_t child = NULL, grandchild = NULL;
    if (!member_join(&m, rank, size)) {
        return;
    }
    EXPECT_OK(ncclCommSplit(m.comm, 7, rank < 2 ? 1 : 0, &child, NULL));
    int place = size <= 2 ? rank : rank < 2 ? size - 2 + rank : rank - 2;
    check_place(child, place, size);
    EXPECT_OK(ncclCommSplit(child, place % 2, place, &grandchild, NULL));
    int ranks = (size + 1 - place % 2) / 2;
    check_place(grandchild, place / 2, ranks);
    EXPECT_OK(ncclCommDestroy(m.comm)); // the others need nothing of it
    m.comm = NULL;
    sum_is(&m, child, 1, (float)size);
    EXPECT_OK(ncclCommDestroy(child));
    sum_is(&m, grandchild, 2, 2 * (float)ranks);
    EXPECT_OK(ncclCommDestroy(grandchild));
    member_leave(&m);
}

static void generations(void)
{
    static const int sizes[] = {1, 2, 3, 8};
    for (int i = 0; i < 4; i++) {
        run_thread_ranks(sizes[i], generations_of, 30);
    }
    run_ranks(1, generations_of, 30);
    run_ranks(3, generations_of, 60);
}

// C54: groups {0, 3} and {1, 2} made at the same time; what one does is none of the other's
// business.
static void side_by_side_of(int rank, int size)
{
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    for (int i = 0; i < 100; i++) {
        ncclComm_t child = NULL;
        bool outer = rank == 0 || rank == 3;
        EXPECT_OK(ncclCommSplit(m.comm, outer, rank, &child, NULL));
        for (int k = 0; k < (outer ? 3 : 1); k++) {
            sum_is(&m, child, (float)rank, 3);
        }
        EXPECT_OK(ncclCommDestroy(child));
    }
    member_leave(&m);
}

static void side_by_side(void)
{
    run_thread_ranks(4, side_by_side_of, 60);
    run_ranks(4, side_by_side_of, 60);
}

// ---- What they do -------------------------------------------------------------------------------

// Windows, large messages, and a split while others run: all as in any communicator.
static void work_of(int rank, int size)
{
    enum { COUNT = 100000 };
    struct member m, c;
    int device = 0;
    if (!member_join(&m, rank, size)) {
        return;
    }
    c = m;
    EXPECT_OK(ncclCommSplit(m.comm, rank % 2, rank, &c.comm, NULL));
    EXPECT_OK(ncclCommCuDevice(c.comm, &device));
    EXPECT_EQ(device, m.device);
    int ranks = (size + 1 - rank % 2) / 2, mine = rank / 2;
    member_open_window(&c, COUNT * sizeof(float));
    float *buffer = NULL, *host = calloc(COUNT, sizeof *host);
    for (int i = 0; i < COUNT; i++) {
        host[i] = (float)(mine + i % 100);
    }
    EXPECT_CUDA(cudaMalloc((void **)&buffer, COUNT * sizeof *buffer));
    EXPECT_CUDA(cudaMemcpy(buffer, host, COUNT * sizeof *buffer, cudaMemcpyHostToDevice));
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclSend(buffer, COUNT, ncclFloat, (mine + 1) % ranks, c.comm, m.stream));
    EXPECT_OK(ncclRecv(c.memory, COUNT, ncclFloat, (mine + ranks - 1) % ranks, c.comm, m.stream));
    EXPECT_OK(ncclGroupEnd());
    EXPECT_OK(ncclAllReduce(c.memory, c.memory, COUNT, ncclFloat, ncclSum, c.comm, m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    EXPECT_CUDA(cudaMemcpy(host, c.memory, COUNT * sizeof *host, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        wrong += host[i] != (float)(ranks * (ranks - 1) / 2 + ranks * (i % 100));
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_CUDA(cudaFree(buffer));
    free(host);
    cudaStream_t stream = c.stream;
    EXPECT_OK(ncclCommWindowDeregister(c.comm, c.window));
    EXPECT_OK(ncclMemFree(c.memory));
    EXPECT_OK(ncclCommDestroy(c.comm));
    EXPECT(stream == m.stream);
    member_leave(&m);
}

static void work(void)
{
    run_thread_ranks(5, work_of, 30);
    run_ranks(4, work_of, 60);
}

// C44 (c): a group with an all-reduce on a communicator and a split of it.
static void in_a_group(int rank, int size, int blocking)
{
    struct member m;
    ncclComm_t child[2] = {NULL, NULL};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    float *buffer = NULL, one = 1, sum = 0;
    config.blocking = blocking;
    if (!member_join(&m, rank, size)) {
        return;
    }
    EXPECT_CUDA(cudaMalloc((void **)&buffer, sizeof one));
    EXPECT_CUDA(cudaMemcpy(buffer, &one, sizeof one, cudaMemcpyHostToDevice));
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclAllReduce(buffer, buffer, 1, ncclFloat, ncclSum, m.comm, m.stream));
    EXPECT_OK(ncclCommSplit(m.comm, 0, rank, &child[0], &config));
    EXPECT_OK(ncclCommSplit(m.comm, rank == 0 ? NCCL_SPLIT_NOCOLOR : 3, -rank, &child[1], &config));
    ncclResult_t result = ncclGroupEnd();
    if (blocking != 0) {
        EXPECT_OK(result);
    } else {
        EXPECT(result == ncclSuccess || result == ncclInProgress);
        EXPECT_EQ(await_state(m.comm), ncclSuccess);
        EXPECT_EQ(await_state(child[0]), ncclSuccess);
    }
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    EXPECT_CUDA(cudaMemcpy(&sum, buffer, sizeof sum, cudaMemcpyDeviceToHost));
    EXPECT_NEAR(sum, size, 0);
    sum_is(&m, child[0], 1, (float)size);
    EXPECT_OK(ncclCommDestroy(child[0]));
    EXPECT_EQ(child[1] == NULL, rank == 0);
    if (child[1] != NULL) {
        EXPECT_EQ(await_state(child[1]), ncclSuccess);
        check_place(child[1], size - 1 - rank, size - 1);
        EXPECT_OK(ncclCommDestroy(child[1]));
    }
    EXPECT_CUDA(cudaFree(buffer));
    member_leave(&m);
}

static void blocking_group(int rank, int size)
{
    in_a_group(rank, size, 1);
}

static void nonblocking_group(int rank, int size)
{
    in_a_group(rank, size, 0);
}

static void groups(void)
{
    run_thread_ranks(4, blocking_group, 30);
    run_thread_ranks(4, nonblocking_group, 30);
    run_ranks(3, blocking_group, 60);
    run_ranks(3, nonblocking_group, 60);
}

// One thread that drives all ranks.
static void one_thread(void)
{
    enum { RANKS = 3 };
    ncclComm_t comm[RANKS], child[RANKS];
    EXPECT_OK(ncclCommInitAll(comm, RANKS, NULL));
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(ncclCommSplit(comm[r], 0, -r, &child[r], NULL));
    }
    EXPECT_OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        int device = -1;
        check_place(child[r], RANKS - 1 - r, RANKS);
        EXPECT_OK(ncclCommCuDevice(child[r], &device));
        EXPECT_EQ(device, r);
        EXPECT_OK(ncclCommDestroy(comm[r]));
    }
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(ncclCommDestroy(child[r]));
    }
}

// ---- When something is wrong --------------------------------------------------------------------

#define FAILS(call, code, text)                                                                    \
    do {                                                                                           \
        EXPECT_EQ(call, code);                                                                     \
        EXPECT_CONTAINS(ncclGetLastError(NULL), text);                                             \
    } while (0)

// What one rank gets wrong is told to all, and the communicator works on.
static void wrong_calls_of(int rank, int size)
{
    struct member m;
    ncclComm_t child = (ncclComm_t)1;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (!member_join(&m, rank, size)) {
        return;
    }
    if (rank == 1) {
        FAILS(ncclCommSplit(m.comm, -2, 0, &child, NULL), ncclInvalidArgument,
              "rank 1: color is -2, must be at least 0");
    } else {
        FAILS(ncclCommSplit(m.comm, 0, 0, &child, NULL), ncclRemoteError, "color is -2");
        EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 1");
    }
    EXPECT(child == NULL);
    config.cgaClusterSize = 9;
    if (rank == 0) {
        FAILS(ncclCommSplit(m.comm, 0, 0, &child, &config), ncclInvalidArgument,
              "cgaClusterSize is 9, must be 0 to 8");
        FAILS(ncclCommSplit(m.comm, 0, 0, NULL, NULL), ncclInvalidArgument, "newcomm is NULL");
    } else {
        FAILS(ncclCommSplit(m.comm, 0, 0, &child, NULL), ncclRemoteError, "cgaClusterSize is 9");
        FAILS(ncclCommSplit(m.comm, 0, 0, &child, NULL), ncclRemoteError, "newcomm is NULL");
    }
    // A group that fails before its end takes no part either.
    if (rank == 2) {
        EXPECT_OK(ncclGroupStart());
        EXPECT_OK(ncclCommSplit(m.comm, 0, 0, &child, NULL));
        EXPECT_EQ(ncclAllReduce(NULL, NULL, 1, (ncclDataType_t)99, ncclSum, m.comm, m.stream),
                  ncclInvalidArgument);
        FAILS(ncclGroupEnd(), ncclInvalidArgument, "99");
    } else {
        FAILS(ncclCommSplit(m.comm, 0, 0, &child, NULL), ncclRemoteError, "rank 2");
    }
    EXPECT(child == NULL);
    EXPECT_OK(ncclCommSplit(m.comm, 0, 0, &child, NULL));
    sum_is(&m, child, 1, (float)size);
    EXPECT_OK(ncclCommDestroy(child));
    member_leave(&m);
}

static void wrong_calls(void)
{
    ncclComm_t child = (ncclComm_t)1;
    FAILS(ncclCommSplit(NULL, 0, 0, &child, NULL), ncclInvalidArgument, "comm is NULL");
    EXPECT(child == NULL);
    run_thread_ranks(4, wrong_calls_of, 30);
    run_ranks(3, wrong_calls_of, 60);
}

// A rank does not come: the others wait, and an abort of the child, or of the parent, ends that.
static void late_rank(int rank, int size)
{
    struct member m;
    ncclComm_t child = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (!member_join(&m, rank, size)) {
        return;
    }
    if (rank > 0) {
        EXPECT_EQ(ncclCommSplit(m.comm, 0, 0, &child, &config), ncclInProgress);
        poll(NULL, 0, 50);
        ncclResult_t state = ncclSuccess;
        EXPECT_OK(ncclCommGetAsyncError(child, &state));
        EXPECT_EQ(state, ncclInProgress);
        EXPECT_OK(ncclCommGetAsyncError(m.comm, &state));
        EXPECT_EQ(state, ncclInProgress);
        FAILS(ncclCommCount(child, &(int){0}), ncclInvalidArgument, "still being made");
    }
    ranks_barrier();
    if (rank > 0) {
        struct stopwatch watch = stopwatch_start();
        EXPECT_OK(ncclCommAbort(rank == 1 ? child : m.comm));
        EXPECT_WITHIN(watch, 1);
        EXPECT_OK(ncclCommAbort(rank == 1 ? m.comm : child));
        m.comm = NULL;
    }
    ranks_barrier();
    if (rank == 0) {
        EXPECT_OK(ncclCommAbort(m.comm));
        m.comm = NULL;
    }
    member_leave(&m);
}

static void late_ranks(void)
{
    run_thread_ranks(3, late_rank, 30);
    run_ranks(3, late_rank, 60);
}

// ---- How they end -------------------------------------------------------------------------------

// C58, of a part of the ranks: an abort of a child is an error for its ranks alone.
static void aborted_child(int rank, int size)
{
    struct member m;
    ncclComm_t child = NULL;
    float *buffer = NULL;
    if (!member_join(&m, rank, size)) {
        return;
    }
    EXPECT_OK(ncclCommSplit(m.comm, rank / 2, 0, &child, NULL));
    EXPECT_CUDA(cudaMalloc((void **)&buffer, sizeof *buffer));
    if (rank == 3) {
        EXPECT_OK(ncclCommAbort(child));
    } else if (rank == 2) {
        EXPECT_OK(ncclAllReduce(buffer, buffer, 1, ncclFloat, ncclSum, child, m.stream));
        (void)cudaStreamSynchronize(m.stream);
        EXPECT(await_state(child) != ncclSuccess);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 1");
        EXPECT_OK(ncclCommAbort(child));
    } else {
        sum_is(&m, child, 1, 2);
        EXPECT_OK(ncclCommDestroy(child));
    }
    EXPECT_EQ(member_state(&m), ncclSuccess);
    sum_is(&m, m.comm, 1, (float)size);
    EXPECT_CUDA(cudaFree(buffer));
    member_leave(&m);
}

static void aborts(void)
{
    run_thread_ranks(4, aborted_child, 30);
    run_ranks(4, aborted_child, 60);
}

// A parent that is aborted takes no child with it. C56: handles that are gone are errors.
static void aborted_parent(int rank, int size)
{
    struct member m;
    ncclComm_t child = NULL;
    if (!member_join(&m, rank, size)) {
        return;
    }
    EXPECT_OK(ncclCommSplit(m.comm, 0, 0, &child, NULL));
    ncclComm_t parent = m.comm;
    if (rank != 0) {
        EXPECT_OK(ncclCommFinalize(parent));
    }
    ranks_barrier();
    if (rank == 0) {
        EXPECT_OK(ncclCommAbort(parent));
    }
    FAILS(ncclCommSplit(parent, 0, 0, &m.comm, NULL), ncclInvalidArgument,
          rank == 0 ? "destroyed or aborted" : "is finalized");
    sum_is(&m, child, 1, (float)size);
    if (rank != 0) {
        (void)ncclCommAbort(parent);
    }
    EXPECT_OK(ncclCommFinalize(child));
    EXPECT_OK(ncclCommDestroy(child));
    FAILS(ncclCommDestroy(child), ncclInvalidArgument, "destroyed or aborted");
    m.comm = NULL;
    member_leave(&m);
}

static void parents(void)
{
    run_thread_ranks(3, aborted_parent, 30);
    run_ranks(3, aborted_parent, 60);
}

// What a configuration says; what it does not say, the parent's says where there is none.
static void configured(int rank, int size)
{
    ncclUniqueId ids[2] = {share_id(rank), share_id(rank)};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL, child = NULL;
    char name[] = "parallel";
    config.blocking = 0;
    config.commName = name;
    config.splitShare = 1;
    FAILS(ncclCommInitRankScalable(&comm, size, rank, 0, ids, NULL), ncclInvalidArgument,
          "nId is 0");
    ncclResult_t result = ncclCommInitRankScalable(&comm, size, rank, 2, ids, &config);
    EXPECT(result == ncclInProgress || result == ncclSuccess);
    EXPECT_EQ(await_state(comm), ncclSuccess);
    name[0] = 0; // it is the library's by now
    EXPECT_EQ(ncclCommSplit(comm, 0, 0, &child, NULL), ncclInProgress); // as its parent
    EXPECT_EQ(await_state(child), ncclSuccess);
    EXPECT_EQ(await_state(comm), ncclSuccess);
    check_place(child, rank, size);
    EXPECT_OK(ncclCommDestroy(child));
    EXPECT_OK(ncclCommDestroy(comm));
}

static void configurations(void)
{
    run_thread_ranks(2, configured, 30);
    run_ranks(2, configured, 60);
}

int main(void)
{
    RUN(colours);
    RUN(generations);
    RUN(side_by_side);
    RUN(work);
    RUN(groups);
    RUN(one_thread);
    RUN(wrong_calls);
    RUN(late_ranks);
    RUN(aborts);
    RUN(parents);
    RUN(configurations);
    return expect_result();
}
