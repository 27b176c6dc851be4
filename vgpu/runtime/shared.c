// Shared memory of a block: one object for each declaration, and the dynamic part.
//
// Both are kept with the block's structure and used again, so their content is what an earlier
// block left, as on a GPU. Under the address sanitizer red zones lie around each object.
// SPDX-License-Identifier: Apache-2.0
#include "block.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    PAGE_BYTES = 4096,
    DYNAMIC_ALIGN = 1024,
    MAX_ALIGN = PAGE_BYTES,
    RED_ZONE_BYTES = 1024, // keeps the alignment of dynamic shared memory
    // Under the address sanitizer every object has a red zone behind it, padded to its alignment.
    SANITIZED_ARENA_BYTES = 1 << 20,
};

// Threads that use shared memory come after its allocation and after all threads of earlier blocks
// that used it; among themselves nothing is said.
static inline void note_use(struct vgpu_block *block)
{
    block->shared_used = true;
    vgpu_order_acquire(&block->shared_mark[block->shared_use]);
}

void vgpu_shared_thread_ended(struct vgpu_block *block)
{
    vgpu_order_release(&block->shared_mark[block->shared_use ^ 1]);
}

static size_t red_zone_bytes(void)
{
    return vgpu_asan() ? RED_ZONE_BYTES : 0;
}

static char *allocate(struct vgpu_block *block, size_t align, size_t bytes)
{
    char *memory = aligned_alloc(align, bytes);
    vgpu_order_release(&block->shared_mark[block->shared_use]);
    return memory;
}

// Room for `wanted` bytes of dynamic shared memory, of which all others are out of bounds.
static bool make_dynamic(struct vgpu_block *block, size_t wanted)
{
    size_t zone = red_zone_bytes();
    if (!block->dynamic || wanted > block->dynamic_capacity) {
        size_t capacity = (wanted + DYNAMIC_ALIGN - 1) / DYNAMIC_ALIGN * DYNAMIC_ALIGN;
        capacity = capacity > 0 ? capacity : DYNAMIC_ALIGN;
        char *memory = allocate(block, DYNAMIC_ALIGN, capacity + 2 * zone);
        if (!memory) {
            return false;
        }
        free(block->dynamic ? block->dynamic - zone : NULL);
        block->dynamic = memory + zone;
        block->dynamic_capacity = capacity;
    }
    vgpu_poison(block->dynamic - zone, block->dynamic_capacity + 2 * zone);
    vgpu_unpoison(block->dynamic, wanted);
    return true;
}

bool vgpu_shared_begin(struct vgpu_block *block)
{
    block->shared_use ^= block->shared_used; // the order goes past blocks that use none
    block->shared_used = false;
    if (block->arena) {
        vgpu_poison(block->arena, block->arena_end);
    }
    block->arena_used = 0;
    block->arena_end = red_zone_bytes();
    size_t wanted = block->launch->shared_bytes;
    return (wanted == 0 && !block->dynamic) || make_dynamic(block, wanted);
}

void vgpu_shared_free(struct vgpu_block *block)
{
    free(block->arena);
    free(block->dynamic ? block->dynamic - red_zone_bytes() : NULL);
    block->arena = NULL;
    block->dynamic = NULL;
    block->dynamic_capacity = 0;
}

static struct vgpu_block *running_block(const char *what)
{
    if (!vgpu_current_thread) {
        (void)fprintf(stderr, "vgpu: %s was used outside a kernel\n", what);
        abort();
    }
    return vgpu_current_thread->block;
}

// Where the next object lies in the arena. Red zones do not count against the limit of its size.
static char *place(struct vgpu_block *block, size_t bytes, size_t align)
{
    size_t capacity = vgpu_asan() ? SANITIZED_ARENA_BYTES : VGPU_SHARED_DEFAULT_BYTES;
    if (!block->arena) {
        block->arena = allocate(block, PAGE_BYTES, capacity);
        if (!block->arena) {
            vgpu_fault(cudaErrorLaunchOutOfResources, "no memory for __shared__ variables");
        }
        vgpu_poison(block->arena, capacity);
    }
    size_t offset = (block->arena_end + align - 1) / align * align;
    size_t end = offset + bytes + red_zone_bytes();
    if (end > capacity) { // hundreds of objects of great alignment
        vgpu_fault(cudaErrorLaunchOutOfResources,
                   "__shared__ variables need %zu bytes with the address sanitizer's red zones; at "
                   "most %zu",
                   end, capacity);
    }
    block->arena_end = end;
    vgpu_unpoison(block->arena + offset, bytes);
    return block->arena + offset;
}

static void *add_site(struct vgpu_block *block, const void *site, size_t bytes, size_t align)
{
    if (block->site_count == VGPU_SHARED_SITES) {
        vgpu_fault(cudaErrorLaunchOutOfResources, "more than %d __shared__ variables in a kernel",
                   VGPU_SHARED_SITES);
    }
    if (align == 0 || align > MAX_ALIGN) {
        vgpu_fault(cudaErrorLaunchOutOfResources,
                   "a __shared__ variable aligned to %zu: at most %d", align, MAX_ALIGN);
    }
    size_t offset = (block->arena_used + align - 1) / align * align;
    if (bytes > VGPU_SHARED_DEFAULT_BYTES || offset > VGPU_SHARED_DEFAULT_BYTES - bytes) {
        vgpu_fault(
            cudaErrorLaunchOutOfResources,
            "__shared__ variables of %zu bytes in all: at most %d; dynamic shared memory may "
            "be larger",
            offset + bytes, VGPU_SHARED_DEFAULT_BYTES);
    }
    block->arena_used = offset + bytes;
    char *address = place(block, bytes, align);
    block->site[block->site_count].site = site;
    block->site[block->site_count].address = address;
    block->site_count++;
    return address;
}

void *vgpu_shared(const void *site, size_t bytes, size_t align)
{
    struct vgpu_block *block = running_block("a __shared__ variable");
    for (unsigned i = 0; i < block->site_count; i++) {
        if (block->site[i].site == site) {
            note_use(block);
            return block->site[i].address;
        }
    }
    void *address = add_site(block, site, bytes, align);
    note_use(block);
    return address;
}

void *vgpu_dynamic_shared(void)
{
    struct vgpu_block *block = running_block("dynamic shared memory");
    // A launch without any gets an address that is never accessed legally.
    if (!block->dynamic && !make_dynamic(block, 0)) {
        vgpu_fault(cudaErrorLaunchOutOfResources, "no memory for dynamic shared memory");
    }
    note_use(block);
    return block->dynamic;
}
