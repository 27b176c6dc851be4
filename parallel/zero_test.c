// ZeRO stage 1: who owns what, sums that are the all-reduce's in every bit, parameters gathered.
// SPDX-License-Identifier: Apache-2.0
#include "flat_for_tests.h"

#include <stdatomic.h>
#include <unistd.h>

enum { MOST_PARTS = 64 };

static const size_t bucket_bytes[] = {0, 1, 40, 4000, 9000};
enum { SIZES = sizeof bucket_bytes / sizeof bucket_bytes[0] };

static struct tuttiBuckets *make(const struct tuttiGradients *flat, ncclComm_t comm, size_t bytes,
                                 int zero)
{
    struct tuttiBucketsOptions options = TUTTI_BUCKETS_OPTIONS_INITIALIZER;
    struct tuttiBuckets *buckets = NULL;
    options.bucketBytes = bytes;
    options.zero = zero;
    EXPECT_OK(tuttiBucketsCreate(flat, comm, &options, &buckets));
    return buckets;
}

static void pass(struct tuttiBuckets *buckets, cudaStream_t stream)
{
    for (int index = FLAT_GRADIENTS - 1; index >= 0; index--) {
        EXPECT_OK(tuttiBucketsReady(buckets, index, stream));
    }
    EXPECT_OK(tuttiBucketsWait(buckets, stream));
}

// ---- Who owns what ------------------------------------------------------------------------------

// Buckets of 50 floats are {d}, {c, b}, {a}: 40, 50 and 10 elements. Of three ranks the second has
// [14, 27) of 40, [17, 34) of 50, [4, 7) of 10.
static void by_hand_of(int rank, int size)
{
    static const struct tuttiGradient four[] = {
        {0, 10, "a"}, {10, 20, "b"}, {30, 30, "c"}, {60, 40, "d"}};
    static const struct tuttiPart second[] = {{4, 3, 0}, {27, 3, 1}, {30, 14, 2}, {74, 13, 3}};
    struct flat_test t;
    struct tuttiPart parts[MOST_PARTS];
    int count = 0;
    if (!flat_begin(&t, rank, size, ncclFloat32)) {
        return;
    }
    t.flat.gradients = four;
    t.flat.gradientCount = 4;
    struct tuttiBuckets *buckets = make(&t.flat, t.m.comm, 200, 1);
    EXPECT_OK(tuttiBucketsOwned(buckets, 1, parts, MOST_PARTS, &count));
    EXPECT_EQ(count, 4);
    for (int i = 0; i < 4; i++) {
        EXPECT_EQ(parts[i].offset, second[i].offset);
        EXPECT_EQ(parts[i].count, second[i].count);
        EXPECT_EQ(parts[i].gradient, second[i].gradient);
    }
    count = 0;
    EXPECT_OK(tuttiBucketsOwned(buckets, 1, NULL, 0, &count));
    EXPECT_EQ(count, 4);
    count = 0;
    EXPECT_EQ(tuttiBucketsOwned(buckets, 1, parts, 3, &count), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "capacity is 3, must be 4 for the parts of rank 1");
    EXPECT_EQ(count, 4);
    EXPECT_EQ(tuttiBucketsOwned(buckets, size, parts, 3, &count), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "rank is 3, must be 0 to 2, or -1");
    EXPECT_EQ(tuttiBucketsOwned(buckets, -2, parts, 3, &count), ncclInvalidArgument);
    EXPECT_EQ(tuttiBucketsOwned(buckets, 0, parts, -1, &count), ncclInvalidArgument);
    EXPECT_EQ(tuttiBucketsOwned(buckets, 0, NULL, 3, &count), ncclInvalidArgument);
    EXPECT_EQ(tuttiBucketsOwned(buckets, 0, parts, 3, NULL), ncclInvalidArgument);
    EXPECT_OK(tuttiBucketsDestroy(buckets));
    flat_end(&t);
}

static void by_hand(void)
{
    run_thread_ranks(3, by_hand_of, 30);
}

// All ranks' parts are each element of each gradient once; those of one rank ascend.
static void check_owned(const struct tuttiBuckets *buckets, int size, bool zero)
{
    static const int once = 1;
    struct tuttiPart parts[MOST_PARTS];
    unsigned char seen[FLAT_COUNT] = {0};
    int wrong = 0;
    for (int rank = 0; rank < (zero ? size : 1); rank++) {
        int count = 0;
        size_t end = 0;
        EXPECT_OK(tuttiBucketsOwned(buckets, rank, parts, MOST_PARTS, &count));
        for (int i = 0; i < count; i++) {
            const struct tuttiGradient *g = &flat_gradients[parts[i].gradient];
            EXPECT(parts[i].count > 0 && parts[i].offset >= end && parts[i].offset >= g->offset);
            end = parts[i].offset + parts[i].count;
            EXPECT(end <= g->offset + g->count);
            for (size_t k = parts[i].offset; k < end; k++) {
                seen[k]++;
            }
        }
    }
    for (int g = 0; g < FLAT_GRADIENTS; g++) {
        for (size_t i = 0; i < flat_gradients[g].count; i++) {
            wrong += seen[flat_gradients[g].offset + i]-- != once;
        }
    }
    for (size_t i = 0; i < FLAT_COUNT; i++) {
        wrong += seen[i] != 0;
    }
    EXPECT_EQ(wrong, 0);
}

// ---- Sums ---------------------------------------------------------------------------------------

// The same gradients by all-reduce and by reduce-scatter: equal bits where this rank owns them.
static void bits_of_type(int rank, int size, ncclDataType_t type)
{
    struct flat_test t;
    struct tuttiPart parts[MOST_PARTS];
    if (!flat_begin(&t, rank, size, type)) {
        return;
    }
    char *sums = malloc(FLAT_COUNT * t.bytes);
    for (size_t i = 0; i < SIZES; i++) {
        struct tuttiBuckets *whole = make(&t.flat, t.m.comm, bucket_bytes[i], 0);
        struct tuttiBuckets *split = make(&t.flat, t.m.comm, bucket_bytes[i], 1);
        int count = 0, wrong = 0;
        for (size_t k = 0; k < FLAT_COUNT; k++) {
            flat_set(&t, k, flat_ragged(rank, k));
        }
        flat_upload(&t);
        pass(whole, t.m.stream);
        flat_download(&t);
        memcpy(sums, t.host, FLAT_COUNT * t.bytes);
        for (size_t k = 0; k < FLAT_COUNT; k++) {
            flat_set(&t, k, flat_ragged(rank, k));
        }
        flat_upload(&t);
        pass(split, t.m.stream);
        flat_download(&t);
        EXPECT_OK(tuttiBucketsOwned(split, -1, parts, MOST_PARTS, &count));
        EXPECT(count > 0);
        for (int p = 0; p < count; p++) {
            size_t at = parts[p].offset * t.bytes;
            wrong += memcmp((char *)t.host + at, sums + at, parts[p].count * t.bytes) != 0;
        }
        EXPECT_EQ(wrong, 0);
        check_owned(split, size, true);
        check_owned(whole, size, false);
        EXPECT_OK(tuttiBucketsDestroy(whole));
        EXPECT_OK(tuttiBucketsDestroy(split));
    }
    free(sums);
    flat_end(&t);
}

static void bits_of(int rank, int size)
{
    bits_of_type(rank, size, ncclFloat32);
    bits_of_type(rank, size, ncclFloat64);
}

static void bits(void)
{
    for (int size = 1; size <= 5; size++) {
        run_thread_ranks(size, bits_of, 60);
    }
    run_ranks(3, bits_of, 60);
}

// ---- Parameters ---------------------------------------------------------------------------------

static const struct {
    ncclDataType_t type;
    size_t bytes;
} types[] = {{ncclBfloat16, 2}, {ncclFloat32, 4}, {ncclFloat64, 8}, {ncclUint8, 1}};

// Byte k of a parameter that rank `owner` has updated.
static unsigned char byte_of(size_t k, int owner)
{
    return (unsigned char)(k % 251 + 3 * (size_t)owner);
}

// Writes what every rank's parts are to become; only: this rank's own alone.
static void fill_parts(const struct flat_test *t, const struct tuttiBuckets *buckets, size_t bytes,
                       bool only, unsigned char *host)
{
    struct tuttiPart parts[MOST_PARTS];
    int count = 0;
    memset(host, 0xee, FLAT_COUNT * bytes);
    for (int rank = 0; rank < t->m.size; rank++) {
        EXPECT_OK(tuttiBucketsOwned(buckets, rank, parts, MOST_PARTS, &count));
        for (int i = 0; i < count && (!only || rank == t->m.rank); i++) {
            size_t end = (parts[i].offset + parts[i].count) * bytes;
            for (size_t k = parts[i].offset * bytes; k < end; k++) {
                host[k] = byte_of(k, rank);
            }
        }
    }
}

static void gathers_of(int rank, int size)
{
    struct flat_test t;
    char *device = NULL;
    unsigned char *host = malloc(FLAT_COUNT * sizeof(double));
    unsigned char *got = malloc(FLAT_COUNT * sizeof(double));
    if (!flat_begin(&t, rank, size, ncclFloat32)) {
        return;
    }
    EXPECT_CUDA(cudaMalloc((void **)&device, FLAT_COUNT * sizeof(double)));
    for (size_t i = 0; i < 4 * SIZES; i++) {
        struct tuttiBuckets *buckets = make(&t.flat, t.m.comm, bucket_bytes[i / 4], 1);
        size_t bytes = types[i % 4].bytes;
        fill_parts(&t, buckets, bytes, true, host);
        EXPECT_CUDA(cudaMemcpyAsync(device, host, FLAT_COUNT * bytes, cudaMemcpyHostToDevice,
                                    t.m.stream)); // the gather is behind it, without a wait here
        EXPECT_OK(tuttiBucketsGather(buckets, device, types[i % 4].type, t.m.stream));
        EXPECT_OK(tuttiBucketsGatherWait(buckets, -1, t.m.stream));
        EXPECT_CUDA(
            cudaMemcpyAsync(got, device, FLAT_COUNT * bytes, cudaMemcpyDeviceToHost, t.m.stream));
        EXPECT_CUDA(cudaStreamSynchronize(t.m.stream));
        fill_parts(&t, buckets, bytes, false, host);
        EXPECT_EQ(memcmp(got, host, FLAT_COUNT * bytes), 0);
        EXPECT_OK(tuttiBucketsDestroy(buckets));
    }
    struct tuttiBuckets *buckets = make(&t.flat, t.m.comm, 0, 1);
    EXPECT_EQ(tuttiBucketsGather(buckets, NULL, ncclFloat32, t.m.stream), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "parameters is NULL, must be 6000 elements");
    EXPECT_EQ(tuttiBucketsGather(buckets, device, (ncclDataType_t)77, t.m.stream),
              ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "type is 77");
    EXPECT_EQ(tuttiBucketsGatherWait(buckets, FLAT_GRADIENTS, t.m.stream), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "index is 10, must be 0 to 9, or -1 for all");
    EXPECT_EQ(tuttiBucketsGatherWait(buckets, -2, t.m.stream), ncclInvalidArgument);
    EXPECT_OK(tuttiBucketsDestroy(buckets));
    ranks_barrier();
    EXPECT_CUDA(cudaFree(device));
    free(host);
    free(got);
    flat_end(&t);
}

static void gathers(void)
{
    for (int size = 1; size <= 5; size++) {
        run_thread_ranks(size, gathers_of, 60);
    }
    run_ranks(3, gathers_of, 60);
}

// A stream that waits for a parameter is held up as long as a rank has not updated its part.
static void order_of(int rank, int size)
{
    struct flat_test t;
    cudaStream_t other = NULL;
    atomic_int go_on = 0;
    if (!flat_begin(&t, rank, size, ncclFloat32)) {
        return;
    }
    struct tuttiBuckets *buckets = make(&t.flat, t.m.comm, 4000, 1);
    unsigned char *host = malloc(FLAT_COUNT * t.bytes);
    EXPECT_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    fill_parts(&t, buckets, t.bytes, true, host);
    EXPECT_CUDA(cudaMemsetAsync(t.flat.buffer, 0, FLAT_COUNT * t.bytes, t.m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(t.m.stream));
    if (rank == 1) {
        EXPECT_CUDA(cudaLaunchHostFunc(t.m.stream, flat_hold, &go_on));
    }
    EXPECT_CUDA(cudaMemcpyAsync(t.flat.buffer, host, FLAT_COUNT * t.bytes, cudaMemcpyHostToDevice,
                                t.m.stream));
    EXPECT_OK(tuttiBucketsGather(buckets, t.flat.buffer, ncclFloat32, t.m.stream));
    EXPECT_OK(tuttiBucketsGatherWait(buckets, 0, other));
    (void)usleep(20000);
    EXPECT_EQ(cudaStreamQuery(other), cudaErrorNotReady);
    ranks_barrier();
    atomic_store(&go_on, 1);
    EXPECT_CUDA(cudaMemcpyAsync(t.host, t.flat.buffer, sizeof(float), cudaMemcpyDeviceToHost,
                                other)); // of gradient 0, which rank 0 owns
    EXPECT_CUDA(cudaStreamSynchronize(other));
    for (size_t k = 0; k < sizeof(float); k++) {
        EXPECT_EQ(((unsigned char *)t.host)[k], byte_of(k, 0));
    }
    EXPECT_OK(tuttiBucketsGatherWait(buckets, -1, other));
    EXPECT_CUDA(cudaStreamSynchronize(other));
    EXPECT_CUDA(cudaStreamDestroy(other));
    EXPECT_OK(tuttiBucketsDestroy(buckets));
    free(host);
    flat_end(&t);
}

static void order(void)
{
    run_ranks(3, order_of, 60);
}

// Steps of gradient descent with and without ZeRO give parameters of the same bits.
static void train(struct flat_test *t, int zero, float *result)
{
    struct tuttiBuckets *buckets = make(&t->flat, t->m.comm, 4000, zero);
    struct tuttiPart parts[MOST_PARTS];
    float *parameters = NULL;
    const size_t bytes = FLAT_COUNT * sizeof *parameters;
    int count = 0;
    EXPECT_CUDA(cudaMalloc((void **)&parameters, bytes));
    EXPECT_CUDA(cudaMemsetAsync(parameters, 0, bytes, t->m.stream));
    EXPECT_OK(tuttiBucketsOwned(buckets, -1, parts, MOST_PARTS, &count));
    for (int step = 0; step < 3; step++) {
        EXPECT_OK(tuttiBucketsGatherWait(buckets, -1, t->m.stream));
        EXPECT_CUDA(cudaMemcpyAsync(result, parameters, bytes, cudaMemcpyDefault, t->m.stream));
        EXPECT_CUDA(cudaStreamSynchronize(t->m.stream));
        for (size_t i = 0; i < FLAT_COUNT; i++) { // depends on all parameters that are there
            flat_set(t, i, flat_ragged(t->m.rank + 7 * step, i) + 0.3 * (double)result[i]);
        }
        flat_upload(t);
        pass(buckets, t->m.stream);
        flat_download(t);
        for (int p = 0; p < count; p++) {
            for (size_t i = parts[p].offset; i < parts[p].offset + parts[p].count; i++) {
                result[i] -= 0.1F * (float)flat_get(t, i);
            }
            EXPECT_CUDA(cudaMemcpyAsync(parameters + parts[p].offset, result + parts[p].offset,
                                        parts[p].count * sizeof *result, cudaMemcpyDefault,
                                        t->m.stream));
        }
        EXPECT_OK(tuttiBucketsGather(buckets, parameters, ncclFloat32, t->m.stream));
    }
    EXPECT_OK(tuttiBucketsGatherWait(buckets, -1, t->m.stream));
    EXPECT_CUDA(cudaMemcpyAsync(result, parameters, bytes, cudaMemcpyDefault, t->m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(t->m.stream));
    ranks_barrier();
    EXPECT_CUDA(cudaFree(parameters));
    EXPECT_OK(tuttiBucketsDestroy(buckets));
}

static void training_of(int rank, int size)
{
    struct flat_test t;
    float *with = malloc(FLAT_COUNT * sizeof *with), *without = malloc(FLAT_COUNT * sizeof *with);
    int wrong = 0;
    if (!flat_begin(&t, rank, size, ncclFloat32)) {
        return;
    }
    train(&t, 1, with);
    train(&t, 0, without);
    for (int g = 0; g < FLAT_GRADIENTS; g++) {
        for (size_t i = 0; i < flat_gradients[g].count; i++) {
            size_t at = flat_gradients[g].offset + i;
            wrong += memcmp(&with[at], &without[at], sizeof *with) != 0 || with[at] == 0;
        }
    }
    EXPECT_EQ(wrong, 0);
    free(with);
    free(without);
    flat_end(&t);
}

static void training(void)
{
    run_thread_ranks(1, training_of, 60);
    run_thread_ranks(4, training_of, 60);
    run_ranks(3, training_of, 60);
}

int main(void)
{
    RUN(by_hand);
    RUN(bits);
    RUN(gathers);
    RUN(order);
    RUN(training);
    return expect_result();
}
