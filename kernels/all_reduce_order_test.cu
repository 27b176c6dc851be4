// All-reduce after all-reduce without a pause: new values each time, 1 to 64 elements, random
// delays, and every element of every rank checked. The entry barrier with acquire and release, and
// relaxed with fences around it, as all_reduce.cuh asks for.
//   all_reduce_order_test [-t CASE]      some hundred iterations of everything
//   all_reduce_order_test long           a million in one kernel, launches besides
//   all_reduce_order_test planted        one fence is missing: the thread sanitizer must see it
// SPDX-License-Identifier: Apache-2.0
#include "launch_all_reduce.cuh"

#include "ranks_for_tests.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#ifdef __SANITIZE_THREAD__
static int in_one_kernel = 60, launches = 10;
#else
static int in_one_kernel = 400, launches = 100;
#endif
enum { MOST = 64, OUTPUT = 4096 };

// How the inputs become visible to the peers. ORDER_MISSING is wrong.
enum order { ORDER_ACQ_REL, ORDER_FENCES, ORDER_MISSING };

__host__ __device__ static inline unsigned mix(unsigned a, unsigned b, unsigned c)
{
    unsigned hash = a * 2654435761u ^ b * 2246822519u ^ c * 3266489917u;
    hash ^= hash >> 15;
    hash *= 2246822519u;
    return hash ^ hash >> 13;
}

// What rank `rank` contributes to element i in an iteration: sums of 8 are exact in float.
__device__ static float contribution(int iteration, int rank, unsigned i)
{
    return (float)(mix((unsigned)iteration, (unsigned)rank, i) % 65536);
}

__device__ static size_t count_of(int iteration)
{
    return 1 + mix((unsigned)iteration, 77, 5) % MOST;
}

// Now and then some threads are late.
__device__ static void delay(int iteration, int rank)
{
    unsigned chance = mix((unsigned)iteration, (unsigned)rank, threadIdx.x);
    if (chance % 16 == 0) {
        __nanosleep(chance >> 8 & 1023);
    }
}

__device__ static void put_input(float *input, int iteration, int rank)
{
    for (unsigned i = threadIdx.x; i < count_of(iteration); i += blockDim.x) {
        input[i] = contribution(iteration, rank, i);
    }
}

// Adds this thread's wrong elements to *wrong.
__device__ static void check_output(const float *output, int iteration, int ranks, unsigned *wrong)
{
    for (unsigned i = threadIdx.x; i < count_of(iteration); i += blockDim.x) {
        float sum = 0;
        for (int r = 0; r < ranks; r++) {
            sum += contribution(iteration, r, i);
        }
        if (output[i] != sum) {
            atomicAdd(wrong, 1u);
        }
    }
}

template <bool is_one_shot, bool multimem>
__global__ void repeat(tutti::all_reduce_arguments args, ncclDevComm comm, int iterations,
                       enum order order, unsigned *wrong)
{
    ncclCoopCta cta;
    tutti::all_reduce_barrier barrier{cta, comm, ncclTeamTagLsa(), blockIdx.x, multimem};
    float *input = (float *)ncclGetLsaPointer(args.input.window, args.input.offset, comm.lsaRank);
    const float *output =
        (const float *)ncclGetLsaPointer(args.output.window, args.output.offset, comm.lsaRank);
    for (int i = 0; i < iterations; i++) {
        args.count = count_of(i);
        delay(i, comm.lsaRank);
        put_input(input, i, comm.lsaRank);
        if (order == ORDER_FENCES) {
            cta.sync();
            __threadfence_system(); // between the block's writes and the arrival
        }
        tutti::all_reduce_meet(args, barrier);
        if (order == ORDER_FENCES) {
            __threadfence_system(); // between the peers' arrivals and the block's reads
            cta.sync();
        }
        tutti::all_reduce_rest<float, is_one_shot, multimem>(args, comm, barrier);
        check_output(output, i, comm.lsaSize, wrong);
        cta.sync(); // the next input is written, in place, over what others still check
    }
}

// The same with a launch for each step.
__global__ void fill(float *input, int iteration, int rank)
{
    delay(iteration, rank);
    put_input(input, iteration, rank);
}
__global__ void check(const float *output, int iteration, int ranks, unsigned *wrong)
{
    check_output(output, iteration, ranks, wrong);
}

struct run_options {
    bool one_shot, multimem, in_place;
    enum order order;
    unsigned threads;
};

static tutti::all_reduce_arguments arguments_of(const ranks *all, int rank, const run_options *run)
{
    tutti::all_reduce_arguments args = {{all->window[rank], 0},
                                        {all->window[rank], run->in_place ? 0u : OUTPUT},
                                        MOST,
                                        run->order == ORDER_ACQ_REL ? cuda::memory_order_acq_rel
                                                                    : cuda::memory_order_relaxed};
    return args;
}

static void launch_repeat(const ranks *all, int rank, const run_options *run, unsigned *wrong)
{
    auto kernel = run->one_shot   ? run->multimem ? &repeat<true, true> : &repeat<true, false>
                    : run->multimem ? &repeat<false, true>
                                  : &repeat<false, false>;
    tutti::all_reduce_arguments args = arguments_of(all, rank, run);
    enum order order = run->order;
    void *parameters[] = {&args, (void *)&all->device_comm[rank], &in_one_kernel, &order, &wrong};
    EXPECT_CUDA(cudaLaunchKernel((const void *)kernel, dim3(1), dim3(run->threads), parameters, 0,
                                 all->stream[rank]));
}

static void launch_steps(const ranks *all, const run_options *run, unsigned **wrong)
{
    for (int i = 0; i < launches; i++) {
        for (int r = 0; r < all->count; r++) {
            tutti::all_reduce_arguments args = arguments_of(all, r, run);
            char *memory = all->memory[r];
            EXPECT_CUDA(cudaSetDevice(all->device[r]));
            fill<<<1, run->threads, 0, all->stream[r]>>>((float *)memory, i, r);
            EXPECT_CUDA(tutti::launch_all_reduce<float>({run->one_shot, run->multimem}, args,
                                                        all->device_comm[r], BARRIERS,
                                                        {1, run->threads}, all->stream[r]));
            check<<<1, run->threads, 0, all->stream[r]>>>(
                (const float *)(memory + args.output.offset), i, all->count, wrong[r]);
        }
    }
}

static void run_way(const ranks *all, const run_options *run, bool in_steps)
{
    unsigned *wrong[MAX_RANKS];
    for (int r = 0; r < all->count; r++) {
        EXPECT_CUDA(cudaSetDevice(all->device[r]));
        EXPECT_CUDA(cudaMalloc((void **)&wrong[r], sizeof(unsigned)));
        EXPECT_CUDA(cudaMemset(wrong[r], 0, sizeof(unsigned)));
        EXPECT_CUDA(cudaDeviceSynchronize());
    }
    if (in_steps) {
        launch_steps(all, run, wrong);
    } else {
        for (int r = 0; r < all->count; r++) {
            EXPECT_CUDA(cudaSetDevice(all->device[r]));
            launch_repeat(all, r, run, wrong[r]);
        }
    }
    wait_all(all);
    for (int r = 0; r < all->count; r++) {
        unsigned count = 0;
        EXPECT_CUDA(cudaSetDevice(all->device[r]));
        EXPECT_CUDA(cudaMemcpy(&count, wrong[r], sizeof count, cudaMemcpyDeviceToHost));
        if (!EXPECT_EQ(count, 0)) {
            printf("  %s%s%s, %d ranks, %u threads, order %d, %s, rank %d\n",
                   run->one_shot ? "one-shot" : "two-shot", run->multimem ? " multimem" : "",
                   run->in_place ? " in place" : "", all->count, run->threads, run->order,
                   in_steps ? "launches" : "one kernel", r);
        }
        EXPECT_CUDA(cudaFree(wrong[r]));
    }
}

static void check_ranks(int count, unsigned threads, bool in_steps)
{
    ranks all;
    if (!open_ranks(&all, count, 2 * OUTPUT)) {
        return;
    }
    for (int i = 0; i < 16; i++) {
        run_options run = {(i & 1) != 0, (i & 2) != 0, (i & 4) != 0,
                           (i & 8) != 0 ? ORDER_FENCES : ORDER_ACQ_REL, threads};
        // Launches leave no place for fences around the entry barrier.
        if ((!run.multimem || all.multimem) && !(in_steps && run.order == ORDER_FENCES)) {
            run_way(&all, &run, in_steps);
        }
    }
    close_ranks(&all);
}

static void one_kernel()
{
    check_ranks(2, 32, false);
    check_ranks(3, 1, false);
}
static void one_kernel_eight_ranks()
{
    check_ranks(8, 1, false);
}
static void launch_after_launch()
{
    check_ranks(2, 1, true);
    check_ranks(3, 32, true);
}

static int run_planted()
{
    ranks all;
    if (!open_ranks(&all, 2, 2 * OUTPUT)) {
        return 1;
    }
    in_one_kernel = 20;
    run_options run = {false, false, false, ORDER_MISSING, 1};
    run_way(&all, &run, false);
    close_ranks(&all);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "planted") == 0) {
        return run_planted();
    }
    if (argc == 2 && strcmp(argv[1], "long") == 0) {
        in_one_kernel = 1000000;
        check_ranks(2, 1, false);
        launches = 20000;
        check_ranks(3, 1, true);
        return expect_result();
    }
    RUN(one_kernel);
    RUN(one_kernel_eight_ranks);
    RUN(launch_after_launch);
    return expect_result();
}
