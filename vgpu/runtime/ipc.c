// Device memory between processes by cudaIpc handles.
//
// A handle says which descriptor of which process holds the memory and carries the memory's random
// key; the opener reaches the descriptor through /proc, which the kernel allows to the same user
// only. SPDX-License-Identifier: Apache-2.0
#include "backing.h"
#include "check.h"
#include "cuda_runtime_api.h"
#include "error.h"
#include "memory.h"
#include "stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// What is in the 64 bytes of cudaIpcMemHandle_t.
struct handle {
    uint32_t magic;
    int32_t pid;
    int32_t fd;
    uint32_t padding;
    uint64_t inode;
    uint64_t offset, bytes; // of the allocation in its backing
    unsigned char key[16];
    uint64_t spare;
};
_Static_assert(sizeof(struct handle) == CUDA_IPC_HANDLE_SIZE, "a handle fills CUDA's structure");
enum { HANDLE_MAGIC = 0x76697063 };

// An opened allocation; further opens of the same count up.
struct opened {
    struct vgpu_mapping mapping;
    unsigned count;
    char *map_base; // whole pages around the allocation
    size_t map_bytes;
    struct opened *next;
};

static struct opened *opened_list; // under the memory lock

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *pointer)
{
    vgpu_check_outsiders();
    if (!handle) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaIpcGetMemHandle: handle is NULL");
    }
    struct handle made = {.magic = HANDLE_MAGIC, .pid = getpid()};
    cudaError_t error = cudaSuccess;
    vgpu_memory_lock();
    struct vgpu_mapping *mapping = vgpu_mapping_find((uintptr_t)pointer);
    if (!mapping || mapping->source != VGPU_FROM_MALLOC || mapping->kind != VGPU_MEMORY_DEVICE) {
        error = vgpu_fail(cudaErrorInvalidValue,
                          "cudaIpcGetMemHandle: %p is not memory of cudaMalloc", pointer);
    } else {
        made.fd = mapping->backing->fd;
        made.inode = mapping->backing->inode;
        made.offset = mapping->backing_offset;
        made.bytes = mapping->bytes;
        memcpy(made.key, mapping->backing->label.key, sizeof(made.key));
    }
    vgpu_memory_unlock();
    if (error == cudaSuccess) {
        memcpy(handle, &made, sizeof(made));
    }
    return error;
}

// Maps the allocation that a handle names. Under the lock.
static cudaError_t open_handle(const struct handle *handle, struct opened **out)
{
    static const char *const function = "cudaIpcOpenMemHandle";
    struct vgpu_backing *backing = NULL;
    cudaError_t error =
        vgpu_backing_open(function, handle->pid, handle->fd, handle->inode, handle->key, &backing);
    if (error != cudaSuccess) {
        return error;
    }
    if (handle->bytes == 0 || handle->bytes > backing->label.bytes ||
        handle->offset > backing->label.bytes - handle->bytes) {
        error = vgpu_fail(cudaErrorInvalidValue, "%s: the handle is damaged", function);
        goto undo_backing;
    }
    for (struct opened *o = opened_list; o; o = o->next) {
        if (o->mapping.backing == backing && o->mapping.backing_offset == handle->offset &&
            o->mapping.bytes == handle->bytes) {
            vgpu_backing_release(backing);
            o->count++;
            *out = o;
            return cudaSuccess;
        }
    }
    struct opened *opened = calloc(1, sizeof(*opened));
    if (!opened) {
        error = vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
        goto undo_backing;
    }
    size_t first = handle->offset & ~(size_t)(VGPU_PAGE_BYTES - 1);
    size_t end =
        (handle->offset + handle->bytes + VGPU_PAGE_BYTES - 1) & ~(size_t)(VGPU_PAGE_BYTES - 1);
    opened->map_bytes = end - first;
    opened->map_base =
        vgpu_backing_map(backing, NULL, opened->map_bytes, first, PROT_READ | PROT_WRITE);
    if (!opened->map_base) {
        error = vgpu_fail_limit(function, "another process's memory cannot be mapped", errno);
        goto undo_opened;
    }
    struct vgpu_mapping mapping = {
        .kind = VGPU_MEMORY_DEVICE,
        .source = VGPU_FROM_IPC,
        .base = (uintptr_t)opened->map_base + (handle->offset - first),
        .bytes = handle->bytes,
        .device = backing->device,
        .backing = backing,
        .backing_offset = handle->offset,
        .owner = opened,
    };
    opened->mapping = mapping;
    if (!vgpu_mapping_add(&opened->mapping)) {
        error = vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
        munmap(opened->map_base, opened->map_bytes);
        goto undo_opened;
    }
    opened->count = 1;
    opened->next = opened_list;
    opened_list = opened;
    *out = opened;
    return cudaSuccess;

undo_opened:
    free(opened);
undo_backing:
    vgpu_backing_release(backing);
    return error;
}

cudaError_t cudaIpcOpenMemHandle(void **pointer, cudaIpcMemHandle_t handle, unsigned int flags)
{
    vgpu_check_outsiders();
    struct vgpu_device *device = vgpu_current_device();
    cudaError_t error = vgpu_device_ready(device);
    if (error != cudaSuccess) {
        return error;
    }
    if (!pointer || flags != cudaIpcMemLazyEnablePeerAccess) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaIpcOpenMemHandle: result at %p, flags 0x%x; flags must be "
                         "cudaIpcMemLazyEnablePeerAccess",
                         (void *)pointer, flags);
    }
    struct handle wanted;
    memcpy(&wanted, &handle, sizeof(wanted));
    if (wanted.magic != HANDLE_MAGIC) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaIpcOpenMemHandle: these 64 bytes are not a handle of "
                         "cudaIpcGetMemHandle");
    }
    if (wanted.pid == getpid()) {
        return vgpu_fail(cudaErrorDeviceUninitialized,
                         "cudaIpcOpenMemHandle: the memory is this process's own; use its address");
    }
    struct opened *opened = NULL;
    vgpu_memory_lock();
    error = open_handle(&wanted, &opened);
    if (error == cudaSuccess && opened) {
        *pointer = (void *)opened->mapping.base;
    }
    vgpu_memory_unlock();
    return error;
}

cudaError_t cudaIpcCloseMemHandle(void *pointer)
{
    struct vgpu_device *device = vgpu_current_device();
    if (device) {
        (void)vgpu_device_wait(device); // a kernel's errors are its own to report
    }
    vgpu_memory_lock();
    struct vgpu_mapping *mapping = vgpu_mapping_find((uintptr_t)pointer);
    cudaError_t error = cudaSuccess;
    if (!mapping || mapping->source != VGPU_FROM_IPC || mapping->base != (uintptr_t)pointer) {
        error =
            vgpu_fail(cudaErrorInvalidValue,
                      "cudaIpcCloseMemHandle: %p is not what cudaIpcOpenMemHandle returned, or is "
                      "closed already",
                      pointer);
    } else {
        struct opened *opened = mapping->owner;
        if (--opened->count == 0) {
            struct opened **link = &opened_list;
            while (*link != opened) {
                link = &(*link)->next;
            }
            *link = opened->next;
            vgpu_mapping_remove(mapping);
            munmap(opened->map_base, opened->map_bytes);
            vgpu_backing_release(mapping->backing);
            free(opened);
        }
    }
    vgpu_memory_unlock();
    return error;
}
