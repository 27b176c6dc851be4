// Memory pools: what cudaMallocAsync allocates from.
//
// The allocator under cudaMalloc keeps and reuses memory for all alike, so a pool is bookkeeping: a
// limit, a count of what is used, and attributes. Memory is there at once, which every order of
// streams allows, and goes when the stream gets to the free. SPDX-License-Identifier: Apache-2.0
#include "memory_pool.h"

#include "backing.h"
#include "capture.h"
#include "cuda_runtime_api.h"
#include "error.h"
#include "handles.h"
#include "segment.h"
#include "stream_internal.h"
#include "vgpu/stats.h"

#include <stdlib.h>
#include <string.h>

enum { RESERVED_UNIT = 2 << 20 };

// All under the memory lock.
struct vgpu_pool {
    struct vgpu_device *device;
    size_t most; // bytes; SIZE_MAX: as the device has
    size_t used, used_high, reserved_high;
    size_t allocations;
    uint64_t threshold;
    int reuse[3]; // cudaMemPoolReuse*, from the first on
    unsigned char access[VGPU_MAX_DEVICES];
    bool is_default;
    bool destroyed; // goes with its last allocation
};

// By device, made on first use: the default pools, and those that cudaMallocAsync takes.
static struct vgpu_pool *default_pool[VGPU_MAX_DEVICES];
static struct vgpu_pool *current_pool[VGPU_MAX_DEVICES];

static size_t reserved(size_t used)
{
    return (used + RESERVED_UNIT - 1) / RESERVED_UNIT * RESERVED_UNIT;
}

// ---- Pools --------------------------------------------------------------------------------------

static struct vgpu_pool *new_pool(struct vgpu_device *device, size_t most)
{
    struct vgpu_pool *pool = calloc(1, sizeof(*pool));
    if (!pool || !vgpu_handle_add(pool, VGPU_HANDLE_POOL)) {
        free(pool);
        return NULL;
    }
    pool->device = device;
    pool->most = most;
    pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
    pool->access[device->ordinal] = cudaMemAccessFlagsProtReadWrite;
    return pool;
}

// Under the lock: a device's default pool; NULL: no memory.
static struct vgpu_pool *get_default(struct vgpu_device *device)
{
    struct vgpu_pool **place = &default_pool[device->ordinal];
    if (!*place) {
        *place = new_pool(device, SIZE_MAX);
        if (*place) {
            (*place)->is_default = true;
        }
    }
    return *place;
}

// Under the lock.
static struct vgpu_pool *get_current(struct vgpu_device *device)
{
    struct vgpu_pool *pool = current_pool[device->ordinal];
    return pool ? pool : get_default(device);
}

static void drop_if_unused(struct vgpu_pool *pool)
{
    if (pool->destroyed && pool->allocations == 0) {
        free(pool);
    }
}

static cudaError_t find_pool(const char *function, cudaMemPool_t handle,
                             struct vgpu_pool **pool_out)
{
    if (!vgpu_handle_known(handle, VGPU_HANDLE_POOL)) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: %p is no memory pool", function,
                         (void *)handle);
    }
    *pool_out = (struct vgpu_pool *)(void *)handle;
    return cudaSuccess;
}

void vgpu_pool_returned(struct vgpu_pool *pool, size_t bytes)
{
    pool->used -= bytes;
    pool->allocations--;
    drop_if_unused(pool);
}

// ---- Allocating ---------------------------------------------------------------------------------

static cudaError_t take(const char *function, struct vgpu_pool *pool, size_t bytes)
{
    if (bytes > pool->most || pool->used > pool->most - bytes) {
        return vgpu_fail(cudaErrorMemoryAllocation, "%s: %zu bytes, %zu of the pool's %zu are used",
                         function, bytes, pool->used, pool->most);
    }
    pool->used += bytes;
    pool->allocations++;
    return cudaSuccess;
}

// pool NULL: the stream's device's current one.
static cudaError_t allocate(const char *function, void **pointer, size_t bytes,
                            struct vgpu_pool *pool, cudaStream_t handle)
{
    struct vgpu_stream *stream = NULL;
    if (!pointer || bytes == 0) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: %zu bytes, result at %p; neither may be 0",
                         function, bytes, (void *)pointer);
    }
    cudaError_t error = vgpu_stream_resolve(function, handle, &stream);
    if (error == cudaSuccess) {
        error = vgpu_capture_refuse(function, stream,
                                    "graphs on virtual GPUs do not allocate memory; allocate "
                                    "before the capture");
    }
    if (error == cudaSuccess) {
        error = vgpu_capture_allows(function);
    }
    if (error != cudaSuccess) {
        return error;
    }
    vgpu_memory_lock();
    pool = pool ? pool : get_current(stream->device);
    error = pool ? take(function, pool, bytes)
                 : vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for a pool", function);
    vgpu_memory_unlock();
    if (error != cudaSuccess) {
        return error;
    }
    void *memory = NULL;
    error = vgpu_block_allocate(function, pool->device, bytes, VGPU_MEMORY_DEVICE, &memory);
    vgpu_memory_lock();
    if (error == cudaSuccess) {
        struct vgpu_mapping *mapping = vgpu_mapping_find((uintptr_t)memory);
        mapping->pool = pool;
        pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
        size_t now = reserved(pool->used);
        pool->reserved_high = now > pool->reserved_high ? now : pool->reserved_high;
        *pointer = memory;
    } else {
        vgpu_pool_returned(pool, bytes);
    }
    vgpu_memory_unlock();
    return error;
}

cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream)
{
    return allocate("cudaMallocAsync", pointer, bytes, NULL, stream);
}

cudaError_t cudaMallocFromPoolAsync(void **pointer, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream)
{
    struct vgpu_pool *found = NULL;
    cudaError_t error = find_pool("cudaMallocFromPoolAsync", pool, &found);
    return error == cudaSuccess ? allocate("cudaMallocFromPoolAsync", pointer, bytes, found, stream)
                                : error;
}

static cudaError_t free_later(void *argument)
{
    // Freed twice: an error of the caller, for VGPU_LOG to show, but not one of the device.
    (void)vgpu_block_free("cudaFreeAsync", *(void **)argument);
    return cudaSuccess;
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream)
{
    static const char *const function = "cudaFreeAsync";
    struct vgpu_stream *on = NULL;
    if (!pointer) {
        return cudaSuccess;
    }
    struct vgpu_memory_range range = vgpu_memory_find(pointer);
    if (range.kind == VGPU_MEMORY_NONE || range.base != (uintptr_t)pointer) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: %p is not the beginning of an allocation",
                         function, pointer);
    }
    cudaError_t error = vgpu_stream_resolve(function, stream, &on);
    if (error == cudaSuccess) {
        error = vgpu_capture_refuse(function, on,
                                    "graphs on virtual GPUs do not free memory; free behind the "
                                    "launch");
    }
    return error == cudaSuccess ? vgpu_stream_submit(stream, cudaGraphNodeTypeMemFree, function,
                                                     free_later, &pointer, sizeof(pointer))
                                : error;
}

// ---- Pools by device ----------------------------------------------------------------------------

static cudaError_t give_pool(const char *function, cudaMemPool_t *pool, int device,
                             struct vgpu_pool *(*get)(struct vgpu_device *))
{
    struct vgpu_device *found = NULL;
    cudaError_t error =
        pool ? vgpu_device_get(function, device, &found)
             : vgpu_fail(cudaErrorInvalidValue, "%s: the place for the pool is NULL", function);
    if (error != cudaSuccess) {
        return error;
    }
    vgpu_memory_lock();
    struct vgpu_pool *given = get(found);
    vgpu_memory_unlock();
    if (!given) {
        return vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for a pool", function);
    }
    *pool = (cudaMemPool_t)(void *)given;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    return give_pool("cudaDeviceGetDefaultMemPool", pool, device, get_default);
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device)
{
    return give_pool("cudaDeviceGetMemPool", pool, device, get_current);
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool)
{
    static const char *const function = "cudaDeviceSetMemPool";
    struct vgpu_device *found = NULL;
    struct vgpu_pool *wanted = NULL;
    cudaError_t error = vgpu_device_get(function, device, &found);
    if (error == cudaSuccess) {
        error = find_pool(function, pool, &wanted);
    }
    if (error == cudaSuccess && wanted->device != found) {
        error = vgpu_fail(cudaErrorInvalidValue, "%s: the pool is of %s, not of %s", function,
                          vgpu_device_name(wanted->device->ordinal).text,
                          vgpu_device_name(device).text);
    }
    if (error == cudaSuccess) {
        vgpu_memory_lock();
        current_pool[device] = wanted;
        vgpu_memory_unlock();
    }
    return error;
}

// ---- Making and destroying ----------------------------------------------------------------------

cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *properties)
{
    static const char *const function = "cudaMemPoolCreate";
    struct vgpu_device *device = NULL;
    if (!pool || !properties || properties->allocType != cudaMemAllocationTypePinned) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: result at %p, properties at %p, allocType %d (must be "
                         "cudaMemAllocationTypePinned)",
                         function, (void *)pool, (const void *)properties,
                         properties ? (int)properties->allocType : 0);
    }
    if (properties->location.type != cudaMemLocationTypeDevice ||
        vgpu_device_get(function, properties->location.id, &device) != cudaSuccess) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: location type %d, id %d; must be cudaMemLocationTypeDevice and one "
                         "of %d devices",
                         function, (int)properties->location.type, properties->location.id,
                         vgpu_device_count());
    }
    if (properties->handleTypes != cudaMemHandleTypeNone) {
        return vgpu_fail(cudaErrorNotSupported,
                         "%s: handle types 0x%x; pools on virtual GPUs cannot be exported: use "
                         "cudaIpcGetMemHandle or cuMemExportToShareableHandle",
                         function, (unsigned)properties->handleTypes);
    }
    struct vgpu_pool *made = new_pool(device, properties->maxSize ? properties->maxSize : SIZE_MAX);
    if (!made) {
        return vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", function);
    }
    *pool = (cudaMemPool_t)(void *)made;
    return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
    struct vgpu_pool *found = NULL;
    cudaError_t error = find_pool("cudaMemPoolDestroy", pool, &found);
    if (error == cudaSuccess && found->is_default) {
        error = vgpu_fail(cudaErrorInvalidValue,
                          "cudaMemPoolDestroy: the default pool cannot be destroyed");
    }
    if (error != cudaSuccess) {
        return error;
    }
    vgpu_memory_lock();
    vgpu_handle_remove(found);
    if (current_pool[found->device->ordinal] == found) {
        current_pool[found->device->ordinal] = NULL;
    }
    found->destroyed = true;
    drop_if_unused(found);
    vgpu_memory_unlock();
    return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep)
{
    struct vgpu_pool *found = NULL;
    (void)keep; // a pool holds back nothing that could be released
    return find_pool("cudaMemPoolTrimTo", pool, &found);
}

// ---- Attributes ---------------------------------------------------------------------------------

static cudaError_t find_attribute(const char *function, cudaMemPool_t pool,
                                  enum cudaMemPoolAttr attribute, const void *value,
                                  struct vgpu_pool **pool_out)
{
    cudaError_t error = find_pool(function, pool, pool_out);
    if (error == cudaSuccess && (!value || attribute < cudaMemPoolReuseFollowEventDependencies ||
                                 attribute > cudaMemPoolAttrUsedMemHigh)) {
        error = vgpu_fail(cudaErrorInvalidValue, "%s: attribute %d, value at %p", function,
                          (int)attribute, value);
    }
    return error;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    struct vgpu_pool *found = NULL;
    cudaError_t error = find_attribute("cudaMemPoolGetAttribute", pool, attribute, value, &found);
    if (error != cudaSuccess) {
        return error;
    }
    vgpu_memory_lock();
    const uint64_t numbers[] = {found->threshold, reserved(found->used), found->reserved_high,
                                found->used, found->used_high};
    if (attribute < cudaMemPoolAttrReleaseThreshold) {
        memcpy(value, &found->reuse[attribute - cudaMemPoolReuseFollowEventDependencies],
               sizeof(int));
    } else {
        memcpy(value, &numbers[attribute - cudaMemPoolAttrReleaseThreshold], sizeof(uint64_t));
    }
    vgpu_memory_unlock();
    return cudaSuccess;
}

// A number that is not one of the reuse policies. False: it cannot be that.
static bool set_number(struct vgpu_pool *pool, enum cudaMemPoolAttr attribute, uint64_t number)
{
    if (attribute == cudaMemPoolAttrReleaseThreshold) {
        pool->threshold = number;
        return true;
    }
    if (number == 0 && attribute == cudaMemPoolAttrUsedMemHigh) {
        pool->used_high = pool->used;
        return true;
    }
    if (number == 0 && attribute == cudaMemPoolAttrReservedMemHigh) {
        pool->reserved_high = reserved(pool->used);
        return true;
    }
    return false;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    static const char *const function = "cudaMemPoolSetAttribute";
    struct vgpu_pool *found = NULL;
    cudaError_t error = find_attribute(function, pool, attribute, value, &found);
    if (error != cudaSuccess) {
        return error;
    }
    bool done = true;
    vgpu_memory_lock();
    if (attribute < cudaMemPoolAttrReleaseThreshold) {
        memcpy(&found->reuse[attribute - cudaMemPoolReuseFollowEventDependencies], value,
               sizeof(int));
    } else {
        uint64_t number;
        memcpy(&number, value, sizeof(number));
        done = set_number(found, attribute, number);
    }
    vgpu_memory_unlock();
    return done ? cudaSuccess
                : vgpu_fail(cudaErrorInvalidValue,
                            "%s: attribute %d; what is used or reserved cannot be set, the "
                            "greatest of it only to 0",
                            function, (int)attribute);
}

// ---- Access -------------------------------------------------------------------------------------

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *access,
                                 size_t count)
{
    static const char *const function = "cudaMemPoolSetAccess";
    struct vgpu_pool *found = NULL;
    cudaError_t error = find_pool(function, pool, &found);
    if (error == cudaSuccess && count > 0 && !access) {
        error = vgpu_fail(cudaErrorInvalidValue, "%s: %zu descriptions at NULL", function, count);
    }
    for (size_t i = 0; error == cudaSuccess && i < count; i++) {
        struct vgpu_device *device = NULL;
        int flags = (int)access[i].flags;
        bool known = flags == cudaMemAccessFlagsProtNone || flags == cudaMemAccessFlagsProtRead ||
                     flags == cudaMemAccessFlagsProtReadWrite;
        if (access[i].location.type != cudaMemLocationTypeDevice || !known) {
            return vgpu_fail(cudaErrorInvalidValue,
                             "%s: description %zu has location type %d and flags %d", function, i,
                             (int)access[i].location.type, flags);
        }
        error = vgpu_device_get(function, access[i].location.id, &device);
        if (error != cudaSuccess) {
            return error;
        }
        if (device == found->device && flags != cudaMemAccessFlagsProtReadWrite) {
            return vgpu_fail(cudaErrorInvalidDevice, "%s: %s owns the pool and keeps its access",
                             function, vgpu_device_name(device->ordinal).text);
        }
        if (flags != cudaMemAccessFlagsProtNone && !vgpu_peer_access(device, found->device)) {
            return vgpu_fail(cudaErrorInvalidDevice, "%s: %s cannot reach memory of %s", function,
                             vgpu_device_name(device->ordinal).text,
                             vgpu_device_name(found->device->ordinal).text);
        }
        found->access[device->ordinal] = (unsigned char)flags;
    }
    return error;
}

cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t pool,
                                 struct cudaMemLocation *location)
{
    static const char *const function = "cudaMemPoolGetAccess";
    struct vgpu_pool *found = NULL;
    struct vgpu_device *device = NULL;
    cudaError_t error = find_pool(function, pool, &found);
    if (error == cudaSuccess &&
        (!flags || !location || location->type != cudaMemLocationTypeDevice)) {
        error = vgpu_fail(cudaErrorInvalidValue,
                          "%s: result at %p, location at %p; it must be a device", function,
                          (void *)flags, (void *)location);
    }
    if (error == cudaSuccess) {
        error = vgpu_device_get(function, location->id, &device);
    }
    if (error == cudaSuccess) {
        *flags = (enum cudaMemAccessFlags)found->access[device->ordinal];
    }
    return error;
}
