// Physical allocations: handles, cuMemCreate, and how long an allocation lives.
//
// Every cuMemCreate is a memfd of its own. SPDX-License-Identifier: Apache-2.0
#include "virtual_memory.h"

#include "driver_error.h"
#include "error.h"
#include "multicast.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_SLOTS = 64, SLOT_BITS = 24 };

// Handles: the slot's index below, a serial number above it, so that old handles are known as such.
static struct vgpu_physical **slots; // under the memory lock, as all here
static size_t slot_count;
static uint64_t last_serial;

// ---- Handles -----------------------------------------------------------------------------------

struct vgpu_physical *vgpu_physical_add(struct vgpu_backing *backing, size_t bytes)
{
    size_t index = 0;
    while (index < slot_count && slots[index]) {
        index++;
    }
    if (index == slot_count) {
        size_t count = slot_count ? 2 * slot_count : FIRST_SLOTS;
        struct vgpu_physical **larger = realloc(slots, count * sizeof(void *));
        if (!larger) {
            return NULL;
        }
        memset(larger + slot_count, 0, (count - slot_count) * sizeof(void *));
        slots = larger;
        slot_count = count;
    }
    struct vgpu_physical *physical = calloc(1, sizeof(*physical));
    if (physical) {
        physical->handle = ++last_serial << SLOT_BITS | index;
        physical->references = 1;
        physical->backing = backing;
        physical->bytes = bytes;
        physical->device = vgpu_device(backing->device);
        slots[index] = physical;
    }
    return physical;
}

struct vgpu_physical *vgpu_physical_find(CUmemGenericAllocationHandle handle)
{
    size_t index = handle & ((1u << SLOT_BITS) - 1);
    struct vgpu_physical *found = index < slot_count ? slots[index] : NULL;
    return found && found->handle == handle && found->references > 0 ? found : NULL;
}

struct vgpu_physical *vgpu_physical_of(const struct vgpu_backing *backing)
{
    for (size_t i = 0; i < slot_count; i++) {
        if (slots[i] && slots[i]->backing == backing) {
            return slots[i];
        }
    }
    return NULL;
}

cudaError_t vgpu_physical_unknown(const char *function, CUmemGenericAllocationHandle handle)
{
    return vgpu_fail(cudaErrorInvalidValue, "%s: 0x%llx is no allocation handle, or is released",
                     function, handle);
}

void vgpu_physical_drop(struct vgpu_physical *physical)
{
    if (physical->references > 0 || physical->uses > 0) {
        return;
    }
    slots[physical->handle & ((1u << SLOT_BITS) - 1)] = NULL;
    if (physical->multicast) {
        vgpu_multicast_destroy(physical->multicast);
    }
    if (physical->budgeted) {
        vgpu_budget_return(physical->device, physical->bytes);
    }
    vgpu_backing_release(physical->backing);
    free(physical);
}

cudaError_t vgpu_check_piece(const char *function, const char *what, size_t offset, size_t bytes,
                             size_t limit)
{
    if (bytes == 0 || bytes % VGPU_GRANULARITY || offset % VGPU_GRANULARITY) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: %zu bytes at offset %zu of %s; both must be multiples of %d, the "
                         "granularity",
                         function, bytes, offset, what, VGPU_GRANULARITY);
    }
    if (bytes > limit || offset > limit - bytes) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: %zu bytes at offset %zu of %s of %zu bytes",
                         function, bytes, offset, what, limit);
    }
    return cudaSuccess;
}

// ---- Memory ------------------------------------------------------------------------------------

// Checks properties; *device_out: the device, NULL for host memory.
static cudaError_t check_properties(const char *function, const CUmemAllocationProp *p,
                                    struct vgpu_device **device_out)
{
    if (!p) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: the properties are NULL", function);
    }
    if (p->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: type is %d; it must be CU_MEM_ALLOCATION_TYPE_PINNED", function,
                         (int)p->type);
    }
    if (p->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
        p->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return vgpu_fail(cudaErrorNotSupported,
                         "%s: handle types 0x%x; only POSIX file descriptors are supported (1)",
                         function, (unsigned)p->requestedHandleTypes);
    }
    if (p->allocFlags.compressionType || p->allocFlags.usage) {
        return vgpu_fail(cudaErrorNotSupported, "%s: compression and usage flags are not supported",
                         function);
    }
    *device_out = NULL;
    switch (p->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return vgpu_device_get(function, p->location.id, device_out);
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return vgpu_device_count() > 0 ? cudaSuccess : vgpu_device_ready(NULL);
    default:
        return vgpu_fail(cudaErrorInvalidValue, "%s: no location of type %d", function,
                         (int)p->location.type);
    }
}

static cudaError_t create(CUmemGenericAllocationHandle *handle, size_t bytes,
                          const CUmemAllocationProp *properties, unsigned long long flags)
{
    static const char *const function = "cuMemCreate";
    struct vgpu_device *device = NULL;
    if (!handle || flags != 0) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: result at %p, flags 0x%llx (they must be 0)",
                         function, (void *)handle, flags);
    }
    cudaError_t error = check_properties(function, properties, &device);
    if (error == cudaSuccess) {
        error = vgpu_check_piece(function, "memory", 0, bytes, SIZE_MAX);
    }
    if (error == cudaSuccess && device) {
        error = vgpu_device_ready(device);
    }
    if (error == cudaSuccess) {
        error = vgpu_budget_take(function, device, bytes);
    }
    if (error != cudaSuccess) {
        return error;
    }
    struct vgpu_label label = {
        .kind = VGPU_BACKING_VIRTUAL,
        .bytes = bytes,
        .handle_types = (uint32_t)properties->requestedHandleTypes,
        .location_type = (uint32_t)properties->location.type,
        .location_id = properties->location.id,
        .gpu_direct = properties->allocFlags.gpuDirectRDMACapable,
    };
    if (device) {
        memcpy(label.uuid, device->info.uuid, sizeof(label.uuid));
    }
    struct vgpu_backing *backing = NULL;
    error = vgpu_backing_create(function, "vgpu-virtual-memory", &label,
                                device ? device->ordinal : -1, &backing);
    if (error != cudaSuccess) {
        goto undo_budget;
    }
    struct vgpu_physical *physical = vgpu_physical_add(backing, bytes);
    if (!physical) {
        error = vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
        goto undo_backing;
    }
    physical->budgeted = true;
    *handle = physical->handle;
    return cudaSuccess;

undo_backing:
    vgpu_backing_release(backing);
undo_budget:
    vgpu_budget_return(device, bytes);
    return error;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    cudaError_t before = vgpu_driver_begin();
    vgpu_memory_lock();
    cudaError_t error = create(handle, bytes, properties, flags);
    vgpu_memory_unlock();
    return vgpu_driver_end(before, error);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    cudaError_t before = vgpu_driver_begin();
    cudaError_t error = cudaSuccess;
    vgpu_memory_lock();
    struct vgpu_physical *physical = vgpu_physical_find(handle);
    if (physical) {
        physical->references--;
        vgpu_physical_drop(physical);
    } else {
        error = vgpu_physical_unknown("cuMemRelease", handle);
    }
    vgpu_memory_unlock();
    return vgpu_driver_end(before, error);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    static const char *const function = "cuMemRetainAllocationHandle";
    cudaError_t before = vgpu_driver_begin();
    if (!handle) {
        return vgpu_driver_end(before,
                               vgpu_fail(cudaErrorInvalidValue, "%s: handle is NULL", function));
    }
    cudaError_t error = cudaSuccess;
    vgpu_memory_lock();
    struct vgpu_mapping *mapping = vgpu_mapping_find((uintptr_t)address);
    if (mapping && mapping->source == VGPU_FROM_VIRTUAL) {
        struct vgpu_physical *physical = mapping->owner;
        physical->references++;
        *handle = physical->handle;
    } else {
        error = vgpu_fail(cudaErrorInvalidValue, "%s: nothing is mapped at %p by cuMemMap",
                          function, address);
    }
    vgpu_memory_unlock();
    return vgpu_driver_end(before, error);
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option)
{
    static const char *const function = "cuMemGetAllocationGranularity";
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_device *device = NULL;
    cudaError_t error = check_properties(function, properties, &device);
    if (error == cudaSuccess && (!granularity || (unsigned)option > 1)) {
        error = vgpu_fail(cudaErrorInvalidValue, "%s: result at %p, option %d", function,
                          (void *)granularity, (int)option);
    }
    if (error == cudaSuccess) {
        *granularity = VGPU_GRANULARITY;
    }
    return vgpu_driver_end(before, error);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                CUmemGenericAllocationHandle handle)
{
    static const char *const function = "cuMemGetAllocationPropertiesFromHandle";
    cudaError_t before = vgpu_driver_begin();
    cudaError_t error = cudaSuccess;
    vgpu_memory_lock();
    struct vgpu_physical *physical = vgpu_physical_find(handle);
    if (!physical || physical->multicast) {
        error = vgpu_physical_unknown(function, handle);
    } else if (!properties) {
        error = vgpu_fail(cudaErrorInvalidValue, "%s: properties is NULL", function);
    } else {
        const struct vgpu_label *label = &physical->backing->label;
        memset(properties, 0, sizeof(*properties));
        properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties->requestedHandleTypes = (CUmemAllocationHandleType)label->handle_types;
        properties->location.type = (CUmemLocationType)label->location_type;
        properties->location.id = label->location_id;
        if (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
            // as numbered here; the number in the label is the creator's
            properties->location.id = physical->device ? physical->device->ordinal : -1;
        }
        properties->allocFlags.gpuDirectRDMACapable = (unsigned char)label->gpu_direct;
    }
    vgpu_memory_unlock();
    return vgpu_driver_end(before, error);
}
