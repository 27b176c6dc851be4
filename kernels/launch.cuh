// Launches the RMSNorm kernels with the shared memory that they need.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_LAUNCH_CUH
#define TUTTI_KERNELS_LAUNCH_CUH

#include "rmsnorm.cuh"

#include <atomic>

namespace tutti
{

// Chooses rmsnorm_work::segment for the current device. shared_limit: floats that a row may take in
// shared memory (0: as many as the device has).
inline cudaError_t choose_segment(size_t hidden, unsigned shared_limit, unsigned *segment_out)
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
    *segment_out = hidden <= most ? (unsigned)((hidden + 3) / 4 * 4) : most;
    return cudaSuccess;
}

// The most dynamic shared memory that a kernel has been allowed, by kernel and device.
struct shared_grants {
    std::atomic<size_t> bytes[4][64];
};
template <typename T> inline shared_grants granted;

// Lets a kernel have `bytes` of dynamic shared memory. Asks CUDA only when it must: where ranks
// share a device, CUDA could otherwise wait for the kernel of a rank that waits for this one.
inline cudaError_t allow_shared(const void *kernel, int which, size_t bytes, shared_grants &grants)
{
    int device;
    cudaError_t error = cudaGetDevice(&device);
    if (error != cudaSuccess || bytes <= 44 * 1024) {
        return error;
    }
    std::atomic<size_t> &known = grants.bytes[which][device % 64];
    if (device < 64 && known.load() >= bytes) {
        return cudaSuccess;
    }
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (error == cudaSuccess) {
        known.store(bytes);
    }
    return error;
}

// Whether all rows of a launch can go through registers. combined_addresses: of everything that is
// accessed, where it starts.
template <typename T> inline bool fits_registers(size_t hidden, size_t combined_addresses)
{
    return hidden <= register_hidden && hidden % pack_size<T> == 0 && combined_addresses % 16 == 0;
}

template <typename T> inline bool fits_registers(const rmsnorm_arguments &args)
{
    return fits_registers<T>(args.hidden, args.input_offset | args.output_offset |
                                              reinterpret_cast<size_t>(args.gamma) |
                                              reinterpret_cast<size_t>(args.residual) |
                                              reinterpret_cast<size_t>(args.residual_out));
}

template <typename T> const void *registers_kernel(size_t hidden)
{
#define KERNEL(packs) reinterpret_cast<const void *>(&rmsnorm_lsa_registers<T, packs>)
    return TUTTI_FOR_PACKS(hidden, KERNEL);
#undef KERNEL
}

// Launches rmsnorm_multimem<T> or rmsnorm_lsa<T>; the latter's form in registers where the rows fit
// and `threads` is register_threads<T>, which is fastest on real GPUs. args.segment is filled in
// unless it is set, which asks for shared memory. Errors: cudaErrorInvalidConfiguration where
// `threads` does not divide 256 or there are more blocks than LSA barriers, or CUDA's.
template <typename T>
cudaError_t launch_rmsnorm(bool multimem, rmsnorm_arguments args, const ncclDevComm &comm,
                           int barriers, unsigned blocks, unsigned threads, cudaStream_t stream)
{
    if (threads == 0 || norm_lanes % threads != 0 || blocks == 0 || blocks > (unsigned)barriers) {
        return cudaErrorInvalidConfiguration;
    }
    void *parameters[] = {&args, const_cast<ncclDevComm *>(&comm)};
    if (!multimem && args.segment == 0 && threads == register_threads<T> &&
        fits_registers<T>(args)) {
        return cudaLaunchKernel(registers_kernel<T>(args.hidden), dim3(blocks), dim3(threads),
                                parameters, 0, stream);
    }
    cudaError_t error =
        args.segment != 0 ? cudaSuccess : choose_segment(args.hidden, 0, &args.segment);
    if (error != cudaSuccess) {
        return error;
    }
    const void *kernel = multimem ? reinterpret_cast<const void *>(&rmsnorm_multimem<T>)
                                  : reinterpret_cast<const void *>(&rmsnorm_lsa<T>);
    size_t shared_bytes = args.segment * sizeof(float);
    error = allow_shared(kernel, multimem, shared_bytes, granted<T>);
    if (error != cudaSuccess) {
        return error;
    }
    return cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), parameters, shared_bytes, stream);
}

} // namespace tutti
#endif
