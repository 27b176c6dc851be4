// Telling threads that poll from threads that compute, where both do nothing but yield.
//
// A thread that polls comes back to the same place with the same registers and the same frames;
// one that computes between its yields has moved an index or a sum. So a hash of the saved
// contexts of a worker's threads that stays equal over some rounds says that they wait. One that
// changes says less: a waiting loop may count or look at the clock.
// SPDX-License-Identifier: Apache-2.0
#include "block.h"

enum {
    FRAME_BYTES = 256, // of the stack that are looked at, from the saved stack pointer up
    BLOCKS_LOOKED_AT = 64,
    THREADS_LOOKED_AT = 64, // of a block
};

static inline uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
    return hash ^ hash >> 29;
}

// Reads frames that the address sanitizer may have poisoned in part.
__attribute__((no_sanitize("address"))) static uint64_t hash_words(uint64_t hash, const char *from,
                                                                   size_t bytes)
{
    const uint64_t *word = (const uint64_t *)(const void *)from;
    for (size_t i = 0; i < bytes / sizeof(*word); i++) {
        hash = mix(hash, word[i]);
    }
    return hash;
}

static uint64_t hash_thread(uint64_t hash, const struct vgpu_thread *thread)
{
    const struct vgpu_stack *stack = thread->stack;
#ifdef VGPU_FIBER_UCONTEXT
    const char *from = (const char *)&thread->context.saved.uc_mcontext;
    (void)stack;
    return hash_words(hash, from, sizeof(thread->context.saved.uc_mcontext));
#else
    // The registers lie on the stack too.
    const char *from = thread->context.stack_pointer;
    size_t above = (size_t)(stack->top - from);
    return hash_words(hash, from, above < FRAME_BYTES ? above : FRAME_BYTES);
#endif
}

uint64_t vgpu_worker_fingerprint(const struct vgpu_worker *worker)
{
    uint64_t hash = worker->resident_count;
    const struct vgpu_block *block = worker->resident;
    for (unsigned b = 0; b < worker->resident_count && b < BLOCKS_LOOKED_AT; b++) {
        const struct vgpu_thread *thread = block->yielded.first;
        for (int t = 0; thread && t < THREADS_LOOKED_AT; t++) {
            hash = hash_thread(hash, thread);
            thread = thread->next;
        }
        block = block->next;
    }
    return hash;
}
