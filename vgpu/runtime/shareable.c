// Allocations and multicast objects between processes, as POSIX file descriptors.
//
// The descriptor is the memfd itself; what it is stands in its label (backing.h).
// SPDX-License-Identifier: Apache-2.0
#include "check.h"
#include "driver_error.h"
#include "error.h"
#include "multicast.h"
#include "virtual_memory.h"

#include <errno.h>
#include <fcntl.h>

static cudaError_t export_handle(void *shareable, CUmemGenericAllocationHandle handle,
                                 CUmemAllocationHandleType type, unsigned long long flags)
{
    static const char *const function = "cuMemExportToShareableHandle";
    struct vgpu_physical *physical = vgpu_physical_find(handle);
    if (!physical) {
        return vgpu_physical_unknown(function, handle);
    }
    if (!shareable || flags != 0) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: result at %p, flags 0x%llx (they must be 0)",
                         function, shareable, flags);
    }
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return vgpu_fail(cudaErrorNotSupported,
                         "%s: handle type 0x%x; only POSIX file descriptors are supported (1)",
                         function, (unsigned)type);
    }
    if (!(physical->backing->label.handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: the allocation was made without "
                         "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR",
                         function);
    }
    int fd = fcntl(physical->backing->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
        return vgpu_fail_limit(function, "no descriptor", errno);
    }
    *(int *)shareable = fd;
    return cudaSuccess;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    vgpu_check_outsiders();
    cudaError_t before = vgpu_driver_begin();
    vgpu_memory_lock();
    cudaError_t error = export_handle(shareable, handle, type, flags);
    vgpu_memory_unlock();
    return vgpu_driver_end(before, error);
}

static cudaError_t import_handle(CUmemGenericAllocationHandle *handle, void *shareable,
                                 CUmemAllocationHandleType type)
{
    static const char *const function = "cuMemImportFromShareableHandle";
    if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return vgpu_fail(handle ? cudaErrorNotSupported : cudaErrorInvalidValue,
                         "%s: result at %p, handle type 0x%x; only POSIX file descriptors are "
                         "supported (1)",
                         function, (void *)handle, (unsigned)type);
    }
    if (vgpu_device_count() == 0) {
        return vgpu_device_ready(NULL);
    }
    int fd = (int)(intptr_t)shareable;
    struct vgpu_backing *backing = NULL;
    cudaError_t error = vgpu_backing_import(function, fd, &backing);
    if (error != cudaSuccess) {
        return error;
    }
    // Memory that this process has already is the same allocation, and so the same handle.
    struct vgpu_physical *physical = vgpu_physical_of(backing);
    if (physical) {
        vgpu_backing_release(backing);
        physical->references++;
        *handle = physical->handle;
        return cudaSuccess;
    }
    if (backing->label.kind == VGPU_BACKING_SEGMENT) {
        vgpu_backing_release(backing);
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: descriptor %d is memory of cudaMalloc, not of cuMemCreate", function,
                         fd);
    }
    bool multicast = backing->label.kind == VGPU_BACKING_MULTICAST;
    physical = vgpu_physical_add(
        backing, (size_t)(multicast ? backing->label.object_bytes : backing->label.bytes));
    if (!physical) {
        vgpu_backing_release(backing);
        return vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
    }
    if (multicast) {
        error = vgpu_multicast_attach(function, physical);
        if (error != cudaSuccess) {
            physical->references--;
            vgpu_physical_drop(physical);
            return error;
        }
    }
    *handle = physical->handle;
    return cudaSuccess;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type)
{
    vgpu_check_outsiders();
    cudaError_t before = vgpu_driver_begin();
    vgpu_memory_lock();
    cudaError_t error = import_handle(handle, shareable, type);
    vgpu_memory_unlock();
    return vgpu_driver_end(before, error);
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr pointer, size_t bytes,
                                       CUmemRangeHandleType type, unsigned long long flags)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(
        before, vgpu_fail(cudaErrorNotSupported,
                          "cuMemGetHandleForAddressRange: no DMA-BUF descriptors (result at %p, "
                          "0x%llx, %zu bytes, type %d, flags 0x%llx)",
                          handle, pointer, bytes, (int)type, flags));
}
