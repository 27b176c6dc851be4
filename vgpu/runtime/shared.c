// Shared memory of a block: one object for each declaration, and the dynamic part.
//
// Both are kept with the block's structure and used again, so their content is what an earlier
// block left, as on a GPU. SPDX-License-Identifier: Apache-2.0
#include "annotate.h"
#include "block.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    PAGE_BYTES = 4096,
    DYNAMIC_ALIGN = 1024,
    MAX_ALIGN = PAGE_BYTES,
};

// Threads that use shared memory come after its allocation and after all threads of earlier blocks
// that used it; among themselves nothing is said.
static inline void note_use(struct vgpu_block *block)
{
    vgpu_order_acquire(&block->shared_mark[block->shared_use]);
}

void vgpu_shared_thread_ended(struct vgpu_block *block)
{
    vgpu_order_release(&block->shared_mark[block->shared_use ^ 1]);
}

static char *allocate(struct vgpu_block *block, size_t align, size_t bytes)
{
    char *memory = aligned_alloc(align, bytes);
    vgpu_order_release(&block->shared_mark[block->shared_use]);
    return memory;
}

bool vgpu_shared_begin(struct vgpu_block *block)
{
    block->shared_use ^= 1;
    size_t wanted = block->launch->shared_bytes;
    if (wanted <= block->dynamic_capacity) {
        return true;
    }
    size_t capacity = (wanted + DYNAMIC_ALIGN - 1) / DYNAMIC_ALIGN * DYNAMIC_ALIGN;
    char *memory = allocate(block, DYNAMIC_ALIGN, capacity);
    if (!memory) {
        return false;
    }
    free(block->dynamic);
    block->dynamic = memory;
    block->dynamic_capacity = capacity;
    return true;
}

void vgpu_shared_free(struct vgpu_block *block)
{
    free(block->arena);
    free(block->dynamic);
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
    if (!block->arena) {
        block->arena = allocate(block, PAGE_BYTES, VGPU_SHARED_DEFAULT_BYTES);
        if (!block->arena) {
            vgpu_fault(cudaErrorLaunchOutOfResources, "no memory for __shared__ variables");
        }
    }
    block->arena_used = offset + bytes;
    block->site[block->site_count].site = site;
    block->site[block->site_count].address = block->arena + offset;
    block->site_count++;
    return block->arena + offset;
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
    if (!block->dynamic) { // a launch without any: an address that is never accessed legally
        block->dynamic = allocate(block, DYNAMIC_ALIGN, DYNAMIC_ALIGN);
        if (!block->dynamic) {
            vgpu_fault(cudaErrorLaunchOutOfResources, "no memory for dynamic shared memory");
        }
        block->dynamic_capacity = DYNAMIC_ALIGN;
    }
    note_use(block);
    return block->dynamic;
}
