// What launch.cuh and launch_all_reduce.cuh launch, for all element types. instances.cu has it; who
// is linked with that, and says so with TUTTI_KERNELS_APART, does not compile it again.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_INSTANCES_CUH
#define TUTTI_KERNELS_INSTANCES_CUH

#include "launch.cuh"
#include "launch_all_reduce.cuh"

// where: extern, or nothing for the file that has them.
#define TUTTI_INSTANCES_OF(where, type)                                                            \
    where template cudaError_t tutti::launch_rmsnorm<type>(bool, tutti::rmsnorm_arguments,         \
                                                           const ncclDevComm &, int, unsigned,     \
                                                           unsigned, cudaStream_t);                \
    where template cudaError_t tutti::launch_all_reduce<type>(                                     \
        tutti::all_reduce_way, tutti::all_reduce_arguments, const ncclDevComm &, int,              \
        tutti::all_reduce_grid, cudaStream_t);                                                     \
    where template cudaError_t tutti::all_reduce_blocks<type>(tutti::all_reduce_way, unsigned,     \
                                                              size_t, int, int, unsigned *);
#define TUTTI_INSTANCES(where)                                                                     \
    TUTTI_INSTANCES_OF(where, float)                                                               \
    TUTTI_INSTANCES_OF(where, __half)                                                              \
    TUTTI_INSTANCES_OF(where, __nv_bfloat16)

#ifdef TUTTI_KERNELS_APART
TUTTI_INSTANCES(extern)
#endif

#endif
