// Ranks of one process with a window each, for benchmarks of kernels; clocks, medians, verdicts.
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_TEAM_CUH
#define BENCH_TEAM_CUH

#include "must.cuh"

#include <nccl.h>
#include <nccl_device.h>

#include <vgpu/native.h>

#include <algorithm>
#include <stdio.h>
#include <time.h>
#include <vector>

enum { ranks = 2, rounds = 15 };
static bool all_met = true;

static inline double now()
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static inline double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

static inline void verdict(bool met, const char *text)
{
    printf("%s %s\n", met ? "met   " : "MISSED", text);
    all_met = all_met && met;
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
    unsigned *arrivals; // of native blocks
    unsigned arrived;
};

static inline void open_team(team *t, size_t bytes)
{
    int devices[ranks];
    for (int r = 0; r < ranks; r++) {
        devices[r] = r;
    }
    *t = team();
    t->bytes = bytes;
    t->blocks = std::min(16, std::max(2, vgpuWorkerCount()));
    t->arrivals = new unsigned(0);
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
}

// The same numbers in all ranks' inputs, as elements of T.
template <typename T> static void fill_team(team *t)
{
    std::vector<T> host(t->bytes / sizeof(T));
    for (size_t i = 0; i < host.size(); i++) {
        tutti::from_float(&host[i], (float)(i * 37 % 1000) * 1e-3f);
    }
    for (int r = 0; r < ranks; r++) {
        CUDA(cudaMemcpy(t->memory[r], host.data(), t->bytes, cudaMemcpyHostToDevice));
        CUDA(cudaMemset(t->memory[r] + t->bytes, 0, t->bytes));
    }
}

static inline void close_team(team *t)
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
    delete t->arrivals;
}

static inline double wait_since(team *t, double start)
{
    for (int r = 0; r < ranks; r++) {
        CUDA(cudaSetDevice(r));
        CUDA(cudaStreamSynchronize(t->stream[r]));
    }
    return now() - start;
}

template <typename T> struct type_facts;
template <> struct type_facts<float> {
    static constexpr ncclDataType_t type = ncclFloat32;
    static constexpr const char *name = "float";
};
template <> struct type_facts<__half> {
    static constexpr ncclDataType_t type = ncclFloat16;
    static constexpr const char *name = "half";
};
template <> struct type_facts<__nv_bfloat16> {
    static constexpr ncclDataType_t type = ncclBfloat16;
    static constexpr const char *name = "bf16";
};

#endif
