// Launches the all-reduce kernels.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_LAUNCH_ALL_REDUCE_CUH
#define TUTTI_KERNELS_LAUNCH_ALL_REDUCE_CUH

#include "all_reduce.cuh"

namespace tutti
{

struct all_reduce_way {
    bool one_shot, multimem;
};

// A grid, the same on all ranks.
struct all_reduce_grid {
    unsigned blocks, threads;
};

template <typename T> const void *all_reduce_function(all_reduce_way way)
{
    if (way.one_shot) {
        return way.multimem ? reinterpret_cast<const void *>(&all_reduce_kernel<T, true, true>)
                            : reinterpret_cast<const void *>(&all_reduce_kernel<T, true, false>);
    }
    return way.multimem ? reinterpret_cast<const void *>(&all_reduce_kernel<T, false, true>)
                        : reinterpret_cast<const void *>(&all_reduce_kernel<T, false, false>);
}

// Threads on a multiprocessor, of all ranks that share it, that are as fast as more (measured on an
// H200).
constexpr int all_reduce_busy = 512;

// Blocks of `threads` threads that keep the current device busy, where `sharers` ranks share it:
// no more than fit at once, than there are LSA barriers, and than have work. Call it on one rank
// and use the answer on all.
template <typename T>
cudaError_t all_reduce_blocks(all_reduce_way way, unsigned threads, size_t count, int sharers,
                              int barriers, unsigned *blocks_out)
{
    int device = 0, processors = 0, resident = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) {
        error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    }
    if (error == cudaSuccess) {
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &resident, all_reduce_function<T>(way), (int)threads, 0);
    }
    if (error != cudaSuccess) {
        return error;
    }
    int busy = (all_reduce_busy + (int)threads - 1) / (int)threads;
    resident = resident < busy ? resident : busy;
    size_t fit = (size_t)processors * (size_t)resident / (size_t)sharers;
    size_t useful = (count / pack_size<T> + threads - 1) / threads;
    fit = fit < (size_t)barriers ? fit : (size_t)barriers;
    fit = fit < useful ? fit : useful;
    *blocks_out = fit > 0 ? (unsigned)fit : 1;
    return cudaSuccess;
}

// Enqueues the all-reduce of this rank. Errors: cudaErrorInvalidConfiguration for more than 512
// threads or more blocks than LSA barriers, or CUDA's.
template <typename T>
cudaError_t launch_all_reduce(all_reduce_way way, all_reduce_arguments args,
                              const ncclDevComm &comm, int barriers, all_reduce_grid grid,
                              cudaStream_t stream)
{
    if (grid.threads == 0 || grid.threads > all_reduce_threads || grid.blocks == 0 ||
        grid.blocks > (unsigned)barriers) {
        return cudaErrorInvalidConfiguration;
    }
    void *parameters[] = {&args, const_cast<ncclDevComm *>(&comm)};
    return cudaLaunchKernel(all_reduce_function<T>(way), dim3(grid.blocks), dim3(grid.threads),
                            parameters, 0, stream);
}

} // namespace tutti
#endif
