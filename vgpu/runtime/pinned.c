// Host memory that devices use: cudaHostAlloc, cudaHostRegister, and what is known of a pointer.
//
// Devices of this machine can read all of the host's memory; being pinned changes what copies and
// queries say. SPDX-License-Identifier: Apache-2.0
#include "backing.h"
#include "capture.h"
#include "cuda_runtime_api.h"
#include "error.h"
#include "memory.h"
#include "stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const unsigned ALLOC_FLAGS =
    cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
static const unsigned REGISTER_FLAGS = cudaHostRegisterPortable | cudaHostRegisterMapped |
                                       cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;

static cudaError_t add_mapping(const char *function, void *pointer, size_t bytes, unsigned flags,
                               enum vgpu_mapping_source source)
{
    struct vgpu_mapping *mapping = calloc(1, sizeof(*mapping));
    if (!mapping) {
        return vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
    }
    struct vgpu_device *device = vgpu_current_device();
    mapping->kind = VGPU_MEMORY_PINNED;
    mapping->source = source;
    mapping->base = (uintptr_t)pointer;
    mapping->bytes = bytes;
    mapping->device = device ? device->ordinal : -1;
    mapping->flags = flags;
    if (!vgpu_mapping_add(mapping)) {
        free(mapping);
        return vgpu_fail(cudaErrorHostMemoryAlreadyRegistered,
                         "%s: %p with %zu bytes overlaps memory that is known already", function,
                         pointer, bytes);
    }
    return cudaSuccess;
}

static size_t pages(size_t bytes)
{
    return (bytes + VGPU_PAGE_BYTES - 1) & ~(size_t)(VGPU_PAGE_BYTES - 1);
}

static cudaError_t host_alloc(const char *function, void **pointer, size_t bytes, unsigned flags)
{
    if (!pointer) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: the place for the pointer is NULL", function);
    }
    if (flags & ~ALLOC_FLAGS) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: flags are 0x%x; cudaHostAlloc* give 0x0 to 0x%x", function, flags,
                         ALLOC_FLAGS);
    }
    cudaError_t error = vgpu_device_ready(vgpu_current_device());
    if (error == cudaSuccess) {
        error = vgpu_capture_allows(function);
    }
    if (error != cudaSuccess) {
        return error;
    }
    if (bytes == 0) {
        *pointer = NULL;
        return cudaSuccess;
    }
    vgpu_memory_lock();
    error = vgpu_budget_take_pinned(function, bytes);
    if (error == cudaSuccess) {
        void *memory = mmap(NULL, pages(bytes), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (memory == MAP_FAILED) {
            error = vgpu_fail_limit(function, "host memory cannot be mapped", errno);
        } else {
            error = add_mapping(function, memory, bytes, flags, VGPU_FROM_HOST);
        }
        if (error == cudaSuccess) {
            *pointer = memory;
        } else {
            if (memory != MAP_FAILED) {
                munmap(memory, pages(bytes));
            }
            vgpu_budget_return_pinned(bytes);
        }
    }
    vgpu_memory_unlock();
    return error;
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    return host_alloc("cudaHostAlloc", pointer, bytes, flags);
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes)
{
    return host_alloc("cudaMallocHost", pointer, bytes, cudaHostAllocDefault);
}

// Waits until no work can use pinned memory any more: that of any device.
static cudaError_t wait_all(void)
{
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < vgpu_device_count(); i++) {
        cudaError_t one = vgpu_device_wait(vgpu_device(i));
        error = error == cudaSuccess ? one : error;
    }
    return error;
}

cudaError_t cudaFreeHost(void *pointer)
{
    cudaError_t error = vgpu_capture_allows("cudaFreeHost");
    if (error != cudaSuccess || !pointer) {
        return error;
    }
    if (vgpu_memory_find(pointer).kind == VGPU_MEMORY_PINNED) {
        (void)wait_all(); // errors of kernels are theirs to report
    }
    vgpu_memory_lock();
    struct vgpu_mapping *mapping = vgpu_mapping_find((uintptr_t)pointer);
    if (!mapping || mapping->source != VGPU_FROM_HOST || mapping->base != (uintptr_t)pointer) {
        error =
            vgpu_fail(cudaErrorInvalidValue,
                      "cudaFreeHost: %p was not allocated by cudaHostAlloc or cudaMallocHost, or "
                      "is freed already",
                      pointer);
    } else {
        vgpu_mapping_remove(mapping);
        munmap(pointer, pages(mapping->bytes));
        vgpu_budget_return_pinned(mapping->bytes);
        free(mapping);
    }
    vgpu_memory_unlock();
    return error;
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned int flags)
{
    cudaError_t error = vgpu_device_ready(vgpu_current_device());
    if (error == cudaSuccess) {
        error = vgpu_capture_allows("cudaHostRegister");
    }
    if (error != cudaSuccess) {
        return error;
    }
    uintptr_t first = (uintptr_t)pointer;
    if (!pointer || bytes == 0 || first + bytes < first) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaHostRegister: %zu bytes at %p", bytes,
                         pointer);
    }
    if (flags & ~REGISTER_FLAGS) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaHostRegister: flags are 0x%x; cudaHostRegister* give 0x0 to 0x%x",
                         flags, REGISTER_FLAGS);
    }
    unsigned char page;
    if (mincore((void *)(first & ~(uintptr_t)(VGPU_PAGE_BYTES - 1)), 1, &page) != 0) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaHostRegister: nothing is mapped at %p",
                         pointer);
    }
    vgpu_memory_lock();
    error = add_mapping("cudaHostRegister", pointer, bytes, flags, VGPU_FROM_REGISTER);
    vgpu_memory_unlock();
    return error;
}

cudaError_t cudaHostUnregister(void *pointer)
{
    cudaError_t allowed = vgpu_calls_allowed();
    if (allowed != cudaSuccess) {
        return allowed;
    }
    vgpu_memory_lock();
    struct vgpu_mapping *mapping = vgpu_mapping_find((uintptr_t)pointer);
    cudaError_t error = cudaSuccess;
    if (!mapping || mapping->source != VGPU_FROM_REGISTER || mapping->base != (uintptr_t)pointer) {
        error = vgpu_fail(cudaErrorHostMemoryNotRegistered,
                          "cudaHostUnregister: %p is not what cudaHostRegister was given", pointer);
    } else {
        vgpu_mapping_remove(mapping);
        free(mapping);
    }
    vgpu_memory_unlock();
    return error;
}

cudaError_t cudaHostGetDevicePointer(void **device_pointer, void *host_pointer, unsigned int flags)
{
    if (!device_pointer || flags != 0) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaHostGetDevicePointer: result at %p, flags 0x%x (they must be 0)",
                         (void *)device_pointer, flags);
    }
    enum vgpu_memory_kind kind = vgpu_memory_find(host_pointer).kind;
    if (kind != VGPU_MEMORY_PINNED && kind != VGPU_MEMORY_MANAGED) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaHostGetDevicePointer: %p is not pinned host memory", host_pointer);
    }
    *device_pointer = host_pointer; // one address space
    return cudaSuccess;
}

cudaError_t cudaHostGetFlags(unsigned int *flags, void *host_pointer)
{
    if (!flags) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaHostGetFlags: flags is NULL");
    }
    vgpu_memory_lock();
    struct vgpu_mapping *mapping = vgpu_mapping_find((uintptr_t)host_pointer);
    cudaError_t error = cudaSuccess;
    if (!mapping || mapping->source != VGPU_FROM_HOST) {
        error = vgpu_fail(cudaErrorInvalidValue, "cudaHostGetFlags: %p is not of cudaHostAlloc",
                          host_pointer);
    } else {
        *flags = mapping->flags | cudaHostAllocMapped;
    }
    vgpu_memory_unlock();
    return error;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    static const enum cudaMemoryType types[] = {
        [VGPU_MEMORY_NONE] = cudaMemoryTypeUnregistered,
        [VGPU_MEMORY_DEVICE] = cudaMemoryTypeDevice,
        [VGPU_MEMORY_PINNED] = cudaMemoryTypeHost,
        [VGPU_MEMORY_MANAGED] = cudaMemoryTypeManaged,
        [VGPU_MEMORY_MULTICAST] = cudaMemoryTypeDevice,
    };
    if (!attributes) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaPointerGetAttributes: attributes is NULL");
    }
    cudaError_t error = vgpu_device_ready(vgpu_current_device());
    if (error != cudaSuccess) {
        return error;
    }
    struct vgpu_memory_range range = vgpu_memory_find(pointer);
    memset(attributes, 0, sizeof(*attributes));
    attributes->type = types[range.kind];
    attributes->device = range.kind == VGPU_MEMORY_NONE ? cudaInvalidDeviceId : range.device;
    void *address = (void *)(uintptr_t)pointer;
    // Unregistered memory is reachable from devices too (pageable memory access).
    attributes->devicePointer = address;
    if (range.kind != VGPU_MEMORY_DEVICE && range.kind != VGPU_MEMORY_MULTICAST) {
        attributes->hostPointer = address;
    }
    return cudaSuccess;
}
