// The launches that the library makes on real GPUs (src/exec/cuda/kernels.h).
// SPDX-License-Identifier: Apache-2.0
#include "../src/exec/cuda/kernels.h"

#include "launch.cuh"
#include "rmsnorm_team.cuh"

#include <stdint.h>

namespace
{

// A kernel with what its launch needs.
struct chosen {
    const void *kernel;
    unsigned threads;
    unsigned segment;
    size_t shared_bytes;
};

// How ranks come together. WAY_PUSHING: rmsnorm_team_pushing.
enum way { WAY_STREAMS, WAY_MEETING, WAY_PUSHING };

// From so many bytes of a rank on, stores are worth a third meeting.
constexpr size_t pushed_bytes = (size_t)8 << 20;

// Two ranks must choose alike: not by what is a rank's own.
template <typename T> way choose_way(const tt_norm_launch *launch)
{
    size_t all = reinterpret_cast<size_t>(launch->input.base) | launch->input.stride |
                 reinterpret_cast<size_t>(launch->output.base) | launch->output.stride;
    bool pushes = launch->nranks == 2 && launch->rank_count == 1 && launch->alone &&
                  launch->input.base != launch->output.base &&
                  launch->tokens >= pushed_bytes / sizeof(T) / launch->hidden &&
                  tutti::fits_registers<T>(launch->hidden, all);
    return !launch->barriers ? WAY_STREAMS : pushes ? WAY_PUSHING : WAY_MEETING;
}

// 1 and 2 ranks have kernels of their own, and 8 for short rows; else the one for all is as fast.
// two_alone: two ranks, one of them in the launch.
template <typename T, int packs> const void *team_kernel(int ranks, bool two_alone, way way)
{
#define KERNEL(name, n) reinterpret_cast<const void *>(&tutti::name<T, packs, n>)
    if (way == WAY_PUSHING) {
        return reinterpret_cast<const void *>(&tutti::rmsnorm_team_pushing<T, packs>);
    }
    if (way == WAY_MEETING) {
        return two_alone ? KERNEL(rmsnorm_team_meeting, 2) : KERNEL(rmsnorm_team_meeting, 0);
    }
    if (packs == 1 && ranks == 8) {
        return KERNEL(rmsnorm_team, packs == 1 ? 8 : 0);
    }
    return ranks == 1   ? KERNEL(rmsnorm_team, 1)
           : ranks == 2 ? KERNEL(rmsnorm_team, 2)
                        : KERNEL(rmsnorm_team, 0);
#undef KERNEL
}

template <typename T> const void *shared_kernel(way way)
{
    return way == WAY_PUSHING ? reinterpret_cast<const void *>(&tutti::rmsnorm_team_pushing<T, 0>)
           : way == WAY_MEETING
               ? reinterpret_cast<const void *>(&tutti::rmsnorm_team_meeting<T, 0, 0>)
               : reinterpret_cast<const void *>(&tutti::rmsnorm_team<T, 0, 0>);
}

template <typename T> bool fits_registers(const tt_norm_launch *launch)
{
    size_t all = reinterpret_cast<size_t>(launch->input.base) | launch->input.stride |
                 reinterpret_cast<size_t>(launch->output.base) | launch->output.stride;
    for (int i = 0; i < launch->rank_count; i++) {
        const tt_norm_rank *own = &launch->rank[i];
        all |= reinterpret_cast<size_t>(own->gamma) | reinterpret_cast<size_t>(own->residual) |
               reinterpret_cast<size_t>(own->residual_out);
    }
    return tutti::fits_registers<T>(launch->hidden, all);
}

template <typename T> cudaError_t choose_shared(const tt_norm_launch *launch, way way, chosen *out)
{
    static tutti::shared_grants granted;
    unsigned most; // granted at once, so that it is asked for when kernels are loaded
    cudaError_t error = tutti::choose_segment(SIZE_MAX, 0, &most);
    if (error == cudaSuccess) {
        error = tutti::choose_segment(launch->hidden, 0, &out->segment);
    }
    if (error != cudaSuccess) {
        return error;
    }
    out->kernel = shared_kernel<T>(way);
    out->threads = tutti::norm_lanes;
    out->shared_bytes = out->segment * sizeof(float);
    return tutti::allow_shared(out->kernel, way, most * sizeof(float), granted);
}

template <typename T> void choose_registers(const tt_norm_launch *launch, way way, chosen *out)
{
    bool two_alone = launch->nranks == 2 && launch->rank_count <= 1;
#define KERNEL(packs) team_kernel<T, packs>(launch->nranks, two_alone, way)
    out->kernel = TUTTI_FOR_PACKS(launch->hidden, KERNEL);
#undef KERNEL
    out->threads = tutti::register_threads<T>;
    out->segment = 0;
    out->shared_bytes = 0;
}

template <typename T> cudaError_t choose_for(const tt_norm_launch *launch, chosen *out)
{
    way way = choose_way<T>(launch);
    if (!fits_registers<T>(launch)) {
        return choose_shared<T>(launch, way, out);
    }
    choose_registers<T>(launch, way, out);
    return cudaSuccess;
}

// The number of blocks that are resident at once on the current device, of the kernel.
cudaError_t count_resident(const chosen *kernel, unsigned *blocks_out)
{
    int device, processors = 0, resident = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) {
        error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    }
    if (error == cudaSuccess) {
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &resident, kernel->kernel, (int)kernel->threads, kernel->shared_bytes);
    }
    *blocks_out = (unsigned)(resident * processors);
    return error;
}

template <typename T>
cudaError_t count_way(const tt_norm_launch *launch, way way, unsigned *blocks_out)
{
    chosen kernel;
    cudaError_t error = choose_shared<T>(launch, way, &kernel);
    if (error == cudaSuccess) {
        error = count_resident(&kernel, blocks_out);
    }
    if (error == cudaSuccess && tutti::fits_registers<T>(launch->hidden, 0)) {
        unsigned with_registers;
        choose_registers<T>(launch, way, &kernel);
        error = count_resident(&kernel, &with_registers);
        *blocks_out = *blocks_out < with_registers ? *blocks_out : with_registers;
    }
    return error;
}

// Of whichever kernel a rank takes: how its arrays are aligned is its own affair, how many blocks
// it has is not.
template <typename T> cudaError_t count_for(const tt_norm_launch *launch, unsigned *blocks_out)
{
    cudaError_t error =
        count_way<T>(launch, launch->barriers ? WAY_MEETING : WAY_STREAMS, blocks_out);
    if (error == cudaSuccess && launch->barriers && launch->nranks == 2) {
        unsigned pushing;
        error = count_way<T>(launch, WAY_PUSHING, &pushing);
        *blocks_out = *blocks_out < pushing ? *blocks_out : pushing;
    }
    return error;
}

// Loads the kernels of all shapes for one way.
template <typename T> cudaError_t load_way(const tt_norm_launch *launch, way way)
{
    chosen kernel;
    cudaFuncAttributes attributes;
    cudaError_t error = choose_shared<T>(launch, way, &kernel);
    if (error == cudaSuccess) {
        error = cudaFuncGetAttributes(&attributes, kernel.kernel);
    }
    tt_norm_launch shape = *launch;
    for (shape.hidden = tutti::norm_chunk;
         error == cudaSuccess && shape.hidden <= tutti::register_hidden; shape.hidden *= 2) {
        choose_registers<T>(&shape, way, &kernel);
        error = cudaFuncGetAttributes(&attributes, kernel.kernel);
    }
    return error;
}

template <typename T> cudaError_t load_for(const tt_norm_launch *launch)
{
    if (!launch->barriers) {
        return load_way<T>(launch, WAY_STREAMS);
    }
    cudaError_t error = load_way<T>(launch, WAY_MEETING);
    return error == cudaSuccess && launch->nranks == 2 ? load_way<T>(launch, WAY_PUSHING) : error;
}

// f<T>(...) for the launch's type.
#define FOR_TYPE(type, f, ...)                                                                     \
    ((type) == ncclFloat32    ? f<float>(__VA_ARGS__)                                              \
     : (type) == ncclFloat16  ? f<__half>(__VA_ARGS__)                                             \
     : (type) == ncclBfloat16 ? f<__nv_bfloat16>(__VA_ARGS__)                                      \
                              : cudaErrorInvalidValue)

bool is_possible(const tt_norm_launch *launch)
{
    return launch->hidden > 0 && launch->nranks > 0 && launch->blocks > 0 &&
           launch->rank_count > 0 && launch->rank_count <= TT_NORM_RANKS;
}

} // namespace

extern "C" cudaError_t tt_norm_load(const struct tt_norm_launch *launch)
{
    return FOR_TYPE(launch->data_type, load_for, launch);
}

extern "C" cudaError_t tt_norm_most_blocks(const struct tt_norm_launch *launch, int sharers,
                                           unsigned *blocks_out)
{
    cudaError_t error = FOR_TYPE(launch->data_type, count_for, launch, blocks_out);
    if (error != cudaSuccess) {
        return error;
    }
    *blocks_out /= (unsigned)sharers;
    return *blocks_out > 0 ? cudaSuccess : cudaErrorInvalidValue;
}

// Without barriers a block for each row is fastest: the next ones load while others store.
extern "C" cudaError_t tt_norm_wished_blocks(const struct tt_norm_launch *launch, int sharers,
                                             unsigned *blocks_out)
{
    size_t ranks = (size_t)launch->nranks;
    size_t wish = (launch->tokens + ranks - 1) / ranks, most_grid = 1 << 20;
    if (launch->barriers) {
        unsigned most;
        cudaError_t error = tt_norm_most_blocks(launch, sharers, &most);
        if (error != cudaSuccess) {
            return error;
        }
        wish = wish < most ? wish : most;
    }
    wish = wish < most_grid ? wish : most_grid;
    *blocks_out = wish > 0 ? (unsigned)wish : 1;
    return cudaSuccess;
}

extern "C" cudaError_t tt_norm_start(const struct tt_norm_launch *launch, cudaStream_t stream)
{
    chosen kernel;
    if (!is_possible(launch)) {
        return cudaErrorInvalidValue;
    }
    cudaError_t error = FOR_TYPE(launch->data_type, choose_for, launch, &kernel);
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
    tutti::team_comms<tutti::team_ranks> comms = {}; // a kernel takes as many as it knows of
    for (int i = 0; i < launch->rank_count; i++) {
        const tt_norm_rank *own = &launch->rank[i];
        args.rank[i] = {own->rank, own->gamma, own->residual, own->residual_out};
        if (launch->barriers) {
            comms.comm[i] = *own->device_comm;
        }
    }
    void *parameters[] = {&args, &comms};
    cudaLaunchAttribute follows = {}; // the kernels wait for what is before them themselves
    follows.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    follows.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(launch->blocks * args.count);
    config.blockDim = dim3(kernel.threads);
    config.dynamicSmemBytes = kernel.shared_bytes;
    config.stream = stream;
    config.attrs = &follows;
    config.numAttrs = 1;
    return cudaLaunchKernelExC(&config, kernel.kernel, parameters);
}
