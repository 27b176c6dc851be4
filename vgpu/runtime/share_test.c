// Pieces of memory that processes show each other: what can be described, mapping, pieces that go;
// and streams that are idle.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <vgpu/device_runtime.h>
#include <vgpu/native.h>
#include <vgpu/share.h>

#include "expect.h"
#include "ranks.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 300 << 20 }; // a piece of its own, not kept once it is free

static void descriptions(void)
{
    struct vgpuSharedPiece piece, other;
    uint64_t offset = 0, next = 0;
    char *a, *b, *pinned, local = 0;
    unsigned generation = vgpuSharedGeneration();
    EXPECT_CUDA(cudaMalloc((void **)&a, 4096));
    EXPECT(vgpuSharedGeneration() != generation);
    EXPECT_CUDA(cudaMalloc((void **)&b, 4096));
    EXPECT_CUDA(cudaHostAlloc((void **)&pinned, 4096, cudaHostAllocDefault));
    EXPECT(vgpuSharedDescribe(a, 4096, &piece, &offset));
    EXPECT(vgpuSharedDescribe(a + 100, 1, &other, &next));
    EXPECT_EQ(next, offset + 100);
    EXPECT(memcmp(&piece, &other, sizeof piece) == 0);
    EXPECT(vgpuSharedDescribe(b, 1, &other, &next)); // of the same piece
    EXPECT(memcmp(&piece, &other, sizeof piece) == 0);
    EXPECT(!vgpuSharedDescribe(a + 1, 4096, &other, &next)); // ends behind its allocation
    EXPECT(!vgpuSharedDescribe(pinned, 1, &other, &next));
    EXPECT(!vgpuSharedDescribe(&local, 1, &other, &next));
    EXPECT(!vgpuSharedDescribe(NULL, 1, &other, &next));
    EXPECT(vgpuSharedExists(&piece));
    generation = vgpuSharedGeneration();
    EXPECT_CUDA(cudaFree(b));
    EXPECT(vgpuSharedGeneration() != generation);
    EXPECT(vgpuSharedExists(&piece));
    EXPECT_CUDA(cudaFree(a));
    EXPECT_CUDA(cudaFreeHost(pinned));
    EXPECT_CUDA(cudaMalloc((void **)&a, LARGE));
    EXPECT(vgpuSharedDescribe(a, LARGE, &piece, &offset));
    EXPECT_CUDA(cudaFree(a));
    EXPECT(!vgpuSharedExists(&piece));
    EXPECT_EQ(vgpuSharedClose(&local), cudaErrorInvalidValue);
}

struct shown {
    struct vgpuSharedPiece piece;
    uint64_t offset;
};

static void read_in_place(int rank, int size)
{
    struct shown shown;
    unsigned char *memory = NULL;
    void *base = NULL, *again = NULL;
    memset(&shown, 0, sizeof shown);
    if (rank == 0) {
        EXPECT_CUDA(cudaSetDevice(1));
        EXPECT_CUDA(cudaMalloc((void **)&memory, LARGE));
        memory[0] = 42;
        memory[LARGE - 1] = 43;
        EXPECT(vgpuSharedDescribe(memory, LARGE, &shown.piece, &shown.offset));
    }
    ranks_broadcast(&shown, sizeof shown);
    if (rank > 0) {
        EXPECT_CUDA(vgpuSharedOpen(&shown.piece, &base));
        EXPECT_CUDA(vgpuSharedOpen(&shown.piece, &again));
        EXPECT(base == again);
        memory = (unsigned char *)base + shown.offset;
        EXPECT(memory[0] == 42 && memory[LARGE - 1] == 43);
        struct cudaPointerAttributes attributes;
        EXPECT_CUDA(cudaPointerGetAttributes(&attributes, memory));
        EXPECT_EQ(attributes.device, 1);
        memory[rank] = (unsigned char)rank;
    }
    ranks_barrier();
    if (rank == 0) {
        EXPECT(memory[1] == 1 && memory[size - 1] == size - 1);
        EXPECT_CUDA(cudaFree(memory));
    }
    ranks_barrier();
    if (rank > 0) { // its owner has freed it: what is mapped stays, nobody else gets it
        EXPECT_EQ(memory[LARGE - 1], 43);
        EXPECT_CUDA(vgpuSharedClose(base));
        EXPECT_EQ(memory[LARGE - 1], 43); // opened twice, closed once
        EXPECT_CUDA(vgpuSharedClose(base));
        EXPECT_EQ(vgpuSharedClose(base), cudaErrorInvalidValue);
        EXPECT_EQ(vgpuSharedOpen(&shown.piece, &base), cudaErrorInvalidResourceHandle);
        (void)cudaGetLastError();
    }
}

static void processes(void)
{
    run_ranks(3, read_in_place, 60);
}

static atomic_int hold;

static void wait_until_let_go(void *argument, unsigned block, unsigned blocks)
{
    (void)argument, (void)block, (void)blocks;
    while (atomic_load(&hold) != 0) {
        vgpu_yield();
    }
}

static void idle_streams(void)
{
    cudaStream_t blocking, apart;
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_CUDA(cudaStreamCreate(&blocking));
    EXPECT_CUDA(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
    EXPECT(vgpuStreamIsIdle(blocking) && vgpuStreamIsIdle(apart) && vgpuStreamIsIdle(NULL));
    atomic_store(&hold, 1);
    EXPECT_CUDA(vgpuLaunchNative("wait", wait_until_let_go, NULL, 0, 1, blocking));
    EXPECT(!vgpuStreamIsIdle(blocking) && vgpuStreamIsIdle(apart));
    EXPECT(!vgpuStreamIsIdle(NULL)); // waits for blocking streams
    atomic_store(&hold, 0);
    EXPECT_CUDA(cudaStreamSynchronize(blocking));
    atomic_store(&hold, 1);
    EXPECT_CUDA(vgpuLaunchNative("wait", wait_until_let_go, NULL, 0, 1, NULL));
    EXPECT(!vgpuStreamIsIdle(blocking) && vgpuStreamIsIdle(apart));
    atomic_store(&hold, 0);
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT(vgpuStreamIsIdle(blocking) && vgpuStreamIsIdle(NULL));
    EXPECT_CUDA(cudaStreamBeginCapture(apart, cudaStreamCaptureModeRelaxed));
    EXPECT(!vgpuStreamIsIdle(apart));
    cudaGraph_t graph;
    EXPECT_CUDA(cudaStreamEndCapture(apart, &graph));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    EXPECT(vgpuStreamIsIdle(apart));
    EXPECT_CUDA(cudaStreamDestroy(apart));
    EXPECT(!vgpuStreamIsIdle(apart)); // no stream any more
    EXPECT_CUDA(cudaStreamDestroy(blocking));
}

int main(void)
{
    RUN(descriptions);
    RUN(processes);
    RUN(idle_streams);
    return expect_result();
}
