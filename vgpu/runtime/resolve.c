// From a piece of a multicast object to the members' memory in this process.
//
// A piece is the largest range around an address that every member has bound by one binding. Its
// members' memory is a mapping that this process has already (the newest that covers it, so that
// tools which follow addresses see one address a byte), or one made for the purpose through /proc.
// Pieces are kept until bindings or mappings change; retired ones stay allocated while the object
// lives, since a thread may still hold them. SPDX-License-Identifier: Apache-2.0
#include "check.h"
#include "error.h"
#include "multicast.h"
#include "multicast_control.h"
#include "multimem.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

// Under the thread sanitizer a piece counts as constant: fibers of one thread pass it to each other
// in that thread's cache, which the sanitizer takes for a race between threads.
extern void AnnotateIgnoreWritesBegin(const char *file, int line) __attribute__((weak));
extern void AnnotateIgnoreWritesEnd(const char *file, int line) __attribute__((weak));

static void *allocate_constant(size_t bytes)
{
    if (AnnotateIgnoreWritesBegin) {
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
    return calloc(1, bytes);
}

static void constant_is_written(void)
{
    if (AnnotateIgnoreWritesEnd) {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    }
}

void vgpu_multicast_unresolve(struct vgpu_multicast *multicast, bool everything)
{
    struct vgpu_resolved **end = &multicast->retired;
    while (*end) {
        end = &(*end)->next;
    }
    *end = multicast->resolved;
    multicast->resolved = NULL;
    if (!everything) {
        return;
    }
    while (multicast->retired) {
        struct vgpu_resolved *next = multicast->retired->next;
        free(multicast->retired);
        multicast->retired = next;
    }
    while (multicast->borrowed) {
        struct vgpu_borrowed *one = multicast->borrowed;
        multicast->borrowed = one->next;
        one->mapping.serves_multimem = false;
        vgpu_mapping_remove(&one->mapping);
        munmap((void *)one->mapping.base, one->mapping.bytes);
        vgpu_backing_release(one->mapping.backing);
        free(one);
    }
}

// A binding as read once, checked.
struct seen {
    bool bound;
    int pid, fd;
    uint64_t inode;
    unsigned char key[16];
    size_t offset, memory_offset, bytes;
};

// Reads the binding of each member that covers `offset`; returns how many members have one.
static int read_bindings(const struct vgpu_multicast *multicast, size_t offset, struct seen *seen)
{
    int count = 0;
    for (int i = 0; i < VGPU_MAX_BINDINGS; i++) {
        const struct vgpu_binding *binding = &multicast->control->binding[i];
        uint32_t state = atomic_load_explicit(&binding->state, memory_order_acquire);
        if (state == VGPU_BINDING_NEVER) {
            break;
        }
        if (state != VGPU_BINDING_READY || binding->member >= (uint32_t)multicast->device_count ||
            offset < binding->offset || offset - binding->offset >= binding->bytes) {
            continue;
        }
        struct seen *one = &seen[binding->member];
        count += !one->bound;
        one->bound = true;
        one->pid = binding->pid;
        one->fd = binding->fd;
        one->inode = binding->inode;
        __builtin_memcpy(one->key, binding->key, sizeof(one->key));
        one->offset = binding->offset;
        one->memory_offset = binding->memory_offset;
        one->bytes = binding->bytes;
    }
    return count;
}

// The newest mapping in this process that covers a part of a memfd and may be written.
static struct vgpu_mapping *find_mapping(uint64_t inode, const unsigned char *key, size_t offset,
                                         size_t bytes)
{
    struct vgpu_mapping *newest = NULL;
    struct vgpu_mapping *mapping = vgpu_mapping_next(0);
    for (; mapping; mapping = vgpu_mapping_next(mapping->base + mapping->bytes)) {
        const struct vgpu_backing *backing = mapping->backing;
        if (!backing || mapping->kind != VGPU_MEMORY_DEVICE || mapping->no_access ||
            mapping->read_only || backing->inode != inode ||
            __builtin_memcmp(backing->label.key, key, 16) != 0) {
            continue;
        }
        size_t first = mapping->backing_offset + mapping->closed_before;
        size_t open = mapping->bytes - mapping->closed_before - mapping->closed_behind;
        bool covers = first <= offset && offset - first <= open && bytes <= open - (offset - first);
        if (covers && (!newest || mapping->number > newest->number)) {
            newest = mapping;
        }
    }
    return newest;
}

// Maps the memory of a binding that nothing in this process maps.
static cudaError_t borrow(struct vgpu_multicast *multicast, const struct seen *seen,
                          struct vgpu_mapping **out)
{
    static const char *const function = "multimem access";
    struct vgpu_borrowed *borrowed = calloc(1, sizeof(*borrowed));
    if (!borrowed) {
        return vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
    }
    struct vgpu_backing *backing = NULL;
    cudaError_t error =
        vgpu_backing_open(function, seen->pid, seen->fd, seen->inode, seen->key, &backing);
    if (error != cudaSuccess) {
        goto undo_record;
    }
    if (seen->memory_offset > backing->label.bytes ||
        seen->bytes > backing->label.bytes - seen->memory_offset) {
        error = vgpu_fail(cudaErrorInvalidValue, "%s: a binding is damaged", function);
        goto undo_backing;
    }
    void *base =
        vgpu_backing_map(backing, NULL, seen->bytes, seen->memory_offset, PROT_READ | PROT_WRITE);
    if (!base) {
        error = vgpu_fail_limit(function, "a member's memory cannot be mapped", errno);
        goto undo_backing;
    }
    struct vgpu_mapping mapping = {.kind = VGPU_MEMORY_DEVICE,
                                   .source = VGPU_FROM_MULTICAST,
                                   .base = (uintptr_t)base,
                                   .bytes = seen->bytes,
                                   .device = backing->device,
                                   .backing = backing,
                                   .backing_offset = seen->memory_offset};
    borrowed->mapping = mapping;
    if (!vgpu_mapping_add(&borrowed->mapping)) {
        error = vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
        munmap(base, seen->bytes);
        goto undo_backing;
    }
    borrowed->next = multicast->borrowed;
    multicast->borrowed = borrowed;
    *out = &borrowed->mapping;
    return cudaSuccess;

undo_backing:
    vgpu_backing_release(backing);
undo_record:
    free(borrowed);
    return error;
}

// Finds all members' memory for [low, high) of the object and makes a piece of it; `base` is the
// address of `low`.
static cudaError_t make_piece(struct vgpu_multicast *multicast, const struct seen *seen, size_t low,
                              size_t high, uintptr_t base, struct vgpu_resolved **out)
{
    int count = multicast->device_count;
    struct vgpu_resolved *piece =
        allocate_constant(sizeof(*piece) + (size_t)count * (sizeof(char *) + sizeof(int)));
    if (!piece) {
        constant_is_written();
        return vgpu_fail_limit("multimem access", "no memory for bookkeeping", ENOMEM);
    }
    char **member = (char **)(piece + 1);
    int *device = (int *)(member + count);
    cudaError_t error = cudaSuccess;
    for (int i = 0; error == cudaSuccess && i < count; i++) {
        size_t offset = seen[i].memory_offset + (low - seen[i].offset);
        struct vgpu_mapping *mapping = find_mapping(seen[i].inode, seen[i].key, offset, high - low);
        if (!mapping) {
            error = borrow(multicast, &seen[i], &mapping);
        }
        if (mapping) {
            mapping->serves_multimem = true;
            member[i] = (char *)mapping->base + (offset - mapping->backing_offset);
            device[i] = mapping->device;
        }
    }
    if (error == cudaSuccess) {
        struct vgpu_multimem_range range = {
            .base = base, .bytes = high - low, .member_count = count, .member = member};
        piece->range = range;
        piece->next = multicast->resolved;
        multicast->resolved = piece;
        *out = piece;
    } else {
        free(piece);
    }
    constant_is_written();
    return error;
}

static cudaError_t resolve_new(struct vgpu_multicast *multicast, const struct vgpu_mapping *mapping,
                               uintptr_t address, struct vgpu_resolved **out)
{
    size_t offset = mapping->backing_offset + (address - mapping->base);
    int count = multicast->device_count;
    struct seen *seen = calloc((size_t)count, sizeof(*seen));
    if (!seen) {
        return vgpu_fail_limit("multimem access", "no memory for bookkeeping", ENOMEM);
    }
    cudaError_t error;
    int bound = read_bindings(multicast, offset, seen);
    if (bound < count) {
        error = vgpu_fail(cudaErrorIllegalAddress,
                          "multimem access to %p: only %d of the %d devices have memory bound at "
                          "offset %zu of the multicast object",
                          (void *)address, bound, count, offset);
    } else {
        size_t low = mapping->backing_offset;
        size_t high = mapping->backing_offset + mapping->bytes;
        for (int i = 0; i < count; i++) {
            low = seen[i].offset > low ? seen[i].offset : low;
            size_t end = seen[i].offset + seen[i].bytes;
            high = end < high ? end : high;
        }
        uintptr_t base = mapping->base + (low - mapping->backing_offset);
        if (vgpu_checking) {
            uintptr_t end = base + (high - low);
            uintptr_t from = base;
            vgpu_check_narrow(&base, &end);
            low += base - from;
            high = low + (end - base);
        }
        error = make_piece(multicast, seen, low, high, base, out);
    }
    free(seen);
    return error;
}

cudaError_t vgpu_multicast_resolve(const struct vgpu_mapping *mapping, uintptr_t address,
                                   const struct vgpu_resolved **resolved_out)
{
    struct vgpu_multicast *multicast = ((struct vgpu_physical *)mapping->owner)->multicast;
    struct vgpu_control *control = multicast->control;
    if (mapping->no_access) {
        return vgpu_fail(cudaErrorIllegalAddress,
                         "multimem access to %p: cuMemSetAccess has given no access there",
                         (void *)address);
    }
    unsigned added = atomic_load_explicit(&control->added, memory_order_acquire);
    if (added < (unsigned)multicast->device_count) {
        return vgpu_fail(cudaErrorIllegalAddress,
                         "multimem access to %p: only %u of the %d devices have been added to the "
                         "multicast object",
                         (void *)address, added, multicast->device_count);
    }
    uint32_t generation = atomic_load_explicit(&control->generation, memory_order_acquire);
    unsigned epoch = vgpu_multimem_epoch();
    if (generation != multicast->resolved_generation || epoch != multicast->resolved_epoch) {
        vgpu_multicast_unresolve(multicast, false);
        multicast->resolved_generation = generation;
        multicast->resolved_epoch = epoch;
    }
    for (struct vgpu_resolved *r = multicast->resolved; r; r = r->next) {
        if (address - r->range.base < r->range.bytes) {
            *resolved_out = r;
            return cudaSuccess;
        }
    }
    struct vgpu_resolved *made = NULL;
    cudaError_t error = resolve_new(multicast, mapping, address, &made);
    *resolved_out = made;
    return error;
}
