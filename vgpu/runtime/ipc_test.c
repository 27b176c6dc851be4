// cudaIpc memory handles between processes: reading in place, several opens, what has gone.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include "expect.h"
#include "ranks.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Rank 0's small and large allocation are opened by all others.
static void share(int rank, int size)
{
    struct {
        cudaIpcMemHandle_t small, large;
    } handles;
    enum { LARGE = 3 << 20 };
    int *small = NULL;
    unsigned char *large = NULL;
    memset(&handles, 0, sizeof(handles));
    if (rank == 0) {
        int *before;
        EXPECT_CUDA(cudaSetDevice(2));
        EXPECT_CUDA(cudaMalloc((void **)&before, 100)); // so that `small` has an offset
        EXPECT_CUDA(cudaMalloc((void **)&small, (size_t)size * sizeof(int)));
        EXPECT_CUDA(cudaMalloc((void **)&large, LARGE));
        EXPECT_CUDA(cudaMemset(small, 0, (size_t)size * sizeof(int)));
        EXPECT_CUDA(cudaMemset(large, 42, LARGE));
        EXPECT_CUDA(cudaDeviceSynchronize());
        EXPECT_CUDA(cudaIpcGetMemHandle(&handles.small, small));
        EXPECT_CUDA(cudaIpcGetMemHandle(&handles.large, large));
    }
    ranks_broadcast(&handles, sizeof(handles));
    if (rank > 0) {
        void *twice;
        const unsigned flags = cudaIpcMemLazyEnablePeerAccess;
        EXPECT_CUDA(cudaIpcOpenMemHandle((void **)&small, handles.small, flags));
        EXPECT_CUDA(cudaIpcOpenMemHandle((void **)&large, handles.large, flags));
        EXPECT_CUDA(cudaIpcOpenMemHandle(&twice, handles.large, flags));
        EXPECT(twice == large);
        struct cudaPointerAttributes a;
        EXPECT_CUDA(cudaPointerGetAttributes(&a, small));
        EXPECT_EQ(a.type, cudaMemoryTypeDevice);
        EXPECT_EQ(a.device, 2);
        EXPECT_EQ(large[0] + large[LARGE - 1], 84);
        __atomic_store_n(&small[rank], rank * 11, __ATOMIC_RELEASE);
        unsigned char last;
        EXPECT_CUDA(cudaMemcpy(&last, large + LARGE - 1, 1, cudaMemcpyDeviceToHost));
        EXPECT_EQ(cudaMemcpy(&last, large + LARGE, 1, cudaMemcpyDeviceToHost),
                  cudaErrorInvalidValue);
        EXPECT_EQ(cudaFree(large), cudaErrorInvalidValue);
        EXPECT_CUDA(cudaIpcCloseMemHandle(large));
        EXPECT_EQ(large[5], 42); // opened twice, closed once
        EXPECT_CUDA(cudaIpcCloseMemHandle(large));
        EXPECT_EQ(cudaIpcCloseMemHandle(large), cudaErrorInvalidValue);
    } else {
        void *p;
        EXPECT_EQ(cudaIpcOpenMemHandle(&p, handles.large, cudaIpcMemLazyEnablePeerAccess),
                  cudaErrorDeviceUninitialized); // one's own
    }
    ranks_barrier();
    if (rank == 0) {
        for (int r = 1; r < size; r++) {
            EXPECT_EQ(small[r], r * 11);
        }
        EXPECT_CUDA(cudaFree(large));
        EXPECT_CUDA(cudaDeviceReset()); // and so everything
        for (int i = 0; i < 8; i++) {   // segments that were kept go with the next large ones
            void *p;
            EXPECT_CUDA(cudaMalloc(&p, 400 << 20));
            EXPECT_CUDA(cudaFree(p));
        }
    }
    ranks_barrier();
    if (rank > 0) {
        EXPECT_EQ(small[rank], rank * 11); // this process still has its mapping
        EXPECT_CUDA(cudaIpcCloseMemHandle(small));
    }
    (void)cudaGetLastError();
}

static void two_processes(void)
{
    run_ranks(2, share, 30);
}

static void four_processes(void)
{
    run_ranks(4, share, 30);
}

// A handle whose memory was freed, together with its segment, is refused.
static void freed_memory(int rank, int size)
{
    (void)size;
    cudaIpcMemHandle_t handle;
    memset(&handle, 0, sizeof(handle));
    if (rank == 0) {
        void *p;
        EXPECT_CUDA(cudaMalloc(&p, 500 << 20)); // a segment of its own, too large to be kept
        EXPECT_CUDA(cudaIpcGetMemHandle(&handle, p));
        EXPECT_CUDA(cudaFree(p));
    }
    ranks_broadcast(&handle, sizeof(handle));
    if (rank == 1) {
        void *p;
        EXPECT_EQ(cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess),
                  cudaErrorInvalidResourceHandle);
        (void)cudaGetLastError();
    }
    ranks_barrier();
}

static void memory_that_has_gone(void)
{
    run_ranks(2, freed_memory, 30);
}

static void what_is_refused(void)
{
    cudaIpcMemHandle_t handle;
    void *p;
    int local;
    memset(&handle, 7, sizeof(handle));
    EXPECT_EQ(cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess),
              cudaErrorInvalidValue);
    EXPECT_EQ(cudaIpcOpenMemHandle(&p, handle, 0), cudaErrorInvalidValue);
    EXPECT_EQ(cudaIpcOpenMemHandle(NULL, handle, cudaIpcMemLazyEnablePeerAccess),
              cudaErrorInvalidValue);
    EXPECT_EQ(cudaIpcGetMemHandle(&handle, &local), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaMalloc(&p, 100));
    EXPECT_EQ(cudaIpcGetMemHandle(NULL, p), cudaErrorInvalidValue);
    EXPECT_EQ(cudaIpcCloseMemHandle(p), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaFree(p));
    (void)cudaGetLastError();
}

int main(void)
{
    RUN(two_processes);
    RUN(four_processes);
    RUN(memory_that_has_gone);
    RUN(what_is_refused);
    return expect_result();
}
