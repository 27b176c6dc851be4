// Broadcast of parameters; gradients summed in buckets while the backward pass goes on.
// SPDX-License-Identifier: Apache-2.0
#include "flat_for_tests.h"
#include "stopwatch.h"
#include "tutti_parallel/mesh.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

// ---- Broadcast ----------------------------------------------------------------------------------

enum { BUFFERS = 4 };

static void broadcast_of(int rank, int size)
{
    static const size_t counts[BUFFERS] = {5, 0, 100003, 1};
    static const ncclDataType_t types[BUFFERS] = {ncclFloat32, ncclFloat64, ncclBfloat16,
                                                  ncclFloat64};
    static const size_t bytes[BUFFERS] = {20, 0, 200006, 8};
    struct tuttiBuffer buffers[BUFFERS];
    struct member m;
    char text[64];
    unsigned char *host = malloc(200006);
    int root = size - 1;
    if (!member_join(&m, rank, size)) {
        return;
    }
    for (int i = 0; i < BUFFERS; i++) {
        buffers[i] = (struct tuttiBuffer){NULL, counts[i], types[i]};
        if (counts[i] > 0) {
            EXPECT_CUDA(cudaMalloc(&buffers[i].data, bytes[i]));
            EXPECT_CUDA(cudaMemset(buffers[i].data, 16 * i + rank, bytes[i]));
        }
    }
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_OK(tuttiBroadcastBuffers(buffers, BUFFERS, root, m.comm, m.stream));
    EXPECT_OK(tuttiBroadcastBuffers(NULL, 0, 0, m.comm, m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    for (int i = 0; i < BUFFERS; i++) {
        int wrong = 0;
        EXPECT_CUDA(cudaMemcpy(host, buffers[i].data, bytes[i], cudaMemcpyDeviceToHost));
        for (size_t k = 0; k < bytes[i]; k++) {
            wrong += host[k] != 16 * i + root;
        }
        EXPECT_EQ(wrong, 0);
    }
    EXPECT_EQ(tuttiBroadcastBuffers(buffers, BUFFERS, size, m.comm, m.stream), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "root is");
    EXPECT_EQ(tuttiBroadcastBuffers(NULL, 1, 0, m.comm, m.stream), ncclInvalidArgument);
    EXPECT_EQ(tuttiBroadcastBuffers(buffers, -1, 0, m.comm, m.stream), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "bufferCount is -1");
    EXPECT_EQ(tuttiBroadcastBuffers(buffers, 1, 0, NULL, m.stream), ncclInvalidArgument);
    buffers[1] = (struct tuttiBuffer){NULL, 3, ncclFloat32};
    EXPECT_EQ(tuttiBroadcastBuffers(buffers, BUFFERS, 0, m.comm, m.stream), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "buffers[1].data is NULL with 3 elements");
    buffers[1] = (struct tuttiBuffer){NULL, 0, (ncclDataType_t)99};
    EXPECT_EQ(tuttiBroadcastBuffers(buffers, BUFFERS, 0, m.comm, m.stream), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "buffers[1].type is 99");
    (void)snprintf(text, sizeof text, "tuttiBroadcastBuffers: rank %d: ", rank);
    EXPECT_CONTAINS(ncclGetLastError(NULL), text);
    ranks_barrier();
    for (int i = 0; i < BUFFERS; i += i == 0 ? 2 : 1) {
        EXPECT_CUDA(cudaFree(buffers[i].data));
    }
    free(host);
    member_leave(&m);
}

static void broadcast(void)
{
    for (int size = 1; size <= 5; size++) {
        run_thread_ranks(size, broadcast_of, 60);
    }
    run_ranks(3, broadcast_of, 60);
}

// ---- Sums ---------------------------------------------------------------------------------------

static bool is_in_gradient(size_t i)
{
    for (int g = 0; g < FLAT_GRADIENTS; g++) {
        if (i >= flat_gradients[g].offset &&
            i - flat_gradients[g].offset < flat_gradients[g].count) {
            return true;
        }
    }
    return false;
}

// All gradients are the sums (divided by `by`); what is behind the last one is untouched.
static void check_sums(struct flat_test *t, int step, double by)
{
    int wrong = 0;
    flat_download(t);
    for (size_t i = 0; i < FLAT_COUNT; i++) {
        double sum = flat_sum(t->m.size, i, step) / by, got = flat_get(t, i);
        if (is_in_gradient(i)) {
            wrong +=
                !(got <= sum + 1e-6 * sum && got >= sum - 1e-6 * sum && (by > 1 || got == sum));
        } else if (i >= 5990) {
            wrong += got != flat_whole(t->m.rank, i, step);
        }
    }
    EXPECT_EQ(wrong, 0);
}

// One pass, gradients in the order of the backward pass, or in one that every rank has another of.
static void run_pass(struct flat_test *t, struct tuttiBuckets *buckets, bool in_order)
{
    static const int steps[] = {1, 3, 7, 9, 11}; // all prime to 10
    for (int k = 0; k < FLAT_GRADIENTS; k++) {
        int index = in_order ? FLAT_GRADIENTS - 1 - k : k * steps[t->m.rank % 5] % FLAT_GRADIENTS;
        EXPECT_OK(tuttiBucketsReady(buckets, index, t->m.stream));
    }
    EXPECT_OK(tuttiBucketsWait(buckets, t->m.stream));
}

static void sums_of_type(int rank, int size, ncclDataType_t type)
{
    static const size_t bucket_bytes[] = {0, 1, 40, 4000, 9000, SIZE_MAX};
    struct flat_test t;
    if (!flat_begin(&t, rank, size, type)) {
        return;
    }
    for (size_t i = 0; i < sizeof bucket_bytes / sizeof bucket_bytes[0]; i++) {
        struct tuttiBucketsOptions options = TUTTI_BUCKETS_OPTIONS_INITIALIZER;
        struct tuttiBuckets *buckets = NULL;
        options.bucketBytes = bucket_bytes[i];
        options.op = i % 2 == 0 ? ncclSum : ncclAvg;
        options.stream = i == 3 ? t.m.stream : NULL; // without overlap
        if (!EXPECT_OK(tuttiBucketsCreate(&t.flat, t.m.comm, &options, &buckets))) {
            continue;
        }
        for (int step = 0; step < 3; step++) { // the same buckets again
            flat_fill(&t, step);
            run_pass(&t, buckets, step != 1);
            check_sums(&t, step, options.op == ncclAvg ? size : 1);
        }
        EXPECT_OK(tuttiBucketsDestroy(buckets));
    }
    flat_end(&t);
}

static void sums_of(int rank, int size)
{
    sums_of_type(rank, size, ncclFloat32);
    sums_of_type(rank, size, ncclFloat64);
}

static void sums(void)
{
    for (int size = 1; size <= 5; size++) {
        run_thread_ranks(size, sums_of, 60);
    }
    run_ranks(2, sums_of, 60);
    run_ranks(5, sums_of, 60);
}

// One gradient that is larger than a bucket by default, and a small one.
static void huge_of(int rank, int size)
{
    enum { HUGE = 7000001, SMALL = 3 };
    const struct tuttiGradient two[] = {{0, SMALL, "small"}, {SMALL, HUGE, "huge"}};
    struct tuttiGradients flat = {NULL, HUGE + SMALL, ncclFloat32, two, 2};
    struct tuttiBuckets *buckets = NULL;
    struct member m;
    int total = 0, wrong = 0;
    float *host = malloc((HUGE + SMALL) * sizeof *host);
    if (!member_join(&m, rank, size)) {
        return;
    }
    for (size_t i = 0; i < HUGE + SMALL; i++) {
        host[i] = (float)flat_whole(rank, i, 5);
    }
    EXPECT_CUDA(cudaMalloc(&flat.buffer, (HUGE + SMALL) * sizeof *host));
    EXPECT_CUDA(
        cudaMemcpy(flat.buffer, host, (HUGE + SMALL) * sizeof *host, cudaMemcpyHostToDevice));
    EXPECT_OK(tuttiBucketsCreate(&flat, m.comm, NULL, &buckets));
    EXPECT_OK(tuttiBucketsReady(buckets, 1, m.stream));
    EXPECT_OK(tuttiBucketsReady(buckets, 0, m.stream));
    EXPECT_OK(tuttiBucketsWait(buckets, m.stream));
    EXPECT_OK(tuttiBucketsProgress(buckets, NULL, NULL, &total));
    EXPECT_EQ(total, 2);
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    EXPECT_CUDA(
        cudaMemcpy(host, flat.buffer, (HUGE + SMALL) * sizeof *host, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < HUGE + SMALL; i++) {
        wrong += (double)host[i] != flat_sum(size, i, 5);
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_OK(tuttiBucketsDestroy(buckets));
    EXPECT_CUDA(cudaFree(flat.buffer));
    free(host);
    member_leave(&m);
}

static void huge(void)
{
    run_ranks(2, huge_of, 60);
}

// ---- Overlap ------------------------------------------------------------------------------------

// Four gradients of 40, 30, 20, 10 elements from the last: in buckets of 50 floats {3}, {2, 1},
// {0}.
static const struct tuttiGradient four[] = {
    {0, 10, "a"}, {10, 20, "b"}, {30, 30, "c"}, {60, 40, "d"}};

static void expect_progress(struct tuttiBuckets *buckets, int launched_expected)
{
    int launched = -1, finished = -1, total = -1;
    EXPECT_OK(tuttiBucketsProgress(buckets, &launched, &finished, &total));
    EXPECT_EQ(launched, launched_expected);
    EXPECT(finished >= 0 && finished <= launched);
    EXPECT_EQ(total, 3);
}

// Until `count` buckets are finished; the sums are in memory then.
static void await_buckets(struct tuttiBuckets *buckets, int count)
{
    struct stopwatch watch = stopwatch_start();
    int finished = 0;
    while (finished < count && stopwatch_is_within(&watch, 10)) {
        (void)usleep(50);
        if (!EXPECT_OK(tuttiBucketsProgress(buckets, NULL, &finished, NULL))) {
            return;
        }
    }
    EXPECT_EQ(finished, count);
}

static struct tuttiBuckets *make_four(struct flat_test *t, int zero)
{
    struct tuttiBucketsOptions options = TUTTI_BUCKETS_OPTIONS_INITIALIZER;
    struct tuttiBuckets *buckets = NULL;
    options.bucketBytes = 50 * t->bytes;
    options.zero = zero;
    t->flat.gradients = four;
    t->flat.gradientCount = 4;
    EXPECT_OK(tuttiBucketsCreate(&t->flat, t->m.comm, &options, &buckets));
    return buckets;
}

// Each bucket is launched with its own last gradient, and its sums are there while later gradients
// are not even computed; a bucket that is complete early waits for those before it.
static void overlap_of(int rank, int size)
{
    struct flat_test t;
    if (!flat_begin(&t, rank, size, ncclFloat32)) {
        return;
    }
    struct tuttiBuckets *buckets = make_four(&t, 0);
    flat_fill(&t, 1);
    expect_progress(buckets, 0);
    EXPECT_OK(tuttiBucketsReady(buckets, 3, t.m.stream));
    expect_progress(buckets, 1);
    await_buckets(buckets, 1);
    flat_download(&t);
    EXPECT_SAME(flat_get(&t, 59), flat_whole(rank, 59, 1)); // of the next bucket: as it was
    EXPECT_SAME(flat_get(&t, 60), flat_sum(size, 60, 1));
    EXPECT_SAME(flat_get(&t, 99), flat_sum(size, 99, 1));
    EXPECT_OK(tuttiBucketsReady(buckets, 0, t.m.stream)); // complete, but not its turn
    expect_progress(buckets, 1);
    EXPECT_OK(tuttiBucketsReady(buckets, 2, t.m.stream));
    expect_progress(buckets, 1);
    EXPECT_OK(tuttiBucketsReady(buckets, 1, t.m.stream));
    expect_progress(buckets, 3);
    EXPECT_OK(tuttiBucketsWait(buckets, t.m.stream));
    await_buckets(buckets, 3);
    flat_download(&t);
    for (size_t i = 0; i < 100; i++) {
        EXPECT_SAME(flat_get(&t, i), flat_sum(size, i, 1));
    }
    EXPECT_SAME(flat_get(&t, 100), flat_whole(rank, 100, 1));
    EXPECT_OK(tuttiBucketsDestroy(buckets));
    flat_end(&t);
}

static void overlap(void)
{
    run_thread_ranks(3, overlap_of, 60);
    run_ranks(2, overlap_of, 60);
}

// What is told ready is in the order of its stream: the sums wait for streams that are held up,
// each gradient in one of its own, and the program's stream waits for the sums.
static void streams_of(int rank, int size)
{
    struct flat_test t;
    cudaStream_t other = NULL;
    atomic_int go_on = 0, go_on_other = 0;
    int finished = -1;
    if (!flat_begin(&t, rank, size, ncclFloat64)) {
        return;
    }
    struct tuttiBuckets *buckets = make_four(&t, 0);
    EXPECT_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    flat_fill(&t, 3);
    char *host = malloc(100 * t.bytes);
    memcpy(host, t.host, 100 * t.bytes);
    flat_fill(&t, 0);
    // Gradients 2 and 1 of one bucket in two streams, which write them once they may go on.
    EXPECT_CUDA(cudaLaunchHostFunc(other, flat_hold, &go_on_other));
    EXPECT_CUDA(cudaMemcpyAsync((char *)t.flat.buffer + 30 * t.bytes, host + 30 * t.bytes,
                                30 * t.bytes, cudaMemcpyHostToDevice, other));
    EXPECT_OK(tuttiBucketsReady(buckets, 2, other));
    EXPECT_OK(tuttiBucketsReady(buckets, 3, t.m.stream));
    await_buckets(buckets, 1); // which `other` does not hold up
    EXPECT_CUDA(cudaLaunchHostFunc(t.m.stream, flat_hold, &go_on));
    EXPECT_CUDA(cudaMemcpyAsync((char *)t.flat.buffer + 10 * t.bytes, host + 10 * t.bytes,
                                20 * t.bytes, cudaMemcpyHostToDevice, t.m.stream));
    EXPECT_OK(tuttiBucketsReady(buckets, 1, t.m.stream));
    EXPECT_OK(tuttiBucketsReady(buckets, 0, t.m.stream));
    EXPECT_OK(tuttiBucketsWait(buckets, t.m.stream));
    expect_progress(buckets, 3);
    (void)usleep(20000);
    EXPECT_OK(tuttiBucketsProgress(buckets, NULL, &finished, NULL));
    EXPECT_EQ(finished, 1);
    atomic_store(&go_on, 1);
    (void)usleep(20000);
    EXPECT_OK(tuttiBucketsProgress(buckets, NULL, &finished, NULL));
    EXPECT_EQ(finished, 1);
    atomic_store(&go_on_other, 1);
    flat_download(&t); // in the stream that waits
    for (size_t i = 0; i < 100; i++) {
        EXPECT_SAME(flat_get(&t, i), flat_sum(size, i, i >= 10 && i < 60 ? 3 : 0));
    }
    EXPECT_CUDA(cudaStreamSynchronize(other));
    EXPECT_CUDA(cudaStreamDestroy(other));
    EXPECT_OK(tuttiBucketsDestroy(buckets));
    free(host);
    flat_end(&t);
}

static void streams(void)
{
    run_ranks(2, streams_of, 60);
}

// Dense gradients over all ranks and experts' over half of them, told in turn.
static void two_sets_of(int rank, int size)
{
    enum { HALF = FLAT_COUNT / 2 };
    const struct tuttiGradient experts[] = {{0, 1000, "up"}, {1000, HALF - 1000, "down"}};
    const struct tuttiGradient dense[] = {{HALF, 10, "norm"}, {HALF + 10, HALF - 10, "query"}};
    struct flat_test t;
    struct tuttiMesh mesh;
    struct tuttiBuckets *sets[2] = {NULL, NULL};
    struct tuttiBucketsOptions options = TUTTI_BUCKETS_OPTIONS_INITIALIZER;
    options.bucketBytes = 64;
    if (!flat_begin(&t, rank, size, ncclFloat32)) {
        return;
    }
    EXPECT_OK(tuttiMeshCreate(t.m.comm, 2, 1, 2, 1, &mesh));
    struct tuttiGradients flat = t.flat; // one buffer, of which each set has a half
    flat.gradientCount = 2;
    flat.gradients = experts;
    EXPECT_OK(tuttiBucketsCreate(&flat, mesh.dpComm, &options, &sets[0]));
    flat.gradients = dense;
    EXPECT_OK(tuttiBucketsCreate(&flat, mesh.dataComm, &options, &sets[1]));
    for (int step = 0; step < 3; step++) {
        flat_fill(&t, step);
        for (int index = 1; index >= 0; index--) {
            EXPECT_OK(tuttiBucketsReady(sets[1], index, t.m.stream));
            EXPECT_OK(tuttiBucketsReady(sets[0], index, t.m.stream));
        }
        EXPECT_OK(tuttiBucketsWait(sets[0], t.m.stream));
        EXPECT_OK(tuttiBucketsWait(sets[1], t.m.stream));
        flat_download(&t);
        int wrong = 0;
        for (size_t i = 0; i < FLAT_COUNT; i++) { // of experts: ranks 0 and 2, or 1 and 3
            double pair = flat_whole(rank % 2, i, step) + flat_whole(rank % 2 + 2, i, step);
            wrong += flat_get(&t, i) != (i < HALF ? pair : flat_sum(size, i, step));
        }
        EXPECT_EQ(wrong, 0);
    }
    EXPECT_OK(tuttiBucketsDestroy(sets[0]));
    EXPECT_OK(tuttiBucketsDestroy(sets[1]));
    EXPECT_OK(tuttiMeshDestroy(&mesh));
    flat_end(&t);
}

static void two_sets(void)
{
    run_thread_ranks(4, two_sets_of, 60);
    run_ranks(4, two_sets_of, 60);
}

// Without communication everything else is as it is, and the gradients are the rank's own.
static void stub_of(int rank, int size)
{
    struct flat_test t;
    struct tuttiBuckets *buckets = NULL;
    struct tuttiBucketsOptions options = TUTTI_BUCKETS_OPTIONS_INITIALIZER;
    options.stub = 1;
    if (!flat_begin(&t, rank, size, ncclFloat32)) {
        return;
    }
    for (options.zero = 0; options.zero < 2; options.zero++) {
        EXPECT_OK(tuttiBucketsCreate(&t.flat, t.m.comm, &options, &buckets));
        flat_fill(&t, 1);
        if (rank != 0) { // rank 0 makes no call at all
            run_pass(&t, buckets, true);
            EXPECT_OK(tuttiBucketsGather(buckets, t.flat.buffer, ncclFloat32, t.m.stream));
            EXPECT_OK(tuttiBucketsGatherWait(buckets, -1, t.m.stream));
        }
        flat_download(&t);
        for (size_t i = 0; i < FLAT_COUNT; i++) {
            EXPECT_SAME(flat_get(&t, i), flat_whole(rank, i, 1));
        }
        EXPECT_OK(tuttiBucketsDestroy(buckets));
    }
    flat_end(&t);
}

static void stub(void)
{
    run_thread_ranks(2, stub_of, 60);
}

int main(void)
{
    RUN(broadcast);
    RUN(sums);
    RUN(huge);
    RUN(overlap);
    RUN(streams);
    RUN(two_sets);
    RUN(stub);
    return expect_result();
}
