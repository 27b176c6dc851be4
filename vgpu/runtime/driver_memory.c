// The driver's memory functions: the runtime's under other names, and what it knows of a pointer.
// SPDX-License-Identifier: Apache-2.0
#include "backing.h"
#include "copy.h"
#include "driver_error.h"
#include "error.h"
#include "memory.h"
#include "stream.h"
#include "virtual_memory.h"

#include <stdlib.h>
#include <string.h>

static void *address_of(CUdeviceptr pointer)
{
    return (void *)(uintptr_t)pointer;
}

// ---- Allocating --------------------------------------------------------------------------------

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaMemGetInfo(free_bytes, total_bytes));
}

static cudaError_t no_bytes(const char *function)
{
    return vgpu_fail(cudaErrorInvalidValue, "%s: 0 bytes", function);
}

CUresult cuMemAlloc(CUdeviceptr *pointer, size_t bytes)
{
    cudaError_t before = vgpu_driver_begin();
    void *memory = NULL;
    cudaError_t error = bytes == 0 || !pointer ? no_bytes("cuMemAlloc, or no place for the result")
                                               : cudaMalloc(&memory, bytes);
    if (error == cudaSuccess) {
        *pointer = (CUdeviceptr)(uintptr_t)memory;
    }
    return vgpu_driver_end(before, error);
}

CUresult cuMemFree(CUdeviceptr pointer)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaFree(address_of(pointer)));
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
    cudaError_t before = vgpu_driver_begin();
    void *memory = NULL;
    cudaError_t error = pointer ? cudaMallocManaged(&memory, bytes, flags)
                                : no_bytes("cuMemAllocManaged: no place for the result");
    if (error == cudaSuccess) {
        *pointer = (CUdeviceptr)(uintptr_t)memory;
    }
    return vgpu_driver_end(before, error);
}

CUresult cuMemAllocHost(void **pointer, size_t bytes)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before,
                           bytes ? cudaMallocHost(pointer, bytes) : no_bytes("cuMemAllocHost"));
}

CUresult cuMemFreeHost(void *pointer)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaFreeHost(pointer));
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, bytes ? cudaHostAlloc(pointer, bytes, flags)
                                         : no_bytes("cuMemHostAlloc"));
}

CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned int flags)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaHostRegister(pointer, bytes, flags));
}

CUresult cuMemHostUnregister(void *pointer)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaHostUnregister(pointer));
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *device_pointer, void *host_pointer,
                                   unsigned int flags)
{
    cudaError_t before = vgpu_driver_begin();
    void *address = NULL;
    cudaError_t error =
        device_pointer
            ? cudaHostGetDevicePointer(&address, host_pointer, flags)
            : vgpu_fail(cudaErrorInvalidValue, "cuMemHostGetDevicePointer: device_pointer is NULL");
    if (error == cudaSuccess) {
        *device_pointer = (CUdeviceptr)(uintptr_t)address;
    }
    return vgpu_driver_end(before, error);
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *host_pointer)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaHostGetFlags(flags, host_pointer));
}

// ---- Copies and fills --------------------------------------------------------------------------

static CUresult copy(const char *function, void *destination, const void *source, size_t bytes,
                     enum cudaMemcpyKind kind, CUstream stream, bool wait)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before,
                           vgpu_copy(function, destination, source, bytes, kind, stream, wait));
}

CUresult cuMemcpy(CUdeviceptr destination, CUdeviceptr source, size_t bytes)
{
    return copy("cuMemcpy", address_of(destination), address_of(source), bytes, cudaMemcpyDefault,
                0, true);
}

CUresult cuMemcpyAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream)
{
    return copy("cuMemcpyAsync", address_of(destination), address_of(source), bytes,
                cudaMemcpyDefault, stream, false);
}

CUresult cuMemcpyHtoD(CUdeviceptr destination, const void *source, size_t bytes)
{
    return copy("cuMemcpyHtoD", address_of(destination), source, bytes, cudaMemcpyHostToDevice, 0,
                true);
}

CUresult cuMemcpyDtoH(void *destination, CUdeviceptr source, size_t bytes)
{
    return copy("cuMemcpyDtoH", destination, address_of(source), bytes, cudaMemcpyDeviceToHost, 0,
                true);
}

CUresult cuMemcpyDtoD(CUdeviceptr destination, CUdeviceptr source, size_t bytes)
{
    return copy("cuMemcpyDtoD", address_of(destination), address_of(source), bytes,
                cudaMemcpyDeviceToDevice, 0, true);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr destination, const void *source, size_t bytes,
                           CUstream stream)
{
    return copy("cuMemcpyHtoDAsync", address_of(destination), source, bytes, cudaMemcpyHostToDevice,
                stream, false);
}

CUresult cuMemcpyDtoHAsync(void *destination, CUdeviceptr source, size_t bytes, CUstream stream)
{
    return copy("cuMemcpyDtoHAsync", destination, address_of(source), bytes, cudaMemcpyDeviceToHost,
                stream, false);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes,
                           CUstream stream)
{
    return copy("cuMemcpyDtoDAsync", address_of(destination), address_of(source), bytes,
                cudaMemcpyDeviceToDevice, stream, false);
}

static CUresult fill(const char *function, CUdeviceptr pointer, uint32_t value,
                     unsigned element_bytes, size_t count, CUstream stream, bool synchronous)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, vgpu_fill(function, address_of(pointer), value, element_bytes,
                                             count, stream, synchronous));
}

CUresult cuMemsetD8(CUdeviceptr pointer, unsigned char value, size_t count)
{
    return fill("cuMemsetD8", pointer, value, 1, count, 0, true);
}

CUresult cuMemsetD16(CUdeviceptr pointer, unsigned short value, size_t count)
{
    return fill("cuMemsetD16", pointer, value, 2, count, 0, true);
}

CUresult cuMemsetD32(CUdeviceptr pointer, unsigned int value, size_t count)
{
    return fill("cuMemsetD32", pointer, value, 4, count, 0, true);
}

CUresult cuMemsetD8Async(CUdeviceptr pointer, unsigned char value, size_t count, CUstream stream)
{
    return fill("cuMemsetD8Async", pointer, value, 1, count, stream, false);
}

CUresult cuMemsetD32Async(CUdeviceptr pointer, unsigned int value, size_t count, CUstream stream)
{
    return fill("cuMemsetD32Async", pointer, value, 4, count, stream, false);
}

CUresult cuMemsetD16Async(CUdeviceptr pointer, unsigned short value, size_t count, CUstream stream)
{
    return fill("cuMemsetD16Async", pointer, value, 2, count, stream, false);
}

static CUresult fill_rows(const char *function, CUdeviceptr pointer, size_t pitch, uint32_t value,
                          unsigned element_bytes, size_t width, size_t height)
{
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_fill rows = {address_of(pointer), pitch, 0, height, value, element_bytes};
    if (__builtin_mul_overflow(width, (size_t)element_bytes, &rows.width)) {
        return vgpu_driver_end(before,
                               vgpu_fail(cudaErrorInvalidValue,
                                         "%s: rows of %zu elements are too long", function, width));
    }
    return vgpu_driver_end(before, vgpu_fill_submit(function, &rows, 0, true));
}

CUresult cuMemsetD2D8(CUdeviceptr pointer, size_t pitch, unsigned char value, size_t width,
                      size_t height)
{
    return fill_rows("cuMemsetD2D8", pointer, pitch, value, 1, width, height);
}

CUresult cuMemsetD2D32(CUdeviceptr pointer, size_t pitch, unsigned int value, size_t width,
                       size_t height)
{
    return fill_rows("cuMemsetD2D32", pointer, pitch, value, 4, width, height);
}

// Between contexts: devices. The addresses say which memory it is.
static cudaError_t check_contexts(const char *function, CUcontext destination, CUcontext source)
{
    bool known[2] = {false, false};
    for (int i = 0; i < vgpu_device_count(); i++) {
        known[0] |= (CUcontext)vgpu_device(i) == destination;
        known[1] |= (CUcontext)vgpu_device(i) == source;
    }
    return known[0] && known[1] ? cudaSuccess
                                : vgpu_fail(cudaErrorDeviceUninitialized, "%s: %p is no context",
                                            function, (void *)(known[0] ? source : destination));
}

CUresult cuMemcpyPeer(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                      CUcontext source_context, size_t bytes)
{
    cudaError_t before = vgpu_driver_begin();
    cudaError_t error = check_contexts("cuMemcpyPeer", destination_context, source_context);
    return error == cudaSuccess ? cuMemcpy(destination, source, bytes)
                                : vgpu_driver_end(before, error);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr destination, CUcontext destination_context,
                           CUdeviceptr source, CUcontext source_context, size_t bytes,
                           CUstream stream)
{
    cudaError_t before = vgpu_driver_begin();
    cudaError_t error = check_contexts("cuMemcpyPeerAsync", destination_context, source_context);
    return error == cudaSuccess ? cuMemcpyAsync(destination, source, bytes, stream)
                                : vgpu_driver_end(before, error);
}

// ---- Pools -------------------------------------------------------------------------------------

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    cudaError_t before = vgpu_driver_begin();
    void *memory = NULL;
    cudaError_t error = cudaMallocAsync(pointer ? &memory : NULL, bytes, stream);
    if (error == cudaSuccess) {
        *pointer = (CUdeviceptr)(uintptr_t)memory;
    }
    return vgpu_driver_end(before, error);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                 CUstream stream)
{
    cudaError_t before = vgpu_driver_begin();
    void *memory = NULL;
    cudaError_t error = cudaMallocFromPoolAsync(pointer ? &memory : NULL, bytes, pool, stream);
    if (error == cudaSuccess) {
        *pointer = (CUdeviceptr)(uintptr_t)memory;
    }
    return vgpu_driver_end(before, error);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaFreeAsync(address_of(pointer), stream));
}

CUresult cuMemAllocPitch(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                         unsigned int element_bytes)
{
    cudaError_t before = vgpu_driver_begin();
    void *memory = NULL;
    cudaError_t error =
        element_bytes == 4 || element_bytes == 8 || element_bytes == 16
            ? cudaMallocPitch(pointer ? &memory : NULL, pitch, width, height)
            : vgpu_fail(cudaErrorInvalidValue,
                        "cuMemAllocPitch: elements of %u bytes; must be 4, 8 or 16", element_bytes);
    if (error == cudaSuccess) {
        *pointer = (CUdeviceptr)(uintptr_t)memory;
    }
    return vgpu_driver_end(before, error);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaDeviceGetDefaultMemPool(pool, device));
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaDeviceGetMemPool(pool, device));
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaDeviceSetMemPool(device, pool));
}

// ---- IPC ---------------------------------------------------------------------------------------

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before,
                           cudaIpcGetMemHandle((cudaIpcMemHandle_t *)handle, address_of(pointer)));
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags)
{
    cudaError_t before = vgpu_driver_begin();
    cudaIpcMemHandle_t same;
    void *memory = NULL;
    memcpy(&same, &handle, sizeof(same));
    cudaError_t error = pointer ? cudaIpcOpenMemHandle(&memory, same, flags)
                                : no_bytes("cuIpcOpenMemHandle: no place for the result");
    if (error == cudaSuccess) {
        *pointer = (CUdeviceptr)(uintptr_t)memory;
    }
    return vgpu_driver_end(before, error);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaIpcCloseMemHandle(address_of(pointer)));
}

// ---- What is known of a pointer ----------------------------------------------------------------

CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_memory_range range = vgpu_memory_find(address_of(pointer));
    if (range.kind == VGPU_MEMORY_NONE) {
        return vgpu_driver_end(before, vgpu_fail(cudaErrorSymbolNotFound,
                                                 "cuMemGetAddressRange: 0x%llx is in no allocation",
                                                 pointer));
    }
    if (base) {
        *base = (CUdeviceptr)range.base;
    }
    if (bytes) {
        *bytes = range.bytes;
    }
    return CUDA_SUCCESS;
}

// What the attributes that are numbers or addresses say; 8 bytes hold any of them.
static cudaError_t pointer_attribute(const struct vgpu_mapping *mapping,
                                     CUpointer_attribute attribute, uintptr_t address,
                                     uint64_t *value, size_t *value_bytes)
{
    bool host = mapping->kind == VGPU_MEMORY_PINNED || mapping->kind == VGPU_MEMORY_MANAGED;
    *value_bytes = sizeof(uint64_t);
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *value = (uintptr_t)vgpu_device(mapping->device);
        return cudaSuccess;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *value = address;
        return cudaSuccess;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *value = address;
        return host ? cudaSuccess
                    : vgpu_fail(cudaErrorInvalidValue,
                                "cuPointerGetAttribute: %p has no host address", (void *)address);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *value = mapping->number;
        return cudaSuccess;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *value = mapping->base;
        return cudaSuccess;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *value = mapping->bytes;
        return cudaSuccess;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *value = mapping->backing ? mapping->backing->label.handle_types : 0;
        return cudaSuccess;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *value = (uintptr_t)mapping->pool;
        return cudaSuccess;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *value = mapping->kind == VGPU_MEMORY_PINNED ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *value = (uint64_t)(uint32_t)mapping->device;
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *value = mapping->no_access ? 0 : mapping->read_only ? 1 : 3;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *value = (attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED &&
                  mapping->kind == VGPU_MEMORY_MANAGED) ||
                 (attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE &&
                  mapping->source == VGPU_FROM_MALLOC) ||
                 (attribute == CU_POINTER_ATTRIBUTE_MAPPED && !mapping->no_access) ||
                 (attribute == CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE &&
                  mapping->backing && mapping->backing->label.gpu_direct);
        *value_bytes = sizeof(bool);
        return cudaSuccess;
    default:
        return vgpu_fail(cudaErrorInvalidValue, "cuPointerGetAttribute: no attribute %d",
                         (int)attribute);
    }
    *value_bytes = sizeof(int);
    return cudaSuccess;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    cudaError_t before = vgpu_driver_begin();
    uint64_t found = 0;
    size_t bytes = 0;
    cudaError_t error;
    vgpu_memory_lock();
    struct vgpu_mapping *mapping = vgpu_mapping_find((uintptr_t)pointer);
    if (!value || !mapping) {
        error =
            vgpu_fail(cudaErrorInvalidValue, "cuPointerGetAttribute: result at %p, 0x%llx is %s",
                      value, pointer, mapping ? "known" : "in no allocation");
    } else {
        error = pointer_attribute(mapping, attribute, (uintptr_t)pointer, &found, &bytes);
    }
    vgpu_memory_unlock();
    if (error == cudaSuccess) {
        memcpy(value, &found, bytes); // little-endian
    }
    return vgpu_driver_end(before, error);
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **values,
                                CUdeviceptr pointer)
{
    cudaError_t before = vgpu_driver_begin();
    if (!attributes || !values) {
        return vgpu_driver_end(before, vgpu_fail(cudaErrorInvalidValue,
                                                 "cuPointerGetAttributes: %s is NULL",
                                                 attributes ? "values" : "attributes"));
    }
    bool known = vgpu_memory_find(address_of(pointer)).kind != VGPU_MEMORY_NONE;
    for (unsigned int i = 0; i < count; i++) {
        CUresult result = CUDA_SUCCESS;
        if (known) {
            result = cuPointerGetAttribute(values[i], attributes[i], pointer);
        } else if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
                   attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
            // Ordinary memory is no error here, as in CUDA: it has type 0 and device -2.
            *(int *)values[i] = attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ? 0 : -2;
        }
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                               CUdeviceptr pointer)
{
    cudaError_t before = vgpu_driver_begin();
    cudaError_t error = cudaSuccess; // copies are in order with memory operations anyway
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
        vgpu_memory_find(address_of(pointer)).kind == VGPU_MEMORY_NONE) {
        error = vgpu_fail(cudaErrorInvalidValue,
                          "cuPointerSetAttribute: value at %p, attribute %d, 0x%llx; only "
                          "SYNC_MEMOPS of known memory can be set",
                          value, (int)attribute, pointer);
    }
    return vgpu_driver_end(before, error);
}
