// Buckets of gradients: what is refused, by name, and that nobody waits for what will not come.
// SPDX-License-Identifier: Apache-2.0
#include "flat_for_tests.h"
#include "stopwatch.h"

#include <stdio.h>

enum { MOST_S = 5 };

static struct tuttiBuckets *make(struct flat_test *t, size_t bucket_bytes, int zero)
{
    struct tuttiBucketsOptions options = TUTTI_BUCKETS_OPTIONS_INITIALIZER;
    struct tuttiBuckets *buckets = NULL;
    options.bucketBytes = bucket_bytes;
    options.zero = zero;
    EXPECT_OK(tuttiBucketsCreate(&t->flat, t->m.comm, &options, &buckets));
    return buckets;
}

// The next pass is right, whatever was before.
static void check_pass(struct flat_test *t, struct tuttiBuckets *buckets)
{
    flat_fill(t, 2);
    for (int index = FLAT_GRADIENTS - 1; index >= 0; index--) {
        EXPECT_OK(tuttiBucketsReady(buckets, index, t->m.stream));
    }
    EXPECT_OK(tuttiBucketsWait(buckets, t->m.stream));
    flat_download(t);
    EXPECT_SAME(flat_get(t, 0), flat_sum(t->m.size, 0, 2));
    EXPECT_SAME(flat_get(t, 2500), flat_sum(t->m.size, 2500, 2));
    EXPECT_SAME(flat_get(t, 5989), flat_sum(t->m.size, 5989, 2));
}

// ---- Arguments ----------------------------------------------------------------------------------

static void refuse(const struct tuttiGradients *flat, ncclComm_t comm,
                   const struct tuttiBucketsOptions *options, const char *text)
{
    struct tuttiBuckets *buckets = (void *)(uintptr_t)1;
    EXPECT_EQ(tuttiBucketsCreate(flat, comm, options, &buckets), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), text);
    EXPECT(buckets == NULL);
}

static void refuse_places(struct flat_test *t)
{
    struct tuttiGradient places[2] = {{0, 10, "first"}, {9, 1, "second"}};
    struct tuttiGradients flat = t->flat;
    flat.gradients = places;
    flat.gradientCount = 2;
    refuse(&flat, t->m.comm, NULL, "rank 0: gradient 1 (second) is at 9, must be at 10 or more");
    places[1] = (struct tuttiGradient){10, FLAT_COUNT - 9, NULL};
    refuse(&flat, t->m.comm, NULL, "gradient 1 (no name) is 5991 elements at 10, beyond");
    places[1] = (struct tuttiGradient){FLAT_COUNT + 1, 0, NULL};
    refuse(&flat, t->m.comm, NULL, "beyond the buffer's 6000");
    places[1] = (struct tuttiGradient){11, SIZE_MAX - 5, NULL};
    refuse(&flat, t->m.comm, NULL, "beyond the buffer's 6000");
    flat.gradients = NULL;
    refuse(&flat, t->m.comm, NULL, "gradients->gradientCount is 2");
    flat.gradientCount = -1;
    refuse(&flat, t->m.comm, NULL, "gradients->gradientCount is -1");
}

// A program that was compiled with a version of more fields: as long as it leaves them 0.
static void later_version(struct flat_test *t)
{
    struct {
        struct tuttiBucketsOptions known;
        int more[2];
    } later = {TUTTI_BUCKETS_OPTIONS_INITIALIZER, {0, 0}};
    struct tuttiBuckets *buckets = NULL;
    char text[64];
    later.known.size = sizeof later;
    EXPECT_OK(tuttiBucketsCreate(&t->flat, t->m.comm, &later.known, &buckets));
    EXPECT_OK(tuttiBucketsDestroy(buckets));
    later.more[0] = 1;
    (void)snprintf(text, sizeof text, "options have a field at byte %zu that version",
                   sizeof later.known);
    refuse(&t->flat, t->m.comm, &later.known, text);
}

static void arguments_of(int rank, int size)
{
    struct flat_test t;
    int number = 0;
    if (!flat_begin(&t, rank, size, ncclFloat32)) {
        return;
    }
    refuse_places(&t);
    later_version(&t);
    refuse(NULL, t.m.comm, NULL, "gradients is NULL");
    refuse(&t.flat, NULL, NULL, "comm");
    struct tuttiGradients flat = t.flat;
    flat.type = ncclBfloat16;
    refuse(&flat, t.m.comm, NULL, "rank 0: gradients->type is 9, must be ncclFloat32 (7) or");
    flat = t.flat;
    flat.buffer = NULL;
    refuse(&flat, t.m.comm, NULL, "gradients->buffer is");
    flat = t.flat;
    flat.count = SIZE_MAX / 2;
    refuse(&flat, t.m.comm, NULL, "gradients->buffer is");
    struct tuttiBucketsOptions options = TUTTI_BUCKETS_OPTIONS_INITIALIZER;
    options.op = ncclMax;
    refuse(&t.flat, t.m.comm, &options,
           "rank 0: options->op is 2, must be ncclSum (0) or ncclAvg (4)");
    options.op = ncclSum;
    options.zero = 2;
    refuse(&t.flat, t.m.comm, &options, "options->zero is 2");
    options.zero = 0;
    options.stub = -1;
    refuse(&t.flat, t.m.comm, &options, "and options->stub -1");
    options.stub = 0;
    options.size = 3;
    refuse(&t.flat, t.m.comm, &options, "options->size is 3; begin with");
    EXPECT_EQ(tuttiBucketsCreate(&t.flat, t.m.comm, NULL, NULL), ncclInvalidArgument);
    EXPECT_OK(tuttiBucketsDestroy(NULL));
    EXPECT_EQ(tuttiBucketsReady(NULL, 0, t.m.stream), ncclInvalidArgument);
    EXPECT_EQ(tuttiBucketsWait(NULL, t.m.stream), ncclInvalidArgument);
    EXPECT_EQ(tuttiBucketsProgress(NULL, &number, NULL, NULL), ncclInvalidArgument);
    EXPECT_EQ(tuttiBucketsOwned(NULL, -1, NULL, 0, &number), ncclInvalidArgument);
    EXPECT_EQ(tuttiBucketsGather(NULL, t.flat.buffer, ncclFloat32, t.m.stream),
              ncclInvalidArgument);
    EXPECT_EQ(tuttiBucketsGatherWait(NULL, -1, t.m.stream), ncclInvalidArgument);
    flat_end(&t);
}

static void arguments(void)
{
    run_thread_ranks(1, arguments_of, 30);
}

// No gradients at all, or only some of no elements: a pass is nothing, and no error.
static void empty_of(int rank, int size)
{
    const struct tuttiGradient nothing[] = {{0, 0, "a"}, {0, 0, "b"}};
    struct tuttiGradients flat = {NULL, 0, ncclFloat64, NULL, 0};
    struct member m;
    int total = -1, parts = -1;
    if (!member_join(&m, rank, size)) {
        return;
    }
    for (int i = 0; i < 4; i++) {
        struct tuttiBucketsOptions options = TUTTI_BUCKETS_OPTIONS_INITIALIZER;
        struct tuttiBuckets *buckets = NULL;
        options.zero = i % 2;
        flat.gradients = i < 2 ? NULL : nothing;
        flat.gradientCount = i < 2 ? 0 : 2;
        EXPECT_OK(tuttiBucketsCreate(&flat, m.comm, &options, &buckets));
        for (int pass = 0; pass < 2; pass++) {
            for (int index = 0; index < flat.gradientCount; index++) {
                EXPECT_OK(tuttiBucketsReady(buckets, index, m.stream));
            }
            EXPECT_OK(tuttiBucketsWait(buckets, m.stream));
            EXPECT_OK(tuttiBucketsGather(buckets, NULL, ncclFloat32, m.stream));
            EXPECT_OK(tuttiBucketsGatherWait(buckets, -1, m.stream));
        }
        EXPECT_OK(tuttiBucketsProgress(buckets, NULL, NULL, &total));
        EXPECT_EQ(total, i < 2 ? 0 : 1);
        EXPECT_OK(tuttiBucketsOwned(buckets, -1, NULL, 0, &parts));
        EXPECT_EQ(parts, 0);
        EXPECT_EQ(tuttiBucketsReady(buckets, flat.gradientCount, m.stream), ncclInvalidArgument);
        EXPECT_OK(tuttiBucketsDestroy(buckets));
    }
    member_leave(&m);
}

static void empty(void)
{
    run_thread_ranks(2, empty_of, 30);
}

// ---- Told twice, told never ---------------------------------------------------------------------

static void twice_of(int rank, int size)
{
    struct flat_test t;
    if (!flat_begin(&t, rank, size, ncclFloat32)) {
        return;
    }
    struct tuttiBuckets *buckets = make(&t, 4000, 0);
    EXPECT_EQ(tuttiBucketsReady(buckets, -1, t.m.stream), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "index is -1, must be 0 to 9");
    EXPECT_EQ(tuttiBucketsReady(buckets, FLAT_GRADIENTS, t.m.stream), ncclInvalidArgument);
    flat_fill(&t, 2);
    for (int index = FLAT_GRADIENTS - 1; index >= 0; index--) {
        EXPECT_OK(tuttiBucketsReady(buckets, index, t.m.stream));
        EXPECT_EQ(tuttiBucketsReady(buckets, FLAT_GRADIENTS - 1, t.m.stream), ncclInvalidUsage);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "gradient 9 (head) was told ready already");
    }
    EXPECT_OK(tuttiBucketsWait(buckets, t.m.stream)); // the pass went on
    flat_download(&t);
    EXPECT_SAME(flat_get(&t, 5989), flat_sum(size, 5989, 2));
    check_pass(&t, buckets);
    EXPECT_OK(tuttiBucketsDestroy(buckets));
    flat_end(&t);
}

static void twice(void)
{
    run_thread_ranks(2, twice_of, 30);
}

// All ranks lack the same: an error on each, and the communicator stays good.
static void never_of(int rank, int size)
{
    struct flat_test t;
    ncclResult_t state = ncclInternalError;
    if (!flat_begin(&t, rank, size, ncclFloat32)) {
        return;
    }
    struct tuttiBuckets *buckets = make(&t, 4000, 0);
    for (int missing = 0; missing < FLAT_GRADIENTS; missing++) {
        char text[64];
        (void)snprintf(text, sizeof text, "gradient %d (%s) was never told ready", missing,
                       flat_gradients[missing].name != NULL ? flat_gradients[missing].name
                                                            : "no name");
        for (int index = FLAT_GRADIENTS - 1; index >= 0; index--) {
            if (index != missing) {
                EXPECT_OK(tuttiBucketsReady(buckets, index, t.m.stream));
            }
        }
        EXPECT_EQ(tuttiBucketsWait(buckets, t.m.stream), ncclInvalidUsage);
        EXPECT_CONTAINS(ncclGetLastError(NULL), text);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "and 0 others of 10");
    }
    EXPECT_EQ(tuttiBucketsWait(buckets, t.m.stream), ncclInvalidUsage); // none at all
    EXPECT_CONTAINS(ncclGetLastError(NULL), "gradient 0 (embedding) was never told ready");
    EXPECT_CONTAINS(ncclGetLastError(NULL), "and 9 others of 10");
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_OK(ncclCommGetAsyncError(t.m.comm, &state));
    EXPECT_EQ(state, ncclSuccess);
    ranks_barrier();
    check_pass(&t, buckets);
    EXPECT_OK(tuttiBucketsDestroy(buckets));
    flat_end(&t);
}

static void never(void)
{
    run_thread_ranks(1, never_of, 30);
    run_thread_ranks(3, never_of, 30);
}

// One rank lacks a gradient: it says which, and the others' operations end with an error.
// missing: on rank 1; elsewhere: on the others, -1 for nothing.
static void never_here(int rank, int size, int missing, int elsewhere, int zero)
{
    const int lacks = rank == 1 ? missing : elsewhere;
    struct flat_test t;
    struct stopwatch watch = stopwatch_start();
    ncclResult_t state = ncclSuccess;
    if (!flat_begin(&t, rank, size, ncclFloat32)) {
        return;
    }
    struct tuttiBuckets *buckets = make(&t, 4000, zero);
    for (int index = FLAT_GRADIENTS - 1; index >= 0; index--) {
        if (index != lacks) { // another rank's failure may be known already
            (void)tuttiBucketsReady(buckets, index, t.m.stream);
        }
    }
    ncclResult_t result = tuttiBucketsWait(buckets, t.m.stream);
    EXPECT(result == ncclInvalidUsage || (result == ncclSuccess && lacks < 0));
    if (lacks >= 0) {
        char text[64];
        (void)snprintf(text, sizeof text, "rank %d: gradient %d (", rank, lacks);
        EXPECT_CONTAINS(ncclGetLastError(NULL), text);
    } else if (result != ncclSuccess) {
        EXPECT_CONTAINS(ncclGetLastError(NULL), "the communicator has failed before");
    }
    EXPECT_CUDA(cudaDeviceSynchronize());
    while (state == ncclSuccess && stopwatch_is_within(&watch, MOST_S)) {
        EXPECT_OK(ncclCommGetAsyncError(t.m.comm, &state));
    }
    EXPECT_EQ(state, ncclInvalidUsage);
    EXPECT_WITHIN(watch, MOST_S);
    // The communicator has failed: the next pass is refused, not waited for.
    result = ncclSuccess;
    for (int index = FLAT_GRADIENTS - 1; index >= 0 && result == ncclSuccess; index--) {
        result = tuttiBucketsReady(buckets, index, t.m.stream);
    }
    EXPECT(result != ncclSuccess);
    EXPECT_OK(tuttiBucketsDestroy(buckets));
    ranks_barrier();
    EXPECT_OK(ncclCommAbort(t.m.comm));
    t.m.comm = NULL;
    flat_end(&t);
}

static void never_last_of(int rank, int size)
{
    never_here(rank, size, 0, -1, 0);
}

static void never_first_of(int rank, int size)
{
    never_here(rank, size, FLAT_GRADIENTS - 1, -1, 0);
}

static void never_zero_of(int rank, int size)
{
    never_here(rank, size, 4, -1, 1);
}

static void never_differs_of(int rank, int size)
{
    never_here(rank, size, 8, 0, 0);
}

static void never_on_one(void)
{
    run_thread_ranks(2, never_last_of, 60);
    run_ranks(3, never_first_of, 60);
    run_thread_ranks(3, never_zero_of, 60);
    run_thread_ranks(2, never_differs_of, 60);
}

// Ranks that have other gradients, or other buckets, find out.
static void layouts_of(int rank, int size)
{
    struct flat_test t;
    ncclResult_t state = ncclSuccess;
    if (!flat_begin(&t, rank, size, ncclFloat32)) {
        return;
    }
    struct tuttiBuckets *buckets = make(&t, rank == 1 ? 9000 : 4000, 0);
    for (int index = FLAT_GRADIENTS - 1; index >= 0; index--) {
        (void)tuttiBucketsReady(buckets, index, t.m.stream);
    }
    (void)tuttiBucketsWait(buckets, t.m.stream);
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_OK(ncclCommGetAsyncError(t.m.comm, &state));
    EXPECT_EQ(state, ncclInvalidUsage);
    EXPECT_OK(tuttiBucketsDestroy(buckets));
    ranks_barrier();
    EXPECT_OK(ncclCommAbort(t.m.comm));
    t.m.comm = NULL;
    flat_end(&t);
}

static void layouts(void)
{
    run_thread_ranks(3, layouts_of, 60);
}

int main(void)
{
    RUN(arguments);
    RUN(empty);
    RUN(twice);
    RUN(never);
    RUN(never_on_one);
    RUN(layouts);
    return expect_result();
}
