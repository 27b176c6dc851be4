// Fibers: contexts that switch in a few nanoseconds, and the stacks they run on.
//
// A context belongs to one operating-system thread from its making to its end. Stacks come from a
// pool that belongs to one thread too, so nothing here takes a lock.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_FIBER_H
#define VGPU_RUNTIME_FIBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(__x86_64__) && !defined(VGPU_FIBER_UCONTEXT)
#define VGPU_FIBER_UCONTEXT 1
#endif

#ifdef VGPU_FIBER_UCONTEXT
#include <ucontext.h>
#endif

// ---- Contexts -----------------------------------------------------------------------------------

struct vgpu_context {
#ifdef VGPU_FIBER_UCONTEXT
    ucontext_t saved;
#else
    void *stack_pointer; // first: the assembly relies on it
#endif
};

// Makes a context that calls entry(argument) on a stack that ends at `top` (16-byte aligned), with
// at least `bytes` below it. entry must not return.
void vgpu_context_make(struct vgpu_context *context, char *top, size_t bytes,
                       void (*entry)(void *argument), void *argument);
// Saves the running context in `save` and continues `load`. Keeps what the ABI says a call keeps,
// the floating-point control words included.
void vgpu_context_switch(struct vgpu_context *save, struct vgpu_context *load);
// Calls function(argument). Until it returns, vgpu_context_jump(save) on this thread of the machine
// leaves it for good: the call of vgpu_context_call returns.
void vgpu_context_call(struct vgpu_context *save, void (*function)(void *argument), void *argument);
// Continues `load`; the running context is gone.
void vgpu_context_jump(struct vgpu_context *load) __attribute__((noreturn));

// ---- Stacks -------------------------------------------------------------------------------------

enum {
    VGPU_STACK_CLASSES = 5,         // 64 KiB << class
    VGPU_STACK_CLASS_SANITIZED = 2, // the least one under a sanitizer, whose frames are larger
    VGPU_STACK_CLASS_NATIVE = 2,    // 256 KiB, for native blocks
};

struct vgpu_stack {
    char *low; // lowest address; the bytes there stay zero unless a fiber overflows
    char *top; // where a context starts; some cache lines below low + bytes, different ones for
               // neighbours, so that the stacks of a block do not fight for the same cache sets
    size_t bytes;
    int class;
    // The thread sanitizer's fiber, made on first use: to it the stack and who runs on it are one.
    void *tsan_fiber;
    struct vgpu_stack *next;
};

struct vgpu_stack_pool {
    struct vgpu_stack *first[VGPU_STACK_CLASSES];
    struct vgpu_stack *last[VGPU_STACK_CLASSES];
    size_t free[VGPU_STACK_CLASSES];             // in those lists
    struct vgpu_stack *cold[VGPU_STACK_CLASSES]; // free too, but without pages
    unsigned made;                               // stacks ever made
    // Under the thread sanitizer: fibers in existence, at most how many (0: any number), and one
    // that does nothing but make the others (NULL: whoever runs makes them).
    unsigned tsan_fibers;
    unsigned tsan_limit;
    void *tsan_maker;
};

// The class for a kernel whose device announces a stack limit of `limit_bytes`: what the limit asks
// plus room for the host's larger frames; under a sanitizer at least VGPU_STACK_CLASS_SANITIZED.
int vgpu_stack_class(size_t limit_bytes);
// A stack, or NULL: no memory, or the thread sanitizer's limit.
struct vgpu_stack *vgpu_stack_take(struct vgpu_stack_pool *pool, int class);
// abandoned: a fiber was dropped in the middle, its frames are still there.
void vgpu_stack_give(struct vgpu_stack_pool *pool, struct vgpu_stack *stack, bool abandoned);
// Whether the fiber that used the stack ran over its end. Looks at the end alone: a frame that
// jumps over it goes unseen.
bool vgpu_stack_overflowed(const struct vgpu_stack *stack);
// After an overflow, which may have run over stacks below: makes the ends of free stacks zero
// again.
void vgpu_stack_mend(struct vgpu_stack_pool *pool);

#endif
