// Running a block: its threads switch among themselves, and to the worker when none can run.
//
// Compiled without the thread sanitizer, which is told of every switch instead. The built-in
// variables are set at each switch: threadIdx by the thread, the others by the block's turn.
// SPDX-License-Identifier: Apache-2.0
#include "block.h"

#include "vgpu/device_runtime.h"

#include <stdio.h>
#include <stdlib.h>

enum { OVERFLOW_MARGIN_BYTES = 1024 };

__thread uint3 threadIdx;
__thread uint3 blockIdx;
__thread dim3 blockDim;
__thread dim3 gridDim;
__thread int vgpu_rank;
__thread struct vgpu_thread *vgpu_current_thread;

// ---- Switching ----------------------------------------------------------------------------------

static inline void set_current(struct vgpu_worker *worker, struct vgpu_thread *thread)
{
    vgpu_current_thread = thread;
    threadIdx = thread->index;
    unsigned switches = atomic_load_explicit(&worker->switches, memory_order_relaxed);
    atomic_store_explicit(&worker->switches, switches + 1, memory_order_relaxed);
}

// After a context was entered again, on its own stack.
static inline void arrived(void *fake_stack, struct vgpu_worker *from_worker)
{
    if (__builtin_expect(__sanitizer_finish_switch_fiber != NULL, 0)) {
        const void *bottom;
        size_t bytes;
        __sanitizer_finish_switch_fiber(fake_stack, &bottom, &bytes);
        if (from_worker) {
            from_worker->stack_bottom = bottom;
            from_worker->stack_bytes = bytes;
        }
    }
}

// Before a switch to `thread`. fake_stack: where the address sanitizer leaves the running
// context's; NULL: that context is over.
static inline void leave_for_thread(struct vgpu_thread *thread, void **fake_stack)
{
    if (__builtin_expect(__sanitizer_start_switch_fiber != NULL, 0)) {
        __sanitizer_start_switch_fiber(fake_stack, thread->stack->low, thread->stack->bytes);
    }
    if (vgpu_tsan()) {
        __tsan_switch_to_fiber(thread->stack->tsan_fiber, VGPU_TSAN_NO_SYNC);
    }
}

static inline void leave_for_worker(struct vgpu_worker *worker, void **fake_stack)
{
    if (__builtin_expect(__sanitizer_start_switch_fiber != NULL, 0)) {
        __sanitizer_start_switch_fiber(fake_stack, worker->stack_bottom, worker->stack_bytes);
    }
    if (vgpu_tsan()) {
        __tsan_switch_to_fiber(worker->tsan_fiber, VGPU_TSAN_NO_SYNC);
    }
}

void vgpu_fault_leave(struct vgpu_worker *worker)
{
    worker->fault.thread = vgpu_current_thread;
    vgpu_order_release(&worker->fault);
    leave_for_worker(worker, NULL);
    vgpu_context_jump(&worker->context);
}

// ---- Threads ------------------------------------------------------------------------------------

static void run_thread(void *argument);

// The next thread of the block that has not begun, made ready to run on `stack`.
static struct vgpu_thread *begin_thread(struct vgpu_block *block, struct vgpu_stack *stack)
{
    struct vgpu_thread *thread = &block->thread[block->started];
    const dim3 size = block->launch->block;
    thread->block = block;
    thread->stack = stack;
    thread->index = block->next_index;
    thread->linear = (unsigned short)block->started;
    thread->state = VGPU_THREAD_RUNNABLE;
    thread->waits_for = NULL;
    block->started++;
    if (++block->next_index.x == size.x) {
        block->next_index.x = 0;
        if (++block->next_index.y == size.y) {
            block->next_index.y = 0;
            block->next_index.z++;
        }
    }
    return thread;
}

static inline struct vgpu_thread *take_ready(struct vgpu_block *block)
{
    struct vgpu_thread *thread = block->ready.first;
    if (thread) {
        block->ready.first = thread->next;
    }
    return thread;
}

// Nobody can run but those who wait for that in vgpu_active_mask.
static struct vgpu_thread *take_gathered(struct vgpu_block *block)
{
    if (block->gathering == 0) {
        return NULL;
    }
    vgpu_warp_gathered(block);
    return take_ready(block);
}

// For reports of the thread sanitizer, which keeps 63 bytes.
__attribute__((noinline, cold)) static void name_fiber(const struct vgpu_thread *thread)
{
    const struct vgpu_block *block = thread->block;
    char name[64];
    bool ranked = block->rank >= 0;
    (void)snprintf(name, sizeof(name), "%.20s %s %d block %u,%u,%u thread %u,%u,%u", block->name,
                   ranked ? "rank" : "device", ranked ? block->rank : block->device, block->index.x,
                   block->index.y, block->index.z, thread->index.x, thread->index.y,
                   thread->index.z);
    __tsan_set_fiber_name(thread->stack->tsan_fiber, name);
}

// The next thread that can run, with a stack; NULL: none can now.
static inline struct vgpu_thread *next_thread(struct vgpu_block *block)
{
    struct vgpu_thread *thread = take_ready(block);
    if (thread) {
        return thread;
    }
    if (block->started == block->thread_count) {
        return take_gathered(block);
    }
    struct vgpu_worker *worker = block->worker;
    struct vgpu_stack *stack = vgpu_stack_take(&worker->stacks, block->launch->stack_class);
    if (!stack) {
        worker->out_of_stacks = true;
        return take_gathered(block);
    }
    thread = begin_thread(block, stack);
    vgpu_context_make(&thread->context, stack->top, (size_t)(stack->top - stack->low), run_thread,
                      thread);
    thread->fake_stack = NULL;
    if (vgpu_tsan()) {
        name_fiber(thread);
    }
    return thread;
}

void vgpu_thread_wait(struct vgpu_thread *thread)
{
    struct vgpu_block *block = thread->block;
    struct vgpu_worker *worker = block->worker;
    if (__builtin_expect((uintptr_t)__builtin_frame_address(0) <
                             (uintptr_t)thread->stack->low + OVERFLOW_MARGIN_BYTES,
                         0)) {
        worker->fault.kind = VGPU_FAULT_OVERFLOW;
        vgpu_fault_leave(worker);
    }
    struct vgpu_thread *next = next_thread(block);
    if (next == thread) {
        return; // it was ready again already
    }
    if (next) {
        leave_for_thread(next, &thread->fake_stack);
        set_current(worker, next);
        vgpu_context_switch(&thread->context, &next->context);
    } else {
        leave_for_worker(worker, &thread->fake_stack);
        vgpu_context_switch(&thread->context, &worker->context);
    }
    arrived(thread->fake_stack, NULL);
    while (__builtin_expect(worker->tracing != NULL, 0)) {
        vgpu_trace_here(worker->tracing, 0);
        leave_for_worker(worker, &thread->fake_stack);
        vgpu_context_switch(&thread->context, &worker->context);
        arrived(thread->fake_stack, NULL);
    }
}

static void retire_stack(struct vgpu_worker *worker, struct vgpu_stack *stack)
{
    if (worker->retired) {
        vgpu_stack_give(&worker->stacks, worker->retired, false);
    }
    worker->retired = stack;
}

// What the running fiber did comes before the launch's completion and the next use of the block's
// shared memory.
static void tell_end(struct vgpu_block *block)
{
    vgpu_order_release(&block->launch->unfinished);
    if (block->shared_used) {
        vgpu_shared_thread_ended(block);
    }
}

static void end_thread(struct vgpu_thread *thread)
{
    struct vgpu_block *block = thread->block;
    if (vgpu_stack_overflowed(thread->stack)) {
        block->worker->fault.kind = VGPU_FAULT_OVERFLOW;
        vgpu_fault_leave(block->worker);
    }
    thread->state = VGPU_THREAD_ENDED;
    block->live--;
    block->progress++;
    vgpu_warp_thread_ended(block, thread);
    if (block->barriers_open) {
        vgpu_barrier_thread_ended(block);
    }
}

// A fiber: runs threads of a block one after the other, as long as they end without waiting.
static void run_thread(void *argument)
{
    struct vgpu_thread *thread = argument;
    struct vgpu_block *block = thread->block;
    struct vgpu_worker *worker = block->worker;
    arrived(NULL, thread == &block->thread[0] ? worker : NULL);
    for (;;) {
        vgpu_order_acquire(block->launch);
        vgpu_launch_run_thread(block->launch, block->number);
        tell_end(block);
        end_thread(thread);
        if (vgpu_tsan() || block->ready.first || block->started == block->thread_count) {
            break;
        }
        struct vgpu_stack *stack = thread->stack;
        thread->stack = NULL;
        thread = begin_thread(block, stack);
        set_current(worker, thread);
    }
    if (!vgpu_tsan()) { // whose fibers are the threads', until the block ends
        retire_stack(worker, thread->stack);
        thread->stack = NULL;
    }
    struct vgpu_thread *next = next_thread(block);
    if (next) {
        leave_for_thread(next, NULL);
        set_current(worker, next);
        vgpu_context_jump(&next->context);
    }
    leave_for_worker(worker, NULL);
    vgpu_context_jump(&worker->context);
}

// ---- Blocks -------------------------------------------------------------------------------------

static struct vgpu_block *take_spare(struct vgpu_worker *worker, unsigned threads)
{
    for (struct vgpu_block **link = &worker->spare; *link; link = &(*link)->next) {
        struct vgpu_block *block = *link;
        if (block->thread_capacity >= threads) {
            *link = block->next;
            return block;
        }
    }
    unsigned capacity = 1;
    while (capacity < threads) {
        capacity *= 2;
    }
    struct vgpu_block *block = calloc(1, sizeof(*block));
    struct vgpu_thread *thread = aligned_alloc(64, (capacity * sizeof(*thread) + 63) / 64 * 64);
    if (!block || !thread) {
        free(block);
        free(thread);
        return NULL;
    }
    block->thread = thread;
    block->thread_capacity = capacity;
    return block;
}

static void give_spare(struct vgpu_worker *worker, struct vgpu_block *block)
{
    block->next = worker->spare;
    worker->spare = block;
}

// The launch's rank, looked up by its first block.
static int rank_of(struct vgpu_launch *launch)
{
    int seen = atomic_load_explicit(&launch->rank_seen, memory_order_relaxed);
    if (seen == 0) {
        seen = vgpu_check_rank_of(launch) + 2;
        atomic_store_explicit(&launch->rank_seen, seen, memory_order_relaxed);
    }
    return seen - 2;
}

struct vgpu_block *vgpu_block_begin(struct vgpu_worker *worker, struct vgpu_launch *launch,
                                    uint64_t number)
{
    struct vgpu_block *block = take_spare(worker, launch->threads);
    if (!block) {
        return NULL;
    }
    block->launch = launch;
    block->worker = worker;
    block->name = launch->name;
    block->launch_serial = launch->serial;
    block->device = launch->operation.device->ordinal;
    block->rank = rank_of(launch);
    block->number = number;
    block->index.x = (unsigned)(number % launch->grid.x);
    block->index.y = (unsigned)(number / launch->grid.x % launch->grid.y);
    block->index.z = (unsigned)(number / launch->grid.x / launch->grid.y);
    block->thread_count = launch->threads;
    block->live = launch->threads;
    block->started = 0;
    block->next_index = (uint3){0, 0, 0};
    block->ready.first = NULL;
    block->yielded.first = NULL;
    block->barriers_open = 0;
    block->gathering = 0;
    block->site_count = 0;
    block->phase = NULL;
    for (int i = 0; i < VGPU_BARRIERS; i++) {
        block->barrier[i] = (struct vgpu_barrier){0};
    }
    vgpu_warp_begin(block);
    if (!vgpu_shared_begin(block)) {
        give_spare(worker, block);
        return NULL;
    }
    worker->resident_threads += block->thread_count;
    return block;
}

void vgpu_block_turn(struct vgpu_worker *worker, struct vgpu_block *block)
{
    struct vgpu_launch *launch = block->launch;
    vgpu_thread_splice(&block->ready, &block->yielded);
    worker->out_of_stacks = false;
    struct vgpu_thread *next = next_thread(block);
    if (!next) {
        return;
    }
    atomic_store_explicit(&worker->in_block, block, memory_order_relaxed);
    vgpu_running_device = launch->operation.device;
    blockIdx = block->index;
    blockDim = launch->block;
    gridDim = launch->grid;
    vgpu_rank = block->rank;
    leave_for_thread(next, &worker->fake_stack);
    set_current(worker, next);
    vgpu_context_switch(&worker->context, &next->context);
    arrived(worker->fake_stack, NULL);
    vgpu_current_thread = NULL;
    vgpu_running_device = NULL;
    atomic_store_explicit(&worker->in_block, NULL, memory_order_relaxed);
}

bool vgpu_block_trace(struct vgpu_worker *worker, struct vgpu_thread *thread,
                      struct vgpu_trace *trace_out)
{
    trace_out->count = 0;
    if (!thread->stack || thread->state == VGPU_THREAD_ENDED) {
        return false;
    }
    worker->tracing = trace_out;
    leave_for_thread(thread, &worker->fake_stack);
    vgpu_context_switch(&worker->context, &thread->context);
    arrived(worker->fake_stack, NULL);
    worker->tracing = NULL;
    return true;
}

bool vgpu_block_is_stuck(const struct vgpu_block *block)
{
    return block->live > 0 && !block->ready.first && !block->yielded.first &&
           block->started == block->thread_count;
}

// Takes back the stack of a thread that had begun. ended: it was not in the middle.
static void drop_stack(struct vgpu_worker *worker, struct vgpu_thread *thread, bool ended)
{
    if (!thread->stack) {
        return;
    }
    if (!ended && vgpu_tsan()) { // what it did comes before the launch's end, too
        __tsan_switch_to_fiber(thread->stack->tsan_fiber, VGPU_TSAN_NO_SYNC);
        tell_end(thread->block);
        __tsan_switch_to_fiber(worker->tsan_fiber, VGPU_TSAN_NO_SYNC);
    }
    vgpu_stack_give(&worker->stacks, thread->stack, !ended);
    thread->stack = NULL;
}

void vgpu_block_end(struct vgpu_worker *worker, struct vgpu_block *block)
{
    vgpu_trace_block_end(block);
    if (worker->retired) {
        vgpu_stack_give(&worker->stacks, worker->retired, false);
        worker->retired = NULL;
    }
    for (unsigned i = 0; (block->live > 0 || vgpu_tsan()) && i < block->started; i++) {
        struct vgpu_thread *thread = &block->thread[i];
        drop_stack(worker, thread, thread->state == VGPU_THREAD_ENDED);
    }
    worker->resident_threads -= block->thread_count;
    block->launch = NULL;
    give_spare(worker, block);
}

// ---- What kernels call --------------------------------------------------------------------------

bool vgpu_in_kernel(void)
{
    return vgpu_current_thread != NULL;
}

void vgpu_yield(void)
{
    struct vgpu_thread *thread = vgpu_current_thread;
    if (!thread) {
        return;
    }
    vgpu_thread_append(&thread->block->yielded, thread);
    vgpu_thread_wait(thread);
}
