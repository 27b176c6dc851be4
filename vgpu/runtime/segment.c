// The allocator behind cudaMalloc: segments of at least 64 MiB, cut into blocks.
//
// A segment's blocks form a list in address order; free ones are also in one of the device's bins
// by size (powers of two), so that a fit is found fast and neighbours merge when freed. A segment
// that becomes empty is kept, up to a limit per device, because touching new pages costs far more
// than touching old ones. For the same reason the pages of freed blocks are closed to kernels that
// still use them by cudaDeviceReset and in checking mode only: for 64 MiB that costs 10 ms.
// SPDX-License-Identifier: Apache-2.0
#include "segment.h"

#include "check.h"
#include "error.h"
#include "sanitizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "vgpu/stats.h"

enum {
    SMALL_ALIGN = 256,
    BIN_COUNT = 48,
    SEGMENT_BYTES = 64 << 20,
    SEGMENT_ROUND = 2 << 20,
    KEEP_BYTES = 256 << 20, // of empty segments, per device
    CLOSED_BLOCKS = 24576,  // more would take too many of the process's mappings (65530)
};

struct vgpu_segment;

struct vgpu_block {
    struct vgpu_mapping mapping; // while allocated
    struct vgpu_segment *segment;
    size_t offset, bytes; // in the segment; multiples of SMALL_ALIGN
    bool used;
    bool closed;                               // free, and some of its pages cannot be accessed
    bool held;                                 // freed, but not given out again for a while
    struct vgpu_block *before, *after;         // in address order
    struct vgpu_block *bin_before, *bin_after; // while free
};

struct vgpu_segment {
    struct vgpu_device *device;
    struct vgpu_backing *backing;
    char *base;
    size_t bytes, used_bytes;
    struct vgpu_block *first;
    struct vgpu_segment *next;
};

// All under the memory lock.
static struct vgpu_block *bins[VGPU_MAX_DEVICES][BIN_COUNT];
static struct vgpu_segment *segments[VGPU_MAX_DEVICES];
static size_t empty_bytes[VGPU_MAX_DEVICES];
static unsigned closed_count; // blocks that are closed

static size_t round_up(size_t value, size_t unit)
{
    return (value + unit - 1) & ~(unit - 1);
}

// ---- Bins --------------------------------------------------------------------------------------

static int bin_of(size_t bytes)
{
    return 63 - __builtin_clzll(bytes / SMALL_ALIGN);
}

static void bin_insert(struct vgpu_block *block)
{
    struct vgpu_block **bin = &bins[block->segment->device->ordinal][bin_of(block->bytes)];
    block->bin_before = NULL;
    block->bin_after = *bin;
    if (*bin) {
        (*bin)->bin_before = block;
    }
    *bin = block;
}

static void bin_remove(struct vgpu_block *block)
{
    if (block->bin_before) {
        block->bin_before->bin_after = block->bin_after;
    } else {
        bins[block->segment->device->ordinal][bin_of(block->bytes)] = block->bin_after;
    }
    if (block->bin_after) {
        block->bin_after->bin_before = block->bin_before;
    }
}

// ---- Closing what is free -----------------------------------------------------------------------

static void set_closed(struct vgpu_block *block, bool closed)
{
    closed_count = closed_count - block->closed + closed;
    block->closed = closed;
}

// A block that is freed: what still uses it fails, where it has pages of its own. Without rights to
// do so, or with too many blocks, it stays open.
static void close_pages(struct vgpu_block *block)
{
    if (block->bytes >= VGPU_PAGE_BYTES && closed_count < CLOSED_BLOCKS && !vgpu_asan() &&
        mprotect(block->segment->base + block->offset, block->bytes, PROT_NONE) == 0) {
        set_closed(block, true);
    }
}

// A block that is given out. Where opening its pages would take one mapping too many, all of the
// segment's are.
static bool open_pages(struct vgpu_block *block)
{
    const struct vgpu_segment *segment = block->segment;
    size_t first = block->offset / VGPU_PAGE_BYTES * VGPU_PAGE_BYTES;
    size_t end = round_up(block->offset + block->bytes, VGPU_PAGE_BYTES);
    if (!block->closed) {
        return true;
    }
    if (mprotect(segment->base + first, end - first, PROT_READ | PROT_WRITE) != 0 &&
        mprotect(segment->base, segment->bytes, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    set_closed(block, false);
    return true;
}

// ---- Segments ----------------------------------------------------------------------------------

static void destroy_segment(struct vgpu_segment *segment)
{
    struct vgpu_segment **link = &segments[segment->device->ordinal];
    while (*link != segment) {
        link = &(*link)->next;
    }
    *link = segment->next;
    set_closed(segment->first, false);
    vgpu_unpoison(segment->base, segment->bytes);
    munmap(segment->base, segment->bytes);
    vgpu_backing_release(segment->backing);
    free(segment->first);
    free(segment);
}

// A new segment with one free block of at least `bytes`, which it returns through block_out.
static cudaError_t create_segment(const char *function, struct vgpu_device *device, size_t bytes,
                                  struct vgpu_block **block_out)
{
    struct vgpu_segment *segment = calloc(1, sizeof(*segment));
    struct vgpu_block *block = calloc(1, sizeof(*block));
    cudaError_t error;
    if (!segment || !block) {
        error = vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
        goto undo_memory;
    }
    segment->device = device;
    segment->bytes = bytes < SEGMENT_BYTES ? SEGMENT_BYTES : round_up(bytes, SEGMENT_ROUND);
    struct vgpu_label label = {.kind = VGPU_BACKING_SEGMENT, .bytes = segment->bytes};
    memcpy(label.uuid, device->info.uuid, sizeof(label.uuid));
    error = vgpu_backing_create(function, "vgpu-device-memory", &label, device->ordinal,
                                &segment->backing);
    if (error != cudaSuccess) {
        goto undo_memory;
    }
    segment->base =
        vgpu_backing_map(segment->backing, NULL, segment->bytes, 0, PROT_READ | PROT_WRITE);
    if (!segment->base) {
        error = vgpu_fail_limit(function, "device memory cannot be mapped", errno);
        goto undo_backing;
    }
    vgpu_poison(segment->base, segment->bytes);
    block->segment = segment;
    block->bytes = segment->bytes;
    segment->first = block;
    segment->next = segments[device->ordinal];
    segments[device->ordinal] = segment;
    empty_bytes[device->ordinal] += segment->bytes;
    bin_insert(block);
    *block_out = block;
    return cudaSuccess;

undo_backing:
    vgpu_backing_release(segment->backing);
undo_memory:
    free(segment);
    free(block);
    return error;
}

// ---- Blocks ------------------------------------------------------------------------------------

static size_t aligned_start(const struct vgpu_block *block, size_t align)
{
    return round_up(block->offset, align);
}

static bool fits(const struct vgpu_block *block, size_t bytes, size_t align)
{
    size_t gap = aligned_start(block, align) - block->offset;
    return block->bytes >= bytes && block->bytes - bytes >= gap;
}

// The free block to use: the first that fits, smaller bins first.
static struct vgpu_block *find_free(int device, size_t bytes, size_t align)
{
    for (int bin = bin_of(bytes); bin < BIN_COUNT; bin++) {
        for (struct vgpu_block *block = bins[device][bin]; block; block = block->bin_after) {
            if (fits(block, bytes, align)) {
                return block;
            }
        }
    }
    return NULL;
}

// Cuts `block`, which is in no bin, at `bytes`; the rest becomes a free block behind it.
static bool split(struct vgpu_block *block, size_t bytes)
{
    struct vgpu_block *rest = calloc(1, sizeof(*rest));
    if (!rest) {
        return false;
    }
    rest->segment = block->segment;
    rest->offset = block->offset + bytes;
    rest->bytes = block->bytes - bytes;
    rest->before = block;
    rest->after = block->after;
    if (rest->after) {
        rest->after->before = rest;
    }
    block->after = rest;
    block->bytes = bytes;
    set_closed(rest, block->closed);
    bin_insert(rest);
    return true;
}

// Joins `block`, which is in no bin, with its free neighbours; returns the joined block, in no bin.
static struct vgpu_block *join(struct vgpu_block *block)
{
    struct vgpu_block *before = block->before;
    if (before && !before->used) {
        bin_remove(before);
        set_closed(before, before->closed || block->closed);
        set_closed(block, false);
        before->bytes += block->bytes;
        before->after = block->after;
        if (block->after) {
            block->after->before = before;
        }
        free(block);
        block = before;
    }
    struct vgpu_block *after = block->after;
    if (after && !after->used) {
        bin_remove(after);
        set_closed(block, block->closed || after->closed);
        set_closed(after, false);
        block->bytes += after->bytes;
        block->after = after->after;
        if (after->after) {
            after->after->before = block;
        }
        free(after);
    }
    return block;
}

// Cuts out of a free block the part that is wanted; NULL: no memory for bookkeeping.
static struct vgpu_block *carve(struct vgpu_block *block, size_t bytes, size_t align)
{
    bin_remove(block);
    size_t gap = aligned_start(block, align) - block->offset;
    if (gap > 0) {
        if (!split(block, gap)) {
            bin_insert(block);
            return NULL;
        }
        struct vgpu_block *rest = block->after;
        bin_insert(block);
        bin_remove(rest);
        block = rest;
    }
    if (block->bytes > bytes && !split(block, bytes)) {
        bin_insert(join(block));
        return NULL;
    }
    return block;
}

static void give_back(struct vgpu_block *block)
{
    struct vgpu_segment *segment = block->segment;
    int device = segment->device->ordinal;
    block->used = false;
    segment->used_bytes -= block->bytes;
    block = join(block);
    if (segment->used_bytes > 0) {
        bin_insert(block);
    } else if (empty_bytes[device] + segment->bytes <= KEEP_BYTES) {
        empty_bytes[device] += segment->bytes;
        bin_insert(block);
    } else {
        destroy_segment(segment);
    }
}

static cudaError_t allocate(const char *function, struct vgpu_device *device, size_t asked,
                            enum vgpu_memory_kind kind, struct vgpu_block **out)
{
    size_t align = asked >= VGPU_PAGE_BYTES ? VGPU_PAGE_BYTES : SMALL_ALIGN;
    if (asked > (size_t)1 << 52) { // rounding must not wrap; no host has that much
        return vgpu_budget_take(function, device, asked);
    }
    size_t bytes = round_up(asked, align);
    cudaError_t error = vgpu_budget_take(function, device, bytes);
    if (error != cudaSuccess) {
        return error;
    }
    struct vgpu_block *block = find_free(device->ordinal, bytes, align);
    if (!block) {
        error = create_segment(function, device, bytes, &block);
        if (error != cudaSuccess || !block) {
            goto undo_budget;
        }
    }
    struct vgpu_segment *segment = block->segment;
    block = carve(block, bytes, align);
    if (!block) {
        error = vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
        goto undo_budget;
    }
    if (segment->used_bytes == 0) {
        empty_bytes[device->ordinal] -= segment->bytes;
    }
    segment->used_bytes += bytes;
    block->used = true;
    if (!open_pages(block)) {
        error = vgpu_fail_limit(function, "device memory cannot be mapped", errno);
        give_back(block);
        goto undo_budget;
    }
    struct vgpu_mapping mapping = {.kind = kind,
                                   .source = VGPU_FROM_MALLOC,
                                   .base = (uintptr_t)segment->base + block->offset,
                                   .bytes = asked,
                                   .device = device->ordinal,
                                   .backing = segment->backing,
                                   .backing_offset = block->offset,
                                   .owner = block};
    block->mapping = mapping;
    if (!vgpu_mapping_add(&block->mapping)) {
        error = vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
        give_back(block);
        goto undo_budget;
    }
    vgpu_unpoison((void *)block->mapping.base, asked);
    *out = block;
    return cudaSuccess;

undo_budget:
    vgpu_budget_return(device, bytes);
    return error;
}

// In checking mode small blocks rest before they are given out again: what was freed and is still
// used keeps what it held.
static void give_back_late(struct vgpu_block *block)
{
    enum { HELD_BLOCKS = 1024, HELD_BYTES = 4096 };
    static struct vgpu_block *held[HELD_BLOCKS]; // a ring
    static unsigned next;
    if (!vgpu_checking || block->bytes > HELD_BYTES) {
        give_back(block);
        return;
    }
    struct vgpu_block *oldest = held[next % HELD_BLOCKS];
    held[next++ % HELD_BLOCKS] = block;
    block->held = true;
    if (oldest) {
        oldest->held = false;
        give_back(oldest);
    }
}

static void free_block(struct vgpu_block *block, bool closes)
{
    vgpu_mapping_remove(&block->mapping);
    vgpu_poison((void *)block->mapping.base, block->bytes);
    vgpu_budget_return(block->segment->device, block->bytes);
    if (closes) {
        close_pages(block);
    }
    give_back_late(block);
}

cudaError_t vgpu_block_allocate(const char *function, struct vgpu_device *device, size_t bytes,
                                enum vgpu_memory_kind kind, void **out)
{
    struct vgpu_block *block = NULL;
    vgpu_memory_lock();
    cudaError_t error = allocate(function, device, bytes, kind, &block);
    if (error == cudaSuccess && block) {
        *out = (void *)block->mapping.base;
    }
    vgpu_memory_unlock();
    return error;
}

cudaError_t vgpu_block_free(const char *function, void *address)
{
    vgpu_memory_lock();
    struct vgpu_mapping *mapping = vgpu_mapping_find((uintptr_t)address);
    cudaError_t error = cudaSuccess;
    if (!mapping || mapping->source != VGPU_FROM_MALLOC) {
        error = vgpu_fail(cudaErrorInvalidValue,
                          "%s: %p was not allocated by cudaMalloc or its like, or is freed already",
                          function, address);
    } else if (mapping->base != (uintptr_t)address) {
        error =
            vgpu_fail(cudaErrorInvalidValue, "%s: %p is inside an allocation, which begins at %p",
                      function, address, (void *)mapping->base);
    } else {
        free_block(mapping->owner, vgpu_checking);
    }
    vgpu_memory_unlock();
    return error;
}

void vgpu_memory_free_device(int device)
{
    vgpu_memory_lock();
    bool found = true;
    while (found) { // freeing may take the segment with it: look from the start again
        found = false;
        for (struct vgpu_segment *s = segments[device]; s && !found; s = s->next) {
            struct vgpu_block *block = s->first;
            while (block && (!block->used || block->held)) {
                block = block->after;
            }
            if (block) {
                free_block(block, true);
                found = true;
            }
        }
    }
    vgpu_memory_unlock();
}

bool vgpu_segment_holds(uintptr_t address)
{
    bool found = false;
    vgpu_memory_lock();
    for (int device = 0; device < VGPU_MAX_DEVICES; device++) {
        for (const struct vgpu_segment *s = segments[device]; s; s = s->next) {
            found |= address - (uintptr_t)s->base < s->bytes;
        }
    }
    vgpu_memory_unlock();
    return found;
}
