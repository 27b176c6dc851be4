// Parameters from one rank to all. See tutti_parallel/data.h. SPDX-License-Identifier: Apache-2.0
#include "device.h"
#include "fail.h"
#include "part.h"
#include "tutti_parallel/data.h"

static ncclResult_t check(const struct tuttiBuffer *buffers, int bufferCount, int root,
                          ncclComm_t comm)
{
    struct parallel_call call = {{0}, {0}};
    TRY(parallel_begin("tuttiBroadcastBuffers", comm, 0, &call));
    if (root < 0 || root >= call.part.size) {
        return tuttiFail(ncclInvalidArgument, "%s: root is %d, must be 0 to %d", call.name, root,
                         call.part.size - 1);
    }
    if (bufferCount < 0 || (bufferCount > 0 && buffers == NULL)) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: bufferCount is %d and buffers %p; must be at least 0, and an array",
                         call.name, bufferCount, (const void *)buffers);
    }
    for (int i = 0; i < bufferCount; i++) {
        if (parallel_type_bytes(buffers[i].type) == 0) {
            return tuttiFail(ncclInvalidArgument, "%s: buffers[%d].type is %d, which is no type",
                             call.name, i, (int)buffers[i].type);
        }
        if (buffers[i].data == NULL && buffers[i].count > 0) {
            return tuttiFail(ncclInvalidArgument, "%s: buffers[%d].data is NULL with %zu elements",
                             call.name, i, buffers[i].count);
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
