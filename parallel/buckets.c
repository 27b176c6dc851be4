// A pass over the buckets: the last gradient of a bucket that is told ready launches its reduction
// in a stream of its own, while the backward pass goes on. Buckets are launched in their order on
// all ranks, whatever the order in which gradients become ready. See tutti_parallel/data.h.
// SPDX-License-Identifier: Apache-2.0
#include "buckets.h"

#include "fail.h"

#include <string.h>

static const char *name_of(const struct tuttiBuckets *b, int index)
{
    return b->gradients[index].name != NULL ? b->gradients[index].name : "no name";
}

static char *address_of(const struct tuttiBuckets *b, size_t element)
{
    return (char *)b->flat.buffer + element * b->element_bytes;
}

static void begin_pass(struct tuttiBuckets *b)
{
    b->is_over = false;
    b->launched = 0;
    memset(b->told, 0, (size_t)b->flat.gradientCount * sizeof *b->told);
    for (int i = 0; i < b->bucket_count; i++) {
        b->buckets[i].awaited = b->buckets[i].last - b->buckets[i].first + 1;
    }
}

// In place: all-reduce, or with ZeRO to each rank its piece.
static ncclResult_t reduce(struct tuttiBuckets *b, const struct bucket *bucket)
{
    char *data = address_of(b, bucket->offset);
    if (!b->options.zero) {
        return ncclAllReduce(data, data, bucket->count, b->flat.type, b->options.op, b->comm,
                             b->options.stream);
    }
    TRY(parallel_share_bucket(b, bucket, b->counts, b->displacements));
    return tuttiReduceScatterV(data, data + b->displacements[b->rank] * b->element_bytes, b->counts,
                               b->flat.type, b->options.op, b->comm, b->options.stream);
}

static ncclResult_t launch(struct tuttiBuckets *b, struct bucket *bucket)
{
    for (int i = bucket->first; i <= bucket->last; i++) {
        TRY_CUDA(cudaStreamWaitEvent(b->options.stream, b->ready[i], 0));
    }
    if (!b->options.stub && bucket->count > 0) {
        TRY(reduce(b, bucket));
    }
    TRY_CUDA(cudaEventRecord(bucket->reduced, b->options.stream));
    b->launched++;
    return ncclSuccess;
}

// All that are complete and whose turn it is.
static ncclResult_t launch_complete(struct tuttiBuckets *b)
{
    while (b->launched < b->bucket_count && b->buckets[b->launched].awaited == 0) {
        TRY(launch(b, &b->buckets[b->launched]));
    }
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiBucketsReady(struct tuttiBuckets *buckets, int index,
                                               cudaStream_t stream)
{
    struct tuttiBuckets *b = buckets;
    if (b == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiBucketsReady: buckets is NULL");
    }
    if (index < 0 || index >= b->flat.gradientCount) {
        return tuttiFail(ncclInvalidArgument,
                         "tuttiBucketsReady: rank %d: index is %d, must be 0 to %d", b->rank, index,
                         b->flat.gradientCount - 1);
    }
    TRY(tuttiRefuseGroup("tuttiBucketsReady"));
    if (b->is_over) {
        begin_pass(b);
    }
    if (b->told[index]) {
        return tuttiFail(
            ncclInvalidUsage,
            "tuttiBucketsReady: rank %d: gradient %d (%s) was told ready already; once "
            "in a pass, which tuttiBucketsWait ends",
            b->rank, index, name_of(b, index));
    }
    TRY_CUDA(cudaEventRecord(b->ready[index], stream));
    b->told[index] = true;
    b->buckets[b->bucket_of[index]].awaited--;
    return launch_complete(b);
}

// This rank cannot launch its next bucket, which others may have launched. A call that fits with no
// reduction ends theirs with an error; where all ranks lack it the calls fit with each other.
static void tell_others(struct tuttiBuckets *b)
{
    for (int i = b->launched; i < b->bucket_count && !b->options.stub; i++) {
        if (b->buckets[i].count > 0) {
            char *data = address_of(b, b->buckets[i].offset);
            (void)ncclBroadcast(data, data, b->buckets[i].count, b->flat.type, 0, b->comm,
                                b->options.stream);
            return;
        }
    }
}

// Every gradient was told ready, or an error that names the first that was not.
static ncclResult_t check_told(struct tuttiBuckets *b)
{
    int first = -1, missing = 0;
    for (int i = 0; i < b->flat.gradientCount; i++) {
        first = first < 0 && !b->told[i] ? i : first;
        missing += !b->told[i];
    }
    if (missing == 0) {
        return ncclSuccess;
    }
    tell_others(b);
    return tuttiFail(ncclInvalidUsage,
                     "tuttiBucketsWait: rank %d: gradient %d (%s) was never told ready "
                     "(tuttiBucketsReady), and %d others of %d",
                     b->rank, first, name_of(b, first), missing - 1, b->flat.gradientCount);
}

PARALLEL_EXPORT ncclResult_t tuttiBucketsWait(struct tuttiBuckets *buckets, cudaStream_t stream)
{
    struct tuttiBuckets *b = buckets;
    if (b == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiBucketsWait: buckets is NULL");
    }
    TRY(tuttiRefuseGroup("tuttiBucketsWait"));
    if (b->is_over) {
        begin_pass(b);
    }
    b->is_over = true;
    TRY(check_told(b));
    TRY(launch_complete(b)); // again where it failed, for the error
    if (b->bucket_count > 0) {
        TRY_CUDA(cudaStreamWaitEvent(stream, b->buckets[b->bucket_count - 1].reduced, 0));
    }
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiBucketsProgress(struct tuttiBuckets *buckets, int *launched,
                                                  int *finished, int *total)
{
    int done = 0;
    if (buckets == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiBucketsProgress: buckets is NULL");
    }
    while (finished != NULL && done < buckets->launched) {
        cudaError_t state = cudaEventQuery(buckets->buckets[done].reduced);
        if (state == cudaErrorNotReady) {
            break;
        }
        TRY(parallel_cuda((int)state, "cudaEventQuery"));
        done++;
    }
    if (launched != NULL) {
        *launched = buckets->launched;
    }
    if (finished != NULL) {
        *finished = done;
    }
    if (total != NULL) {
        *total = buckets->bucket_count;
    }
    return ncclSuccess;
}
