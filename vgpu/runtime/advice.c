// Advice about managed memory: cudaMemAdvise, cudaMemPrefetchAsync, cudaMemRangeGetAttribute.
//
// All memory is the host's, so advice moves nothing; it is kept by range and told back, as programs
// expect. An allocation's advice is a list of runs of bytes without gaps; none means no advice.
// SPDX-License-Identifier: Apache-2.0
#include "advice.h"

#include "cuda_runtime_api.h"
#include "error.h"
#include "memory.h"
#include "stream_internal.h"
#include "vgpu/stats.h"

#include <stdlib.h>
#include <string.h>

struct place {
    int type; // enum cudaMemLocationType; 0: none
    int id;
};

// What holds for the bytes from `begin` to where the next run begins, or the allocation ends.
struct run {
    size_t begin;
    bool read_mostly;
    struct place preferred, prefetched;
    uint64_t accessed_by; // a bit for each device
    bool host_accesses;
};

struct vgpu_advice {
    struct run *run;
    size_t count;
};

void vgpu_advice_free(struct vgpu_advice *advice)
{
    if (advice) {
        free(advice->run);
        free(advice);
    }
}

static struct place no_place(void)
{
    return (struct place){cudaMemLocationTypeInvalid, cudaInvalidDeviceId};
}

// The index of the run that begins at `at`, which is cut there. Room for one more run is there.
static size_t cut(struct vgpu_advice *advice, size_t at)
{
    size_t index = advice->count;
    while (index > 0 && advice->run[index - 1].begin > at) {
        index--;
    }
    if (advice->run[index - 1].begin == at) {
        return index - 1;
    }
    memmove(&advice->run[index + 1], &advice->run[index],
            (advice->count - index) * sizeof(struct run));
    advice->run[index] = advice->run[index - 1];
    advice->run[index].begin = at;
    advice->count++;
    return index;
}

// ---- Ranges -------------------------------------------------------------------------------------

// A range of managed memory. Under the memory lock.
static cudaError_t find_range(const char *function, const void *pointer, size_t bytes,
                              struct vgpu_mapping **mapping_out)
{
    uintptr_t first = (uintptr_t)pointer;
    struct vgpu_mapping *mapping = vgpu_mapping_find(first);
    if (!mapping || mapping->kind != VGPU_MEMORY_MANAGED || bytes == 0 ||
        bytes > mapping->bytes - (first - mapping->base)) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: %zu bytes at %p %s", function, bytes, pointer,
                         bytes == 0 ? "are none"
                         : mapping && mapping->kind == VGPU_MEMORY_MANAGED
                             ? "go beyond their allocation"
                             : "are not memory of cudaMallocManaged");
    }
    *mapping_out = mapping;
    return cudaSuccess;
}

// What a call changes in every run of its range.
struct change {
    enum cudaMemoryAdvise advice;
    bool prefetch; // instead
    struct place place;
};

static void change_run(struct run *run, const struct change *change)
{
    bool host = change->place.type != cudaMemLocationTypeDevice;
    uint64_t bit = host ? 0 : 1ull << change->place.id;
    if (change->prefetch) {
        run->prefetched = change->place;
        return;
    }
    switch (change->advice) {
    case cudaMemAdviseSetReadMostly:
    case cudaMemAdviseUnsetReadMostly:
        run->read_mostly = change->advice == cudaMemAdviseSetReadMostly;
        break;
    case cudaMemAdviseSetPreferredLocation:
        run->preferred = change->place;
        break;
    case cudaMemAdviseUnsetPreferredLocation:
        run->preferred = no_place();
        break;
    case cudaMemAdviseSetAccessedBy:
        run->accessed_by |= bit;
        run->host_accesses |= host;
        break;
    case cudaMemAdviseUnsetAccessedBy:
        run->accessed_by &= ~bit;
        run->host_accesses &= !host;
        break;
    }
}

// Under the memory lock.
static cudaError_t apply(const char *function, const void *pointer, size_t bytes,
                         const struct change *change)
{
    struct vgpu_mapping *mapping = NULL;
    cudaError_t error = find_range(function, pointer, bytes, &mapping);
    if (error != cudaSuccess) {
        return error;
    }
    struct vgpu_advice *advice = mapping->advice;
    if (!advice) {
        advice = calloc(1, sizeof(*advice));
    }
    // A change adds two cuts at most, beside the first run.
    struct run *more =
        advice ? realloc(advice->run, (advice->count + 3) * sizeof(struct run)) : NULL;
    if (!more) {
        if (!mapping->advice) {
            vgpu_advice_free(advice);
        }
        return vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", function);
    }
    mapping->advice = advice;
    advice->run = more;
    if (advice->count == 0) {
        more[0] = (struct run){.preferred = no_place(), .prefetched = no_place()};
        advice->count = 1;
    }
    size_t begin = (uintptr_t)pointer - mapping->base;
    size_t index = cut(advice, begin);
    size_t end = begin + bytes < mapping->bytes ? cut(advice, begin + bytes) : advice->count;
    for (; index < end; index++) {
        change_run(&advice->run[index], change);
    }
    return cudaSuccess;
}

static cudaError_t check_location(const char *function, struct cudaMemLocation location, bool numa,
                                  struct place *place_out)
{
    struct vgpu_device *device = NULL;
    bool host = location.type == cudaMemLocationTypeHost ||
                (numa && (location.type == cudaMemLocationTypeHostNuma ||
                          location.type == cudaMemLocationTypeHostNumaCurrent));
    if (!host && location.type != cudaMemLocationTypeDevice) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: location type %d; must be cudaMemLocationTypeDevice or -Host%s",
                         function, (int)location.type, numa ? ", -HostNuma or -Current" : "");
    }
    place_out->type = (int)location.type;
    place_out->id = location.type == cudaMemLocationTypeHost ? cudaCpuDeviceId : location.id;
    return host ? cudaSuccess : vgpu_device_get(function, location.id, &device);
}

// ---- CUDA's functions ---------------------------------------------------------------------------

cudaError_t cudaMemAdvise(const void *pointer, size_t bytes, enum cudaMemoryAdvise advice,
                          struct cudaMemLocation location)
{
    static const char *const function = "cudaMemAdvise";
    struct change change = {.advice = advice};
    cudaError_t error = cudaSuccess;
    if (advice < cudaMemAdviseSetReadMostly || advice > cudaMemAdviseUnsetAccessedBy) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: no advice %d", function, (int)advice);
    }
    bool accessed = advice >= cudaMemAdviseSetAccessedBy;
    if (accessed || advice == cudaMemAdviseSetPreferredLocation) { // else it does not matter
        error = check_location(function, location, !accessed, &change.place);
    }
    if (error == cudaSuccess) {
        vgpu_memory_lock();
        error = apply(function, pointer, bytes, &change);
        vgpu_memory_unlock();
    }
    return error;
}

cudaError_t cudaMemPrefetchAsync(const void *pointer, size_t bytes, struct cudaMemLocation location,
                                 unsigned int flags, cudaStream_t stream)
{
    static const char *const function = "cudaMemPrefetchAsync";
    struct change change = {.prefetch = true};
    struct vgpu_stream *on = NULL;
    cudaError_t error = vgpu_stream_resolve(function, stream, &on);
    if (error == cudaSuccess && flags != 0) {
        error =
            vgpu_fail(cudaErrorInvalidValue, "%s: flags are 0x%x; they must be 0", function, flags);
    }
    if (error == cudaSuccess) {
        error = check_location(function, location, true, &change.place);
    }
    if (error == cudaSuccess) {
        vgpu_memory_lock();
        error = apply(function, pointer, bytes, &change);
        vgpu_memory_unlock();
    }
    return error;
}

// What all runs agree on in *number, or `otherwise`.
struct answer {
    int number;
    bool some;
    int otherwise;
};

static void agree(struct answer *answer, int number)
{
    answer->number = answer->some && answer->number != number ? answer->otherwise : number;
    answer->some = true;
}

static int number_of(const struct run *run, enum cudaMemRangeAttribute attribute)
{
    switch (attribute) {
    case cudaMemRangeAttributeReadMostly:
        return run->read_mostly;
    case cudaMemRangeAttributePreferredLocation:
    case cudaMemRangeAttributePreferredLocationId:
        return run->preferred.id;
    case cudaMemRangeAttributePreferredLocationType:
        return run->preferred.type;
    case cudaMemRangeAttributeLastPrefetchLocation:
    case cudaMemRangeAttributeLastPrefetchLocationId:
        return run->prefetched.id;
    default:
        return run->prefetched.type;
    }
}

// The runs that [begin, end) touches give their answers. Under the memory lock.
static void ask(const struct vgpu_advice *advice, size_t begin, size_t end,
                enum cudaMemRangeAttribute attribute, int *data, size_t count)
{
    static const struct run none = {.preferred = {0, cudaInvalidDeviceId},
                                    .prefetched = {0, cudaInvalidDeviceId}};
    bool type = attribute == cudaMemRangeAttributePreferredLocationType ||
                attribute == cudaMemRangeAttributeLastPrefetchLocationType;
    bool flag = attribute == cudaMemRangeAttributeReadMostly;
    struct answer answer = {.otherwise = type || flag ? 0 : cudaInvalidDeviceId};
    uint64_t devices = ~0ull;
    bool host = true;
    size_t runs = advice ? advice->count : 1;
    for (size_t i = 0; i < runs; i++) {
        const struct run *run = advice ? &advice->run[i] : &none;
        size_t run_end = i + 1 < runs ? advice->run[i + 1].begin : SIZE_MAX;
        if (run->begin < end && run_end > begin) {
            agree(&answer, number_of(run, attribute));
            devices &= run->accessed_by;
            host &= run->host_accesses;
        }
    }
    if (attribute != cudaMemRangeAttributeAccessedBy) {
        data[0] = answer.number;
        return;
    }
    size_t used = 0;
    if (host && used < count) {
        data[used++] = cudaCpuDeviceId;
    }
    for (int device = 0; device < VGPU_MAX_DEVICES && used < count; device++) {
        if (devices >> device & 1) {
            data[used++] = device;
        }
    }
    while (used < count) {
        data[used++] = cudaInvalidDeviceId;
    }
}

cudaError_t cudaMemRangeGetAttribute(void *data, size_t data_bytes,
                                     enum cudaMemRangeAttribute attribute, const void *pointer,
                                     size_t bytes)
{
    static const char *const function = "cudaMemRangeGetAttribute";
    bool list = attribute == cudaMemRangeAttributeAccessedBy;
    if (!data || attribute < cudaMemRangeAttributeReadMostly ||
        attribute > cudaMemRangeAttributeLastPrefetchLocationId || data_bytes == 0 ||
        data_bytes % sizeof(int) != 0 || (!list && data_bytes != sizeof(int))) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: attribute %d into %zu bytes at %p; attributes are 1 to 8 and take 4 "
                         "bytes, cudaMemRangeAttributeAccessedBy any multiple of that",
                         function, (int)attribute, data_bytes, data);
    }
    struct vgpu_mapping *mapping = NULL;
    vgpu_memory_lock();
    cudaError_t error = find_range(function, pointer, bytes, &mapping);
    if (error == cudaSuccess) {
        size_t begin = (uintptr_t)pointer - mapping->base;
        ask(mapping->advice, begin, begin + bytes, attribute, data, data_bytes / sizeof(int));
    }
    vgpu_memory_unlock();
    return error;
}

cudaError_t cudaMemRangeGetAttributes(void **data, size_t *data_bytes,
                                      enum cudaMemRangeAttribute *attributes, size_t count,
                                      const void *pointer, size_t bytes)
{
    if (!data || !data_bytes || !attributes || count == 0) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaMemRangeGetAttributes: %zu attributes at %p, into %p of sizes %p",
                         count, (void *)attributes, (void *)data, (void *)data_bytes);
    }
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; error == cudaSuccess && i < count; i++) {
        error = cudaMemRangeGetAttribute(data[i], data_bytes[i], attributes[i], pointer, bytes);
    }
    return error;
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void *pointer, size_t bytes,
                                     unsigned int flags)
{
    static const char *const function = "cudaStreamAttachMemAsync";
    struct vgpu_stream *on = NULL;
    struct vgpu_mapping *mapping = NULL;
    cudaError_t error = vgpu_stream_resolve(function, stream, &on);
    if (error == cudaSuccess && flags != cudaMemAttachGlobal && flags != cudaMemAttachHost &&
        flags != cudaMemAttachSingle) {
        error = vgpu_fail(cudaErrorInvalidValue, "%s: flags are 0x%x; one of cudaMemAttach*",
                          function, flags);
    }
    if (error == cudaSuccess) { // who may use the memory is not limited here
        vgpu_memory_lock();
        error = find_range(function, pointer, bytes ? bytes : 1, &mapping);
        vgpu_memory_unlock();
    }
    return error;
}
