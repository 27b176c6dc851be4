// __device__ and __constant__ variables: one copy per device, made when the device first needs it.
//
// Registration happens in static initialisers, also of libraries loaded later. Kernels look symbols
// up on every access, so the table is a hash that readers use without a lock; it is replaced by a
// larger one when it fills up, and old ones stay. SPDX-License-Identifier: Apache-2.0
#include "symbol.h"
#include "copy.h"
#include "error.h"
#include "segment.h"

#include "vgpu/device_runtime.h"
#include "vgpu/stats.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_SLOTS = 256 };

struct entry {
    const struct vgpu_symbol *symbol;
    _Atomic(void *) copy[VGPU_MAX_DEVICES]; // made under the lock, stored with release
};

struct table {
    struct table *old; // the one that this replaced: readers may still look at it
    size_t slot_count; // a power of two, at least twice the entries
    size_t used;
    _Atomic(struct entry *) slot[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards changes of the table, and copies
static _Atomic(struct table *) current;

static size_t hash(const void *address)
{
    uint64_t x = (uint64_t)(uintptr_t)address >> 2;
    x *= 0x9e3779b97f4a7c15u;
    return (size_t)(x >> 32);
}

static struct entry *find(const void *host_image)
{
    struct table *table = atomic_load_explicit(&current, memory_order_acquire);
    if (!table) {
        return NULL;
    }
    for (size_t i = hash(host_image);; i++) {
        struct entry *entry =
            atomic_load_explicit(&table->slot[i & (table->slot_count - 1)], memory_order_acquire);
        if (!entry || entry->symbol->host_image == host_image) {
            return entry;
        }
    }
}

static void insert(struct table *table, struct entry *entry)
{
    size_t i = hash(entry->symbol->host_image);
    while (atomic_load_explicit(&table->slot[i & (table->slot_count - 1)], memory_order_relaxed)) {
        i++;
    }
    atomic_store_explicit(&table->slot[i & (table->slot_count - 1)], entry, memory_order_release);
    table->used++;
}

// A table with room for one more; NULL: no memory.
static struct table *table_with_room(void)
{
    struct table *old = atomic_load_explicit(&current, memory_order_relaxed);
    if (old && 2 * (old->used + 1) <= old->slot_count) {
        return old;
    }
    size_t count = old ? 2 * old->slot_count : FIRST_SLOTS;
    struct table *table = calloc(1, sizeof(*table) + count * sizeof(table->slot[0]));
    if (!table) {
        return NULL;
    }
    table->old = old;
    table->slot_count = count;
    for (size_t i = 0; old && i < old->slot_count; i++) {
        struct entry *entry = atomic_load_explicit(&old->slot[i], memory_order_relaxed);
        if (entry) {
            insert(table, entry);
        }
    }
    return table;
}

void vgpu_register_symbol(const struct vgpu_symbol *symbol)
{
    pthread_mutex_lock(&lock);
    if (!find(symbol->host_image)) {
        struct entry *entry = calloc(1, sizeof(*entry));
        struct table *table = entry ? table_with_room() : NULL;
        if (!table) {
            (void)fprintf(stderr, "vgpu: no memory to register the variable %s\n", symbol->name);
            abort(); // before main: there is nobody to report to
        }
        entry->symbol = symbol;
        insert(table, entry);
        atomic_store_explicit(&current, table, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
}

// The device's copy, made if need be.
static cudaError_t device_copy(struct entry *entry, struct vgpu_device *device, void **out)
{
    _Atomic(void *) *place = &entry->copy[device->ordinal];
    void *copy = atomic_load_explicit(place, memory_order_acquire);
    cudaError_t error = cudaSuccess;
    if (!copy) {
        const struct vgpu_symbol *symbol = entry->symbol;
        pthread_mutex_lock(&lock);
        copy = atomic_load_explicit(place, memory_order_relaxed);
        if (!copy) {
            // Blocks of the allocator are aligned to 256 bytes, more than any variable asks for.
            error = vgpu_block_allocate(symbol->name, device, symbol->bytes ? symbol->bytes : 1,
                                        VGPU_MEMORY_DEVICE, &copy);
            if (error == cudaSuccess) {
                memcpy(copy, symbol->host_image, symbol->bytes);
                atomic_store_explicit(place, copy, memory_order_release);
            }
        }
        pthread_mutex_unlock(&lock);
    }
    *out = copy;
    return error;
}

void *vgpu_symbol_address(void *host_image)
{
    struct vgpu_device *device = vgpu_running_device;
    if (!device) {
        return host_image;
    }
    struct entry *entry = find(host_image);
    void *copy = NULL;
    if (!entry) {
        vgpu_fault(cudaErrorInvalidSymbol, "a variable at %p is not registered", host_image);
    }
    if (device_copy(entry, device, &copy) != cudaSuccess) {
        vgpu_fault(cudaErrorMemoryAllocation, "no device memory for the variable %s: %s",
                   entry->symbol->name, vgpu_last_error_text());
    }
    return copy;
}

const void *vgpu_symbol_named(const char *name, bool (*accepts)(const void *image, void *context),
                              void *context)
{
    const struct table *table = atomic_load_explicit(&current, memory_order_acquire);
    for (size_t i = 0; table && i < table->slot_count; i++) {
        const struct entry *entry = atomic_load_explicit(&table->slot[i], memory_order_acquire);
        if (entry && strcmp(entry->symbol->name, name) == 0 &&
            accepts(entry->symbol->host_image, context)) {
            return entry->symbol->host_image;
        }
    }
    return NULL;
}

bool vgpu_symbol_is_constant(const void *address)
{
    const struct table *table = atomic_load_explicit(&current, memory_order_acquire);
    for (size_t i = 0; table && i < table->slot_count; i++) {
        const struct entry *entry = atomic_load_explicit(&table->slot[i], memory_order_acquire);
        if (!entry || !entry->symbol->constant) {
            continue;
        }
        const struct vgpu_device *device = vgpu_running_device;
        uintptr_t copy = device ? (uintptr_t)atomic_load_explicit(&entry->copy[device->ordinal],
                                                                  memory_order_acquire)
                                : 0;
        uintptr_t own = (uintptr_t)entry->symbol->host_image, at = (uintptr_t)address;
        if (at - own < entry->symbol->bytes || (copy && at - copy < entry->symbol->bytes)) {
            return true;
        }
    }
    return false;
}

void vgpu_symbols_forget(int device)
{
    pthread_mutex_lock(&lock);
    struct table *table = atomic_load_explicit(&current, memory_order_relaxed);
    for (size_t i = 0; table && i < table->slot_count; i++) {
        struct entry *entry = atomic_load_explicit(&table->slot[i], memory_order_relaxed);
        if (entry) {
            atomic_store_explicit(&entry->copy[device], NULL, memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&lock);
}

// ---- The host's functions ----------------------------------------------------------------------

// The symbol and its copy on the current device.
static cudaError_t locate(const char *function, const void *symbol, struct entry **entry_out,
                          void **copy_out)
{
    struct vgpu_device *device = vgpu_current_device();
    cudaError_t error = vgpu_device_ready(device);
    if (error != cudaSuccess) {
        return error;
    }
    struct entry *entry = symbol ? find(symbol) : NULL;
    if (!entry) {
        return vgpu_fail(cudaErrorInvalidSymbol,
                         "%s: %p is not the address of a __device__ or __constant__ variable",
                         function, symbol);
    }
    *entry_out = entry;
    return device_copy(entry, device, copy_out);
}

cudaError_t cudaGetSymbolAddress(void **pointer, const void *symbol)
{
    struct entry *entry = NULL;
    void *copy = NULL;
    if (!pointer) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaGetSymbolAddress: pointer is NULL");
    }
    cudaError_t error = locate("cudaGetSymbolAddress", symbol, &entry, &copy);
    if (error == cudaSuccess) {
        *pointer = copy;
    }
    return error;
}

cudaError_t cudaGetSymbolSize(size_t *bytes, const void *symbol)
{
    if (!bytes) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaGetSymbolSize: bytes is NULL");
    }
    struct entry *entry = symbol ? find(symbol) : NULL;
    if (!entry) {
        return vgpu_fail(cudaErrorInvalidSymbol,
                         "cudaGetSymbolSize: %p is not the address of a __device__ or __constant__ "
                         "variable",
                         symbol);
    }
    *bytes = entry->symbol->bytes;
    return cudaSuccess;
}

// Locates [offset, offset + bytes) of a symbol.
static cudaError_t locate_part(const char *function, const void *symbol, size_t offset,
                               size_t bytes, char **out)
{
    struct entry *entry = NULL;
    void *copy = NULL;
    cudaError_t error = locate(function, symbol, &entry, &copy);
    if (error != cudaSuccess) {
        return error;
    }
    size_t size = entry->symbol->bytes;
    if (offset > size || bytes > size - offset) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: %zu bytes at offset %zu of %s, which has %zu",
                         function, bytes, offset, entry->symbol->name, size);
    }
    *out = (char *)copy + offset;
    return cudaSuccess;
}

// The part of a symbol that a copy names.
struct part {
    const void *symbol;
    size_t offset, bytes;
};

static cudaError_t copy_to(const char *function, struct part part, const void *source,
                           enum cudaMemcpyKind kind, cudaStream_t stream, bool wait)
{
    char *place = NULL;
    cudaError_t error = locate_part(function, part.symbol, part.offset, part.bytes, &place);
    if (error != cudaSuccess) {
        return error;
    }
    return vgpu_copy(function, place, source, part.bytes, kind, stream, wait);
}

static cudaError_t copy_from(const char *function, void *destination, struct part part,
                             enum cudaMemcpyKind kind, cudaStream_t stream, bool wait)
{
    char *place = NULL;
    cudaError_t error = locate_part(function, part.symbol, part.offset, part.bytes, &place);
    if (error != cudaSuccess) {
        return error;
    }
    return vgpu_copy(function, destination, place, part.bytes, kind, stream, wait);
}

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *source, size_t bytes, size_t offset,
                               enum cudaMemcpyKind kind)
{
    struct part part = {symbol, offset, bytes};
    return copy_to("cudaMemcpyToSymbol", part, source, kind, 0, true);
}

cudaError_t cudaMemcpyFromSymbol(void *destination, const void *symbol, size_t bytes, size_t offset,
                                 enum cudaMemcpyKind kind)
{
    struct part part = {symbol, offset, bytes};
    return copy_from("cudaMemcpyFromSymbol", destination, part, kind, 0, true);
}

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *source, size_t bytes,
                                    size_t offset, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    struct part part = {symbol, offset, bytes};
    return copy_to("cudaMemcpyToSymbolAsync", part, source, kind, stream, false);
}

cudaError_t cudaMemcpyFromSymbolAsync(void *destination, const void *symbol, size_t bytes,
                                      size_t offset, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    struct part part = {symbol, offset, bytes};
    return copy_from("cudaMemcpyFromSymbolAsync", destination, part, kind, stream, false);
}
