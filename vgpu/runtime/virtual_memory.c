// Virtual memory by the driver's rules: reserve addresses, create memory, map, allow access, share.
//
// Every cuMemCreate is a memfd of its own. A reservation is an inaccessible mapping; cuMemMap replaces
// pieces of it by the memfd's pages, still inaccessible; cuMemSetAccess opens them. Since all devices
// share the process's address space, a page is open if any device may use it.
// SPDX-License-Identifier: Apache-2.0
#include "virtual_memory.h"

#include "driver_error.h"
#include "error.h"
#include "multicast.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "vgpu/stats.h"

enum { FIRST_SLOTS = 64, SLOT_BITS = 24 };

// Handles: the slot's index below, a serial number above it, so that old handles are known as such.
static struct vgpu_physical **slots; // under the memory lock, as all here
static size_t slot_count;
static uint64_t last_serial;

// One cuMemMap. The access that each device was given, two bits a device as in CUmemAccess_flags.
struct piece {
    struct vgpu_mapping mapping;
    unsigned char access[VGPU_MAX_DEVICES];
    unsigned char host_access;
};

// ---- Physical allocations ----------------------------------------------------------------------

struct vgpu_physical *vgpu_physical_add(struct vgpu_backing *backing, size_t bytes)
{
    size_t index = 0;
    while (index < slot_count && slots[index]) {
        index++;
    }
    if (index == slot_count) {
        size_t count = slot_count ? 2 * slot_count : FIRST_SLOTS;
        struct vgpu_physical **larger = realloc(slots, count * sizeof(slots[0]));
        if (!larger) {
            return NULL;
        }
        memset(larger + slot_count, 0, (count - slot_count) * sizeof(slots[0]));
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

// ---- Reservations ------------------------------------------------------------------------------

// Maps inaccessible addresses at a multiple of `alignment`, at `wanted` if that is free. NULL: none.
static char *reserve(size_t bytes, size_t alignment, uintptr_t wanted)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (wanted && wanted % alignment == 0) {
        void *at = mmap((void *)wanted, bytes, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (at == (void *)wanted) {
            return at;
        }
        if (at != MAP_FAILED) {
            munmap(at, bytes);
        }
    }
    char *base = mmap(NULL, bytes + alignment, PROT_NONE, flags, -1, 0);
    if (base == MAP_FAILED) {
        return NULL;
    }
    size_t before = -(uintptr_t)base & (alignment - 1);
    if (before > 0) {
        munmap(base, before);
    }
    munmap(base + before + bytes, alignment - before);
    return base + before;
}

static cudaError_t address_reserve(CUdeviceptr *pointer, size_t bytes, size_t alignment,
                                   CUdeviceptr wanted, unsigned long long flags)
{
    static const char *const function = "cuMemAddressReserve";
    if (!pointer || flags != 0) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: result at %p, flags 0x%llx (they must be 0)",
                         function, (void *)pointer, flags);
    }
    if (alignment < VGPU_GRANULARITY) {
        alignment = alignment & (alignment - 1) ? alignment : VGPU_GRANULARITY;
    }
    if (bytes == 0 || bytes % VGPU_GRANULARITY || alignment & (alignment - 1) ||
        bytes + alignment < bytes) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: %zu bytes aligned to %zu; the size must be a multiple of %d, the "
                         "alignment a power of two",
                         function, bytes, alignment, VGPU_GRANULARITY);
    }
    char *base = reserve(bytes, alignment, (uintptr_t)wanted);
    if (!base) {
        return vgpu_fail_limit(function, "no addresses", errno);
    }
    if (!vgpu_reservation_add((uintptr_t)base, bytes)) {
        munmap(base, bytes);
        return vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
    }
    *pointer = (CUdeviceptr)(uintptr_t)base;
    return cudaSuccess;
}

static cudaError_t address_free(CUdeviceptr pointer, size_t bytes)
{
    static const char *const function = "cuMemAddressFree";
    uintptr_t base = 0;
    size_t reserved = 0;
    if (!vgpu_reservation_find((uintptr_t)pointer, 1, &base, &reserved) || base != pointer ||
        reserved != bytes) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: 0x%llx with %zu bytes is not what cuMemAddressReserve returned",
                         function, pointer, bytes);
    }
    struct vgpu_mapping *mapping = vgpu_mapping_next(base);
    if (mapping && mapping->base < base + bytes) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: memory is still mapped at %p; unmap it first",
                         function, (void *)mapping->base);
    }
    vgpu_reservation_remove(base);
    munmap((void *)base, bytes);
    return cudaSuccess;
}

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment,
                             CUdeviceptr wanted, unsigned long long flags)
{
    cudaError_t before = vgpu_driver_begin();
    vgpu_memory_lock();
    cudaError_t error = address_reserve(pointer, bytes, alignment, wanted, flags);
    vgpu_memory_unlock();
    return vgpu_driver_end(before, error);
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
    cudaError_t before = vgpu_driver_begin();
    vgpu_memory_lock();
    cudaError_t error = address_free(pointer, bytes);
    vgpu_memory_unlock();
    return vgpu_driver_end(before, error);
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
    struct vgpu_device *device;
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
    struct vgpu_backing *backing;
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
        error = vgpu_fail(cudaErrorInvalidValue, "%s: nothing is mapped at %p by cuMemMap", function,
                          address);
    }
    vgpu_memory_unlock();
    return vgpu_driver_end(before, error);
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option)
{
    static const char *const function = "cuMemGetAllocationGranularity";
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_device *device;
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

// ---- Mapping -----------------------------------------------------------------------------------

static bool is_free(uintptr_t base, size_t bytes)
{
    struct vgpu_mapping *next = vgpu_mapping_next(base);
    return !next || next->base >= base + bytes;
}

static cudaError_t map(CUdeviceptr pointer, size_t bytes, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    static const char *const function = "cuMemMap";
    uintptr_t base = (uintptr_t)pointer;
    struct vgpu_physical *physical = vgpu_physical_find(handle);
    if (!physical) {
        return vgpu_physical_unknown(function, handle);
    }
    if (flags != 0 || offset != 0 || base % VGPU_GRANULARITY) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: address 0x%llx, offset %zu, flags 0x%llx; the address must be a "
                         "multiple of %d, offset and flags 0",
                         function, pointer, offset, flags, VGPU_GRANULARITY);
    }
    cudaError_t error = vgpu_check_piece(function, "the allocation", offset, bytes, physical->bytes);
    if (error != cudaSuccess) {
        return error;
    }
    if (!vgpu_reservation_find(base, bytes, NULL, NULL) || !is_free(base, bytes)) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: [0x%llx, +%zu) is not reserved addresses where nothing is mapped",
                         function, pointer, bytes);
    }
    struct piece *piece = calloc(1, sizeof(*piece));
    if (!piece) {
        return vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
    }
    struct vgpu_mapping mapping = {
        .kind = physical->multicast                  ? VGPU_MEMORY_MULTICAST
                : physical->backing->label.location_type == CU_MEM_LOCATION_TYPE_DEVICE
                    ? VGPU_MEMORY_DEVICE
                    : VGPU_MEMORY_PINNED,
        .source = VGPU_FROM_VIRTUAL,
        .base = base,
        .bytes = bytes,
        .device = physical->device ? physical->device->ordinal : -1,
        .no_access = true,
        .backing = physical->backing,
        .backing_offset = offset,
        .owner = physical,
    };
    piece->mapping = mapping;
    // A multicast object has no pages of its own: its addresses stay inaccessible.
    if (!physical->multicast &&
        !vgpu_backing_map(physical->backing, (void *)base, bytes, offset, PROT_NONE)) {
        int number = errno;
        free(piece);
        return vgpu_fail_limit(function, "memory cannot be mapped", number);
    }
    if (!vgpu_mapping_add(&piece->mapping)) {
        free(piece);
        return vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
    }
    physical->uses++;
    return cudaSuccess;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    cudaError_t before = vgpu_driver_begin();
    cudaError_t error = vgpu_multicast_wait("cuMemMap", handle);
    if (error == cudaSuccess) {
        vgpu_memory_lock();
        error = map(pointer, bytes, offset, handle, flags);
        vgpu_memory_unlock();
    }
    return vgpu_driver_end(before, error);
}

// Checks that [base, base + bytes) is made of whole mappings by cuMemMap.
static cudaError_t check_pieces(const char *function, uintptr_t base, size_t bytes)
{
    uintptr_t at = base;
    while (at < base + bytes) {
        struct vgpu_mapping *mapping = vgpu_mapping_find(at);
        if (!mapping || mapping->source != VGPU_FROM_VIRTUAL || mapping->base != at ||
            mapping->bytes > base + bytes - at) {
            return vgpu_fail(cudaErrorInvalidValue,
                             "%s: [%p, +%zu) is not made of whole mappings by cuMemMap (look at %p)",
                             function, (void *)base, bytes, (void *)at);
        }
        at += mapping->bytes;
    }
    return bytes > 0 ? cudaSuccess : vgpu_fail(cudaErrorInvalidValue, "%s: 0 bytes", function);
}

static cudaError_t unmap(uintptr_t base, size_t bytes)
{
    static const char *const function = "cuMemUnmap";
    cudaError_t error = check_pieces(function, base, bytes);
    if (error != cudaSuccess) {
        return error;
    }
    // One call for all: either everything is gone or nothing.
    if (mmap((void *)base, bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
        return vgpu_fail_limit(function, "addresses cannot be unmapped", errno);
    }
    for (uintptr_t at = base; at < base + bytes;) {
        struct vgpu_mapping *mapping = vgpu_mapping_find(at);
        struct vgpu_physical *physical = mapping->owner;
        at += mapping->bytes;
        vgpu_mapping_remove(mapping);
        free(mapping); // the first member of its piece
        physical->uses--;
        vgpu_physical_drop(physical);
    }
    return cudaSuccess;
}
_Static_assert(offsetof(struct piece, mapping) == 0, "freed by its mapping's address");

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    cudaError_t before = vgpu_driver_begin();
    vgpu_memory_lock();
    cudaError_t error = unmap((uintptr_t)pointer, bytes);
    vgpu_memory_unlock();
    return vgpu_driver_end(before, error);
}

// ---- Access ------------------------------------------------------------------------------------

static cudaError_t check_descriptor(const char *function, const CUmemAccessDesc *access)
{
    struct vgpu_device *device;
    if (access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        access->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: access flags are %d; 0, 1 or 3", function,
                         (int)access->flags);
    }
    switch (access->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return vgpu_device_get(function, access->location.id, &device);
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return cudaSuccess;
    default:
        return vgpu_fail(cudaErrorInvalidValue, "%s: no location of type %d", function,
                         (int)access->location.type);
    }
}

// That a device may be given access to a mapping: its own memory, the host's, or a peer's.
static cudaError_t check_reach(const char *function, const struct vgpu_mapping *mapping,
                               const CUmemAccessDesc *access)
{
    struct vgpu_device *owner = vgpu_device(mapping->device);
    if (access->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        if (mapping->kind != VGPU_MEMORY_PINNED) {
            return vgpu_fail(cudaErrorNotSupported,
                             "%s: the host cannot be given access to device memory; copy it",
                             function);
        }
        return cudaSuccess;
    }
    struct vgpu_device *device = vgpu_device(access->location.id);
    if (owner && access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        !vgpu_peer_access(owner, device)) {
        return vgpu_fail(cudaErrorInvalidDevice,
                         "%s: device %d has no access to memory of device %d (not linked)", function,
                         device->ordinal, owner->ordinal);
    }
    return cudaSuccess;
}

static int protection_of(const struct piece *piece)
{
    unsigned all = piece->host_access;
    for (int i = 0; i < VGPU_MAX_DEVICES; i++) {
        all |= piece->access[i];
    }
    return (all & 1 ? PROT_READ : 0) | (all & 2 ? PROT_WRITE : 0);
}

static cudaError_t apply(const char *function, struct piece *piece, const CUmemAccessDesc *access,
                         size_t count)
{
    for (size_t i = 0; i < count; i++) {
        unsigned char flags = (unsigned char)access[i].flags;
        if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
            piece->access[access[i].location.id] = flags;
        } else {
            piece->host_access = flags;
        }
    }
    struct vgpu_mapping *mapping = &piece->mapping;
    int protection = protection_of(piece);
    if (mapping->kind != VGPU_MEMORY_MULTICAST &&
        mprotect((void *)mapping->base, mapping->bytes, protection) != 0) {
        return vgpu_fail_limit(function, "access cannot be changed", errno);
    }
    mapping->no_access = protection == 0;
    mapping->read_only = protection == PROT_READ;
    vgpu_mapping_update(mapping);
    return cudaSuccess;
}

static cudaError_t set_access(uintptr_t base, size_t bytes, const CUmemAccessDesc *access,
                              size_t count)
{
    static const char *const function = "cuMemSetAccess";
    if (!access || count == 0) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: %zu access descriptors at %p", function, count,
                         (const void *)access);
    }
    cudaError_t error = check_pieces(function, base, bytes);
    for (size_t i = 0; error == cudaSuccess && i < count; i++) {
        error = check_descriptor(function, &access[i]);
    }
    for (uintptr_t at = base; error == cudaSuccess && at < base + bytes;) {
        struct vgpu_mapping *mapping = vgpu_mapping_find(at);
        for (size_t i = 0; error == cudaSuccess && i < count; i++) {
            error = check_reach(function, mapping, &access[i]);
        }
        at += mapping->bytes;
    }
    for (uintptr_t at = base; error == cudaSuccess && at < base + bytes;) {
        struct piece *piece = (struct piece *)vgpu_mapping_find(at);
        error = apply(function, piece, access, count);
        at += piece->mapping.bytes;
    }
    return error;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access,
                        size_t count)
{
    cudaError_t before = vgpu_driver_begin();
    vgpu_memory_lock();
    cudaError_t error = set_access((uintptr_t)pointer, bytes, access, count);
    vgpu_memory_unlock();
    return vgpu_driver_end(before, error);
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                        CUdeviceptr pointer)
{
    static const char *const function = "cuMemGetAccess";
    cudaError_t before = vgpu_driver_begin();
    if (!flags || !location) {
        return vgpu_driver_end(
            before, vgpu_fail(cudaErrorInvalidValue, "%s: an argument is NULL", function));
    }
    CUmemAccessDesc access = {.location = *location};
    cudaError_t error = check_descriptor(function, &access);
    vgpu_memory_lock();
    struct vgpu_mapping *mapping = vgpu_mapping_find((uintptr_t)pointer);
    if (error == cudaSuccess && (!mapping || mapping->source != VGPU_FROM_VIRTUAL)) {
        error = vgpu_fail(cudaErrorInvalidValue, "%s: nothing is mapped at 0x%llx by cuMemMap",
                          function, pointer);
    }
    if (error == cudaSuccess) {
        const struct piece *piece = (const struct piece *)mapping;
        *flags = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? piece->access[location->id]
                                                               : piece->host_access;
    }
    vgpu_memory_unlock();
    return vgpu_driver_end(before, error);
}
