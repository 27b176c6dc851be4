// Groups: nesting, when their operations begin, errors in them, one thread for many ranks,
// communicators that do not block.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <poll.h>
#include <stdio.h>

enum { N = 4, COUNT = 1000, BYTES = 1 << 16 };

// All ranks in this thread.
struct all {
    ncclComm_t comm[N];
    cudaStream_t stream[N];
    int *memory[N]; // 2 x COUNT: inputs, outputs
};

static bool open_all(struct all *all)
{
    if (!EXPECT_OK(ncclCommInitAll(all->comm, N, NULL))) {
        return false;
    }
    for (int r = 0; r < N; r++) {
        EXPECT_CUDA(cudaSetDevice(r));
        EXPECT_CUDA(cudaStreamCreate(&all->stream[r]));
        EXPECT_CUDA(cudaMalloc((void **)&all->memory[r], 2 * COUNT * sizeof(int)));
    }
    return true;
}

static void close_all(struct all *all)
{
    for (int r = 0; r < N; r++) {
        EXPECT_CUDA(cudaSetDevice(r));
        EXPECT_CUDA(cudaFree(all->memory[r]));
        EXPECT_CUDA(cudaStreamDestroy(all->stream[r]));
        EXPECT_OK(ncclCommDestroy(all->comm[r]));
    }
}

static void fill(struct all *all, int round)
{
    int host[2 * COUNT];
    for (int r = 0; r < N; r++) {
        for (int i = 0; i < COUNT; i++) {
            host[i] = (r + 1) * i + round;
            host[COUNT + i] = -1;
        }
        EXPECT_CUDA(
            cudaMemcpyAsync(all->memory[r], host, sizeof host, cudaMemcpyDefault, all->stream[r]));
        EXPECT_CUDA(cudaStreamSynchronize(all->stream[r]));
    }
}

// Sums of what fill() put, or, where nothing has run, -1.
static void check(struct all *all, int round, bool has_run)
{
    int host[COUNT];
    for (int r = 0; r < N; r++) {
        int wrong = 0;
        EXPECT_CUDA(cudaMemcpyAsync(host, all->memory[r] + COUNT, sizeof host, cudaMemcpyDefault,
                                    all->stream[r]));
        EXPECT_CUDA(cudaStreamSynchronize(all->stream[r]));
        for (int i = 0; i < COUNT; i++) {
            wrong += host[i] != (has_run ? 10 * i + 4 * round : -1);
        }
        EXPECT_EQ(wrong, 0);
    }
}

static ncclResult_t add(struct all *all, int r)
{
    return ncclAllReduce(all->memory[r], all->memory[r] + COUNT, COUNT, ncclInt, ncclSum,
                         all->comm[r], all->stream[r]);
}

// C105: one thread drives four ranks, with a group and without (nccl#1144, nccl#13). Calls only
// enqueue: without a group it works as well.
static void one_thread(void)
{
    struct all all;
    if (!open_all(&all)) {
        return;
    }
    for (int round = 0; round < 20; round++) {
        fill(&all, round);
        if (round % 2 == 0) {
            EXPECT_OK(ncclGroupStart());
        }
        for (int r = 0; r < N; r++) {
            EXPECT_OK(add(&all, round % 3 == 0 ? r : N - 1 - r));
        }
        if (round % 2 == 0) {
            EXPECT_OK(ncclGroupEnd());
        }
        check(&all, round, true);
    }
    close_all(&all);
}

// C39, C40: an end without a start; empty groups; three levels; nothing begins before the outermost
// end (gkeyll PR#1007).
static void nested(void)
{
    struct all all;
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "ncclGroupStart");
    if (!open_all(&all)) {
        return;
    }
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclGroupEnd());
    fill(&all, 5);
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(add(&all, 0));
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(add(&all, 1));
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclGroupEnd());
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(add(&all, 2));
    EXPECT_OK(add(&all, 3));
    EXPECT_OK(ncclGroupEnd());
    EXPECT_OK(ncclGroupEnd());
    poll(NULL, 0, 50);
    check(&all, 5, false);
    EXPECT_OK(ncclGroupEnd());
    check(&all, 5, true);
    close_all(&all);
}

// C42: the second of three calls is wrong: it says so at once, the end says it again, and none of
// the three runs, on no rank (nccl#1039).
static void one_bad_call(void)
{
    struct all all;
    if (!open_all(&all)) {
        return;
    }
    fill(&all, 1);
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < N; r++) {
        EXPECT_OK(add(&all, r));
        EXPECT_EQ(ncclAllReduce(all.memory[r], all.memory[r] + COUNT, COUNT, (ncclDataType_t)77,
                                ncclSum, all.comm[r], all.stream[r]),
                  ncclInvalidArgument);
        EXPECT_CONTAINS(ncclGetLastError(all.comm[r]), "datatype is 77");
        EXPECT_OK(add(&all, r));
    }
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    check(&all, 1, false);
    EXPECT_OK(ncclGroupStart()); // and the communicators are as before
    for (int r = 0; r < N; r++) {
        EXPECT_OK(add(&all, r));
    }
    EXPECT_OK(ncclGroupEnd());
    check(&all, 1, true);
    close_all(&all);
}

// C40: operations of two communicators whose ranks are numbered in opposite orders; the order of
// calls holds in each.
static void reversed(void)
{
    enum { ROUNDS = 8 };
    struct all all;
    ncclComm_t other[N];
    int devices[N] = {3, 2, 1, 0}; // rank r of `other` is rank N - 1 - r of `all`
    if (!open_all(&all) || !EXPECT_OK(ncclCommInitAll(other, N, devices))) {
        return;
    }
    for (int round = 0; round < ROUNDS; round++) {
        fill(&all, round);
        EXPECT_OK(ncclGroupStart());
        for (int r = 0; r < N; r++) {
            // The outputs, summed, go to all from rank 1 of the others, device 2.
            EXPECT_OK(add(&all, r));
            EXPECT_OK(ncclBroadcast(all.memory[r] + COUNT, all.memory[r] + COUNT, COUNT, ncclInt, 1,
                                    other[N - 1 - r], all.stream[r]));
        }
        EXPECT_OK(ncclGroupEnd());
        check(&all, round, true);
    }
    for (int r = 0; r < N; r++) {
        EXPECT_OK(ncclCommDestroy(other[r]));
    }
    close_all(&all);
}

// C43: bad values are refused with the allowed ones, and nothing is sent.
static void bad_values(void)
{
    struct all all;
    if (!open_all(&all)) {
        return;
    }
    int *b = all.memory[0];
    ncclComm_t c = all.comm[0];
    cudaStream_t s = all.stream[0];
    EXPECT_EQ(ncclBroadcast(b, b, 1, ncclInt, -1, c, s), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(c), "root is -1, must be 0 to 3");
    EXPECT_EQ(ncclReduce(b, b, 1, ncclInt, ncclSum, N, c, s), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(c), "root is 4, must be 0 to 3");
    EXPECT_EQ(ncclSend(b, 1, ncclInt, -1, c, s), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(c), "peer is -1, must be 0 to 3");
    EXPECT_EQ(ncclRecv(b, 1, ncclInt, N, c, s), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(c), "peer is 4, must be 0 to 3");
    EXPECT_EQ(ncclAllReduce(b, b, 1, ncclInt, ncclSum, NULL, s), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "ncclAllReduce");
    EXPECT_CONTAINS(ncclGetLastError(NULL), "NULL");
    EXPECT_EQ(ncclAllGather(b, b, 1, ncclNumTypes, c, s), ncclInvalidArgument);
    EXPECT_EQ(ncclAllGather(b, b, SIZE_MAX / 3, ncclInt, c, s), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(c), "count is 6148914691236517205");
    fill(&all, 2);
    for (int r = 0; r < N; r++) {
        EXPECT_OK(add(&all, r));
    }
    check(&all, 2, true);
    close_all(&all);
}

// Until no communicator is in progress.
static void await_all(struct all *all)
{
    for (int r = 0; r < N; r++) {
        ncclResult_t state = ncclInProgress;
        struct stopwatch watch = stopwatch_start();
        while (state == ncclInProgress && stopwatch_is_within(&watch, 10)) {
            EXPECT_OK(ncclCommGetAsyncError(all->comm[r], &state));
        }
        EXPECT_EQ(state, ncclSuccess);
    }
}

// Eight integers from each rank to the next, in a group.
static void pass_eight(struct all *all)
{
    int host[8];
    fill(all, 4);
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < N; r++) {
        ncclResult_t sent =
            ncclSend(all->memory[r] + 5, 8, ncclInt, (r + 1) % N, all->comm[r], all->stream[r]);
        ncclResult_t received = ncclRecv(all->memory[r] + COUNT, 8, ncclInt, (r + N - 1) % N,
                                         all->comm[r], all->stream[r]);
        EXPECT(sent == ncclSuccess || sent == ncclInProgress);
        EXPECT(received == ncclSuccess || received == ncclInProgress);
    }
    ncclResult_t result = ncclGroupEnd();
    EXPECT(result == ncclSuccess || result == ncclInProgress);
    await_all(all);
    for (int r = 0; r < N; r++) {
        EXPECT_CUDA(cudaMemcpyAsync(host, all->memory[r] + COUNT, sizeof host, cudaMemcpyDefault,
                                    all->stream[r]));
        EXPECT_CUDA(cudaStreamSynchronize(all->stream[r]));
        for (int i = 0; i < 8; i++) {
            EXPECT_EQ(host[i], ((r + N - 1) % N + 1) * (i + 5) + 4);
        }
    }
}

// C44: communicators that do not block: a group returns at once, and its result stands once the
// query says so (nccl#732). A group with a rank missing goes on until it is aborted.
static void nonblocking(void)
{
    struct all all;
    memset(&all, 0, sizeof all);
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT_OK(ncclGetUniqueId(&id));
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < N; r++) {
        EXPECT_CUDA(cudaSetDevice(r));
        EXPECT_CUDA(cudaStreamCreate(&all.stream[r]));
        EXPECT_CUDA(cudaMalloc((void **)&all.memory[r], 2 * COUNT * sizeof(int)));
        ncclResult_t result = ncclCommInitRankConfig(&all.comm[r], N, id, r, &config);
        EXPECT(result == ncclSuccess || result == ncclInProgress);
    }
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    for (int round = 0; round < 2; round++) {
        await_all(&all);
        if (round == 1) {
            break;
        }
        fill(&all, 3);
        EXPECT_OK(ncclGroupStart());
        for (int r = 0; r < N; r++) {
            ncclResult_t result = add(&all, r);
            EXPECT(result == ncclSuccess || result == ncclInProgress);
        }
        ncclResult_t result = ncclGroupEnd();
        EXPECT(result == ncclSuccess || result == ncclInProgress);
    }
    check(&all, 3, true);
    pass_eight(&all);
    close_all(&all);

    ncclComm_t lonely = NULL;
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(ncclGetUniqueId(&id));
    EXPECT_OK(ncclGroupStart());
    (void)ncclCommInitRankConfig(&lonely, 2, id, 0, &config);
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    EXPECT_OK(ncclCommAbort(lonely));
    EXPECT_WITHIN(watch, 2);
}

// An estimate takes the place of the launches: more for more bytes, and nothing runs.
static void simulated(void)
{
    struct all all;
    float us[2] = {-1, -1};
    if (!open_all(&all)) {
        return;
    }
    fill(&all, 6);
    for (int large = 0; large < 2; large++) {
        ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
        EXPECT_OK(ncclGroupStart());
        for (int r = 0; r < N; r++) {
            size_t count = large ? (size_t)1 << 28 : 1;
            EXPECT_OK(add(&all, r));
            EXPECT_OK(ncclSend(all.memory[r], count, ncclInt, (r + 1) % N, all.comm[r], NULL));
            EXPECT_OK(ncclRecv(all.memory[r], count, ncclInt, (r + N - 1) % N, all.comm[r], NULL));
        }
        EXPECT_OK(ncclGroupStart());
        EXPECT_OK(ncclGroupSimulateEnd(&info)); // an inner one tells nothing
        EXPECT(info.estimatedTime == NCCL_UNDEF_FLOAT);
        EXPECT_OK(ncclGroupSimulateEnd(&info));
        us[large] = info.estimatedTime;
    }
    EXPECT(us[0] > 0 && us[1] > 100 * us[0]);
    check(&all, 6, false);
    ncclSimInfo_t wrong = {0};
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(add(&all, 0));
    EXPECT_EQ(ncclGroupSimulateEnd(&wrong), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "must have 0x74685283");
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage); // it has ended
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < N; r++) {
        EXPECT_OK(add(&all, r));
    }
    EXPECT_OK(ncclGroupSimulateEnd(NULL)); // an end like any other
    check(&all, 6, true);
    close_all(&all);
}

// What a group would make is not made either, and nobody is waited for: the id stays good.
static void simulated_alone(void)
{
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    ncclComm_t comm[2] = {NULL, NULL}, other = (ncclComm_t)8;
    ncclWindow_t window = (ncclWindow_t)8;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    void *memory = NULL;
    struct stopwatch watch = stopwatch_start();
    EXPECT_OK(ncclGetUniqueId(&id));
    for (config.blocking = 0; config.blocking < 2; config.blocking++) {
        EXPECT_OK(ncclGroupStart());
        (void)ncclCommInitRankConfig(&other, 2, id, 0, &config);
        EXPECT_OK(ncclGroupSimulateEnd(&info));
        EXPECT(other == NULL);
        EXPECT(info.estimatedTime == 0);
    }
    EXPECT_OK(ncclGroupStart()); // a group that fails tells nobody either
    EXPECT_OK(ncclCommInitRank(&other, 2, id, 1));
    EXPECT_EQ(ncclCommInitRank(&comm[0], 0, id, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidArgument);
    EXPECT(other == NULL);
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < 2; r++) {
        EXPECT_OK(ncclCommInitRank(&comm[r], 2, id, r));
    }
    EXPECT_OK(ncclGroupEnd());
    EXPECT_OK(ncclMemAlloc(&memory, 4096));
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclCommWindowRegister(comm[1], memory, 4096, &window, 0));
    EXPECT_OK(ncclGroupSimulateEnd(&info));
    EXPECT(window == NULL);
    EXPECT_WITHIN(watch, 2);
    EXPECT_OK(ncclMemFree(memory));
    for (int r = 0; r < 2; r++) {
        EXPECT_OK(ncclCommDestroy(comm[r]));
    }
}

// A stream that is destroyed between the call and its carrying out is the same mistake as one that
// was none at the call; one that the library has seen before, too.
static void destroyed_streams(void)
{
    struct all all;
    cudaStream_t stream = NULL;
    if (!open_all(&all)) {
        return;
    }
    for (int many = 0; many < 2; many++) { // streams in the group
        EXPECT_CUDA(cudaSetDevice(0));
        EXPECT_CUDA(cudaStreamCreate(&stream));
        EXPECT_OK(ncclGroupStart());
        if (many) {
            EXPECT_OK(add(&all, 0));
        }
        EXPECT_OK(
            ncclAllReduce(all.memory[0], all.memory[0], 4, ncclInt, ncclSum, all.comm[0], stream));
        EXPECT_OK(ncclSend(all.memory[0], 4, ncclInt, 1, all.comm[0], stream));
        EXPECT_CUDA(cudaStreamDestroy(stream));
        EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "is no stream of this process, or was destroyed");
    }
    EXPECT_EQ(ncclSend(all.memory[0], 4, ncclInt, 1, all.comm[0], stream), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "is no stream of this process, or was destroyed");
    EXPECT_EQ(ncclAllReduce(all.memory[0], all.memory[0], 4, ncclInt, ncclSum, all.comm[0], stream),
              ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "ncclAllReduce: rank 0: stream ");
    close_all(&all);
}

// Nothing can be added to a capture that has failed; which is said of it, and ends with it.
static void invalidated_capture(void)
{
    struct all all;
    cudaStream_t stream = NULL;
    cudaGraph_t graph = NULL;
    if (!open_all(&all)) {
        return;
    }
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_CUDA(cudaStreamCreate(&stream));
    EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    EXPECT(cudaStreamSynchronize(stream) != cudaSuccess); // is not allowed
    for (int way = 0; way < 3; way++) {                   // a collective, a message, two streams
        EXPECT_OK(ncclGroupStart());
        ncclResult_t result = way == 1 ? ncclSend(all.memory[0], 4, ncclInt, 1, all.comm[0], stream)
                                       : ncclAllReduce(all.memory[0], all.memory[0], 4, ncclInt,
                                                       ncclSum, all.comm[0], stream);
        EXPECT_OK(result);
        if (way == 2) {
            EXPECT_OK(add(&all, 0));
        }
        EXPECT_EQ(ncclGroupEnd(), ncclUnhandledCudaError);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 0: the capture of stream ");
        EXPECT_CONTAINS(ncclGetLastError(NULL), "is invalidated");
        EXPECT_CONTAINS(ncclGetLastError(NULL), "end it with cudaStreamEndCapture");
    }
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    (void)cudaGetLastError();
    fill(&all, 6);
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < N; r++) {
        EXPECT_OK(add(&all, r));
    }
    EXPECT_OK(ncclGroupEnd());
    check(&all, 6, true);
    EXPECT_CUDA(cudaStreamDestroy(stream));
    close_all(&all);
}

int main(void)
{
    RUN(one_thread);
    RUN(simulated);
    RUN(simulated_alone);
    RUN(destroyed_streams);
    RUN(invalidated_capture);
    RUN(nested);
    RUN(one_bad_call);
    RUN(reversed);
    RUN(bad_values);
    RUN(nonblocking);
    return expect_result();
}
