// The kernels for all element types, to see that they compile for real GPUs.
// SPDX-License-Identifier: Apache-2.0
#include "launch.cuh"
#include "launch_all_reduce.cuh"

template cudaError_t tutti::launch_rmsnorm<float>(bool, tutti::rmsnorm_arguments,
                                                  const ncclDevComm &, int, unsigned, unsigned,
                                                  cudaStream_t);
template cudaError_t tutti::launch_rmsnorm<__half>(bool, tutti::rmsnorm_arguments,
                                                   const ncclDevComm &, int, unsigned, unsigned,
                                                   cudaStream_t);
template cudaError_t tutti::launch_rmsnorm<__nv_bfloat16>(bool, tutti::rmsnorm_arguments,
                                                          const ncclDevComm &, int, unsigned,
                                                          unsigned, cudaStream_t);

#define ALL_REDUCE(type)                                                                           \
    template cudaError_t tutti::launch_all_reduce<type>(                                           \
        tutti::all_reduce_way, tutti::all_reduce_arguments, const ncclDevComm &, int,              \
        tutti::all_reduce_grid, cudaStream_t);                                                     \
    template cudaError_t tutti::all_reduce_blocks<type>(tutti::all_reduce_way, unsigned, size_t,   \
                                                        int, int, unsigned *);
ALL_REDUCE(float)
ALL_REDUCE(__half)
ALL_REDUCE(__nv_bfloat16)
