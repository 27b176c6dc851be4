// Making contexts, and the pool of stacks.
//
// Stacks are cut from slabs, each with one inaccessible page below it. Fresh pages are zero, and so
// is the canary at a stack's end: an unused end costs no memory.
// SPDX-License-Identifier: Apache-2.0
#include "fiber.h"

#include "sanitizer.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    STACK_BYTES = 64 << 10, // class 0
    SLAB_STACKS = 37,       // no multiple of a warp: see TSAN_SPARE
    TSAN_SPARE = 7,
    GUARD_BYTES = 4096,
    CANARY_BYTES = 64,
    STAGGER_BYTES = 320, // an odd number of cache lines, more than the frames that a wait touches
    STAGGER_STEPS = 12,  // at most 3520 bytes lost a stack
    HOST_FRAME_BYTES = 32768, // what a kernel's host code (printf, say) needs beyond its own frames
    KEEP_FREE = 4096,         // free stacks of a class that keep their pages
};

// ---- Contexts -----------------------------------------------------------------------------------

#ifdef VGPU_FIBER_UCONTEXT

// makecontext passes ints only: pointers travel in halves.
static void start(unsigned entry_high, unsigned entry_low, unsigned high, unsigned low)
{
    uintptr_t entry = (uintptr_t)entry_high << 16 << 16 | entry_low;
    uintptr_t argument = (uintptr_t)high << 16 << 16 | low;
    ((void (*)(void *))entry)((void *)argument);
    abort();
}

void vgpu_context_make(struct vgpu_context *context, char *top, size_t bytes,
                       void (*entry)(void *argument), void *argument)
{
    uintptr_t function = (uintptr_t)entry;
    uintptr_t data = (uintptr_t)argument;
    (void)getcontext(&context->saved);
    context->saved.uc_stack.ss_sp = top - bytes;
    context->saved.uc_stack.ss_size = bytes;
    context->saved.uc_link = NULL;
    makecontext(&context->saved, (void (*)(void))start, 4, (unsigned)(function >> 16 >> 16),
                (unsigned)function, (unsigned)(data >> 16 >> 16), (unsigned)data);
}

void vgpu_context_switch(struct vgpu_context *save, struct vgpu_context *load)
{
    (void)swapcontext(&save->saved, &load->saved);
}

void vgpu_context_call(struct vgpu_context *save, void (*function)(void *argument), void *argument)
{
    volatile bool has_begun = false;
    (void)getcontext(&save->saved);
    if (!has_begun) {
        has_begun = true;
        function(argument);
    }
}

void vgpu_context_jump(struct vgpu_context *load)
{
    (void)setcontext(&load->saved);
    abort();
}

#else

void vgpu_context_start(void);

void vgpu_context_make(struct vgpu_context *context, char *top, size_t bytes,
                       void (*entry)(void *argument), void *argument)
{
    (void)bytes;
    uint64_t *frame = (uint64_t *)(void *)top - 10;
    memset(frame, 0, 10 * sizeof(*frame));
    uint32_t mxcsr;
    uint16_t control_word;
    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
    __asm__ volatile("fnstcw %0" : "=m"(control_word));
    frame[0] = mxcsr | (uint64_t)control_word << 32;
    frame[4] = (uint64_t)(uintptr_t)entry;    // r12
    frame[5] = (uint64_t)(uintptr_t)argument; // rbx
    frame[7] = (uint64_t)(uintptr_t)vgpu_context_start;
    context->stack_pointer = frame;
}

#endif

// ---- Stacks -------------------------------------------------------------------------------------

int vgpu_stack_class(size_t limit_bytes)
{
    int class = vgpu_asan() || vgpu_tsan() ? VGPU_STACK_CLASS_SANITIZED : 0;
    while (class < VGPU_STACK_CLASSES - 1 &&
           ((size_t)STACK_BYTES << class) < limit_bytes + HOST_FRAME_BYTES) {
        class ++;
    }
    return class;
}

// To the list's end.
static void append(struct vgpu_stack_pool *pool, struct vgpu_stack *stack)
{
    stack->next = NULL;
    if (pool->first[stack->class]) {
        pool->last[stack->class]->next = stack;
    } else {
        pool->first[stack->class] = stack;
    }
    pool->last[stack->class] = stack;
    pool->free[stack->class]++;
}

// To the list's begin: the stack used last is in the caches.
static void prepend(struct vgpu_stack_pool *pool, struct vgpu_stack *stack)
{
    stack->next = pool->first[stack->class];
    if (!stack->next) {
        pool->last[stack->class] = stack;
    }
    pool->first[stack->class] = stack;
    pool->free[stack->class]++;
}

// Pages that can be read and written, for stacks.
static void *map_stacks(void *at, size_t bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0);
    return mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
}

static bool add_slab(struct vgpu_stack_pool *pool, int class)
{
    size_t bytes = (size_t)STACK_BYTES << class;
    size_t total = bytes * SLAB_STACKS + GUARD_BYTES;
    struct vgpu_stack *stacks = calloc(SLAB_STACKS, sizeof(*stacks));
    if (!stacks) {
        return false;
    }
    char *slab = map_stacks(NULL, total);
    if (slab == MAP_FAILED) {
        free(stacks);
        return false;
    }
    (void)mprotect(slab, GUARD_BYTES, PROT_NONE); // without it an overflow is found later
    (void)madvise(slab, total, MADV_NOHUGEPAGE);  // a huge page would hold many stacks in memory
    if (__lsan_register_root_region) {
        __lsan_register_root_region(slab + GUARD_BYTES, total - GUARD_BYTES);
    }
    for (int i = 0; i < SLAB_STACKS; i++) {
        struct vgpu_stack *stack = &stacks[i];
        stack->low = slab + GUARD_BYTES + bytes * (size_t)i;
        stack->bytes = bytes;
        stack->class = class;
        size_t step = pool->made++ % STAGGER_STEPS;
        stack->top = stack->low + bytes - step * STAGGER_BYTES;
        append(pool, stack);
    }
    return true;
}

// ---- Fibers of the thread sanitizer -------------------------------------------------------------
//
// A fiber costs 830 KiB and 2.5 ms, so fibers and their stacks are used again. What one did before
// hides races with what it does now: so the one unused for longest comes next, and some more exist
// than are needed, so that thread i of a block does not follow thread i of the last one.

// Goes on as the fiber that does nothing but make the others. Returns who ran.
static void *enter_maker(const struct vgpu_stack_pool *pool)
{
    void *running = __tsan_get_current_fiber();
    if (pool->tsan_maker) {
        __tsan_switch_to_fiber(pool->tsan_maker, VGPU_TSAN_NO_SYNC);
    }
    return running;
}

// The stack gets new pages, from the maker: the next fiber on it comes after these, but not after
// what the last one did to the old ones.
static void destroy_fiber(struct vgpu_stack_pool *pool, struct vgpu_stack *stack)
{
    __tsan_destroy_fiber(stack->tsan_fiber);
    stack->tsan_fiber = NULL;
    pool->tsan_fibers--;
    void *running = enter_maker(pool);
    (void)map_stacks(stack->low, stack->bytes);
    __tsan_switch_to_fiber(running, VGPU_TSAN_NO_SYNC);
}

// Makes room for one more under the limit, at the cost of a free stack's.
static bool spare_fiber(struct vgpu_stack_pool *pool)
{
    for (int class = 0; class < VGPU_STACK_CLASSES; class ++) {
        for (struct vgpu_stack *stack = pool->first[class]; stack; stack = stack->next) {
            if (stack->tsan_fiber) {
                destroy_fiber(pool, stack);
                return true;
            }
        }
    }
    return false;
}

// A new fiber comes after everything that its maker did: so the maker is one that does nothing.
static bool make_fiber(struct vgpu_stack_pool *pool, struct vgpu_stack *stack)
{
    if (pool->tsan_limit && pool->tsan_fibers >= pool->tsan_limit && !spare_fiber(pool)) {
        return false;
    }
    void *running = enter_maker(pool);
    stack->tsan_fiber = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(running, VGPU_TSAN_NO_SYNC);
    pool->tsan_fibers++;
    return true;
}

// ---- Giving out ---------------------------------------------------------------------------------

struct vgpu_stack *vgpu_stack_take(struct vgpu_stack_pool *pool, int class)
{
    if (vgpu_tsan() && pool->free[class] <= TSAN_SPARE && !pool->cold[class]) {
        (void)add_slab(pool, class); // without it races may go unseen
    }
    bool cold = !pool->first[class] && pool->cold[class];
    if (!cold && !pool->first[class] && !add_slab(pool, class)) {
        return NULL;
    }
    struct vgpu_stack **link = cold ? &pool->cold[class] : &pool->first[class];
    struct vgpu_stack *stack = *link;
    if (vgpu_tsan() && !stack->tsan_fiber && !make_fiber(pool, stack)) {
        return NULL;
    }
    *link = stack->next;
    pool->free[class] -= !cold;
    return stack;
}

void vgpu_stack_give(struct vgpu_stack_pool *pool, struct vgpu_stack *stack, bool abandoned)
{
    vgpu_unpoison(stack->low, stack->bytes); // whatever frames were left there
    if (abandoned && stack->tsan_fiber) { // its record of calls is not empty: not to be used again
        destroy_fiber(pool, stack);
    }
    if (abandoned && vgpu_stack_overflowed(stack)) {
        memset(stack->low, 0, CANARY_BYTES);
    }
    if (pool->free[stack->class] >= KEEP_FREE) {
        (void)madvise(stack->low, stack->bytes, MADV_DONTNEED);
        stack->next = pool->cold[stack->class];
        pool->cold[stack->class] = stack;
        return;
    }
    (vgpu_tsan() ? append : prepend)(pool, stack);
}

// Reads memory that the address sanitizer may have poisoned.
__attribute__((no_sanitize("address"))) bool vgpu_stack_overflowed(const struct vgpu_stack *stack)
{
    const uint64_t *word = (const uint64_t *)(const void *)stack->low;
    uint64_t seen = 0;
    for (size_t i = 0; i < CANARY_BYTES / sizeof(*word); i++) {
        seen |= word[i];
    }
    return seen != 0;
}

static void mend(struct vgpu_stack *stack)
{
    for (; stack; stack = stack->next) {
        if (vgpu_stack_overflowed(stack)) {
            memset(stack->low, 0, CANARY_BYTES);
        }
    }
}

void vgpu_stack_mend(struct vgpu_stack_pool *pool)
{
    for (int class = 0; class < VGPU_STACK_CLASSES; class ++) {
        mend(pool->first[class]);
        mend(pool->cold[class]);
    }
}
