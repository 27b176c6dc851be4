// Barriers of a block and of a warp, memory fences, clocks and traps.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_BARRIERS_H
#define VGPU_DEVICE_BARRIERS_H

#include "../fence.h"
#include "common.h"

#ifdef __cplusplus
#include <time.h>
extern "C++" {

// The runtime's own functions under these names: the call is then on the user's line, so that a
// breakpoint on a line that is only a barrier stops before it.
void __syncthreads(void) __asm__("vgpu_syncthreads");
int __syncthreads_count(int predicate) __asm__("vgpu_syncthreads_count");
int __syncthreads_and(int predicate) __asm__("vgpu_syncthreads_and");
int __syncthreads_or(int predicate) __asm__("vgpu_syncthreads_or");
// Hardware barrier `id` (0..15), for all threads of the block or for `count` of them.
void __barrier_sync(unsigned id, unsigned vgpu_all = 0) __asm__("vgpu_barrier_sync");
void __barrier_sync_count(unsigned id, unsigned count) __asm__("vgpu_barrier_sync");
void __syncwarp(unsigned mask = 0xffffffffu) __asm__("vgpu_syncwarp");

VGPU_FUNCTION void __threadfence_block(void)
{
    vgpu_fence_block(__ATOMIC_SEQ_CST);
}
VGPU_FUNCTION void __threadfence(void)
{
    vgpu_fence(__ATOMIC_SEQ_CST);
}
VGPU_FUNCTION void __threadfence_system(void)
{
    vgpu_fence(__ATOMIC_SEQ_CST);
}

// Lets the other threads run. The time is a hint, as on a GPU.
VGPU_FUNCTION void __nanosleep(unsigned nanoseconds)
{
    (void)nanoseconds;
    vgpu_yield();
}
VGPU_FUNCTION long long clock64(void)
{
    return vgpu_clock();
}
// What clock() means in device code: the low bits of clock64(); on the host the C library's.
VGPU_FUNCTION clock_t vgpu_device_clock(void)
{
    return vgpu_in_kernel() ? static_cast<clock_t>(vgpu_clock()) : clock();
}

// Programmatic dependent launch: a kernel here starts after the one before it in its stream has
// ended, so that what it depends on is complete, and there is nobody to tell early.
VGPU_FUNCTION void cudaGridDependencySynchronize(void) {}
VGPU_FUNCTION void cudaTriggerProgrammaticLaunchCompletion(void) {}

[[noreturn]] VGPU_FUNCTION void __trap(void)
{
    vgpu_fault(cudaErrorLaunchFailure, "__trap() was called");
}
VGPU_FUNCTION void __brkpt(void) {}
VGPU_FUNCTION void __prof_trigger(int) {}

} // extern "C++"
#endif
#endif
