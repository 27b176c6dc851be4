// Native work that is told of its runs: on streams, in graphs, dropped by a device that fails or is
// reset.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include "expect.h"
#include "vgpu/device_runtime.h"
#include "vgpu/native.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static cudaStream_t stream;
static atomic_int launched, ran, begun, ended;
static _Atomic int last_error;
static atomic_bool goes_on;

// A run's argument: a number that only its own functions change.
static void count_launch(void *argument)
{
    *(int *)argument += 10;
    atomic_fetch_add(&launched, 1);
}

static void run(void *argument, unsigned block, unsigned block_count)
{
    (void)block_count;
    if (block == 0) {
        atomic_fetch_add(&ran, *(int *)argument);
        *(int *)argument = 1000;
    }
}

static void wait_for_long(void *argument, unsigned block, unsigned block_count)
{
    (void)argument, (void)block, (void)block_count;
    atomic_fetch_add(&begun, 1);
    while (!atomic_load(&goes_on)) {
        vgpu_yield();
    }
}

static void fault(void *argument, unsigned block, unsigned block_count)
{
    (void)argument, (void)block, (void)block_count;
    vgpu_fault(cudaErrorIllegalAddress, "this test wants it");
}

static void count_end(void *argument, cudaError_t error)
{
    (void)argument;
    atomic_store(&last_error, (int)error);
    atomic_fetch_add(&ended, 1);
}

static void launch(void (*function)(void *argument, unsigned block, unsigned block_count))
{
    int one = 1;
    struct vgpuNativeWork work = {.name = "work",
                                  .function = function,
                                  .launched = count_launch,
                                  .ended = count_end,
                                  .argument = &one,
                                  .argument_bytes = sizeof one,
                                  .block_count = 3};
    EXPECT_CUDA(vgpuLaunchNativeWork(&work, stream));
}

static void begin(void)
{
    launched = ran = begun = ended = 0;
    goes_on = false;
    last_error = -1;
}

static void on_a_stream(void)
{
    begin();
    launch(run);
    launch(run);
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(ended, 2);
    EXPECT_EQ(launched, 0);
    EXPECT_EQ(ran, 2);
    EXPECT_EQ(last_error, cudaSuccess);
}

static void in_a_graph(void)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    begin();
    EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    launch(run);
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
    EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    EXPECT_EQ(launched + ran + ended, 0);
    for (int i = 1; i <= 3; i++) {
        EXPECT_CUDA(cudaGraphLaunch(executable, stream));
        EXPECT_EQ(launched, i); // at once
    }
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(ended, 3);
    EXPECT_EQ(ran, 3 * 11); // each with a fresh copy
    EXPECT_CUDA(cudaGraphExecDestroy(executable));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    EXPECT_EQ(ended, 3);
}

// What runs and what is behind it on the device ends once, with the error.
static void of_a_device_that_fails(void)
{
    cudaStream_t other;
    begin();
    EXPECT_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    launch(wait_for_long);
    launch(run);
    while (begun == 0) {
        usleep(100);
    }
    EXPECT_CUDA(vgpuLaunchNative("fault", fault, NULL, 0, 1, other));
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
    EXPECT_EQ(ended, 2);
    EXPECT_EQ(last_error, cudaErrorIllegalAddress);
    EXPECT_EQ(ran, 0);
    EXPECT_CUDA(cudaDeviceReset());
    EXPECT_CUDA(cudaStreamDestroy(other));
}

static void *wait_for_stream(void *result)
{
    *(cudaError_t *)result = cudaStreamSynchronize(stream);
    return NULL;
}

// A reset does not wait for work that does not end by itself: it is dropped.
static void of_a_device_that_is_reset(void)
{
    pthread_t thread;
    cudaError_t result = cudaSuccess;
    begin();
    launch(wait_for_long);
    launch(run);
    while (begun == 0) {
        usleep(100);
    }
    EXPECT_EQ(pthread_create(&thread, NULL, wait_for_stream, &result), 0);
    EXPECT_CUDA(cudaDeviceReset());
    pthread_join(thread, NULL);
    EXPECT(result == cudaSuccess || result == cudaErrorContextIsDestroyed); // which: who was first
    EXPECT_EQ(ended, 2);
    EXPECT_EQ(last_error, cudaErrorContextIsDestroyed);
    EXPECT_EQ(ran, 0);
    launch(run); // and the device is as new
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(ran, 1);
    EXPECT_EQ(ended, 3);
    EXPECT_EQ(last_error, cudaSuccess);
}

int main(void)
{
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    RUN(on_a_stream);
    RUN(in_a_graph);
    RUN(of_a_device_that_fails);
    RUN(of_a_device_that_is_reset);
    EXPECT_CUDA(cudaStreamDestroy(stream));
    return expect_result();
}
