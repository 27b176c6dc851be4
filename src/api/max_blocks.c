// tuttiMaxBlocksOf: how many blocks of kernels that wait for each other fit where ranks share a
// GPU.
// SPDX-License-Identifier: Apache-2.0
#include "tutti.h"

#include "api/function.h"
#include "base/gpu.h"
#include "base/log.h"
#include "comm/comm.h"

// What a kernel may have: 0 to the most blocks that a multiprocessor holds.
static ncclResult_t check_range(const struct ncclComm *comm, int per_multiprocessor)
{
    int most = 0;
    TRY_CUDA(
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxBlocksPerMultiprocessor, comm->cuda_device));
    if (per_multiprocessor < 0 || per_multiprocessor > most) {
        return tt_fail(
            ncclInvalidArgument,
            "tuttiMaxBlocks: rank %d: blocksPerMultiprocessor is %d, must be 0 to %d, as "
            "cudaOccupancyMaxActiveBlocksPerMultiprocessor gives it on %s",
            comm->rank, per_multiprocessor, most, tt_gpu(comm->cuda_device)->name);
    }
    return ncclSuccess;
}

static ncclResult_t answer(const struct ncclComm *comm, cudaError_t error, int per_multiprocessor,
                           int *blocks)
{
    int device = -1, multiprocessors = 0;
    TRY(tt_cuda((int)error, "cudaOccupancyMaxActiveBlocksPerMultiprocessor"));
    TRY_CUDA(cudaGetDevice(&device));
    if (device != comm->cuda_device) {
        return tt_fail(ncclInvalidArgument,
                       "tuttiMaxBlocks: rank %d: the current device is %s, must be %s, the "
                       "communicator's",
                       comm->rank, tt_gpu(device)->name, tt_gpu(comm->cuda_device)->name);
    }
    TRY(check_range(comm, per_multiprocessor));
    TRY_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    int sharers = tt_peers_sharing(comm);
    long long resident = (long long)per_multiprocessor * multiprocessors;
    if (resident < sharers) {
        return tt_fail(ncclInvalidUsage,
                       "tuttiMaxBlocks: rank %d: %s holds %lld blocks of this kernel at once, "
                       "fewer than the %d ranks that share it; take smaller blocks, less shared "
                       "memory, or fewer ranks for each GPU",
                       comm->rank, tt_gpu(device)->name, resident, sharers);
    }
    *blocks = (int)(resident / sharers); // of some thousands at most
    return ncclSuccess;
}

TT_EXPORT ncclResult_t tuttiMaxBlocksOf(cudaError_t error, int blocksPerMultiprocessor,
                                        ncclComm_t comm, int *blocks)
{
    TRY(tt_comm_enter(comm, "tuttiMaxBlocks"));
    ncclResult_t result = blocks == NULL
                              ? tt_fail(ncclInvalidArgument,
                                        "tuttiMaxBlocks: rank %d: blocks is NULL, must be where to "
                                        "write the number",
                                        comm->rank)
                              : answer(comm, error, blocksPerMultiprocessor, blocks);
    tt_comm_leave(comm);
    return result;
}
