// Launches the RMSNorm kernels with the shared memory that they need.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_LAUNCH_CUH
#define TUTTI_KERNELS_LAUNCH_CUH

#include "rmsnorm.cuh"

namespace tutti
{

// Fills args->segment for the current device. shared_limit: floats that a row may take in shared
// memory (0: as many as the device has).
inline cudaError_t choose_segment(rmsnorm_arguments *args, unsigned shared_limit)
{
    int device, bytes;
    cudaError_t error = cudaGetDevice(&device);
    if (error != cudaSuccess) {
        return error;
    }
    error = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error != cudaSuccess) {
        return error;
    }
    unsigned most = ((unsigned)bytes - 2048) / sizeof(float) / norm_chunk * norm_chunk;
    if (shared_limit >= norm_chunk && shared_limit < most) {
        most = shared_limit / norm_chunk * norm_chunk;
    }
    args->segment = args->hidden <= most ? (unsigned)((args->hidden + 3) / 4 * 4) : most;
    return cudaSuccess;
}

// Launches rmsnorm_multimem<T> or rmsnorm_lsa<T>. args.segment is filled in unless it is set.
// Errors: cudaErrorInvalidConfiguration where `threads` does not divide 256 or there are more
// blocks than LSA barriers, or CUDA's.
template <typename T>
cudaError_t launch_rmsnorm(bool multimem, rmsnorm_arguments args, const ncclDevComm &comm,
                           int barriers, unsigned blocks, unsigned threads, cudaStream_t stream)
{
    if (threads == 0 || norm_lanes % threads != 0 || blocks == 0 || blocks > (unsigned)barriers) {
        return cudaErrorInvalidConfiguration;
    }
    cudaError_t error = args.segment != 0 ? cudaSuccess : choose_segment(&args, 0);
    if (error != cudaSuccess) {
        return error;
    }
    auto kernel = multimem ? &rmsnorm_multimem<T> : &rmsnorm_lsa<T>;
    size_t shared_bytes = args.segment * sizeof(float);
    if (shared_bytes > 44 * 1024) {
        error =
            cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
        if (error != cudaSuccess) {
            return error;
        }
    }
    void *parameters[] = {&args, const_cast<ncclDevComm *>(&comm)};
    return cudaLaunchKernel(reinterpret_cast<const void *>(kernel), dim3(blocks), dim3(threads),
                            parameters, shared_bytes, stream);
}

} // namespace tutti
#endif
