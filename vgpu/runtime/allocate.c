// cudaMalloc and its relatives.
//
// Freeing waits for the device first, as CUDA does: work that still uses the memory ends before it
// goes. SPDX-License-Identifier: Apache-2.0
#include "backing.h"
#include "capture.h"
#include "cuda_runtime_api.h"
#include "error.h"
#include "segment.h"
#include "stream.h"

#include <stdlib.h>

enum { PITCH_ALIGN = 512 };

// The current device if it can work, and a place for the result.
static cudaError_t begin(const char *function, void **pointer, struct vgpu_device **device_out)
{
    if (!pointer) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: the place for the pointer is NULL", function);
    }
    *device_out = vgpu_current_device();
    cudaError_t error = vgpu_device_ready(*device_out);
    return error == cudaSuccess ? vgpu_capture_allows(function) : error;
}

static cudaError_t allocate(const char *function, void **pointer, size_t bytes,
                            enum vgpu_memory_kind kind)
{
    struct vgpu_device *device = NULL;
    cudaError_t error = begin(function, pointer, &device);
    if (error != cudaSuccess) {
        return error;
    }
    if (bytes == 0) {
        *pointer = NULL;
        return cudaSuccess;
    }
    return vgpu_block_allocate(function, device, bytes, kind, pointer);
}

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    return allocate("cudaMalloc", pointer, bytes, VGPU_MEMORY_DEVICE);
}

cudaError_t cudaMallocManaged(void **pointer, size_t bytes, unsigned int flags)
{
    if (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaMallocManaged: flags are 0x%x; cudaMemAttachGlobal or "
                         "cudaMemAttachHost",
                         flags);
    }
    if (bytes == 0) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaMallocManaged: 0 bytes");
    }
    return allocate("cudaMallocManaged", pointer, bytes, VGPU_MEMORY_MANAGED);
}

cudaError_t cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height)
{
    size_t bytes;
    if (!pitch) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaMallocPitch: pitch is NULL");
    }
    if (width > SIZE_MAX - PITCH_ALIGN ||
        __builtin_mul_overflow((width + PITCH_ALIGN - 1) / PITCH_ALIGN * PITCH_ALIGN, height,
                               &bytes)) {
        return vgpu_fail(cudaErrorMemoryAllocation, "cudaMallocPitch: %zu x %zu bytes", width,
                         height);
    }
    cudaError_t error = allocate("cudaMallocPitch", pointer, bytes, VGPU_MEMORY_DEVICE);
    if (error == cudaSuccess) {
        *pitch = (width + PITCH_ALIGN - 1) / PITCH_ALIGN * PITCH_ALIGN;
    }
    return error;
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *pointer, struct cudaExtent extent)
{
    size_t rows;
    if (!pointer) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaMalloc3D: pointer is NULL");
    }
    if (__builtin_mul_overflow(extent.height, extent.depth, &rows)) {
        return vgpu_fail(cudaErrorMemoryAllocation, "cudaMalloc3D: %zu x %zu rows", extent.height,
                         extent.depth);
    }
    struct cudaPitchedPtr result = {.xsize = extent.width, .ysize = extent.height};
    cudaError_t error = cudaMallocPitch(&result.ptr, &result.pitch, extent.width, rows);
    if (error == cudaSuccess) {
        *pointer = result;
    }
    return error;
}

cudaError_t cudaFree(void *pointer)
{
    cudaError_t error = vgpu_capture_allows("cudaFree");
    if (error != cudaSuccess) {
        return error;
    }
    if (!pointer) {
        // The usual way to make a context: touches the device, so that its errors show.
        return vgpu_device_ready(vgpu_current_device());
    }
    struct vgpu_memory_range range = vgpu_memory_find(pointer);
    struct vgpu_device *owner = vgpu_device(range.device);
    if (owner && range.base == (uintptr_t)pointer) {
        error = vgpu_device_wait(owner); // a sticky error is returned, but the memory goes
    }
    cudaError_t freed = vgpu_block_free("cudaFree", pointer);
    return freed != cudaSuccess ? freed : error;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    struct vgpu_device *device = vgpu_current_device();
    cudaError_t error = vgpu_device_ready(device);
    if (error != cudaSuccess) {
        return error;
    }
    if (free_bytes) {
        vgpu_memory_lock();
        *free_bytes = vgpu_budget_left(device);
        vgpu_memory_unlock();
    }
    if (total_bytes) {
        *total_bytes = device->info.memory_bytes;
    }
    return cudaSuccess;
}
