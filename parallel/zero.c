// ZeRO stage 1: parameters that each rank has updated its pieces of go to all. See
// tutti_parallel/data.h. SPDX-License-Identifier: Apache-2.0
#include "buckets.h"
#include "device.h"
#include "fail.h"

// In place: this rank's piece of the bucket to all, and theirs here.
static ncclResult_t gather(struct tuttiBuckets *b, struct bucket *bucket, char *parameters,
                           ncclDataType_t type)
{
    if (!b->options.stub && bucket->count > 0) {
        size_t bytes = parallel_type_bytes(type);
        char *data = parameters + bucket->offset * bytes;
        TRY(parallel_share_bucket(b, bucket, b->counts, b->displacements));
        TRY(tuttiAllGatherV(data + b->displacements[b->rank] * bytes, b->counts[b->rank], data,
                            b->counts, NULL, type, b->comm, b->options.stream));
    }
    TRY_CUDA(cudaEventRecord(bucket->gathered, b->options.stream));
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiBucketsGather(struct tuttiBuckets *buckets, void *parameters,
                                                ncclDataType_t type, cudaStream_t stream)
{
    if (buckets == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiBucketsGather: buckets is NULL");
    }
    if (parallel_type_bytes(type) == 0) {
        return tuttiFail(ncclInvalidArgument,
                         "tuttiBucketsGather: rank %d: type is %d, which is no type", buckets->rank,
                         (int)type);
    }
    if (parameters == NULL && buckets->flat.count > 0) {
        return tuttiFail(ncclInvalidArgument,
                         "tuttiBucketsGather: rank %d: parameters is NULL, must be %zu elements",
                         buckets->rank, buckets->flat.count);
    }
    if (!buckets->options.zero) {
        return ncclSuccess;
    }
    TRY(tuttiRefuseGroup("tuttiBucketsGather"));
    TRY_CUDA(cudaEventRecord(buckets->updated, stream));
    TRY_CUDA(cudaStreamWaitEvent(buckets->options.stream, buckets->updated, 0));
    for (int i = buckets->bucket_count - 1; i >= 0; i--) { // the first layers first
        TRY(gather(buckets, &buckets->buckets[i], parameters, type));
    }
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiBucketsGatherWait(struct tuttiBuckets *buckets, int index,
                                                    cudaStream_t stream)
{
    if (buckets == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiBucketsGatherWait: buckets is NULL");
    }
    if (index < -1 || index >= buckets->flat.gradientCount) {
        return tuttiFail(ncclInvalidArgument,
                         "tuttiBucketsGatherWait: rank %d: index is %d, must be 0 to %d, or -1 for "
                         "all",
                         buckets->rank, index, buckets->flat.gradientCount - 1);
    }
    if (!buckets->options.zero || buckets->bucket_count == 0) {
        return ncclSuccess;
    }
    int last = index < 0 ? 0 : buckets->bucket_of[index]; // bucket 0 is gathered last
    TRY_CUDA(cudaStreamWaitEvent(stream, buckets->buckets[last].gathered, 0));
    return ncclSuccess;
}
