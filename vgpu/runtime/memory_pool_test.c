// Memory pools and advice about managed memory. Numbers of errors are what an H200 with CUDA 13.0
// gave. SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include "expect.h"

#include <stdint.h>
#include <string.h>

static cudaStream_t stream;

static uint64_t number_of(cudaMemPool_t pool, enum cudaMemPoolAttr attribute)
{
    uint64_t number = 77;
    EXPECT_CUDA(cudaMemPoolGetAttribute(pool, attribute, &number));
    return number;
}

static void the_default_pool(void)
{
    cudaMemPool_t pool, current;
    void *memory;
    int on = 0;
    uint64_t number = 5;
    EXPECT_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
    EXPECT_CUDA(cudaDeviceGetMemPool(&current, 0));
    EXPECT(pool == current);
    EXPECT_EQ(cudaDeviceGetDefaultMemPool(&pool, 99), cudaErrorInvalidDevice);
    EXPECT_EQ(cudaMemPoolDestroy(current), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaMemPoolGetAttribute(current, cudaMemPoolReuseAllowInternalDependencies, &on));
    EXPECT_EQ(on, 1);
    on = 0;
    EXPECT_CUDA(cudaMemPoolSetAttribute(current, cudaMemPoolReuseAllowOpportunistic, &on));
    EXPECT_CUDA(cudaMallocAsync(&memory, 100, stream));
    EXPECT_EQ(number_of(current, cudaMemPoolAttrUsedMemCurrent), 100);
    EXPECT(number_of(current, cudaMemPoolAttrReservedMemCurrent) >= 100);
    EXPECT_EQ(cudaMemPoolSetAttribute(current, cudaMemPoolAttrUsedMemHigh, &number),
              cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemPoolSetAttribute(current, cudaMemPoolAttrUsedMemCurrent, &number),
              cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemPoolGetAttribute(current, (enum cudaMemPoolAttr)9, &number),
              cudaErrorInvalidValue);
    EXPECT_CUDA(cudaMemPoolSetAttribute(current, cudaMemPoolAttrReleaseThreshold, &number));
    EXPECT_EQ(number_of(current, cudaMemPoolAttrReleaseThreshold), 5);
    struct cudaPointerAttributes attributes;
    EXPECT_CUDA(cudaPointerGetAttributes(&attributes, memory));
    EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
    EXPECT_CUDA(cudaFreeAsync(memory, stream));
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(number_of(current, cudaMemPoolAttrUsedMemCurrent), 0);
    EXPECT_EQ(number_of(current, cudaMemPoolAttrUsedMemHigh), 100);
    number = 0;
    EXPECT_CUDA(cudaMemPoolSetAttribute(current, cudaMemPoolAttrUsedMemHigh, &number));
    EXPECT_EQ(number_of(current, cudaMemPoolAttrUsedMemHigh), 0);
    EXPECT_CUDA(cudaMemPoolTrimTo(current, 0));
    EXPECT_EQ(cudaMallocAsync(&memory, 0, stream), cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

static void pools_of_ones_own(void)
{
    cudaMemPool_t pool;
    void *memory, *more;
    struct cudaMemPoolProps properties;
    memset(&properties, 0, sizeof(properties));
    EXPECT_EQ(cudaMemPoolCreate(&pool, &properties), cudaErrorInvalidValue);
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = 99;
    EXPECT_EQ(cudaMemPoolCreate(&pool, &properties), cudaErrorInvalidValue);
    properties.location.id = 1;
    properties.maxSize = 1 << 20;
    EXPECT_CUDA(cudaMemPoolCreate(&pool, &properties));
    EXPECT_EQ(cudaMallocFromPoolAsync(&memory, 1 << 26, pool, stream), cudaErrorMemoryAllocation);
    EXPECT_CUDA(cudaMallocFromPoolAsync(&memory, 1000, pool, stream));
    EXPECT_CUDA(cudaMallocFromPoolAsync(&more, (1 << 20) - 1000, pool, stream));
    EXPECT_EQ(cudaMallocFromPoolAsync(&memory, 1, pool, stream), cudaErrorMemoryAllocation);
    struct cudaPointerAttributes attributes;
    EXPECT_CUDA(cudaPointerGetAttributes(&attributes, memory));
    EXPECT_EQ(attributes.device, 1);
    EXPECT_CUDA(cudaFree(memory)); // also frees what a pool gave
    EXPECT_EQ(cudaFreeAsync(memory, stream), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaMallocFromPoolAsync(&memory, 1000, pool, stream));

    struct cudaMemAccessDesc access = {{cudaMemLocationTypeDevice, 2}, cudaMemAccessFlagsProtRead};
    enum cudaMemAccessFlags flags = cudaMemAccessFlagsProtNone;
    EXPECT_CUDA(cudaMemPoolSetAccess(pool, &access, 1));
    EXPECT_CUDA(cudaMemPoolGetAccess(&flags, pool, &access.location));
    EXPECT_EQ(flags, cudaMemAccessFlagsProtRead);
    access.location.id = 1;
    EXPECT_EQ(cudaMemPoolSetAccess(pool, &access, 1), cudaErrorInvalidDevice);

    EXPECT_EQ(cudaDeviceSetMemPool(0, pool), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaDeviceSetMemPool(1, pool));
    EXPECT_CUDA(cudaMemPoolDestroy(pool)); // its memory lives on
    EXPECT_EQ(cudaMemPoolDestroy(pool), cudaErrorInvalidValue);
    cudaMemPool_t current, standard;
    EXPECT_CUDA(cudaDeviceGetMemPool(&current, 1));
    EXPECT_CUDA(cudaDeviceGetDefaultMemPool(&standard, 1));
    EXPECT(current == standard);
    EXPECT_CUDA(cudaMemset(memory, 1, 1000));
    EXPECT_CUDA(cudaFreeAsync(memory, stream));
    EXPECT_CUDA(cudaFree(more));
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    void *plain;
    EXPECT_CUDA(cudaMalloc(&plain, 64));
    EXPECT_CUDA(cudaFreeAsync(plain, stream)); // allowed, too
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    (void)cudaGetLastError();
}

// ---- Advice -------------------------------------------------------------------------------------

static int ask(const char *memory, size_t bytes, enum cudaMemRangeAttribute attribute)
{
    int answer = -99;
    EXPECT_CUDA(cudaMemRangeGetAttribute(&answer, sizeof(answer), attribute, memory, bytes));
    return answer;
}

static void advice_is_kept_by_range(void)
{
    enum { BYTES = 1 << 16, HALF = BYTES / 2 };
    char *memory;
    struct cudaMemLocation first = {cudaMemLocationTypeDevice, 0};
    struct cudaMemLocation second = {cudaMemLocationTypeDevice, 1};
    struct cudaMemLocation host = {cudaMemLocationTypeHost, 0};
    EXPECT_CUDA(cudaMallocManaged((void **)&memory, BYTES, cudaMemAttachGlobal));
    EXPECT_EQ(ask(memory, BYTES, cudaMemRangeAttributeReadMostly), 0);
    EXPECT_EQ(ask(memory, BYTES, cudaMemRangeAttributePreferredLocation), cudaInvalidDeviceId);
    EXPECT_EQ(ask(memory, BYTES, cudaMemRangeAttributePreferredLocationType),
              cudaMemLocationTypeInvalid);
    EXPECT_CUDA(cudaMemAdvise(memory, BYTES, cudaMemAdviseSetReadMostly, first));
    EXPECT_EQ(ask(memory + 5, 100, cudaMemRangeAttributeReadMostly), 1);
    EXPECT_CUDA(cudaMemAdvise(memory + HALF, HALF, cudaMemAdviseUnsetReadMostly, first));
    EXPECT_EQ(ask(memory, HALF, cudaMemRangeAttributeReadMostly), 1);
    EXPECT_EQ(ask(memory, HALF + 1, cudaMemRangeAttributeReadMostly), 0);
    EXPECT_CUDA(cudaMemAdvise(memory, HALF, cudaMemAdviseSetPreferredLocation, second));
    EXPECT_EQ(ask(memory, HALF, cudaMemRangeAttributePreferredLocation), 1);
    EXPECT_EQ(ask(memory, BYTES, cudaMemRangeAttributePreferredLocation), cudaInvalidDeviceId);
    EXPECT_EQ(ask(memory, 1, cudaMemRangeAttributePreferredLocationType),
              cudaMemLocationTypeDevice);

    int devices[4];
    EXPECT_CUDA(cudaMemAdvise(memory, BYTES, cudaMemAdviseSetAccessedBy, first));
    EXPECT_CUDA(cudaMemAdvise(memory, HALF, cudaMemAdviseSetAccessedBy, second));
    EXPECT_CUDA(cudaMemRangeGetAttribute(devices, sizeof(devices), cudaMemRangeAttributeAccessedBy,
                                         memory, HALF));
    EXPECT(devices[0] == 0 && devices[1] == 1 && devices[2] == cudaInvalidDeviceId);
    EXPECT_CUDA(
        cudaMemRangeGetAttribute(devices, 8, cudaMemRangeAttributeAccessedBy, memory, BYTES));
    EXPECT(devices[0] == 0 && devices[1] == cudaInvalidDeviceId);

    EXPECT_CUDA(cudaMemPrefetchAsync(memory, BYTES, host, 0, stream));
    EXPECT_EQ(ask(memory, BYTES, cudaMemRangeAttributeLastPrefetchLocation), cudaCpuDeviceId);
    EXPECT_EQ(ask(memory, BYTES, cudaMemRangeAttributeLastPrefetchLocationType),
              cudaMemLocationTypeHost);
    EXPECT_CUDA(cudaStreamAttachMemAsync(stream, memory, 0, cudaMemAttachSingle));
    EXPECT_CUDA(cudaFree(memory));
}

static void wrong_advice(void)
{
    char *memory;
    void *device_memory;
    int answer;
    struct cudaMemLocation place = {cudaMemLocationTypeDevice, 77};
    struct cudaMemLocation right = {cudaMemLocationTypeDevice, 0};
    EXPECT_CUDA(cudaMallocManaged((void **)&memory, 4096, cudaMemAttachGlobal));
    EXPECT_CUDA(cudaMalloc(&device_memory, 4096));
    EXPECT_EQ(cudaMemAdvise(memory, 64, cudaMemAdviseSetPreferredLocation, place),
              cudaErrorInvalidDevice);
    EXPECT_EQ(cudaMemAdvise(memory, 4097, cudaMemAdviseSetReadMostly, right),
              cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemAdvise(memory, 0, cudaMemAdviseSetReadMostly, right), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemAdvise(memory, 64, (enum cudaMemoryAdvise)9, right), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemAdvise(device_memory, 64, cudaMemAdviseSetReadMostly, right),
              cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemPrefetchAsync(memory, 64, right, 1, stream), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemPrefetchAsync(device_memory, 64, right, 0, stream), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemRangeGetAttribute(&answer, 3, cudaMemRangeAttributeReadMostly, memory, 64),
              cudaErrorInvalidValue);
    EXPECT_EQ(
        cudaMemRangeGetAttribute(&answer, 4, cudaMemRangeAttributeReadMostly, device_memory, 64),
        cudaErrorInvalidValue);
    EXPECT_EQ(cudaStreamAttachMemAsync(stream, device_memory, 0, cudaMemAttachHost),
              cudaErrorInvalidValue);
    EXPECT_CUDA(cudaFree(memory));
    EXPECT_CUDA(cudaFree(device_memory));
    (void)cudaGetLastError();
}

int main(void)
{
    EXPECT_CUDA(cudaStreamCreate(&stream));
    RUN(the_default_pool);
    RUN(pools_of_ones_own);
    RUN(advice_is_kept_by_range);
    RUN(wrong_advice);
    EXPECT_CUDA(cudaStreamDestroy(stream));
    return expect_result();
}
