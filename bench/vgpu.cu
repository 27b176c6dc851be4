// What virtual GPUs cost. Ratios, each taken in one run with both sides alternating, as medians: a
// kernel's barrier; the native fused RMSNorm against copies of the same bytes; the kernels against
// native C that does the same.
// SPDX-License-Identifier: Apache-2.0
#include "../kernels/launch.cuh"
#include "../kernels/launch_all_reduce.cuh"
#include "copies.h"
#include "native_all_reduce.h"
#include "team.cuh"
#include "usage.h"

#include <tutti.h>

// How much slower than native C a kernel may be.
static const double kernel_bar = 3;

__global__ void many_barriers(int count, int *sink)
{
    int sum = 0;
    for (int i = 0; i < count; i++) {
        __syncthreads();
        sum += i;
    }
    if (sum < 0) {
        *sink = sum;
    }
}

static void bench_barrier()
{
    const int count = 4000, threads = 256;
    std::vector<double> costs;
    CUDA(cudaSetDevice(0));
    for (int i = 0; i < rounds; i++) {
        double start = now();
        many_barriers<<<1, threads>>>(count, nullptr);
        CUDA(cudaDeviceSynchronize());
        costs.push_back((now() - start) / ((double)count * threads));
    }
    double cost = median(costs) * 1e9;
    char text[128];
    snprintf(text, sizeof text, "barrier, %d threads a block: %.1f ns per thread (bar 20)", threads,
             cost);
    verdict(cost < 20, text);
}

static double run_copies(team *t)
{
    char *from[ranks], *to[ranks];
    for (int r = 0; r < ranks; r++) {
        from[r] = t->memory[r];
        to[r] = t->memory[r] + t->bytes;
    }
    return bench_copies(ranks, to, from, t->bytes);
}

// The operations, native and as kernels.
template <typename T> struct rmsnorm {
    static constexpr size_t hidden = 1024;

    static void describe(const team *t)
    {
        printf("RMSNorm %zu x %zu %s", t->bytes / sizeof(T) / hidden, hidden, type_facts<T>::name);
    }
    static double native(team *t)
    {
        double start = now();
        for (int r = 0; r < ranks; r++) {
            NCCL(tuttiAllReduceRMSNorm(t->memory[r], t->memory[r] + t->bytes,
                                       t->bytes / sizeof(T) / hidden, hidden, nullptr,
                                       type_facts<T>::type, t->comm[r], t->stream[r]));
        }
        return wait_since(t, start);
    }
    static double kernel(team *t, bool multimem)
    {
        double start = now();
        for (int r = 0; r < ranks; r++) {
            tutti::rmsnorm_arguments args = {};
            args.input = args.output = t->window[r];
            args.output_offset = t->bytes;
            args.tokens = t->bytes / sizeof(T) / hidden;
            args.hidden = hidden;
            args.eps = 1e-6f;
            CUDA(cudaSetDevice(r));
            CUDA(tutti::launch_rmsnorm<T>(multimem, args, t->device_comm[r], t->blocks,
                                          (unsigned)t->blocks, 1, t->stream[r]));
        }
        return wait_since(t, start);
    }
};

template <typename T> struct all_reduce {
    static void describe(const team *t)
    {
        printf("all-reduce of %zu %s", t->bytes / sizeof(T), type_facts<T>::name);
    }
    static double native(team *t)
    {
        bench_all_reduce work = {};
        work.ranks = ranks;
        work.count = t->bytes / sizeof(T);
        work.type = type_facts<T>::type;
        work.arrivals = t->arrivals;
        work.before = t->arrived;
        for (int r = 0; r < ranks; r++) {
            work.in[r] = t->memory[r];
            work.out[r] = t->memory[r] + t->bytes;
        }
        double start = now();
        for (int r = 0; r < ranks; r++) {
            work.rank = r;
            CUDA(cudaSetDevice(r));
            CUDA(bench_native_all_reduce(&work, (unsigned)t->blocks, t->stream[r]));
        }
        t->arrived += 2 * ranks * (unsigned)t->blocks;
        return wait_since(t, start);
    }
    static double kernel(team *t, bool multimem)
    {
        tutti::all_reduce_grid grid = {(unsigned)t->blocks, 1};
        double start = now();
        for (int r = 0; r < ranks; r++) {
            tutti::all_reduce_arguments args = {{t->window[r], 0},
                                                {t->window[r], t->bytes},
                                                t->bytes / sizeof(T),
                                                cuda::memory_order_acq_rel};
            CUDA(cudaSetDevice(r));
            CUDA(tutti::launch_all_reduce<T>({false, multimem}, args, t->device_comm[r], t->blocks,
                                             grid, t->stream[r]));
        }
        return wait_since(t, start);
    }
};

// The kernels of one operation against native C.
template <typename T, typename Operation> static void bench_kernels(size_t bytes)
{
    team t;
    std::vector<double> native, kernel[2], ratio[2];
    open_team(&t, bytes);
    fill_team<T>(&t);
    Operation::native(&t); // once to warm up
    for (int i = 0; i < rounds; i++) {
        native.push_back(Operation::native(&t));
        for (int way = 0; way < (t.multimem ? 2 : 1); way++) {
            kernel[way].push_back(Operation::kernel(&t, way == 1));
            ratio[way].push_back(kernel[way].back() / native.back());
        }
    }
    Operation::describe(&t);
    printf(", %d ranks, us: native %.0f, lsa kernel %.0f", ranks, median(native) * 1e6,
           median(kernel[0]) * 1e6);
    if (t.multimem) {
        printf(", multimem kernel %.0f", median(kernel[1]) * 1e6);
    }
    printf("\n");
    for (int way = 0; way < (t.multimem ? 2 : 1); way++) {
        char text[160];
        double times = median(ratio[way]);
        snprintf(text, sizeof text, "%s kernel: %.2f times native C (bar %g)",
                 way == 0 ? "lsa" : "multimem", times, kernel_bar);
        verdict(times <= kernel_bar, text);
    }
    close_team(&t);
}

static void bench_native(size_t bytes)
{
    team t;
    std::vector<double> copies, native, ratio;
    open_team(&t, bytes);
    fill_team<float>(&t);
    rmsnorm<float>::native(&t);
    for (int i = 0; i < rounds; i++) {
        copies.push_back(run_copies(&t));
        native.push_back(rmsnorm<float>::native(&t));
        ratio.push_back(copies.back() / native.back());
    }
    rmsnorm<float>::describe(&t);
    printf(", %d ranks, us: copies %.0f, native %.0f\n", ranks, median(copies) * 1e6,
           median(native) * 1e6);
    char text[160];
    snprintf(text, sizeof text, "native path: %.2f of concurrent non-temporal copies (bar 0.7)",
             median(ratio));
    verdict(median(ratio) >= 0.7, text);
    close_team(&t);
}

template <typename T> static void bench_type()
{
    const size_t small = (size_t)1 << 20, large = (size_t)16 << 20;
    bench_kernels<T, rmsnorm<T>>(large);
    bench_kernels<T, all_reduce<T>>(large);
    bench_kernels<T, all_reduce<T>>(small);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        return bench_usage(argv[1], "vgpu   what virtual GPUs cost; no options");
    }
    printf("virtual GPUs on %d worker threads; medians of %d\n", vgpuWorkerCount(), rounds);
    double load = 0;
    if (getloadavg(&load, 1) == 1 && load > 0.5) {
        printf("other work runs on this machine (load %.1f): the figures say little\n", load);
    }
    bench_barrier();
    bench_native((size_t)16 << 20);
    bench_native((size_t)128 << 20);
    bench_type<float>();
    bench_type<__half>();
    bench_type<__nv_bfloat16>();
    bench_kernels<float, rmsnorm<float>>((size_t)128 << 20);
    printf("bench vgpu: %s\n", all_met ? "all bars met" : "bars missed");
    return all_met ? 0 : 1;
}
