// A flat buffer of gradients in buckets: what buckets.c, buckets_layout.c and zero.c share.
// Internal.
// SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_BUCKETS_H
#define PARALLEL_BUCKETS_H

#include "tutti_parallel/data.h"

#include <stdbool.h>

struct bucket {
    size_t offset, count; // elements of the flat buffer; without those of 0 elements at its ends
    int first, last;      // its gradients
    int awaited;          // of them not yet told ready in this pass
    cudaEvent_t reduced;  // in the communicating stream: sums are there
    cudaEvent_t gathered; // the same: parameters are there
};

struct tuttiBuckets {
    ncclComm_t comm;
    int rank, ranks;
    struct tuttiGradients flat; // flat.gradients is a copy of this object's own
    size_t element_bytes;
    struct tuttiBucketsOptions options; // stream: the communicating stream
    bool owns_stream;
    struct tuttiGradient *gradients; // [flat.gradientCount]
    int *bucket_of;                  // [flat.gradientCount]
    bool *told;                      // [flat.gradientCount] ready in this pass
    cudaEvent_t *ready;              // [flat.gradientCount] in the program's streams
    struct bucket *buckets;          // [bucket_count], the last gradients first
    int bucket_count;
    int launched;                   // buckets, in this pass
    bool is_over;                   // the pass: the next Ready begins another
    cudaEvent_t updated;            // in the program's stream: parameters can be gathered
    size_t *counts, *displacements; // [ranks] of a bucket, as it is launched
};

// Divides flat.gradients into buckets (bucket_of, buckets, bucket_count).
void parallel_make_buckets(struct tuttiBuckets *b);

// counts, displacements: how the ranks share the bucket's elements.
ncclResult_t parallel_share_bucket(const struct tuttiBuckets *b, const struct bucket *bucket,
                                   size_t *counts, size_t *displacements);

#endif
