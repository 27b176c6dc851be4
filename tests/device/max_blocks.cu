// tuttiMaxBlocks: what it answers where 1 to 8 ranks share a GPU, as threads and as processes; that
// kernels of all ranks with barriers run with as many blocks; what it refuses.
// SPDX-License-Identifier: Apache-2.0
#include "ranks_of_devices.h"

#include <climits>
#include <cstring>
#include <tutti.h>

// On virtual GPUs, where every block is a fiber, fewer are launched.
#ifdef MOST_LAUNCHED
enum { MOST = MOST_LAUNCHED };
#else
enum { MOST = 1 << 16 };
#endif
enum { THREADS = 128, ROUNDS = 3 };

// All blocks of all ranks are here at once, or this never ends.
__global__ void meet_all(ncclDevComm comm, unsigned *met)
{
    ncclCoopCta block;
    ncclLsaBarrierSession<ncclCoopCta> barrier(block, comm, ncclTeamTagLsa(), blockIdx.x);
    for (int i = 0; i < ROUNDS; i++) {
        barrier.sync(block, cuda::memory_order_acq_rel);
    }
    if (threadIdx.x == 0) {
        atomicAdd(met, 1u);
    }
}

static int sharers_of(const device_rank &me)
{
    int devices = 0, count = 0;
    EXPECT_CUDA(cudaGetDeviceCount(&devices));
    for (int r = 0; r < me.size; r++) {
        count += r % devices == me.device; // as member_join shares them out
    }
    return count;
}

static void launch(device_rank &me, int blocks)
{
    ncclDevComm comm;
    unsigned *met = nullptr, count = 0;
    blocks = blocks < MOST ? blocks : MOST;
    if (!open_device_comm(me, blocks, &comm)) {
        return;
    }
    EXPECT_CUDA(cudaMalloc(&met, sizeof *met));
    EXPECT_CUDA(cudaMemsetAsync(met, 0, sizeof *met, me.stream));
    meet(me);
    meet_all<<<blocks, THREADS, 0, me.stream>>>(comm, met);
    EXPECT_CUDA(cudaGetLastError());
    read_back(me, &count, met, sizeof count);
    EXPECT_EQ(count, blocks);
    meet(me);
    EXPECT_CUDA(cudaFree(met));
    EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
}

static void ask(device_rank &me)
{
    cudaDeviceProp properties;
    int blocks = 0, fit = 0;
    const void *kernel = (const void *)&meet_all;
    EXPECT_CUDA(cudaGetDeviceProperties(&properties, me.device));
    EXPECT_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, kernel, THREADS, 0));
    if (!EXPECT_OK(tuttiMaxBlocks(kernel, THREADS, 0, me.comm, &blocks))) {
        return;
    }
    EXPECT_EQ(blocks, fit * properties.multiProcessorCount / sharers_of(me));
    int least = blocks;
    int all[RANKS_MAX];
    ranks_gather(&blocks, all, sizeof blocks);
    for (int r = 0; r < me.size; r++) {
        least = all[r] < least ? all[r] : least;
    }
    launch(me, least);
}

static void refuse(device_rank &me)
{
    int devices = 0, blocks = -1;
    const void *kernel = (const void *)&meet_all;
    EXPECT_EQ(tuttiMaxBlocks(kernel, THREADS, 0, me.comm, nullptr), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(me.comm), "blocks is NULL");
    EXPECT_EQ(tuttiMaxBlocks(kernel, THREADS, 0, nullptr, &blocks), ncclInvalidArgument);
    EXPECT_EQ(tuttiMaxBlocksOf(cudaSuccess, 0, me.comm, &blocks), ncclInvalidUsage);
    EXPECT_CONTAINS(ncclGetLastError(me.comm), "holds 0 blocks");
    for (int bad : {-1, -5, INT_MIN, INT_MAX, 1000}) {
        EXPECT_EQ(tuttiMaxBlocksOf(cudaSuccess, bad, me.comm, &blocks), ncclInvalidArgument);
        EXPECT_CONTAINS(ncclGetLastError(me.comm), "blocksPerMultiprocessor is");
    }
    EXPECT_EQ(cudaSetDevice(99), cudaErrorInvalidDevice); // no reason for what fails afterwards
    EXPECT_EQ(tuttiMaxBlocksOf((cudaError_t)12345, 0, me.comm, &blocks), ncclUnhandledCudaError);
    EXPECT(strstr(ncclGetLastError(me.comm), "99") == nullptr);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
    EXPECT_EQ(tuttiMaxBlocksOf(cudaErrorInvalidDeviceFunction, 0, me.comm, &blocks),
              ncclUnhandledCudaError);
    EXPECT_EQ(blocks, -1);
    EXPECT_CUDA(cudaGetDeviceCount(&devices));
    if (devices > 1) {
        EXPECT_CUDA(cudaSetDevice((me.device + 1) % devices));
        EXPECT_EQ(tuttiMaxBlocks(kernel, THREADS, 0, me.comm, &blocks), ncclInvalidArgument);
        EXPECT_CONTAINS(ncclGetLastError(me.comm), "the current device is");
        EXPECT_CUDA(cudaSetDevice(me.device));
    }
}

// Kernels of several processes run side by side under MPS alone; without it they take turns, which
// takes long.
static void threads(void)
{
    for (int size = 1; size <= 8; size *= 2) {
        run_thread_ranks(size, as_rank<ask>, 60);
    }
}

static void processes(void)
{
    run_ranks(2, as_rank<ask>, 60);
}

static void refusals(void)
{
    run_thread_ranks(2, as_rank<refuse>, 60);
}

int main(void)
{
    RUN(threads);
    RUN(processes);
    RUN(refusals);
    return expect_result();
}
