// Parameters from one rank to all. See tutti_parallel/data.h. SPDX-License-Identifier: Apache-2.0
#include "device.h"
#include "fail.h"
#include "tutti_parallel/data.h"

static ncclResult_t check(const struct tuttiBuffer *buffers, int bufferCount, int root,
                          ncclComm_t comm)
{
    int ranks = 0;
    TRY(ncclCommCount(comm, &ranks));
    if (root < 0 || root >= ranks) {
        return tuttiFail(ncclInvalidArgument, "tuttiBroadcastBuffers: root is %d, must be 0 to %d",
                         root, ranks - 1);
    }
    if (bufferCount < 0 || (bufferCount > 0 && buffers == NULL)) {
        return tuttiFail(
            ncclInvalidArgument,
            "tuttiBroadcastBuffers: bufferCount is %d and buffers %p; must be at least "
            "0, and an array",
            bufferCount, (const void *)buffers);
    }
    for (int i = 0; i < bufferCount; i++) {
        if (parallel_type_bytes(buffers[i].type) == 0) {
            return tuttiFail(ncclInvalidArgument,
                             "tuttiBroadcastBuffers: buffers[%d].type is %d, which is no type", i,
                             (int)buffers[i].type);
        }
        if (buffers[i].data == NULL && buffers[i].count > 0) {
            return tuttiFail(ncclInvalidArgument,
                             "tuttiBroadcastBuffers: buffers[%d].data is NULL with %zu elements", i,
                             buffers[i].count);
        }
    }
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiBroadcastBuffers(const struct tuttiBuffer *buffers,
                                                   int bufferCount, int root, ncclComm_t comm,
                                                   cudaStream_t stream)
{
    TRY(check(buffers, bufferCount, root, comm));
    TRY(ncclGroupStart());
    ncclResult_t first = ncclSuccess;
    for (int i = 0; i < bufferCount && first == ncclSuccess; i++) {
        void *data = buffers[i].data;
        first = buffers[i].count == 0 ? ncclSuccess
                                      : ncclBroadcast(data, data, buffers[i].count, buffers[i].type,
                                                      root, comm, stream);
    }
    ncclResult_t last = ncclGroupEnd();
    return first == ncclSuccess ? last : first;
}
