// The life of buckets: arguments, memory, streams and events. See tutti_parallel/data.h.
// SPDX-License-Identifier: Apache-2.0
#include "buckets.h"
#include "device.h"
#include "fail.h"
#include "part.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_OPTIONS_BYTES = 4096 };
static const size_t default_bucket_bytes = (size_t)25 << 20; // as in Li et al., 2020

// Fields that a later version has may be there, where they ask for nothing.
static ncclResult_t check_size(const char *call, const struct tuttiBucketsOptions *given)
{
    const char *bytes = (const char *)given;
    if (given->size < sizeof *given || given->size > MOST_OPTIONS_BYTES) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: options->size is %zu; begin with "
                         "TUTTI_BUCKETS_OPTIONS_INITIALIZER (%zu bytes in this version)",
                         call, given->size, sizeof *given);
    }
    for (size_t i = sizeof *given; i < given->size; i++) {
        if (bytes[i] != 0) {
            return tuttiFail(ncclInvalidArgument,
                             "%s: options have a field at byte %zu that version %d.%d.%d does not "
                             "know",
                             call, i, TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH);
        }
    }
    return ncclSuccess;
}

static ncclResult_t read_options(const char *call, const struct tuttiBucketsOptions *given,
                                 struct tuttiBucketsOptions *options)
{
    static const struct tuttiBucketsOptions standard = TUTTI_BUCKETS_OPTIONS_INITIALIZER;
    *options = standard;
    if (given != NULL) {
        TRY(check_size(call, given));
        *options = *given;
    }
    if (options->op != ncclSum && options->op != ncclAvg) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: options->op is %d, must be ncclSum (%d) or ncclAvg (%d)", call,
                         (int)options->op, (int)ncclSum, (int)ncclAvg);
    }
    if ((options->zero & ~1) != 0 || (options->stub & ~1) != 0) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: options->zero is %d and options->stub %d, must be 0 or 1", call,
                         options->zero, options->stub);
    }
    if (options->bucketBytes == 0) {
        options->bucketBytes = default_bucket_bytes;
    }
    return ncclSuccess;
}

// Places of gradients: inside the buffer, one behind the other.
static ncclResult_t check_places(const char *call, const struct tuttiGradients *flat)
{
    size_t end = 0;
    for (int i = 0; i < flat->gradientCount; i++) {
        const struct tuttiGradient *g = &flat->gradients[i];
        const char *name = g->name != NULL ? g->name : "no name";
        if (g->offset > flat->count || g->count > flat->count - g->offset) {
            return tuttiFail(ncclInvalidArgument,
                             "%s: gradient %d (%s) is %zu elements at %zu, beyond the buffer's %zu",
                             call, i, name, g->count, g->offset, flat->count);
        }
        if (g->offset < end) {
            return tuttiFail(ncclInvalidArgument,
                             "%s: gradient %d (%s) is at %zu, must be at %zu or more, behind the "
                             "one before it",
                             call, i, name, g->offset, end);
        }
        end = g->offset + g->count;
    }
    return ncclSuccess;
}

static ncclResult_t check(const char *call, const struct tuttiGradients *flat)
{
    if (flat == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: gradients is NULL", call);
    }
    if (flat->type != ncclFloat32 && flat->type != ncclFloat64) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: gradients->type is %d, must be ncclFloat32 (%d) or ncclFloat64 (%d)",
                         call, (int)flat->type, (int)ncclFloat32, (int)ncclFloat64);
    }
    if (flat->count > SIZE_MAX / sizeof(double) || (flat->buffer == NULL && flat->count > 0)) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: gradients->buffer is %p with %zu elements; must be device memory",
                         call, flat->buffer, flat->count);
    }
    if (flat->gradientCount < 0 || (flat->gradients == NULL && flat->gradientCount > 0)) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: gradients->gradientCount is %d and gradients->gradients %p; must be "
                         "at least 0, and an array",
                         call, flat->gradientCount, (const void *)flat->gradients);
    }
    return check_places(call, flat);
}

static ncclResult_t allocate(const char *call, struct tuttiBuckets *b)
{
    size_t n = (size_t)b->flat.gradientCount, ranks = (size_t)b->ranks;
    b->gradients = calloc(n + 1, sizeof *b->gradients); // + 1: calloc of 0 may give NULL
    b->bucket_of = calloc(n + 1, sizeof *b->bucket_of);
    b->told = calloc(n + 1, sizeof *b->told);
    b->ready = calloc(n + 1, sizeof(cudaEvent_t));
    b->buckets = calloc(n + 1, sizeof *b->buckets);
    b->counts = calloc(ranks, sizeof *b->counts);
    b->displacements = calloc(ranks, sizeof *b->displacements);
    if (b->gradients == NULL || b->bucket_of == NULL || b->told == NULL || b->ready == NULL ||
        b->buckets == NULL || b->counts == NULL || b->displacements == NULL) {
        return tuttiFail(ncclSystemError, "%s: no memory for %zu gradients and %zu ranks", call, n,
                         ranks);
    }
    if (n > 0) {
        memcpy(b->gradients, b->flat.gradients, n * sizeof *b->gradients);
    }
    b->flat.gradients = b->gradients;
    return ncclSuccess;
}

static ncclResult_t make_event(cudaEvent_t *event)
{
    TRY_CUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    return ncclSuccess;
}

static ncclResult_t make_bucket_events(struct bucket *bucket)
{
    TRY(make_event(&bucket->reduced));
    return make_event(&bucket->gathered);
}

static ncclResult_t make_events(struct tuttiBuckets *b)
{
    if (b->options.stream == NULL) {
        TRY_CUDA(cudaStreamCreateWithFlags(&b->options.stream, cudaStreamNonBlocking));
        b->owns_stream = true;
    }
    TRY(make_event(&b->updated));
    for (int i = 0; i < b->flat.gradientCount; i++) {
        TRY(make_event(&b->ready[i]));
    }
    for (int i = 0; i < b->bucket_count; i++) {
        TRY(make_bucket_events(&b->buckets[i]));
    }
    return ncclSuccess;
}

static ncclResult_t make(const char *call, struct tuttiBuckets *b)
{
    int previous = 0;
    TRY(allocate(call, b));
    parallel_make_buckets(b);
    TRY(parallel_enter_device(b->comm, &previous));
    ncclResult_t result = make_events(b);
    parallel_leave_device(previous);
    return result;
}

PARALLEL_EXPORT ncclResult_t tuttiBucketsCreate(const struct tuttiGradients *gradients,
                                                ncclComm_t comm,
                                                const struct tuttiBucketsOptions *options,
                                                struct tuttiBuckets **buckets)
{
    struct tuttiBucketsOptions read;
    struct parallel_call call = {{0}, {0}};
    if (buckets == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiBucketsCreate: buckets is NULL");
    }
    *buckets = NULL;
    TRY(parallel_begin("tuttiBucketsCreate", comm, 0, &call));
    TRY(check(call.name, gradients));
    TRY(read_options(call.name, options, &read));
    struct tuttiBuckets *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return tuttiFail(ncclSystemError, "%s: no memory", call.name);
    }
    b->comm = comm;
    b->rank = call.part.rank;
    b->ranks = call.part.size;
    b->flat = *gradients;
    b->options = read;
    b->element_bytes = parallel_type_bytes(gradients->type);
    ncclResult_t result = make(call.name, b);
    if (result == ncclSuccess) {
        *buckets = b;
    } else {
        (void)tuttiBucketsDestroy(b);
    }
    return result;
}

static void end_event(cudaEvent_t event)
{
    if (event != NULL) {
        (void)cudaEventDestroy(event);
    }
}

PARALLEL_EXPORT ncclResult_t tuttiBucketsDestroy(struct tuttiBuckets *buckets)
{
    struct tuttiBuckets *b = buckets;
    if (b == NULL) {
        return ncclSuccess;
    }
    end_event(b->updated);
    for (int i = 0; b->ready != NULL && i < b->flat.gradientCount; i++) {
        end_event(b->ready[i]);
    }
    for (int i = 0; i < b->bucket_count; i++) {
        end_event(b->buckets[i].reduced);
        end_event(b->buckets[i].gathered);
    }
    if (b->owns_stream) {
        (void)cudaStreamDestroy(b->options.stream);
    }
    free(b->gradients);
    free(b->bucket_of);
    free(b->told);
    free(b->ready);
    free(b->buckets);
    free(b->counts);
    free(b->displacements);
    free(b);
    return ncclSuccess;
}
