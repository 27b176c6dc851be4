// The barrier of all blocks of a cooperative launch: this_grid().sync().
//
// Thread 0 of each block goes to the launch's counter for its block, between two barriers of the
// block. The counter only grows: the n-th meeting is over when it has reached n times the number of
// blocks.
// SPDX-License-Identifier: Apache-2.0
#include "block.h"

#include <stdio.h>
#include <stdlib.h>

// What the scheduler keeps belongs to one thread of the machine; the thread sanitizer, to which its
// fibers are several, need not look. The counter it must see.
#define SCHEDULER_ACCESS __attribute__((no_sanitize_thread))

SCHEDULER_ACCESS bool vgpu_grid_is_cooperative(void)
{
    struct vgpu_thread *thread = vgpu_current_thread;
    return thread && thread->block->launch->cooperative;
}

// Everybody must take part: a thread that ended would be missed, or the others' only hope.
SCHEDULER_ACCESS static void expect_all_threads(void)
{
    const struct vgpu_block *block = vgpu_current_thread->block;
    if (block->live != block->thread_count) {
        vgpu_fault(
            cudaErrorLaunchFailure,
            "this_grid().sync(): %u of the block's %u threads have ended; all must take part",
            block->thread_count - block->live, block->thread_count);
    }
}

// The running launch, which must be cooperative; its blocks, and the calling thread's number.
SCHEDULER_ACCESS static struct vgpu_launch *cooperative_launch(uint64_t *blocks_out,
                                                               unsigned *thread_out)
{
    struct vgpu_thread *thread = vgpu_current_thread;
    if (!thread) {
        (void)fprintf(stderr, "vgpu: this_grid().sync() was called outside a kernel\n");
        abort();
    }
    struct vgpu_launch *launch = thread->block->launch;
    if (!launch->cooperative) {
        vgpu_fault(cudaErrorLaunchFailure,
                   "this_grid().sync() in an ordinary launch: launch the kernel with "
                   "cudaLaunchCooperativeKernel or the attribute cudaLaunchAttributeCooperative");
    }
    *blocks_out = launch->block_count;
    *thread_out = thread->linear;
    return launch;
}

void vgpu_grid_sync(void)
{
    uint64_t blocks;
    unsigned thread;
    struct vgpu_launch *launch = cooperative_launch(&blocks, &thread);
    vgpu_syncthreads();
    expect_all_threads();
    if (thread == 0) {
        uint64_t ticket = atomic_fetch_add_explicit(&launch->grid_arrived, 1, memory_order_acq_rel);
        uint64_t enough = (ticket / blocks + 1) * blocks;
        while (atomic_load_explicit(&launch->grid_arrived, memory_order_acquire) < enough) {
            vgpu_yield();
        }
    }
    vgpu_syncthreads();
}
