// Barriers of a block and of a warp, memory fences, clocks and traps.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_BARRIERS_H
#define VGPU_DEVICE_BARRIERS_H

#include "../fence.h"
#include "common.h"

#ifdef __cplusplus
#include <time.h>
extern "C++" {

VGPU_FUNCTION void __syncthreads(void)
{
    vgpu_syncthreads();
}
VGPU_FUNCTION int __syncthreads_count(int predicate)
{
    return vgpu_syncthreads_count(predicate);
}
VGPU_FUNCTION int __syncthreads_and(int predicate)
{
    return vgpu_syncthreads_and(predicate);
}
VGPU_FUNCTION int __syncthreads_or(int predicate)
{
    return vgpu_syncthreads_or(predicate);
}
// Hardware barrier `id` (0..15), for all threads of the block or for `count` of them.
VGPU_FUNCTION void __barrier_sync(unsigned id)
{
    vgpu_barrier_sync(static_cast<int>(id), 0);
}
VGPU_FUNCTION void __barrier_sync_count(unsigned id, unsigned count)
{
    vgpu_barrier_sync(static_cast<int>(id), count);
}
VGPU_FUNCTION void __syncwarp(unsigned mask = 0xffffffffu)
{
    vgpu_syncwarp(mask);
}

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
