// Variables of devices: a copy per device, made from the image; the host's copies to and from it.
// Registration is what tutticc generates for __device__ and __constant__.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <vgpu/device_runtime.h>

#include "expect.h"

#include <string.h>

static int counter[4] = {1, 2, 3, 4};
static double factor = 2.5;
static const struct vgpu_symbol counter_symbol = {counter, "counter", sizeof(counter), 4, false};
static const struct vgpu_symbol factor_symbol = {&factor, "factor", sizeof(factor), 8, true};

static void one_copy_per_device(void)
{
    int back[4];
    int value = 50;
    for (int d = 0; d < 3; d++) {
        EXPECT_CUDA(cudaSetDevice(d));
        EXPECT_CUDA(cudaMemcpyFromSymbol(back, counter, sizeof(back), 0, cudaMemcpyDeviceToHost));
        EXPECT(memcmp(back, counter, sizeof(back)) == 0); // the image
        value = 50 + d;
        EXPECT_CUDA(cudaMemcpyToSymbol(counter, &value, sizeof(value), 8, cudaMemcpyHostToDevice));
    }
    for (int d = 0; d < 3; d++) {
        EXPECT_CUDA(cudaSetDevice(d));
        EXPECT_CUDA(
            cudaMemcpyFromSymbolAsync(back, counter, sizeof(back), 0, cudaMemcpyDeviceToHost, 0));
        EXPECT_EQ(back[2], 50 + d);
        EXPECT_EQ(back[3], 4);
    }
    EXPECT_EQ(counter[2], 3); // the host's object is the image, not a device's copy
    EXPECT_CUDA(cudaSetDevice(0));
}

static void addresses(void)
{
    void *zero;
    void *one;
    size_t bytes = 0;
    struct cudaPointerAttributes a;
    EXPECT_CUDA(cudaGetSymbolAddress(&zero, &factor));
    EXPECT_CUDA(cudaSetDevice(1));
    EXPECT_CUDA(cudaGetSymbolAddress(&one, &factor));
    EXPECT(zero != one && zero != (void *)&factor);
    EXPECT_CUDA(cudaPointerGetAttributes(&a, one));
    EXPECT_EQ(a.type, cudaMemoryTypeDevice);
    EXPECT_EQ(a.device, 1);
    EXPECT_EQ(*(double *)one * 2, 5);
    EXPECT_CUDA(cudaGetSymbolSize(&bytes, &factor));
    EXPECT_EQ(bytes, sizeof(double));
    EXPECT(vgpu_symbol_address(&factor) == &factor); // outside kernels
    EXPECT_CUDA(cudaSetDevice(0));
}

// Graphs' nodes that copy to and from a variable.
static void in_graphs(void)
{
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaGraphNode_t to, from, wrong;
    int value = 77;
    int other = 78;
    int back[2] = {0, 0};
    EXPECT_CUDA(cudaGraphCreate(&graph, 0));
    EXPECT_CUDA(cudaGraphAddMemcpyNodeToSymbol(&to, graph, NULL, 0, counter, &value, 4, 4,
                                               cudaMemcpyHostToDevice));
    EXPECT_CUDA(cudaGraphAddMemcpyNodeFromSymbol(&from, graph, &to, 1, back, counter, 8, 0,
                                                 cudaMemcpyDeviceToHost));
    EXPECT_CUDA(
        cudaGraphMemcpyNodeSetParamsFromSymbol(from, back, counter, 8, 4, cudaMemcpyDeviceToHost));
    EXPECT_EQ(cudaGraphAddMemcpyNodeToSymbol(&wrong, graph, NULL, 0, counter, &value, 4, 13,
                                             cudaMemcpyHostToDevice),
              cudaErrorInvalidValue);
    EXPECT_EQ(cudaGraphAddMemcpyNodeToSymbol(&wrong, graph, NULL, 0, &value, &value, 4, 0,
                                             cudaMemcpyHostToDevice),
              cudaErrorInvalidSymbol);
    EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    EXPECT_CUDA(cudaGraphLaunch(executable, 0));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(back[0], 77);
    EXPECT_CUDA(cudaGraphExecMemcpyNodeSetParamsToSymbol(executable, to, counter, &other, 4, 4,
                                                         cudaMemcpyHostToDevice));
    EXPECT_CUDA(cudaGraphLaunch(executable, 0));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(back[0], 78);
    EXPECT_CUDA(cudaGraphExecDestroy(executable));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    (void)cudaGetLastError();
}

static void what_is_refused(void)
{
    int value = 0;
    void *p;
    EXPECT_EQ(cudaMemcpyToSymbol(&value, &value, 4, 0, cudaMemcpyHostToDevice),
              cudaErrorInvalidSymbol);
    EXPECT_EQ(cudaMemcpyToSymbol(NULL, &value, 4, 0, cudaMemcpyHostToDevice),
              cudaErrorInvalidSymbol);
    EXPECT_EQ(cudaMemcpyToSymbol(counter, &value, 4, 13, cudaMemcpyHostToDevice),
              cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpyFromSymbol(&value, counter, 17, 0, cudaMemcpyDeviceToHost),
              cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpyFromSymbol(&value, counter, 4, (size_t)-4, cudaMemcpyDeviceToHost),
              cudaErrorInvalidValue);
    EXPECT_EQ(cudaGetSymbolAddress(&p, &value), cudaErrorInvalidSymbol);
    EXPECT_EQ(cudaGetSymbolAddress(NULL, counter), cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

static void made_anew_after_a_reset(void)
{
    int value = 99;
    int back = 0;
    EXPECT_CUDA(cudaSetDevice(5));
    EXPECT_CUDA(cudaMemcpyToSymbol(counter, &value, 4, 0, cudaMemcpyHostToDevice));
    EXPECT_CUDA(cudaDeviceReset());
    EXPECT_CUDA(cudaMemcpyFromSymbol(&back, counter, 4, 0, cudaMemcpyDeviceToHost));
    EXPECT_EQ(back, 1);
    EXPECT_CUDA(cudaSetDevice(0));
}

// More than the first table holds.
static void many_symbols(void)
{
    enum { COUNT = 1000 };
    static int object[COUNT];
    static struct vgpu_symbol symbol[COUNT];
    int back = 0;
    for (int i = 0; i < COUNT; i++) {
        object[i] = i * 5;
        symbol[i] = (struct vgpu_symbol){&object[i], "object", sizeof(int), 4, false};
        vgpu_register_symbol(&symbol[i]);
        vgpu_register_symbol(&symbol[i]); // twice is once
    }
    for (int i = 0; i < COUNT; i += 37) {
        EXPECT_CUDA(cudaMemcpyFromSymbol(&back, &object[i], 4, 0, cudaMemcpyDeviceToHost));
        EXPECT_EQ(back, i * 5);
    }
}

int main(void)
{
    vgpu_register_symbol(&counter_symbol);
    vgpu_register_symbol(&factor_symbol);
    RUN(one_copy_per_device);
    RUN(addresses);
    RUN(in_graphs);
    RUN(what_is_refused);
    RUN(made_anew_after_a_reset);
    RUN(many_symbols);
    return expect_result();
}
