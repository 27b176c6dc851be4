// What kernels ask about memory: of which kind an address is (__isShared and its relatives), how
// much shared memory there is.
// SPDX-License-Identifier: Apache-2.0
#include "block.h"
#include "symbol.h"

// What the scheduler keeps of a block belongs to one thread of the machine; the thread sanitizer,
// to which its fibers are several, need not look.
#define BLOCK_ACCESS __attribute__((no_sanitize_thread))

BLOCK_ACCESS static bool lies_in(const void *address, const char *begin, size_t bytes)
{
    return begin && (uintptr_t)address - (uintptr_t)begin < bytes;
}

BLOCK_ACCESS enum vgpu_space vgpu_memory_space(const void *address)
{
    const struct vgpu_thread *thread = vgpu_current_thread;
    if (!thread) {
        return VGPU_SPACE_GLOBAL;
    }
    const struct vgpu_block *block = thread->block;
    if (lies_in(address, block->arena, VGPU_SHARED_DEFAULT_BYTES) ||
        lies_in(address, block->dynamic, block->dynamic_capacity)) {
        return VGPU_SPACE_SHARED;
    }
    if (lies_in(address, thread->stack->low, (size_t)(thread->stack->top - thread->stack->low))) {
        return VGPU_SPACE_LOCAL;
    }
    return vgpu_symbol_is_constant(address) ? VGPU_SPACE_CONSTANT : VGPU_SPACE_GLOBAL;
}

BLOCK_ACCESS size_t vgpu_shared_bytes(bool with_static)
{
    const struct vgpu_thread *thread = vgpu_current_thread;
    if (!thread) {
        return 0;
    }
    const struct vgpu_block *block = thread->block;
    return block->launch->shared_bytes + (with_static ? block->arena_used : 0);
}
