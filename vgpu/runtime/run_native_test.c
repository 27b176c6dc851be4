// Native code that the calling thread runs: what fails in it fails its stream's device, and nothing
// else. SPDX-License-Identifier: Apache-2.0
#include "captured_output.h"
#include "expect.h"
#include "vgpu/device_runtime.h"
#include "vgpu/native.h"

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; // signals are the sanitizer's
#else
enum { SANITIZED = 0 };
#endif

static volatile uintptr_t nowhere = 0x10; // an address that nothing lies at

static void add_one(void *argument)
{
    ++*(int *)argument;
}

static void store_nowhere(void *argument)
{
    add_one(argument);
    *(volatile int *)nowhere = 1;
    add_one(argument);
}

static void report(void *argument)
{
    add_one(argument);
    vgpu_fault(cudaErrorMisalignedAddress, "address %d of %s", 17, "nobody");
}

// What was inside may go on after what failed inside it.
static void survive(void *argument)
{
    EXPECT_EQ(vgpuRunNative("inner", report, argument, 0), cudaErrorMisalignedAddress);
    add_one(argument);
}

// Runs code of which the first half works and the rest fails.
static void fails_here(const char *name, void (*function)(void *), cudaError_t error,
                       const char *part)
{
    volatile double kept = 1.5;
    int calls = 0;
    cudaStream_t stream = NULL;
    EXPECT_CUDA(cudaSetDevice(1));
    EXPECT_CUDA(cudaStreamCreate(&stream));
    EXPECT_CUDA(cudaSetDevice(0));
    begin_capture(stderr);
    cudaError_t result = vgpuRunNative(name, function, &calls, stream);
    const char *text = end_capture();
    EXPECT_EQ(result, error);
    EXPECT_EQ(calls, 1);
    EXPECT(kept == 1.5);
    EXPECT(strchr(text, '\n') == strrchr(text, '\n')); // one line
    EXPECT_CONTAINS(text, "device 1 (physical 1): kernel ");
    EXPECT_CONTAINS(text, name);
    EXPECT_CONTAINS(text, "in the thread that called it");
    EXPECT_CONTAINS(text, cudaGetErrorName(error));
    EXPECT_CONTAINS(text, part);
    EXPECT_CONTAINS(vgpuLastErrorText(), part);
    (void)cudaGetLastError();
    EXPECT_CUDA(cudaDeviceSynchronize()); // of device 0
    EXPECT_EQ(cudaStreamSynchronize(stream), error);
    EXPECT_EQ(vgpuStreamIsIdle(stream), 0);
    (void)cudaSetDevice(1);
    EXPECT_CUDA(cudaDeviceReset());
    EXPECT_CUDA(cudaSetDevice(0));
    (void)cudaGetLastError();
}

static void code_that_returns(void)
{
    int calls = 0;
    EXPECT_CUDA(vgpuRunNative("adds", add_one, &calls, 0));
    EXPECT_EQ(calls, 1);
}

static void code_that_fails(void)
{
    fails_here("reports", report, cudaErrorMisalignedAddress, "address 17 of nobody");
    if (!SANITIZED) { // signals are theirs
        fails_here("stores", store_nowhere, cudaErrorIllegalAddress, "(a store) to address 0x10");
        fails_here("stores again", store_nowhere, cudaErrorIllegalAddress, "0x10");
    }
}

static void code_in_code(void)
{
    int calls = 0;
    begin_capture(stderr);
    cudaError_t outer = vgpuRunNative("outer", survive, &calls, 0);
    EXPECT_CONTAINS(end_capture(), "kernel inner");
    EXPECT_CUDA(outer);
    EXPECT_EQ(calls, 2);
    EXPECT_CUDA(cudaDeviceReset());
}

int main(void)
{
    RUN(code_that_returns);
    RUN(code_that_fails);
    RUN(code_in_code);
    return expect_result();
}
