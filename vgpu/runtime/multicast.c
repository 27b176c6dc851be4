// The driver's multicast objects (see multicast.h): creating, joining, binding.
//
// The control area is shared by processes that do not trust each other's timing: whoever changes it
// holds the memory lock of its process and a lock on the memfd, which the kernel releases when its
// holder dies. Readers of `added` need neither. Numbers in it are checked before use.
//
// Where several ranks share one device, that device may be added several times (CUDA refuses that):
// each is a member with a binding of its own. SPDX-License-Identifier: Apache-2.0
#include "multicast.h"

#include "driver_error.h"
#include "error.h"
#include "multicast_control.h"
#include "multimem.h"
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    LOCK_WAIT_MS = 10000,
    JOIN_WAIT_MS = 30000,
    JOIN_TELL_MS = 10000, // who waits for devices says so
};

static void sleep_us(long microseconds)
{
    struct timespec time = {.tv_sec = 0, .tv_nsec = microseconds * 1000};
    nanosleep(&time, NULL);
}

// ---- The lock between processes ----------------------------------------------------------------

static cudaError_t control_lock(const char *function, struct vgpu_multicast *multicast)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    for (int waited_us = 0; waited_us < LOCK_WAIT_MS * 1000; waited_us += 50) {
        if (fcntl(multicast->physical->backing->fd, F_OFD_SETLK, &lock) == 0) {
            return cudaSuccess;
        }
        if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
            break;
        }
        sleep_us(50);
    }
    return vgpu_fail(cudaErrorSystemNotReady, "%s: the multicast object cannot be locked: %m",
                     function);
}

static void control_unlock(struct vgpu_multicast *multicast)
{
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_len = 1};
    fcntl(multicast->physical->backing->fd, F_OFD_SETLK, &lock);
}

// ---- Making ------------------------------------------------------------------------------------

cudaError_t vgpu_multicast_attach(const char *function, struct vgpu_physical *physical)
{
    struct vgpu_multicast *multicast = calloc(1, sizeof(*multicast));
    if (!multicast) {
        return vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
    }
    if (physical->backing->label.bytes < sizeof(struct vgpu_control)) {
        free(multicast);
        return vgpu_fail(cudaErrorInvalidValue, "%s: the multicast object is damaged", function);
    }
    multicast->control = vgpu_backing_map(physical->backing, NULL, sizeof(struct vgpu_control), 0,
                                          PROT_READ | PROT_WRITE);
    if (!multicast->control) {
        int number = errno;
        free(multicast);
        return vgpu_fail_limit(function, "the multicast object cannot be mapped", number);
    }
    multicast->physical = physical;
    physical->multicast = multicast;
    physical->device = NULL;
    uint32_t devices = multicast->control->device_count;
    multicast->device_count = devices < VGPU_MAX_MEMBERS ? (int)devices : VGPU_MAX_MEMBERS;
    return cudaSuccess;
}

static cudaError_t check_object(const char *function, const CUmulticastObjectProp *p)
{
    bool any = false;
    for (int i = 0; i < vgpu_device_count(); i++) {
        any |= vgpu_device(i)->info.multicast;
    }
    if (!any) {
        return vgpu_device_count() == 0 ? vgpu_device_ready(NULL)
                                        : vgpu_fail(cudaErrorNotSupported,
                                                    "%s: no device of this machine has multicast "
                                                    "(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED)",
                                                    function);
    }
    if (!p) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: the properties are NULL", function);
    }
    if (p->numDevices == 0 || p->numDevices > VGPU_MAX_MEMBERS) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: numDevices is %u; it must be 1 to %d",
                         function, p->numDevices, VGPU_MAX_MEMBERS);
    }
    if (p->flags != 0 ||
        (p->handleTypes & ~(unsigned long long)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
        return vgpu_fail(p->flags ? cudaErrorInvalidValue : cudaErrorNotSupported,
                         "%s: flags 0x%llx (they must be 0), handle types 0x%llx (only POSIX file "
                         "descriptors, 1)",
                         function, p->flags, p->handleTypes);
    }
    return cudaSuccess;
}

static cudaError_t create(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *p)
{
    static const char *const function = "cuMulticastCreate";
    cudaError_t error = check_object(function, p);
    if (error == cudaSuccess) {
        error = vgpu_check_piece(function, "multicast object", 0, p->size, SIZE_MAX / 4);
    }
    if (error == cudaSuccess && !handle) {
        error = vgpu_fail(cudaErrorInvalidValue, "%s: the place for the handle is NULL", function);
    }
    if (error != cudaSuccess) {
        return error;
    }
    struct vgpu_label label = {
        .kind = VGPU_BACKING_MULTICAST,
        .bytes = (sizeof(struct vgpu_control) + VGPU_PAGE_BYTES - 1) & -(uint64_t)VGPU_PAGE_BYTES,
        .object_bytes = p->size,
        .handle_types = (uint32_t)p->handleTypes,
    };
    struct vgpu_backing *backing = NULL;
    error = vgpu_backing_create(function, "vgpu-multicast", &label, -1, &backing);
    if (error != cudaSuccess) {
        return error;
    }
    struct vgpu_physical *physical = vgpu_physical_add(backing, p->size);
    if (!physical) {
        vgpu_backing_release(backing);
        return vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
    }
    error = vgpu_multicast_attach(function, physical);
    if (error != cudaSuccess) {
        physical->references--;
        vgpu_physical_drop(physical);
        return error;
    }
    physical->multicast->control->device_count = p->numDevices;
    physical->multicast->device_count = (int)p->numDevices;
    *handle = physical->handle;
    return cudaSuccess;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *multicast,
                           const CUmulticastObjectProp *properties)
{
    cudaError_t before = vgpu_driver_begin();
    vgpu_memory_lock();
    cudaError_t error = create(multicast, properties);
    vgpu_memory_unlock();
    return vgpu_driver_end(before, error);
}

CUresult cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *properties,
                                   CUmulticastGranularity_flags option)
{
    static const char *const function = "cuMulticastGetGranularity";
    cudaError_t before = vgpu_driver_begin();
    cudaError_t error = check_object(function, properties);
    if (error == cudaSuccess && (!granularity || (unsigned)option > 1)) {
        error = vgpu_fail(cudaErrorInvalidValue, "%s: result at %p, option %d", function,
                          (void *)granularity, (int)option);
    }
    if (error == cudaSuccess) {
        *granularity = VGPU_GRANULARITY;
    }
    return vgpu_driver_end(before, error);
}

// The multicast object that a handle names. Under the lock.
static cudaError_t get(const char *function, CUmemGenericAllocationHandle handle,
                       struct vgpu_multicast **out)
{
    struct vgpu_physical *physical = vgpu_physical_find(handle);
    if (!physical || !physical->multicast) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: 0x%llx is no multicast object", function,
                         handle);
    }
    *out = physical->multicast;
    return cudaSuccess;
}

// ---- Members -----------------------------------------------------------------------------------

static cudaError_t add_device(CUmemGenericAllocationHandle handle, int ordinal)
{
    static const char *const function = "cuMulticastAddDevice";
    struct vgpu_multicast *multicast = NULL;
    struct vgpu_device *device = NULL;
    cudaError_t error = get(function, handle, &multicast);
    if (error == cudaSuccess) {
        error = vgpu_device_get(function, ordinal, &device);
    }
    if (error != cudaSuccess) {
        return error;
    }
    if (!device->info.multicast) {
        return vgpu_fail(cudaErrorNotSupported, "%s: %s has no multicast", function,
                         vgpu_device_name(ordinal).text);
    }
    error = control_lock(function, multicast);
    if (error != cudaSuccess) {
        return error;
    }
    struct vgpu_control *control = multicast->control;
    unsigned added = atomic_load_explicit(&control->added, memory_order_relaxed);
    if (added >= (unsigned)multicast->device_count) {
        error = vgpu_fail(cudaErrorInvalidValue, "%s: all %d devices have been added", function,
                          multicast->device_count);
    } else {
        struct vgpu_member *member = &control->member[added];
        memcpy(member->uuid, device->info.uuid, sizeof(member->uuid));
        member->pid = getpid();
        member->tid = gettid();
        atomic_store_explicit(&control->added, added + 1, memory_order_release);
    }
    control_unlock(multicast);
    return error;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle multicast, CUdevice device)
{
    cudaError_t before = vgpu_driver_begin();
    vgpu_memory_lock();
    cudaError_t error = add_device(multicast, device);
    vgpu_memory_unlock();
    return vgpu_driver_end(before, error);
}

// Says which of this process's devices have not been added. Under the lock.
static void tell_missing(const char *function, const struct vgpu_multicast *multicast,
                         unsigned added)
{
    char list[256] = "";
    size_t used = 0;
    for (int d = 0; d < vgpu_device_count() && used < sizeof(list) - 16; d++) {
        bool found = false;
        for (unsigned i = 0; i < added && !found; i++) {
            found = vgpu_device_by_uuid(multicast->control->member[i].uuid) == vgpu_device(d);
        }
        if (!found) {
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d", used ? ", " : "", d);
        }
    }
    vgpu_say("%s has waited %d s for cuMulticastAddDevice: %u of the multicast object's %d devices "
             "have been added; of the devices here not: %s",
             function, JOIN_TELL_MS / 1000, added, multicast->device_count, used ? list : "none");
}

cudaError_t vgpu_multicast_wait(const char *function, CUmemGenericAllocationHandle handle)
{
    unsigned added = 0;
    int wanted = 0;
    bool told = false;
    const uint64_t begun = vgpu_now_ns();
    for (uint64_t waited_ms = 0; waited_ms < JOIN_WAIT_MS;
         waited_ms = (vgpu_now_ns() - begun) / 1000000) {
        vgpu_memory_lock();
        struct vgpu_physical *physical = vgpu_physical_find(handle);
        struct vgpu_multicast *multicast = physical ? physical->multicast : NULL;
        if (multicast) {
            added = atomic_load_explicit(&multicast->control->added, memory_order_acquire);
            wanted = multicast->device_count;
        }
        if (multicast && !told && waited_ms >= JOIN_TELL_MS && added < (unsigned)wanted) {
            told = true;
            tell_missing(function, multicast, added);
        }
        vgpu_memory_unlock();
        if (!multicast || added >= (unsigned)wanted) {
            return cudaSuccess;
        }
        sleep_us(100);
    }
    return vgpu_fail(cudaErrorIllegalState,
                     "%s: after %d s only %u of the multicast object's %d devices have been added",
                     function, JOIN_WAIT_MS / 1000, added, wanted);
}

// ---- Bindings ----------------------------------------------------------------------------------

// What is bound: a part of a backing, and the allocation that it belongs to (NULL: cudaMalloc's).
struct part {
    struct vgpu_backing *backing;
    struct vgpu_physical *physical;
    size_t offset, bytes;
};

static bool overlaps(const struct vgpu_binding *binding, size_t offset, size_t bytes)
{
    return binding->offset < offset + bytes && offset < binding->offset + binding->bytes;
}

// How well a member fits a binding by the calling thread: 3 it added the device itself, 2 its
// process did, 1 another process, 0 not at all (another device, or bound there already).
static int fitness(const struct vgpu_control *control, unsigned index, const unsigned char *uuid,
                   size_t offset, size_t bytes)
{
    const struct vgpu_member *member = &control->member[index];
    if (memcmp(member->uuid, uuid, sizeof(member->uuid)) != 0) {
        return 0;
    }
    for (int i = 0; i < VGPU_MAX_BINDINGS; i++) {
        const struct vgpu_binding *binding = &control->binding[i];
        uint32_t state = atomic_load_explicit(&binding->state, memory_order_relaxed);
        if (state == VGPU_BINDING_NEVER) {
            break; // no entry beyond was ever used
        }
        if (state == VGPU_BINDING_READY && binding->member == index &&
            overlaps(binding, offset, bytes)) {
            return 0;
        }
    }
    return member->pid != getpid() ? 1 : member->tid != gettid() ? 2 : 3;
}

static int choose_member(const struct vgpu_multicast *multicast, const unsigned char *uuid,
                         size_t offset, size_t bytes)
{
    int best = -1;
    int best_fitness = 0;
    for (int i = 0; i < multicast->device_count; i++) {
        int one = fitness(multicast->control, (unsigned)i, uuid, offset, bytes);
        if (one > best_fitness) {
            best_fitness = one;
            best = i;
        }
    }
    return best;
}

static int free_binding(const struct vgpu_control *control)
{
    for (int i = 0; i < VGPU_MAX_BINDINGS; i++) {
        if (atomic_load_explicit(&control->binding[i].state, memory_order_relaxed) !=
            VGPU_BINDING_READY) {
            return i;
        }
    }
    return -1;
}

// With both locks.
static cudaError_t bind_locked(const char *function, struct vgpu_multicast *multicast,
                               size_t offset, const struct part *part, struct vgpu_bound *bound)
{
    struct vgpu_control *control = multicast->control;
    int member = choose_member(multicast, part->backing->label.uuid, offset, part->bytes);
    if (member < 0) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: the memory is of %s, which was not added to the multicast "
                         "object, or has memory bound at offset %zu already",
                         function, vgpu_device_name(part->backing->device).text, offset);
    }
    int index = free_binding(control);
    if (index < 0) {
        return vgpu_fail(cudaErrorMemoryAllocation, "%s: a multicast object holds %d bindings",
                         function, VGPU_MAX_BINDINGS);
    }
    struct vgpu_binding *binding = &control->binding[index];
    binding->member = (uint32_t)member;
    binding->pid = getpid();
    binding->fd = part->backing->fd;
    binding->inode = part->backing->inode;
    memcpy(binding->key, part->backing->label.key, sizeof(binding->key));
    binding->offset = offset;
    binding->memory_offset = part->offset;
    binding->bytes = part->bytes;
    atomic_store_explicit(&binding->state, VGPU_BINDING_READY, memory_order_release);
    atomic_fetch_add_explicit(&control->generation, 1, memory_order_release);
    bound->index = index;
    bound->tid = gettid();
    bound->backing = part->backing;
    bound->physical = part->physical;
    vgpu_backing_retain(part->backing);
    if (part->physical) {
        part->physical->uses++;
    }
    bound->next = multicast->bound;
    multicast->bound = bound;
    return cudaSuccess;
}

static cudaError_t bind_part(const char *function, CUmemGenericAllocationHandle handle,
                             size_t offset, const struct part *part)
{
    struct vgpu_multicast *multicast = NULL;
    cudaError_t error = get(function, handle, &multicast);
    if (error == cudaSuccess) {
        error = vgpu_check_piece(function, "the multicast object", offset, part->bytes,
                                 multicast->physical->bytes);
    }
    if (error != cudaSuccess) {
        return error;
    }
    struct vgpu_bound *bound = calloc(1, sizeof(*bound));
    if (!bound) {
        return vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
    }
    error = control_lock(function, multicast);
    if (error == cudaSuccess) {
        error = bind_locked(function, multicast, offset, part, bound);
        control_unlock(multicast);
    }
    if (error != cudaSuccess) {
        free(bound);
    }
    return error;
}

static cudaError_t bind_memory(CUmemGenericAllocationHandle multicast, size_t offset,
                               CUmemGenericAllocationHandle memory, size_t memory_offset,
                               size_t bytes)
{
    static const char *const function = "cuMulticastBindMem";
    struct vgpu_physical *physical = vgpu_physical_find(memory);
    if (!physical || physical->multicast || physical->backing->device < 0) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: 0x%llx is not a handle of device memory",
                         function, memory);
    }
    cudaError_t error =
        vgpu_check_piece(function, "the memory", memory_offset, bytes, physical->bytes);
    if (error != cudaSuccess) {
        return error;
    }
    struct part part = {physical->backing, physical, memory_offset, bytes};
    return bind_part(function, multicast, offset, &part);
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                            unsigned long long flags)
{
    cudaError_t before = vgpu_driver_begin();
    cudaError_t error = cudaSuccess;
    if (flags != 0) {
        error =
            vgpu_fail(cudaErrorInvalidValue, "cuMulticastBindMem: flags 0x%llx; must be 0", flags);
    }
    if (error == cudaSuccess) {
        error = vgpu_multicast_wait("cuMulticastBindMem", multicast);
    }
    if (error == cudaSuccess) {
        vgpu_memory_lock();
        error = bind_memory(multicast, multicast_offset, memory, memory_offset, bytes);
        vgpu_memory_unlock();
    }
    return vgpu_driver_end(before, error);
}

static cudaError_t bind_address(CUmemGenericAllocationHandle multicast, size_t offset,
                                CUdeviceptr pointer, size_t bytes)
{
    static const char *const function = "cuMulticastBindAddr";
    uintptr_t address = (uintptr_t)pointer;
    struct vgpu_mapping *mapping = vgpu_mapping_find(address);
    if (!mapping || !mapping->backing || mapping->kind != VGPU_MEMORY_DEVICE ||
        mapping->device < 0 || bytes > mapping->bytes - (address - mapping->base)) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: [0x%llx, +%zu) is not inside one allocation of device memory",
                         function, pointer, bytes);
    }
    struct part part = {mapping->backing, NULL, mapping->backing_offset + (address - mapping->base),
                        bytes};
    if (mapping->source == VGPU_FROM_VIRTUAL) {
        part.physical = mapping->owner;
    }
    return bind_part(function, multicast, offset, &part);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
                             CUdeviceptr pointer, size_t bytes, unsigned long long flags)
{
    cudaError_t before = vgpu_driver_begin();
    cudaError_t error = cudaSuccess;
    if (flags != 0) {
        error =
            vgpu_fail(cudaErrorInvalidValue, "cuMulticastBindAddr: flags 0x%llx; must be 0", flags);
    }
    if (error == cudaSuccess) {
        error = vgpu_multicast_wait("cuMulticastBindAddr", multicast);
    }
    if (error == cudaSuccess) {
        vgpu_memory_lock();
        error = bind_address(multicast, multicast_offset, pointer, bytes);
        vgpu_memory_unlock();
    }
    return vgpu_driver_end(before, error);
}

// ---- Undoing -----------------------------------------------------------------------------------

// Undoes *link's binding and frees the record. Under the memory lock.
static void unbind(struct vgpu_multicast *multicast, struct vgpu_bound **link)
{
    struct vgpu_bound *bound = *link;
    struct vgpu_control *control = multicast->control;
    *link = bound->next;
    atomic_store_explicit(&control->binding[bound->index].state, VGPU_BINDING_GONE,
                          memory_order_release);
    atomic_fetch_add_explicit(&control->generation, 1, memory_order_release);
    vgpu_backing_release(bound->backing);
    if (bound->physical) {
        bound->physical->uses--;
        vgpu_physical_drop(bound->physical);
    }
    free(bound);
}

// This process's binding of the device with exactly this range; the calling thread's first.
static struct vgpu_bound **find_bound(struct vgpu_multicast *multicast, const unsigned char *uuid,
                                      size_t offset, size_t bytes)
{
    struct vgpu_bound **found = NULL;
    for (struct vgpu_bound **link = &multicast->bound; *link; link = &(*link)->next) {
        const struct vgpu_binding *binding = &multicast->control->binding[(*link)->index];
        if (binding->offset != offset || binding->bytes != bytes ||
            memcmp((*link)->backing->label.uuid, uuid, 16) != 0) {
            continue;
        }
        if ((*link)->tid == gettid()) {
            return link;
        }
        found = found ? found : link;
    }
    return found;
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle multicast, CUdevice device,
                           size_t multicast_offset, size_t bytes)
{
    static const char *const function = "cuMulticastUnbind";
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_multicast *object = NULL;
    struct vgpu_device *owner = NULL;
    vgpu_memory_lock();
    cudaError_t error = get(function, multicast, &object);
    if (error == cudaSuccess) {
        error = vgpu_device_get(function, device, &owner);
    }
    if (error == cudaSuccess) {
        struct vgpu_bound **link = find_bound(object, owner->info.uuid, multicast_offset, bytes);
        if (link) {
            unbind(object, link);
            vgpu_multimem_forget();
        } else {
            error = vgpu_fail(cudaErrorInvalidValue,
                              "%s: this process has bound no memory of %s with %zu bytes at "
                              "offset %zu",
                              function, vgpu_device_name(device).text, bytes, multicast_offset);
        }
    }
    vgpu_memory_unlock();
    return vgpu_driver_end(before, error);
}

void vgpu_multicast_destroy(struct vgpu_multicast *multicast)
{
    vgpu_multimem_forget();
    while (multicast->bound) {
        unbind(multicast, &multicast->bound);
    }
    vgpu_multicast_unresolve(multicast, true);
    munmap(multicast->control, sizeof(struct vgpu_control));
    free(multicast);
}
