// The pool: the threads of the machine that run blocks of all devices.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_POOL_H
#define VGPU_RUNTIME_POOL_H

#include "launch.h"

#include <time.h>

struct vgpu_worker;

enum { VGPU_MAX_WORKERS = 256 };

// Starts the pool's threads if they do not run. cudaErrorLaunchOutOfResources with a text where not
// even one can be made.
cudaError_t vgpu_pool_start(void);
// Gives a launch to the pool, which runs its blocks and then completes its operation. The pool
// runs.
void vgpu_pool_add(struct vgpu_launch *launch);
// Whether the calling thread belongs to the pool (or runs host functions), so that waiting for a
// stream could never end.
bool vgpu_on_pool_thread(void);
// Whether there are blocks that no worker has taken yet.
bool vgpu_pool_has_pending(void);
void vgpu_mark_pool_thread(void);

// CLOCK_MONOTONIC in nanoseconds.
static inline uint64_t vgpu_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// Starts a detached thread with only the signals of faults unblocked. False: it cannot be made.
bool vgpu_start_thread(const char *name, void *(*run)(void *), void *argument);

// ---- The watchdog (watchdog.c) ------------------------------------------------------------------

// Starts it, to watch workers[0..count-1].
void vgpu_watchdog_start(struct vgpu_worker *workers, int count);
// There is work to watch.
void vgpu_watchdog_wake(void);

#endif
