// Device memory that other ranks can map: ncclMemAlloc and ncclMemFree.
// SPDX-License-Identifier: Apache-2.0
#include "window/memory.h"

#include "base/gpu.h"
#include "base/log.h"
#include "window/window_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

// What a device says it has was refused to this process once (no fabric manager, no rights): it is
// not asked for again.
static atomic_bool fabric_is_refused;
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER; // threads that come at once, in turn

static bool device_has(int device, CUdevice_attribute attribute)
{
    int value = 0;
    return cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

// Memory that other processes can map by a descriptor and, where the device has that, other hosts
// by a fabric handle, and that network cards can reach.
static CUmemAllocationProp shareable(int device)
{
    CUmemAllocationProp properties = {0};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (!atomic_load(&fabric_is_refused) &&
        device_has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)) {
        properties.requestedHandleTypes =
            (CUmemAllocationHandleType)(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR |
                                        CU_MEM_HANDLE_TYPE_FABRIC);
    }
    properties.allocFlags.gpuDirectRDMACapable =
        device_has(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
    return properties;
}

// With a fabric handle; where that is refused, without, then and in *properties.
static CUresult ask_for_fabric(CUmemGenericAllocationHandle *handle, size_t bytes,
                               CUmemAllocationProp *properties)
{
    CUresult error = CUDA_ERROR_NOT_PERMITTED;
    (void)pthread_mutex_lock(&asking);
    if (!atomic_load(&fabric_is_refused)) {
        error = cuMemCreate(handle, bytes, properties, 0);
    }
    if (error != CUDA_SUCCESS && error != CUDA_ERROR_OUT_OF_MEMORY) {
        properties->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        error = cuMemCreate(handle, bytes, properties, 0);
        if (error == CUDA_SUCCESS) {
            atomic_store(&fabric_is_refused, true);
        }
    }
    (void)pthread_mutex_unlock(&asking);
    return error;
}

// With as much of `properties` as is not refused.
static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes,
                       CUmemAllocationProp properties)
{
    bool with_fabric = properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUresult error = with_fabric ? ask_for_fabric(handle, bytes, &properties)
                                 : cuMemCreate(handle, bytes, &properties, 0);
    if (error != CUDA_SUCCESS && properties.allocFlags.gpuDirectRDMACapable != 0) {
        properties.allocFlags.gpuDirectRDMACapable = 0;
        error = cuMemCreate(handle, bytes, &properties, 0);
    }
    return error;
}

size_t tt_memory_granularity(int device, int multicast_members, struct tt_verdict *verdict)
{
    CUmemAllocationProp properties = shareable(device);
    size_t granularity = 0;
    if (!tt_verdict_driver(verdict,
                           cuMemGetAllocationGranularity(&granularity, &properties,
                                                         CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                           "cuMemGetAllocationGranularity")) {
        return 0;
    }
    if (multicast_members > 0) {
        CUmulticastObjectProp multicast = {0};
        multicast.numDevices = (unsigned int)multicast_members;
        multicast.size = granularity;
        multicast.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        size_t granule = 0;
        if (!tt_verdict_driver(
                verdict,
                cuMulticastGetGranularity(&granule, &multicast, CU_MULTICAST_GRANULARITY_MINIMUM),
                "cuMulticastGetGranularity")) {
            return 0;
        }
        granularity = granule > granularity ? granule : granularity;
    }
    return granularity;
}

// Read and write access for the owner and for every device that can reach it.
static bool open_to_peers(CUdeviceptr pointer, size_t bytes, int device, struct tt_verdict *verdict)
{
    int devices = 0;
    if (!tt_verdict_cuda(verdict, cudaGetDeviceCount(&devices), "cudaGetDeviceCount")) {
        return false;
    }
    CUmemAccessDesc *access = calloc((size_t)devices, sizeof *access);
    if (access == NULL) {
        tt_verdict_fail(verdict, ncclSystemError, "no memory for %d access descriptions", devices);
        return false;
    }
    size_t count = 0;
    for (int peer = 0; peer < devices; peer++) {
        int reachable = peer == device;
        if (!reachable && cudaDeviceCanAccessPeer(&reachable, peer, device) != cudaSuccess) {
            (void)cudaGetLastError();
            reachable = 0;
        }
        if (reachable) {
            access[count].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            access[count].location.id = peer;
            access[count++].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        }
    }
    bool opened =
        tt_verdict_driver(verdict, cuMemSetAccess(pointer, bytes, access, count), "cuMemSetAccess");
    free(access);
    return opened;
}

void *tt_memory_allocate(int device, size_t bytes, struct tt_verdict *verdict)
{
    CUmemAllocationProp properties = shareable(device);
    size_t granularity = 0;
    if (!tt_verdict_driver(verdict,
                           cuMemGetAllocationGranularity(&granularity, &properties,
                                                         CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                           "cuMemGetAllocationGranularity")) {
        return NULL;
    }
    size_t rounded = (bytes + granularity - 1) / granularity * granularity;
    if (rounded < bytes) {
        tt_verdict_fail(verdict, ncclInvalidArgument,
                        "too large to be rounded up to a multiple of %zu", granularity);
        return NULL;
    }
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr pointer = 0;
    CUresult error = create(&handle, rounded, properties);
    if (error != CUDA_SUCCESS) {
        char call[96];
        (void)snprintf(call, sizeof call, "cuMemCreate of %zu bytes on %s", rounded,
                       tt_gpu(device)->name);
        (void)tt_verdict_driver(verdict, error, call);
        return NULL;
    }
    if (!tt_verdict_driver(verdict, cuMemAddressReserve(&pointer, rounded, granularity, 0, 0),
                           "cuMemAddressReserve")) {
        goto release;
    }
    if (!tt_verdict_driver(verdict, cuMemMap(pointer, rounded, 0, handle, 0), "cuMemMap")) {
        goto free_address;
    }
    if (!open_to_peers(pointer, rounded, device, verdict)) {
        goto unmap;
    }
    (void)cuMemRelease(handle); // the mapping keeps the memory
    return (void *)(uintptr_t)pointer;
unmap:
    (void)cuMemUnmap(pointer, rounded);
free_address:
    (void)cuMemAddressFree(pointer, rounded);
release:
    (void)cuMemRelease(handle);
    return NULL;
}

CUresult tt_memory_free(void *pointer)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUresult error = cuMemGetAddressRange(&base, &bytes, (CUdeviceptr)(uintptr_t)pointer);
    error = error == CUDA_SUCCESS ? cuMemUnmap(base, bytes) : error;
    return error == CUDA_SUCCESS ? cuMemAddressFree(base, bytes) : error;
}

ncclResult_t tt_mem_alloc(void **pointer_out, size_t bytes, bool virtual_memory)
{
    if (pointer_out == NULL) {
        return tt_fail(ncclInvalidArgument,
                       "ncclMemAlloc: ptr is NULL, expected where to write the address");
    }
    int device = 0;
    TRY_CUDA(cudaGetDevice(&device));
    if (bytes == 0 || !virtual_memory ||
        !device_has(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        TRY_CUDA(cudaMalloc(pointer_out, bytes));
        return ncclSuccess;
    }
    struct tt_verdict verdict = {0};
    void *pointer = tt_memory_allocate(device, bytes, &verdict);
    if (pointer == NULL) {
        return tt_fail((ncclResult_t)verdict.result, "ncclMemAlloc: size %zu: %s", bytes,
                       verdict.text);
    }
    *pointer_out = pointer;
    return ncclSuccess;
}

ncclResult_t tt_mem_free(void *pointer)
{
    if (pointer == NULL) {
        return ncclSuccess;
    }
    CUmemGenericAllocationHandle handle = 0;
    if (cuMemRetainAllocationHandle(&handle, pointer) != CUDA_SUCCESS) {
        // Not mapped by tt_memory_allocate: from cudaMalloc, or not ours at all.
        cudaError_t error = cudaFree(pointer);
        if (error != cudaSuccess) {
            (void)cudaGetLastError();
            return tt_fail(
                ncclUnhandledCudaError,
                "ncclMemFree: ptr %p is neither from ncclMemAlloc nor from cudaMalloc, or was "
                "freed before: %s",
                pointer, cudaGetErrorString(error));
        }
        return ncclSuccess;
    }
    (void)cuMemRelease(handle);
    struct tt_verdict verdict = {0};
    CUdeviceptr base = 0;
    if (tt_verdict_driver(&verdict,
                          cuMemGetAddressRange(&base, NULL, (CUdeviceptr)(uintptr_t)pointer),
                          "cuMemGetAddressRange")) {
        if (base != (CUdeviceptr)(uintptr_t)pointer) {
            return tt_fail(ncclInvalidArgument,
                           "ncclMemFree: ptr %p is not the start of memory from ncclMemAlloc, "
                           "which is %p",
                           pointer, (void *)(uintptr_t)base);
        }
        (void)tt_verdict_driver(&verdict, tt_memory_free(pointer), "unmapping");
    }
    return verdict.result == ncclSuccess
               ? ncclSuccess
               : tt_fail((ncclResult_t)verdict.result, "ncclMemFree: ptr %p: %s", pointer,
                         verdict.text);
}
