// A library to be loaded before NCCL's: all-reduces whose last element is wrong in its lowest bit,
// on rank 1 alone. The test of tutti-perf must see that.
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

__attribute__((visibility("default"))) ncclResult_t
ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
              ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    int rank = 0;
    unsigned char byte;
    unsigned char *last = (unsigned char *)recvbuff + (count - 1) * sizeof(float);
    ncclResult_t result = pncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
    if (result != ncclSuccess || count == 0 || datatype != ncclFloat ||
        ncclCommUserRank(comm, &rank) != ncclSuccess || rank != 1) {
        return result;
    }
    if (cudaStreamSynchronize(stream) != cudaSuccess ||
        cudaMemcpy(&byte, last, 1, cudaMemcpyDeviceToHost) != cudaSuccess) {
        return ncclUnhandledCudaError;
    }
    byte ^= 1;
    return cudaMemcpy(last, &byte, 1, cudaMemcpyHostToDevice) == cudaSuccess
               ? ncclSuccess
               : ncclUnhandledCudaError;
}
