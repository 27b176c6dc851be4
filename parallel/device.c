// See device.h. SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include "fail.h"

ncclResult_t parallel_enter_device(ncclComm_t comm, int *previous)
{
    int device = 0;
    TRY(ncclCommCuDevice(comm, &device));
    return parallel_enter_known_device(device, previous);
}

ncclResult_t parallel_enter_known_device(int device, int *previous)
{
    TRY_CUDA(cudaGetDevice(previous));
    TRY_CUDA(cudaSetDevice(device));
    return ncclSuccess;
}

void parallel_leave_device(int previous)
{
    (void)cudaSetDevice(previous);
}

size_t parallel_type_bytes(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
        return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
        return 8;
    default:
        return 0;
    }
}

// device: [ranks + 1] x bytes, of which the last are this rank's.
static ncclResult_t exchange_in(char *device, const void *mine, void *all, size_t bytes,
                                ncclComm_t comm, cudaStream_t stream)
{
    int ranks = 0;
    ncclResult_t state = ncclSuccess;
    TRY(ncclCommCount(comm, &ranks));
    size_t total = (size_t)ranks * bytes;
    TRY_CUDA(cudaMemcpyAsync(device + total, mine, bytes, cudaMemcpyHostToDevice, stream));
    TRY(ncclAllGather(device + total, device, bytes, ncclUint8, comm, stream));
    TRY_CUDA(cudaMemcpyAsync(all, device, total, cudaMemcpyDeviceToHost, stream));
    TRY_CUDA(cudaStreamSynchronize(stream));
    TRY(ncclCommGetAsyncError(comm, &state));
    return state;
}

ncclResult_t parallel_exchange(const void *mine, void *all, size_t bytes, ncclComm_t comm,
                               cudaStream_t stream)
{
    int ranks = 0, previous = 0;
    void *device = NULL;
    TRY(ncclCommCount(comm, &ranks));
    TRY(parallel_enter_device(comm, &previous));
    // In the stream: cudaFree waits for all of the device, so for other ranks' work, which may wait
    // for this rank.
    ncclResult_t result = parallel_cuda(
        (int)cudaMallocAsync(&device, ((size_t)ranks + 1) * bytes, stream), "cudaMallocAsync");
    if (result == ncclSuccess) {
        result = exchange_in(device, mine, all, bytes, comm, stream);
        (void)cudaFreeAsync(device, stream);
    }
    parallel_leave_device(previous);
    return result;
}
