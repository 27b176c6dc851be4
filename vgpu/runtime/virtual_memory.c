// Virtual memory by the driver's rules: reserve addresses, create memory, map, allow access, share.
//
// Every cuMemCreate is a memfd of its own. A reservation is an inaccessible mapping; cuMemMap
// replaces pieces of it by the memfd's pages, still inaccessible; cuMemSetAccess opens them. Since
// all devices share the process's address space, a page is open if any device may use it.
// SPDX-License-Identifier: Apache-2.0
#include "virtual_memory.h"

#include "check.h"
#include "driver_error.h"
#include "error.h"
#include "multicast.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "vgpu/stats.h"

// One cuMemMap. The access that each device was given, two bits a device as in CUmemAccess_flags.
struct piece {
    struct vgpu_mapping mapping;
    unsigned char access[VGPU_MAX_DEVICES];
    unsigned char host_access;
};

// Mappings that are only there to be given up: at the process's limit of mappings even unmapping,
// which replaces one mapping by another, would fail. Under the memory lock.
static const size_t SPARE_PAGES = 4;
static const size_t KEPT_FOR_CHECKS = (size_t)4 << 40; // bytes of addresses that were given back
static char *spare;

static void keep_spare(void)
{
    if (spare) {
        return;
    }
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *pages = mmap(NULL, SPARE_PAGES * VGPU_PAGE_BYTES, PROT_NONE, flags, -1, 0);
    if (pages == MAP_FAILED) {
        return;
    }
    for (size_t i = 0; i < SPARE_PAGES;
         i += 2) { // every other one readable: neighbours do not merge
        (void)mprotect(pages + i * VGPU_PAGE_BYTES, VGPU_PAGE_BYTES, PROT_READ);
    }
    spare = pages;
}

// ---- Reservations ------------------------------------------------------------------------------

// In checking mode nothing lies directly before or behind a reservation: so many bytes of closed
// addresses on either side are part of its mapping.
static size_t guard_bytes(void)
{
    return vgpu_checking ? VGPU_GRANULARITY : 0;
}

// Maps inaccessible addresses at a multiple of `alignment`, at `wanted` if that is free. NULL:
// none.
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
    // The front is a multiple of the alignment, so that what follows it is aligned too; all of it
    // but the guard is given back.
    size_t guard = guard_bytes();
    size_t front = guard > 0 ? alignment : 0;
    if (bytes + 2 * alignment < bytes) {
        return vgpu_fail_limit(function, "no addresses", ENOMEM);
    }
    char *base = reserve(front + bytes + guard, alignment, wanted > front ? wanted - front : 0);
    if (!base) {
        return vgpu_fail_limit(function, "no addresses", errno);
    }
    if (front > guard) {
        munmap(base, front - guard);
    }
    base += front;
    if (!vgpu_reservation_add((uintptr_t)base, bytes)) {
        munmap(base - guard, bytes + 2 * guard);
        return vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
    }
    keep_spare();
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
    static size_t kept; // under the lock
    if (vgpu_checking && kept < KEPT_FOR_CHECKS) {
        kept += bytes; // stays inaccessible, so that what still uses it is found
    } else {
        munmap((void *)(base - guard_bytes()), bytes + 2 * guard_bytes());
    }
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
    cudaError_t error =
        vgpu_check_piece(function, "the allocation", offset, bytes, physical->bytes);
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
        .kind = physical->multicast ? VGPU_MEMORY_MULTICAST
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
            return vgpu_fail(
                cudaErrorInvalidValue,
                "%s: [%p, +%zu) is not made of whole mappings by cuMemMap (look at %p)", function,
                (void *)base, bytes, (void *)at);
        }
        at += mapping->bytes;
    }
    return bytes > 0 ? cudaSuccess : vgpu_fail(cudaErrorInvalidValue, "%s: 0 bytes", function);
}

// Replaces whatever is mapped there by inaccessible addresses. Under the lock.
static bool close_addresses(void *base, size_t bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    void *result = mmap(base, bytes, PROT_NONE, flags, -1, 0);
    if (result == MAP_FAILED && errno == ENOMEM && spare) {
        munmap(spare, SPARE_PAGES * VGPU_PAGE_BYTES);
        spare = NULL;
        result = mmap(base, bytes, PROT_NONE, flags, -1, 0);
    }
    keep_spare();
    return result != MAP_FAILED;
}

static cudaError_t unmap(uintptr_t base, size_t bytes)
{
    static const char *const function = "cuMemUnmap";
    cudaError_t error = check_pieces(function, base, bytes);
    if (error != cudaSuccess) {
        return error;
    }
    // One call for all: either everything is gone or nothing.
    if (!close_addresses((void *)base, bytes)) {
        return vgpu_fail_limit(function, "addresses cannot be unmapped", errno);
    }
    for (uintptr_t end = base + bytes; end > base;) { // backwards: less to move in the table
        struct vgpu_mapping *mapping = vgpu_mapping_find(end - 1);
        struct vgpu_physical *physical = mapping->owner;
        end = mapping->base;
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
    struct vgpu_device *device = NULL;
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
        return vgpu_fail(
            cudaErrorInvalidDevice, "%s: %s has no access to memory of %s (not linked)", function,
            vgpu_device_name(device->ordinal).text, vgpu_device_name(owner->ordinal).text);
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
