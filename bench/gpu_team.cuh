// Ranks on real GPUs for benchmarks: memory at equal distances, streams, clocks on the device, and
// inputs that the processor can compute too.
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_GPU_TEAM_CUH
#define BENCH_GPU_TEAM_CUH

#include "../kernels/elements.cuh"
#include "must.cuh"

#include <nccl.h>
#include <nccl_device.h>

#include <algorithm>
#include <chrono>
#include <stdint.h>
#include <vector>

enum { MOST_RANKS = 8 };

// One problem: tokens x hidden, as rows; what a rank has of it is `bytes`.
struct gpu_case {
    size_t tokens, hidden;
    bool is_bf16;
    int ranks;

    size_t bytes() const
    {
        return tokens * hidden * (is_bf16 ? 2 : 4);
    }
    const char *type() const
    {
        return is_bf16 ? "bf16" : "float";
    }
};

// Of each rank: `sets` times an input and an output, so that caches do not keep them.
struct gpu_team {
    gpu_case problem;
    int sets;
    int sharers; // ranks of a device
    int device[MOST_RANKS];
    cudaStream_t stream[MOST_RANKS];
    cudaEvent_t begin[MOST_RANKS], end[MOST_RANKS];
    bool has_library; // communicators and windows; else memory of one device alone
    ncclComm_t comm[MOST_RANKS];
    ncclWindow_t window[MOST_RANKS];
    int barriers; // of the device communicators; 0: there are none
    ncclDevComm device_comm[MOST_RANKS];
    char *memory[MOST_RANKS]; // of each rank, by its own address
    unsigned blocks;          // of the launches without the library; 0: not yet asked for
    char *base;               // rank r's memory is at base + r * stride too
    size_t stride;

    char *input(int rank, int set) const
    {
        return memory[rank] + (size_t)set * 2 * problem.bytes();
    }
    char *output(int rank, int set) const
    {
        return input(rank, set) + problem.bytes();
    }
};

// Element i of a rank's input, -0.75 .. 1.25, exact in float.
__host__ __device__ static inline float input_value(int rank, size_t i)
{
    uint32_t bits = (uint32_t)i * 2654435761u ^ ((uint32_t)rank + 1) * 0x9e3779b9u;
    bits ^= bits >> 16;
    bits *= 0x85ebca6bu;
    bits ^= bits >> 13;
    bits *= 0xc2b2ae35u;
    bits ^= bits >> 16;
    return (float)(bits & 0xffffu) * 0x1p-15f - 0.75f;
}

template <typename T> __global__ void fill_input(T *to, size_t count, int rank)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        tutti::from_float(&to[i], input_value(rank, i));
    }
}

static inline void fill_inputs(const gpu_team *t)
{
    size_t count = t->problem.tokens * t->problem.hidden;
    for (int r = 0; r < t->problem.ranks; r++) {
        CUDA(cudaSetDevice(t->device[r]));
        for (int set = 0; set < t->sets; set++) {
            if (t->problem.is_bf16) {
                fill_input<<<1024, 256>>>((__nv_bfloat16 *)t->input(r, set), count, r);
            } else {
                fill_input<<<1024, 256>>>((float *)t->input(r, set), count, r);
            }
        }
        CUDA(cudaGetLastError());
        CUDA(cudaDeviceSynchronize());
    }
}

static inline void open_memory(gpu_team *t, size_t bytes)
{
    if (!t->has_library) {
        char *all;
        CUDA(cudaMalloc((void **)&all, bytes * (size_t)t->problem.ranks));
        for (int r = 0; r < t->problem.ranks; r++) {
            t->memory[r] = all + bytes * (size_t)r;
        }
        t->base = all;
        t->stride = bytes;
        return;
    }
    ncclUniqueId id; // ncclCommInitAll takes each device once
    NCCL(ncclGetUniqueId(&id));
    NCCL(ncclGroupStart());
    for (int r = 0; r < t->problem.ranks; r++) {
        CUDA(cudaSetDevice(t->device[r]));
        NCCL(ncclCommInitRank(&t->comm[r], t->problem.ranks, id, r));
    }
    NCCL(ncclGroupEnd());
    NCCL(ncclGroupStart());
    for (int r = 0; r < t->problem.ranks; r++) {
        CUDA(cudaSetDevice(t->device[r]));
        NCCL(ncclMemAlloc((void **)&t->memory[r], bytes));
        NCCL(ncclCommWindowRegister(t->comm[r], t->memory[r], bytes, &t->window[r],
                                    NCCL_WIN_COLL_SYMMETRIC));
    }
    NCCL(ncclGroupEnd());
    NCCL(ncclGroupStart());
    for (int r = 0; t->barriers > 0 && r < t->problem.ranks; r++) {
        ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
        needs.lsaBarrierCount = t->barriers;
        NCCL(ncclDevCommCreate(t->comm[r], &needs, &t->device_comm[r]));
    }
    NCCL(ncclGroupEnd());
    char *there[2];
    for (int r = 0; r < 2; r++) {
        int peer = r < t->problem.ranks ? r : 0;
        NCCL(ncclGetLsaDevicePointer(t->window[0], 0, peer, (void **)&there[r]));
    }
    t->base = there[0];
    t->stride = (size_t)(there[1] - there[0]);
}

// devices: how many the ranks are spread over. barriers: of device communicators; -1: no library.
static inline void open_team(gpu_team *t, const gpu_case *problem, int devices, int barriers)
{
    const size_t enough = (size_t)1 << 29; // bytes that several caches do not hold
    *t = gpu_team();
    t->problem = *problem;
    t->sharers = (problem->ranks + devices - 1) / devices;
    t->has_library = barriers >= 0;
    t->barriers = barriers;
    size_t once = 2 * problem->bytes() * (size_t)problem->ranks;
    t->sets = (int)std::min<size_t>(16, std::max<size_t>(2, enough / once));
    for (int r = 0; r < problem->ranks; r++) {
        t->device[r] = r % devices;
        CUDA(cudaSetDevice(t->device[r]));
        CUDA(cudaStreamCreateWithFlags(&t->stream[r], cudaStreamNonBlocking));
        CUDA(cudaEventCreate(&t->begin[r]));
        CUDA(cudaEventCreate(&t->end[r]));
    }
    open_memory(t, (size_t)t->sets * 2 * problem->bytes());
    fill_inputs(t);
}

static inline void close_team(gpu_team *t)
{
    for (int r = 0; r < t->problem.ranks; r++) {
        CUDA(cudaSetDevice(t->device[r]));
        CUDA(cudaDeviceSynchronize());
        if (t->barriers > 0) {
            NCCL(ncclDevCommDestroy(t->comm[r], &t->device_comm[r]));
        }
        if (t->has_library) {
            NCCL(ncclCommWindowDeregister(t->comm[r], t->window[r]));
            NCCL(ncclMemFree(t->memory[r]));
        }
        CUDA(cudaEventDestroy(t->begin[r]));
        CUDA(cudaEventDestroy(t->end[r]));
        CUDA(cudaStreamDestroy(t->stream[r]));
    }
    if (!t->has_library) {
        CUDA(cudaFree(t->memory[0]));
    }
    for (int r = 0; t->has_library && r < t->problem.ranks; r++) {
        NCCL(ncclCommDestroy(t->comm[r]));
    }
}

// Something that is measured: enqueues one operation of all ranks on set `set`.
struct gpu_way {
    const char *name;
    void (*run)(gpu_team *t, int set);
    bool is_rmsnorm;              // its outputs are checked
    std::vector<double> us, host; // microseconds of an operation; of the calls that enqueue it
    bool is_limit = false;        // one of the copies of gpu_limit.cuh

    static double median_of(std::vector<double> values)
    {
        std::sort(values.begin(), values.end());
        return values.empty() ? 0 : values[values.size() / 2];
    }
    double median() const
    {
        return median_of(us);
    }
};

static inline void wait_team(const gpu_team *t)
{
    for (int r = 0; r < t->problem.ranks; r++) {
        CUDA(cudaSetDevice(t->device[r]));
        CUDA(cudaDeviceSynchronize());
    }
}

// Adds the microseconds of one of `batch` operations, back to back on sets in turn: of the stream
// that takes longest, by the devices' clocks.
static inline void time_batch(gpu_team *t, gpu_way *way, int batch)
{
    typedef std::chrono::steady_clock clock;
    double longest = 0;
    wait_team(t);
    for (int r = 0; r < t->problem.ranks; r++) {
        CUDA(cudaSetDevice(t->device[r]));
        CUDA(cudaEventRecord(t->begin[r], t->stream[r]));
    }
    clock::time_point start = clock::now();
    for (int i = 0; i < batch; i++) {
        way->run(t, i % t->sets);
    }
    std::chrono::duration<double, std::micro> enqueued = clock::now() - start;
    for (int r = 0; r < t->problem.ranks; r++) {
        CUDA(cudaSetDevice(t->device[r]));
        CUDA(cudaEventRecord(t->end[r], t->stream[r]));
    }
    for (int r = 0; r < t->problem.ranks; r++) {
        float ms;
        CUDA(cudaEventSynchronize(t->end[r]));
        CUDA(cudaEventElapsedTime(&ms, t->begin[r], t->end[r]));
        longest = std::max(longest, (double)ms * 1e3 / batch);
    }
    way->us.push_back(longest);
    way->host.push_back(enqueued.count() / batch);
}

// All ways in turn, `rounds` times, after one round that does not count. Batches are long, so that
// the host's time for the first operation counts for little.
static inline void time_ways(gpu_team *t, std::vector<gpu_way> *ways, int rounds)
{
    const int batch = 32;
    for (int round = 0; round <= rounds; round++) {
        for (gpu_way &way : *ways) {
            if (round == 1) {
                way.us.clear();
                way.host.clear();
            }
            time_batch(t, &way, batch);
        }
    }
}

#endif
