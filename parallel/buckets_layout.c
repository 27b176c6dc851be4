// Which gradients are in which bucket, and which rank owns what of it: no communication. See
// buckets.h. SPDX-License-Identifier: Apache-2.0
#include "buckets.h"

#include "fail.h"

#include <stdlib.h>

// Whether the bucket would have more than its bytes with this gradient, which lies before it.
static bool is_full(const struct tuttiBuckets *b, const struct bucket *bucket,
                    const struct tuttiGradient *gradient)
{
    size_t elements = bucket->offset + bucket->count - gradient->offset;
    return bucket->count > 0 && gradient->count > 0 &&
           elements > b->options.bucketBytes / b->element_bytes;
}

static void add(struct bucket *bucket, const struct tuttiGradient *gradient, int index)
{
    if (gradient->count > 0) {
        size_t end =
            bucket->count > 0 ? bucket->offset + bucket->count : gradient->offset + gradient->count;
        bucket->offset = gradient->offset;
        bucket->count = end - gradient->offset;
    }
    bucket->first = index;
    bucket->awaited++;
}

void parallel_make_buckets(struct tuttiBuckets *b)
{
    struct bucket *bucket = NULL;
    b->bucket_count = 0;
    for (int i = b->flat.gradientCount - 1; i >= 0; i--) {
        if (bucket == NULL || is_full(b, bucket, &b->gradients[i])) {
            bucket = &b->buckets[b->bucket_count++];
            bucket->last = i;
        }
        add(bucket, &b->gradients[i], i);
        b->bucket_of[i] = b->bucket_count - 1;
    }
}

ncclResult_t parallel_share_bucket(const struct tuttiBuckets *b, const struct bucket *bucket,
                                   size_t *counts, size_t *displacements)
{
    return tuttiSplitCounts(bucket->count, b->ranks, counts, displacements);
}

// Parts of [begin, end), which lies in the bucket, in its gradients: to parts from *count on, as
// far as there is room.
static void add_parts(const struct tuttiBuckets *b, const struct bucket *bucket, size_t begin,
                      size_t end, struct tuttiPart *parts, int capacity, int *count)
{
    for (int i = bucket->first; i <= bucket->last; i++) {
        size_t low = b->gradients[i].offset, high = low + b->gradients[i].count;
        low = low > begin ? low : begin;
        high = high < end ? high : end;
        if (low >= high) {
            continue;
        }
        if (*count < capacity) {
            parts[*count] = (struct tuttiPart){low, high - low, i};
        }
        ++*count;
    }
}

static ncclResult_t check_owned(const struct tuttiBuckets *b, int rank,
                                const struct tuttiPart *parts, int capacity, const int *partCount)
{
    if (b == NULL || partCount == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiBucketsOwned: %s is NULL",
                         b == NULL ? "buckets" : "partCount");
    }
    if (rank < -1 || rank >= b->ranks) {
        return tuttiFail(ncclInvalidArgument,
                         "tuttiBucketsOwned: rank is %d, must be 0 to %d, or -1 for this one", rank,
                         b->ranks - 1);
    }
    if (capacity < 0 || (parts == NULL && capacity != 0)) {
        return tuttiFail(ncclInvalidArgument,
                         "tuttiBucketsOwned: capacity is %d with parts %p; must be at least 0, and "
                         "0 for NULL",
                         capacity, (const void *)parts);
    }
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiBucketsOwned(const struct tuttiBuckets *buckets, int rank,
                                               struct tuttiPart *parts, int capacity,
                                               int *partCount)
{
    TRY(check_owned(buckets, rank, parts, capacity, partCount));
    size_t who = (size_t)(rank < 0 ? buckets->rank : rank), ranks = (size_t)buckets->ranks;
    size_t *counts = calloc(2 * ranks, sizeof *counts);
    int count = 0;
    if (counts == NULL) {
        return tuttiFail(ncclSystemError, "tuttiBucketsOwned: no memory for %zu ranks", ranks);
    }
    for (int i = buckets->bucket_count - 1; i >= 0; i--) {
        const struct bucket *bucket = &buckets->buckets[i];
        size_t begin = bucket->offset, end = begin + bucket->count;
        if (buckets->options.zero) {
            (void)parallel_share_bucket(buckets, bucket, counts, counts + ranks);
            begin += counts[ranks + who];
            end = begin + counts[who];
        }
        add_parts(buckets, bucket, begin, end, parts, capacity, &count);
    }
    free(counts);
    *partCount = count;
    if (parts != NULL && count > capacity) {
        return tuttiFail(ncclInvalidArgument,
                         "tuttiBucketsOwned: capacity is %d, must be %d for the parts of rank %zu",
                         capacity, count, who);
    }
    return ncclSuccess;
}
