// The launches that the library makes on real GPUs (src/exec/cuda/kernels.h).
// SPDX-License-Identifier: Apache-2.0
#include "../src/exec/cuda/kernels.h"

#include "launch.cuh"
#include "rmsnorm_team.cuh"

namespace
{

// A kernel with what its launch needs.
struct chosen {
    const void *kernel;
    unsigned segment;
    size_t shared_bytes;
};

template <typename T> cudaError_t choose_for(const tt_norm_launch *launch, chosen *out)
{
    static tutti::shared_grants granted;
    cudaError_t error = tutti::choose_segment(launch->hidden, 0, &out->segment);
    if (error != cudaSuccess) {
        return error;
    }
    out->kernel = launch->barriers ? reinterpret_cast<const void *>(&tutti::rmsnorm_team_meeting<T>)
                                   : reinterpret_cast<const void *>(&tutti::rmsnorm_team<T>);
    out->shared_bytes = out->segment * sizeof(float);
    return tutti::allow_shared(out->kernel, launch->barriers, out->shared_bytes, granted);
}

cudaError_t choose(const tt_norm_launch *launch, chosen *out)
{
    switch (launch->data_type) {
    case ncclFloat32:
        return choose_for<float>(launch, out);
    case ncclFloat16:
        return choose_for<__half>(launch, out);
    case ncclBfloat16:
        return choose_for<__nv_bfloat16>(launch, out);
    default:
        return cudaErrorInvalidValue;
    }
}

// Blocks of the chosen kernel that are resident at once on one multiprocessor, and of those the
// device has.
cudaError_t count_resident(const chosen *kernel, int *resident_out, int *processors_out)
{
    int device;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) {
        error = cudaDeviceGetAttribute(processors_out, cudaDevAttrMultiProcessorCount, device);
    }
    if (error == cudaSuccess) {
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            resident_out, kernel->kernel, (int)tutti::norm_lanes, kernel->shared_bytes);
    }
    return error;
}

bool is_possible(const tt_norm_launch *launch)
{
    return launch->hidden > 0 && launch->nranks > 0 && launch->blocks > 0 &&
           launch->rank_count > 0 && launch->rank_count <= TT_NORM_RANKS;
}

} // namespace

extern "C" cudaError_t tt_norm_most_blocks(const struct tt_norm_launch *launch, int sharers,
                                           unsigned *blocks_out)
{
    chosen kernel;
    int resident = 0, processors = 0;
    cudaError_t error = choose(launch, &kernel);
    if (error == cudaSuccess) {
        error = count_resident(&kernel, &resident, &processors);
    }
    if (error != cudaSuccess) {
        return error;
    }
    *blocks_out = (unsigned)(resident * processors) / (unsigned)sharers;
    return *blocks_out > 0 ? cudaSuccess : cudaErrorInvalidValue;
}

extern "C" cudaError_t tt_norm_wished_blocks(const struct tt_norm_launch *launch, int sharers,
                                             unsigned *blocks_out)
{
    unsigned most;
    cudaError_t error = tt_norm_most_blocks(launch, 1, &most);
    if (error != cudaSuccess) {
        return error;
    }
    size_t ranks = (size_t)launch->nranks;
    size_t rows = (launch->tokens + ranks - 1) / ranks;
    unsigned wish = most / (unsigned)sharers;
    wish = rows < wish ? (unsigned)rows : wish;
    *blocks_out = wish > 0 ? wish : 1;
    return cudaSuccess;
}

extern "C" cudaError_t tt_norm_start(const struct tt_norm_launch *launch, cudaStream_t stream)
{
    chosen kernel;
    if (!is_possible(launch)) {
        return cudaErrorInvalidValue;
    }
    cudaError_t error = choose(launch, &kernel);
    if (error != cudaSuccess) {
        return error;
    }
    tutti::team_arguments args = {};
    args.input = {launch->input.base, launch->input.stride};
    args.output = {launch->output.base, launch->output.stride};
    args.tokens = launch->tokens;
    args.hidden = launch->hidden;
    args.eps = launch->eps;
    args.segment = kernel.segment;
    args.ranks = launch->nranks;
    args.count = (unsigned)launch->rank_count;
    tutti::team_comms comms = {};
    for (int i = 0; i < launch->rank_count; i++) {
        const tt_norm_rank *own = &launch->rank[i];
        args.rank[i] = {own->rank, own->gamma, own->residual, own->residual_out};
        if (launch->barriers) {
            comms.comm[i] = *own->device_comm;
        }
    }
    void *parameters[] = {&args, &comms};
    return cudaLaunchKernel(kernel.kernel, dim3(launch->blocks * args.count),
                            dim3(tutti::norm_lanes), parameters, kernel.shared_bytes, stream);
}
