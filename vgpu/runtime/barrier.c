// __syncthreads, its reducing forms, and named barriers.
//
// Threads that have ended count as arrived. The last to arrive makes the others ready and goes on:
// one switch per thread and barrier. Compiled without the thread sanitizer, which is told.
// SPDX-License-Identifier: Apache-2.0
#include "block.h"
#include "counts.h"

#include <stdio.h>
#include <stdlib.h>

static void open_barrier(struct vgpu_block *block, struct vgpu_barrier *barrier)
{
    vgpu_thread_splice(&block->ready, &barrier->waiting);
    barrier->last_count = barrier->count;
    barrier->last_arrived = barrier->arrived;
    barrier->count = 0;
    barrier->arrived = 0;
    block->barriers_open &= ~(1u << (barrier - block->barrier));
    block->progress++;
    if (__builtin_expect(vgpu_counting, 0)) {
        vgpu_count_barrier(block->launch->operation.device);
    }
}

void vgpu_barrier_thread_ended(struct vgpu_block *block)
{
    for (unsigned open = block->barriers_open; open; open &= open - 1) {
        struct vgpu_barrier *barrier = &block->barrier[__builtin_ctz(open)];
        if (barrier->expected == 0 && barrier->arrived == block->live) {
            open_barrier(block, barrier);
        }
    }
}

// Outside kernels there is nobody to meet.
static void refuse_on_host(const char *what)
{
    (void)fprintf(stderr, "vgpu: %s was called outside a kernel\n", what);
    abort();
}

static void check_expected(const struct vgpu_barrier *barrier, int id, unsigned expected)
{
    if (barrier->arrived > 0 && barrier->expected != expected) {
        vgpu_fault(cudaErrorLaunchFailure,
                   "barrier %d: this thread expects %u threads, those that wait %u (0: the block)",
                   id, expected, barrier->expected);
    }
}

static inline void meet(struct vgpu_thread *thread, int id, unsigned expected, int predicate,
                        void *caller)
{
    struct vgpu_block *block = thread->block;
    struct vgpu_barrier *barrier = &block->barrier[id];
    check_expected(barrier, id, expected);
    if (__builtin_expect(vgpu_checking, 0)) {
        thread->place = (uintptr_t)caller;
        if (barrier->arrived == 0) {
            barrier->place = thread->place;
        } else if (id == 0 && expected == 0 && barrier->place != thread->place) {
            vgpu_check_meeting(block, barrier->place, thread->place);
        }
    }
    vgpu_order_release(barrier);
    barrier->expected = expected;
    barrier->count += predicate != 0;
    barrier->arrived++;
    if (barrier->arrived == (expected ? expected : block->live)) {
        open_barrier(block, barrier);
    } else {
        block->barriers_open |= 1u << id;
        thread->state = VGPU_THREAD_AT_BARRIER;
        thread->barrier = (unsigned char)id;
        vgpu_thread_append(&barrier->waiting, thread);
        vgpu_thread_wait(thread);
        thread->state = VGPU_THREAD_RUNNABLE;
    }
    vgpu_order_acquire(barrier);
}

static inline struct vgpu_barrier *meet_all(const char *what, int predicate, void *caller)
{
    struct vgpu_thread *thread = vgpu_current_thread;
    if (__builtin_expect(!thread, 0)) {
        refuse_on_host(what);
    }
    meet(thread, 0, 0, predicate, caller);
    return &thread->block->barrier[0];
}

void vgpu_syncthreads(void)
{
    (void)meet_all("__syncthreads", 0, __builtin_return_address(0));
}

int vgpu_syncthreads_count(int predicate)
{
    return meet_all("__syncthreads_count", predicate, __builtin_return_address(0))->last_count;
}

int vgpu_syncthreads_and(int predicate)
{
    struct vgpu_barrier *barrier =
        meet_all("__syncthreads_and", predicate, __builtin_return_address(0));
    return barrier->last_count == (int)barrier->last_arrived;
}

int vgpu_syncthreads_or(int predicate)
{
    return meet_all("__syncthreads_or", predicate, __builtin_return_address(0))->last_count > 0;
}

// The calling thread, once what it asks for is known to be possible.
static struct vgpu_thread *named_barrier_thread(const char *what, int id, unsigned threads)
{
    struct vgpu_thread *thread = vgpu_current_thread;
    if (!thread) {
        refuse_on_host(what);
    }
    if (id < 0 || id >= VGPU_BARRIERS) {
        vgpu_fault(cudaErrorLaunchFailure, "barrier %d: there are barriers 0 to %d", id,
                   VGPU_BARRIERS - 1);
    }
    if (threads % VGPU_WARP_THREADS != 0 || threads > VGPU_BLOCK_THREADS) {
        vgpu_fault(cudaErrorLaunchFailure,
                   "barrier %d of %u threads: must be a multiple of 32, at most 1024", id, threads);
    }
    return thread;
}

void vgpu_barrier_sync(int id, unsigned threads)
{
    meet(named_barrier_thread("barrier.sync", id, threads), id, threads, 0,
         __builtin_return_address(0));
}

void vgpu_barrier_arrive(int id, unsigned threads)
{
    struct vgpu_block *block = named_barrier_thread("barrier.arrive", id, threads)->block;
    struct vgpu_barrier *barrier = &block->barrier[id];
    if (threads == 0) {
        vgpu_fault(cudaErrorLaunchFailure,
                   "barrier.arrive at barrier %d must say how many threads meet there", id);
    }
    check_expected(barrier, id, threads);
    vgpu_order_release(barrier);
    barrier->expected = threads;
    barrier->arrived++;
    block->barriers_open |= 1u << id;
    if (barrier->arrived == threads) {
        open_barrier(block, barrier);
    }
}

int vgpu_barrier_count(int id, unsigned threads, int predicate, unsigned *arrived_out)
{
    struct vgpu_thread *thread = named_barrier_thread("barrier.red", id, threads);
    struct vgpu_barrier *barrier = &thread->block->barrier[id];
    meet(thread, id, threads, predicate, __builtin_return_address(0));
    *arrived_out = barrier->last_arrived;
    return barrier->last_count;
}
