// The barrier of all blocks of a cooperative launch: this_grid().sync().
//
// Thread 0 of each block goes to the launch's counter for its block, between two barriers of the
// block. The counter only grows: the n-th meeting is over when it has reached n times the number of
// blocks.
// SPDX-License-Identifier: Apache-2.0
#include "block.h"

#include <stdio.h>
#include <stdlib.h>

bool vgpu_grid_is_cooperative(void)
{
    struct vgpu_thread *thread = vgpu_current_thread;
    return thread && thread->block->launch->cooperative;
}

// Everybody must take part: a thread that ended would be missed, or the others' only hope.
static void expect_all_threads(const struct vgpu_block *block)
{
    if (block->live != block->thread_count) {
        vgpu_fault(
            cudaErrorLaunchFailure,
            "this_grid().sync(): %u of the block's %u threads have ended; all must take part",
            block->thread_count - block->live, block->thread_count);
    }
}

void vgpu_grid_sync(void)
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
    vgpu_syncthreads();
    expect_all_threads(thread->block);
    if (thread->linear == 0) {
        uint64_t ticket = atomic_fetch_add_explicit(&launch->grid_arrived, 1, memory_order_acq_rel);
        uint64_t enough = (ticket / launch->block_count + 1) * launch->block_count;
        while (atomic_load_explicit(&launch->grid_arrived, memory_order_acquire) < enough) {
            vgpu_yield();
        }
    }
    vgpu_syncthreads();
}
