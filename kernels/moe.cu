// Launches of the kernels of moe.cuh for libtutti_parallel (parallel/moe_launch.h).
// SPDX-License-Identifier: Apache-2.0
#include "moe.cuh"

#include "../parallel/moe_launch.h"
#include "tutti.h"

namespace
{

#ifdef VGPU_DEVICE_RUNTIME_H
constexpr unsigned threads = 32; // fibers are no faster the more there are
#else
constexpr unsigned threads = 256;
#endif

const void *combine_kernel(ncclDataType_t type)
{
    return type == ncclFloat64    ? (const void *)tutti::moe_combine<double>
           : type == ncclBfloat16 ? (const void *)tutti::moe_combine<__nv_bfloat16>
                                  : (const void *)tutti::moe_combine<float>;
}

const void *backward_kernel(ncclDataType_t row_type)
{
    return row_type == ncclFloat64    ? (const void *)tutti::moe_backward<double, double>
           : row_type == ncclBfloat16 ? (const void *)tutti::moe_backward<float, __nv_bfloat16>
                                      : (const void *)tutti::moe_backward<float, float>;
}

const void *kernel_of(enum moe_stage stage, const struct moe_job *job)
{
    switch (stage) {
    case MOE_DISPATCH:
        return (const void *)tutti::moe_dispatch;
    case MOE_COMBINE:
        return combine_kernel(job->type);
    default:
        return backward_kernel(job->row_type);
    }
}

} // namespace

extern "C" cudaError_t moe_launch(enum moe_stage stage, const struct moe_job *job,
                                  const struct moe_team *team, cudaStream_t stream)
{
    struct moe_job work = *job;
    ncclWindow_t window = team->window;
    void *parameters[] = {&work, &window, const_cast<ncclDevComm *>(team->comm)};
    if (stage == MOE_SCATTER) { // meets nobody
        const void *kernel = job->type == ncclFloat64 ? (const void *)tutti::moe_scatter<double>
                                                      : (const void *)tutti::moe_scatter<float>;
        return cudaLaunchKernel(kernel, dim3(team->blocks), dim3(threads), parameters, 0, stream);
    }
    return cudaLaunchKernel(kernel_of(stage, job), dim3(team->blocks), dim3(threads), parameters, 0,
                            stream);
}

extern "C" ncclResult_t moe_most_blocks(ncclComm_t comm, ncclDataType_t type, int *blocks)
{
    const void *const kernels[] = {(const void *)tutti::moe_dispatch, combine_kernel(type),
                                   combine_kernel(type == ncclBfloat16 ? ncclFloat32 : type),
                                   backward_kernel(type)};
    *blocks = 1 << 16;
    for (const void *kernel : kernels) {
        int most = 0;
        ncclResult_t result = tuttiMaxBlocks(kernel, (int)threads, 0, comm, &most);
        if (result != ncclSuccess) {
            return result;
        }
        *blocks = most < *blocks ? most : *blocks;
    }
    return ncclSuccess;
}
