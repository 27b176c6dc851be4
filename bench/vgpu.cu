// What virtual GPUs cost. Three ratios, each taken in one run with both sides alternating, as
// medians: a kernel's barrier; the native fused RMSNorm against copies of the same bytes; the
// kernels against the native operation.
// SPDX-License-Identifier: Apache-2.0
#include "../kernels/launch.cuh"
#include "copies.h"

#include <tutti.h>
#include <vgpu/native.h>

#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <vector>

static const int ranks = 2, rounds = 15;
static bool all_met = true;

static double now()
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void must(bool good, const char *call)
{
    if (!good) {
        fprintf(stderr, "bench: %s: %s; CUDA: %s\n", call, ncclGetLastError(nullptr),
                cudaGetErrorString(cudaGetLastError()));
        exit(1);
    }
}
#define NCCL(call) must((call) == ncclSuccess, #call)
#define CUDA(call) must((call) == cudaSuccess, #call)

static double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

static void verdict(bool met, const char *text)
{
    printf("%s %s\n", met ? "met   " : "MISSED", text);
    all_met = all_met && met;
}

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

// All ranks, driven by this thread; window: input, then output.
struct team {
    ncclComm_t comm[ranks];
    cudaStream_t stream[ranks];
    char *memory[ranks];
    ncclWindow_t window[ranks];
    ncclDevComm device_comm[ranks];
    bool multimem;
    size_t bytes; // of the input
    int blocks;
};

static void open_team(team *t, size_t bytes)
{
    int devices[ranks];
    for (int r = 0; r < ranks; r++) {
        devices[r] = r;
    }
    *t = team();
    t->bytes = bytes;
    t->blocks = std::min(16, std::max(2, vgpuWorkerCount()));
    NCCL(ncclCommInitAll(t->comm, ranks, devices));
    NCCL(ncclGroupStart());
    for (int r = 0; r < ranks; r++) {
        CUDA(cudaSetDevice(r));
        CUDA(cudaStreamCreate(&t->stream[r]));
        NCCL(ncclMemAlloc((void **)&t->memory[r], 2 * bytes));
        NCCL(ncclCommWindowRegister(t->comm[r], t->memory[r], 2 * bytes, &t->window[r],
                                    NCCL_WIN_COLL_SYMMETRIC));
    }
    NCCL(ncclGroupEnd());
    ncclCommProperties properties = NCCL_COMM_PROPERTIES_INITIALIZER;
    NCCL(ncclCommQueryProperties(t->comm[0], &properties));
    t->multimem = properties.multimemSupport;
    NCCL(ncclGroupStart());
    for (int r = 0; r < ranks; r++) {
        ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
        needs.lsaBarrierCount = t->blocks;
        needs.lsaMultimem = t->multimem;
        NCCL(ncclDevCommCreate(t->comm[r], &needs, &t->device_comm[r]));
    }
    NCCL(ncclGroupEnd());
    std::vector<float> host(bytes / sizeof(float));
    for (size_t i = 0; i < host.size(); i++) {
        host[i] = (float)(i * 37 % 1000) * 1e-3f;
    }
    for (int r = 0; r < ranks; r++) {
        CUDA(cudaMemcpy(t->memory[r], host.data(), bytes, cudaMemcpyHostToDevice));
        CUDA(cudaMemset(t->memory[r] + bytes, 0, bytes));
    }
}

static void close_team(team *t)
{
    for (int r = 0; r < ranks; r++) {
        NCCL(ncclDevCommDestroy(t->comm[r], &t->device_comm[r]));
        NCCL(ncclCommWindowDeregister(t->comm[r], t->window[r]));
        NCCL(ncclMemFree(t->memory[r]));
        CUDA(cudaStreamDestroy(t->stream[r]));
    }
    for (int r = 0; r < ranks; r++) {
        NCCL(ncclCommDestroy(t->comm[r]));
    }
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

static double wait_since(team *t, double start)
{
    for (int r = 0; r < ranks; r++) {
        CUDA(cudaSetDevice(r));
        CUDA(cudaStreamSynchronize(t->stream[r]));
    }
    return now() - start;
}

static double run_native(team *t, size_t hidden)
{
    double start = now();
    for (int r = 0; r < ranks; r++) {
        NCCL(tuttiAllReduceRMSNorm(t->memory[r], t->memory[r] + t->bytes,
                                   t->bytes / sizeof(float) / hidden, hidden, nullptr, ncclFloat,
                                   t->comm[r], t->stream[r]));
    }
    return wait_since(t, start);
}

static double run_kernel(team *t, size_t hidden, bool multimem)
{
    double start = now();
    for (int r = 0; r < ranks; r++) {
        tutti::rmsnorm_arguments args = {};
        args.input = args.output = t->window[r];
        args.output_offset = t->bytes;
        args.tokens = t->bytes / sizeof(float) / hidden;
        args.hidden = hidden;
        args.eps = 1e-6f;
        CUDA(cudaSetDevice(r));
        CUDA(tutti::launch_rmsnorm<float>(multimem, args, t->device_comm[r], t->blocks,
                                          (unsigned)t->blocks, 1, t->stream[r]));
    }
    return wait_since(t, start);
}

static void bench_size(size_t tokens, size_t hidden, bool with_kernels)
{
    team t;
    std::vector<double> copies, native, lsa, multimem, to_copies, to_native[2];
    open_team(&t, tokens * hidden * sizeof(float));
    run_native(&t, hidden); // once to warm up
    for (int i = 0; i < rounds; i++) {
        copies.push_back(run_copies(&t));
        native.push_back(run_native(&t, hidden));
        to_copies.push_back(copies.back() / native.back());
        if (with_kernels) {
            lsa.push_back(run_kernel(&t, hidden, false));
            to_native[0].push_back(lsa.back() / native.back());
        }
        if (with_kernels && t.multimem) {
            multimem.push_back(run_kernel(&t, hidden, true));
            to_native[1].push_back(multimem.back() / native.back());
        }
    }
    printf("%zu x %zu float, %d ranks, us: copies %.0f, native %.0f", tokens, hidden, ranks,
           median(copies) * 1e6, median(native) * 1e6);
    if (with_kernels) {
        printf(", lsa kernel %.0f", median(lsa) * 1e6);
    }
    if (!multimem.empty()) {
        printf(", multimem kernel %.0f", median(multimem) * 1e6);
    }
    printf("\n");
    char text[160];
    double ratio = median(to_copies);
    snprintf(text, sizeof text, "native path: %.2f of concurrent non-temporal copies (bar 0.7)",
             ratio);
    verdict(ratio >= 0.7, text);
    static const char *const names[] = {"lsa", "multimem"};
    for (int k = 0; k < 2; k++) {
        if (!to_native[k].empty()) {
            ratio = median(to_native[k]);
            snprintf(text, sizeof text, "%s kernel: %.2f times the native path (bar 5)", names[k],
                     ratio);
            verdict(ratio <= 5, text);
        }
    }
    close_team(&t);
}

int main()
{
    printf("virtual GPUs on %d worker threads; medians of %d\n", vgpuWorkerCount(), rounds);
    double load = 0;
    if (getloadavg(&load, 1) == 1 && load > 0.5) {
        printf("other work runs on this machine (load %.1f): the figures say little\n", load);
    }
    bench_barrier();
    bench_size(4096, 1024, true);
    bench_size(32768, 1024, true);
    printf("bench vgpu: %s\n", all_met ? "all bars met" : "bars missed");
    return all_met ? 0 : 1;
}
