// How fast a kernel can move the bytes of an operation at all on one device: every input to its
// output, with nothing in between, as several kernels do it; the fastest of them is the limit.
// They begin before the launch before them has ended, as the library's own do.
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_GPU_LIMIT_CUH
#define BENCH_GPU_LIMIT_CUH

#include "../kernels/share.cuh"
#include "gpu_team.cuh"

#include <string.h>

struct move_arguments {
    const char *input; // of rank 0
    char *output;
    size_t stride; // from rank to rank
    int ranks;
};

// A block moves blockDim.x * packs times 16 bytes; neighbours are of different ranks.
template <int packs, bool streaming>
__global__ void move_packs(const __grid_constant__ move_arguments args)
{
    tutti::let_next_begin();
    tutti::await_stream();
    size_t offset = (size_t)(blockIdx.x % args.ranks) * args.stride;
    size_t i = (size_t)(blockIdx.x / args.ranks) * blockDim.x * packs + threadIdx.x;
    const float4 *from = (const float4 *)(args.input + offset) + i;
    float4 *to = (float4 *)(args.output + offset) + i;
    float4 value[packs];
    TUTTI_UNROLL
    for (int k = 0; k < packs; k++) {
        value[k] = streaming ? __ldcs(from + k * blockDim.x) : from[k * blockDim.x];
    }
    TUTTI_UNROLL
    for (int k = 0; k < packs; k++) {
        if (streaming) {
            __stcs(to + k * blockDim.x, value[k]);
        } else {
            to[k * blockDim.x] = value[k];
        }
    }
}

template <int packs, int threads, bool streaming> static void run_move(gpu_team *t, int set)
{
    size_t bytes = t->problem.bytes(), block_bytes = (size_t)packs * threads * 16;
    must(bytes % block_bytes == 0, "a copy in whole blocks");
    move_arguments args = {t->base + (t->input(0, set) - t->memory[0]),
                           t->base + (t->output(0, set) - t->memory[0]), t->stride,
                           t->problem.ranks};
    void *parameters[] = {&args};
    cudaLaunchAttribute follows = {};
    follows.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    follows.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(bytes / block_bytes) * (unsigned)t->problem.ranks);
    config.blockDim = dim3(threads);
    config.stream = t->stream[0];
    config.attrs = &follows;
    config.numAttrs = 1;
    CUDA(cudaLaunchKernelExC(&config, (const void *)&move_packs<packs, streaming>, parameters));
}

// Ends the program where a copy is none.
static inline void check_move(gpu_team *t, const gpu_way *way)
{
    size_t bytes = t->problem.bytes();
    std::vector<char> input(bytes), output(bytes);
    for (int r = 0; r < t->problem.ranks; r++) {
        CUDA(cudaMemset(t->output(r, 0), 0xff, bytes));
    }
    wait_team(t);
    way->run(t, 0);
    wait_team(t);
    for (int r = 0; r < t->problem.ranks; r++) {
        CUDA(cudaMemcpy(input.data(), t->input(r, 0), bytes, cudaMemcpyDeviceToHost));
        CUDA(cudaMemcpy(output.data(), t->output(r, 0), bytes, cudaMemcpyDeviceToHost));
        must(memcmp(input.data(), output.data(), bytes) == 0, way->name);
    }
}

// Adds the copies to what is measured. First is the check of each.
static inline void add_limits(gpu_team *t, std::vector<gpu_way> *ways)
{
    const gpu_way limits[] = {
        {"1 x 16 bytes, 256 threads", run_move<1, 256, false>, false, {}, {}, true},
        {"1 x 16 bytes, 256 threads, streaming", run_move<1, 256, true>, false, {}, {}, true},
        {"1 x 16 bytes, 512 threads", run_move<1, 512, false>, false, {}, {}, true},
        {"1 x 16 bytes, 512 threads, streaming", run_move<1, 512, true>, false, {}, {}, true},
        {"2 x 16 bytes, 128 threads", run_move<2, 128, false>, false, {}, {}, true},
        {"2 x 16 bytes, 128 threads, streaming", run_move<2, 128, true>, false, {}, {}, true},
        {"4 x 16 bytes, 256 threads", run_move<4, 256, false>, false, {}, {}, true},
        {"8 x 16 bytes, 256 threads, streaming", run_move<8, 256, true>, false, {}, {}, true},
    };
    for (const gpu_way &limit : limits) {
        check_move(t, &limit);
        ways->push_back(limit);
    }
}

// The fastest of the copies, NULL where there are none.
static inline const gpu_way *find_limit(const std::vector<gpu_way> *ways)
{
    const gpu_way *best = nullptr;
    for (const gpu_way &way : *ways) {
        if (way.is_limit && (best == nullptr || way.median() < best->median())) {
            best = &way;
        }
    }
    return best;
}

#endif
