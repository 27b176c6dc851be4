// The table of mappings, its lock, and the checks that copies make.
// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include "advice.h"
#include "check.h"
#include "error.h"
#include "memory_pool.h"
#include "multimem.h"
#include "range_table.h"

#include <pthread.h>

// How a mapping is packed into a table entry's info.
enum {
    INFO_KIND = 0xff,
    INFO_JOINS = 0x100, // virtual memory: an access may go on into the next mapping
    INFO_NO_ACCESS = 0x200,
    INFO_READ_ONLY = 0x400,
    INFO_DEVICE_SHIFT = 32,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards all bookkeeping of memory
static struct vgpu_range_table mappings;
static struct vgpu_range_table reservations;
static uint64_t last_number; // under the lock

atomic_uint vgpu_memory_generation;

void vgpu_memory_lock(void)
{
    pthread_mutex_lock(&lock);
}

void vgpu_memory_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

static uint64_t pack(const struct vgpu_mapping *mapping)
{
    uint64_t info = (uint64_t)mapping->kind;
    info |= mapping->source == VGPU_FROM_VIRTUAL ? INFO_JOINS : 0;
    info |= mapping->no_access ? INFO_NO_ACCESS : 0;
    info |= mapping->read_only ? INFO_READ_ONLY : 0;
    return info | (uint64_t)(uint32_t)mapping->device << INFO_DEVICE_SHIFT;
}

static struct vgpu_memory_range unpack(const struct vgpu_range *range)
{
    struct vgpu_memory_range result = {
        .kind = (enum vgpu_memory_kind)(range->info & INFO_KIND),
        .base = range->base,
        .bytes = range->bytes,
        .device = (int)(uint32_t)(range->info >> INFO_DEVICE_SHIFT),
    };
    return result;
}

struct vgpu_memory_range vgpu_memory_find(const void *address)
{
    struct vgpu_range range;
    if (vgpu_range_find(&mappings, (uintptr_t)address, &range)) {
        return unpack(&range);
    }
    struct vgpu_memory_range none = {.kind = VGPU_MEMORY_NONE, .device = -1};
    return none;
}

bool vgpu_mapping_add(struct vgpu_mapping *mapping)
{
    struct vgpu_range range = {mapping->base, mapping->bytes, pack(mapping), mapping};
    if (!vgpu_range_add(&mappings, range)) {
        return false;
    }
    mapping->number = ++last_number;
    atomic_fetch_add_explicit(&vgpu_memory_generation, 1, memory_order_release);
    return true;
}

void vgpu_mapping_remove(struct vgpu_mapping *mapping)
{
    vgpu_range_remove(&mappings, mapping->base);
    vgpu_advice_free(mapping->advice);
    mapping->advice = NULL;
    if (mapping->pool) {
        vgpu_pool_returned(mapping->pool, mapping->bytes);
        mapping->pool = NULL;
    }
    atomic_fetch_add_explicit(&vgpu_memory_generation, 1, memory_order_release);
    if (mapping->serves_multimem || mapping->kind == VGPU_MEMORY_MULTICAST) {
        mapping->serves_multimem = false;
        vgpu_multimem_forget();
    }
}

void vgpu_mapping_update(struct vgpu_mapping *mapping)
{
    vgpu_range_set_info(&mappings, mapping->base, pack(mapping));
    if (mapping->no_access && mapping->serves_multimem) {
        mapping->serves_multimem = false;
        vgpu_multimem_forget();
    }
}

struct vgpu_mapping *vgpu_mapping_find(uintptr_t address)
{
    struct vgpu_range range;
    return vgpu_range_find(&mappings, address, &range) ? range.owner : NULL;
}

struct vgpu_mapping *vgpu_mapping_next(uintptr_t address)
{
    struct vgpu_range range;
    return vgpu_range_next(&mappings, address, &range) ? range.owner : NULL;
}

// ---- Reservations ------------------------------------------------------------------------------

bool vgpu_reservation_add(uintptr_t base, size_t bytes)
{
    struct vgpu_range range = {.base = base, .bytes = bytes};
    return vgpu_range_add(&reservations, range);
}

bool vgpu_reservation_remove(uintptr_t base)
{
    return vgpu_range_remove(&reservations, base);
}

bool vgpu_reservation_find(uintptr_t address, size_t bytes, uintptr_t *base_out, size_t *bytes_out)
{
    struct vgpu_range range;
    if (!vgpu_range_find(&reservations, address, &range) || bytes > range.bytes ||
        address - range.base > range.bytes - bytes) {
        return false;
    }
    if (base_out) {
        *base_out = range.base;
    }
    if (bytes_out) {
        *bytes_out = range.bytes;
    }
    return true;
}

// ---- Checks ------------------------------------------------------------------------------------

static cudaError_t check_access(const char *what, const void *address,
                                const struct vgpu_range *range, bool writes)
{
    if ((range->info & INFO_KIND) == VGPU_MEMORY_MULTICAST) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s %p is a multicast address; only multimem instructions may use it",
                         what, address);
    }
    if (range->info & INFO_NO_ACCESS) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s %p is mapped without access; call cuMemSetAccess first", what,
                         address);
    }
    if (writes && (range->info & INFO_READ_ONLY)) {
        return vgpu_fail(cudaErrorInvalidValue, "%s %p is memory that may only be read", what,
                         address);
    }
    return cudaSuccess;
}

// Memory that is in no mapping: only what is certainly wrong is refused.
static cudaError_t check_unknown(const char *what, const void *address, size_t bytes)
{
    uintptr_t first = (uintptr_t)address;
    if (!address) {
        return vgpu_fail(cudaErrorInvalidValue, "%s is NULL", what);
    }
    if (first + bytes < first) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s %p with %zu bytes goes around the end of memory", what, address,
                         bytes);
    }
    if (vgpu_reservation_find(first, 1, NULL, NULL)) {
        return vgpu_fail(cudaErrorInvalidValue, "%s %p is reserved, but nothing is mapped there",
                         what, address);
    }
    struct vgpu_range next;
    if (vgpu_range_next(&mappings, first, &next) && next.base - first < bytes) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s %p with %zu bytes runs into another allocation at %p", what, address,
                         bytes, (void *)next.base);
    }
    return cudaSuccess;
}

cudaError_t vgpu_memory_check(const char *what, const void *address, size_t bytes, bool writes,
                              struct vgpu_memory_range *range_out)
{
    uintptr_t first = (uintptr_t)address;
    struct vgpu_range range;
    bool known = vgpu_range_find(&mappings, first, &range);
    if (range_out) {
        struct vgpu_memory_range none = {.kind = VGPU_MEMORY_NONE, .device = -1};
        *range_out = known ? unpack(&range) : none;
    }
    if (!known) {
        return check_unknown(what, address, bytes);
    }
    cudaError_t error = check_access(what, address, &range, writes);
    const uintptr_t start = first;
    const size_t length = bytes;
    uintptr_t base = range.base;
    while (error == cudaSuccess && bytes > range.bytes - (first - range.base)) {
        // Goes beyond this mapping: fine only where virtual memory goes on.
        uintptr_t end = range.base + range.bytes;
        bool joins = (range.info & INFO_JOINS) != 0;
        if (!joins || !vgpu_range_find(&mappings, end, &range) || !(range.info & INFO_JOINS)) {
            return vgpu_fail(cudaErrorInvalidValue,
                             "%s %p with %zu bytes goes beyond its allocation, which is [%p, %p)",
                             what, address, bytes, (void *)base, (void *)end);
        }
        error = check_access(what, (void *)range.base, &range, writes);
        bytes -= end - first;
        first = end;
    }
    char window[256];
    if (error == cudaSuccess && vgpu_checking &&
        vgpu_check_is_closed(start, length, window, sizeof(window))) {
        error = vgpu_fail(cudaErrorInvalidValue, "%s %p with %zu bytes%s", what, address, length,
                          window);
    }
    return error;
}
