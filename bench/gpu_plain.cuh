// The yardstick: fused RMSNorm as NCCL's device API is first used for it. One block for each row,
// loads and stores of single elements through pointers from the windows, the row kept in this
// rank's output between the steps, two barriers for each row; all ranks in one launch.
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_GPU_PLAIN_CUH
#define BENCH_GPU_PLAIN_CUH

#include "gpu_check.cuh"

struct plain_arguments {
    ncclWindow_t window[MOST_RANKS];
    ncclDevComm comm[MOST_RANKS];
    size_t input_offset, output_offset; // bytes
    size_t tokens, hidden;
    int ranks;
    float eps;
};

__device__ static inline float plain_scale(const float *row, size_t hidden, float eps)
{
    __shared__ float partial[256];
    float squares = 0;
    for (size_t i = threadIdx.x; i < hidden; i += blockDim.x) {
        squares += row[i] * row[i];
    }
    partial[threadIdx.x] = squares;
    __syncthreads();
    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride) {
            partial[threadIdx.x] += partial[threadIdx.x + stride];
        }
        __syncthreads();
    }
    return rsqrtf(partial[0] / (float)hidden + eps);
}

// Blocks of one row are neighbours, so that those that wait for each other run at the same time.
// tokens: a multiple of ranks.
__global__ static void plain_rmsnorm(const __grid_constant__ plain_arguments args)
{
    size_t row = blockIdx.x / args.ranks;
    int rank = (int)(blockIdx.x % args.ranks);
    size_t start = ((size_t)rank * (args.tokens / args.ranks) + row) * args.hidden;
    ncclWindow_t window = args.window[rank];
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier{cta, args.comm[rank], ncclTeamTagLsa(),
                                               (uint32_t)row};
    float *own = (float *)ncclGetLocalPointer(window, args.output_offset) + start;
    barrier.sync(cta, cuda::memory_order_acquire);
    for (size_t i = threadIdx.x; i < args.hidden; i += blockDim.x) {
        float sum = 0;
        for (int peer = 0; peer < args.ranks; peer++) {
            sum += ((const float *)ncclGetLsaPointer(window, args.input_offset, peer))[start + i];
        }
        own[i] = sum;
    }
    cta.sync();
    float scale = plain_scale(own, args.hidden, args.eps);
    for (size_t i = threadIdx.x; i < args.hidden; i += blockDim.x) {
        own[i] *= scale;
    }
    cta.sync();
    for (size_t i = threadIdx.x; i < args.hidden; i += blockDim.x) {
        for (int peer = 0; peer < args.ranks; peer++) {
            ((float *)ncclGetLsaPointer(window, args.output_offset, peer))[start + i] = own[i];
        }
    }
    barrier.sync(cta, cuda::memory_order_release);
}

static inline void run_plain(gpu_team *t, int set)
{
    plain_arguments args = {};
    for (int r = 0; r < t->problem.ranks; r++) {
        args.window[r] = t->window[r];
        args.comm[r] = t->device_comm[r];
    }
    args.input_offset = (size_t)(t->input(0, set) - t->memory[0]);
    args.output_offset = (size_t)(t->output(0, set) - t->memory[0]);
    args.tokens = t->problem.tokens;
    args.hidden = t->problem.hidden;
    args.ranks = t->problem.ranks;
    args.eps = bench_eps;
    plain_rmsnorm<<<(unsigned)args.tokens, 256, 0, t->stream[0]>>>(args);
    CUDA(cudaGetLastError());
}

#endif
