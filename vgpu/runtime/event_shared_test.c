// Events between processes: order across them, several recorders, a recorder that dies.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include "expect.h"
#include "ranks.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const unsigned FLAGS = cudaEventInterprocess | cudaEventDisableTiming;

static void sleep_ms(void *argument)
{
    (void)usleep((unsigned)(size_t)argument * 1000);
}

// Rank 0 records behind a slow function; the others' streams wait for it before they look.
static void order(int rank, int size)
{
    struct {
        cudaIpcEventHandle_t event;
        cudaIpcMemHandle_t memory;
    } handles;
    cudaEvent_t event;
    cudaStream_t stream;
    int *shared = NULL;
    (void)size;
    memset(&handles, 0, sizeof(handles));
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (rank == 0) {
        EXPECT_CUDA(cudaEventCreateWithFlags(&event, FLAGS));
        EXPECT_CUDA(cudaMalloc((void **)&shared, 4096));
        EXPECT_CUDA(cudaMemset(shared, 0, 4096));
        EXPECT_CUDA(cudaDeviceSynchronize());
        EXPECT_CUDA(cudaIpcGetEventHandle(&handles.event, event));
        EXPECT_CUDA(cudaIpcGetMemHandle(&handles.memory, shared));
        cudaEvent_t own;
        EXPECT_EQ(cudaIpcOpenEventHandle(&own, handles.event), cudaErrorDeviceUninitialized);
    }
    ranks_broadcast(&handles, sizeof(handles));
    if (rank > 0) {
        EXPECT_CUDA(cudaIpcOpenEventHandle(&event, handles.event));
        EXPECT_CUDA(
            cudaIpcOpenMemHandle((void **)&shared, handles.memory, cudaIpcMemLazyEnablePeerAccess));
        EXPECT_EQ(cudaIpcGetEventHandle(&handles.event, event), cudaErrorInvalidResourceHandle);
        EXPECT_CUDA(cudaEventQuery(event)); // never recorded
    }
    ranks_barrier();
    for (int round = 1; round <= 3; round++) {
        if (rank == 0) {
            EXPECT_CUDA(cudaLaunchHostFunc(stream, sleep_ms, (void *)(size_t)20));
            EXPECT_CUDA(cudaMemsetAsync(shared, round, 4, stream));
            EXPECT_CUDA(cudaEventRecord(event, stream));
        }
        ranks_barrier(); // recorded, not yet done
        int seen = -1;
        if (rank > 0) {
            EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
            EXPECT_CUDA(cudaStreamWaitEvent(stream, event, 0));
            EXPECT_CUDA(cudaMemcpyAsync(&seen, shared, 4, cudaMemcpyDeviceToHost, stream));
            EXPECT_CUDA(cudaStreamSynchronize(stream));
            EXPECT_EQ(seen, round * 0x01010101);
        }
        EXPECT_CUDA(cudaEventSynchronize(event));
        EXPECT_CUDA(cudaEventQuery(event));
        ranks_barrier();
    }
    if (rank == 1) { // who opened it may record it
        EXPECT_CUDA(cudaLaunchHostFunc(stream, sleep_ms, (void *)(size_t)10));
        EXPECT_CUDA(cudaEventRecord(event, stream));
    }
    ranks_barrier();
    EXPECT_CUDA(cudaEventSynchronize(event));
    ranks_barrier();
    EXPECT_CUDA(cudaEventDestroy(event));
    EXPECT_CUDA(cudaStreamDestroy(stream));
    if (rank > 0) {
        EXPECT_CUDA(cudaIpcCloseMemHandle(shared));
    } else {
        EXPECT_CUDA(cudaFree(shared));
    }
    (void)cudaGetLastError();
}

static void two_processes(void)
{
    run_ranks(2, order, 30);
}

static void what_is_refused(void)
{
    cudaEvent_t plain, shared, opened;
    cudaIpcEventHandle_t handle;
    cudaGraph_t graph;
    cudaGraphNode_t node;
    EXPECT_CUDA(cudaEventCreate(&plain));
    EXPECT_EQ(cudaEventCreateWithFlags(&shared, cudaEventInterprocess), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaEventCreateWithFlags(&shared, FLAGS));
    EXPECT_EQ(cudaIpcGetEventHandle(&handle, plain), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaIpcGetEventHandle(NULL, shared), cudaErrorInvalidValue);
    memset(&handle, 3, sizeof(handle));
    EXPECT_EQ(cudaIpcOpenEventHandle(&opened, handle), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaIpcOpenEventHandle(NULL, handle), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaGraphCreate(&graph, 0));
    EXPECT_CUDA(cudaGraphAddEventRecordNode(&node, graph, NULL, 0, shared));
    EXPECT_EQ(cudaGraphAddEventWaitNode(&node, graph, NULL, 0, shared), cudaErrorNotSupported);
    EXPECT_CUDA(cudaGraphDestroy(graph));
    EXPECT_CUDA(cudaEventRecord(shared, 0));
    EXPECT_CUDA(cudaEventSynchronize(shared));
    EXPECT_CUDA(cudaStreamWaitEvent(0, shared, 0));
    EXPECT_CUDA(cudaEventDestroy(plain));
    EXPECT_CUDA(cudaEventDestroy(shared));
    (void)cudaGetLastError();
}

int main(void)
{
    RUN(two_processes);
    RUN(what_is_refused);
    return expect_result();
}
