// The kernels for all element types, to see that they compile for real GPUs.
// SPDX-License-Identifier: Apache-2.0
#include "launch.cuh"

template cudaError_t tutti::launch_rmsnorm<float>(bool, tutti::rmsnorm_arguments,
                                                  const ncclDevComm &, int, unsigned, unsigned,
                                                  cudaStream_t);
template cudaError_t tutti::launch_rmsnorm<__half>(bool, tutti::rmsnorm_arguments,
                                                   const ncclDevComm &, int, unsigned, unsigned,
                                                   cudaStream_t);
template cudaError_t tutti::launch_rmsnorm<__nv_bfloat16>(bool, tutti::rmsnorm_arguments,
                                                          const ncclDevComm &, int, unsigned,
                                                          unsigned, cudaStream_t);
