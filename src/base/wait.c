// The host's waits. See wait.h. SPDX-License-Identifier: Apache-2.0
#include "base/wait.h"

#include <sched.h>
#include <stddef.h>
#include <time.h>
#include <vgpu/check.h>

#pragma weak vgpuCheckHostWaits // exists where virtual GPUs look for waits that nothing can end

enum { SPIN_ROUNDS = 64, YIELD_NS = 2000000, FIRST_SLEEP_NS = 50000, LONGEST_SLEEP_NS = 1000000 };

uint64_t tt_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void tt_wait_told(void)
{
    if (vgpuCheckHostWaits != NULL) {
        vgpuCheckHostWaits();
    }
}

struct tt_wait tt_wait_begin(const _Atomic uint32_t *abort_flag)
{
    return (struct tt_wait){.abort_flag = abort_flag, .start_ns = tt_now_ns()};
}

bool tt_wait_round(struct tt_wait *wait)
{
    if (wait->abort_flag != NULL &&
        atomic_load_explicit(wait->abort_flag, memory_order_acquire) != 0) {
        return false;
    }
    wait->rounds++;
    if (wait->rounds <= SPIN_ROUNDS) {
        return true;
    }
    tt_wait_told();
    uint64_t waited = tt_now_ns() - wait->start_ns;
    if (waited < YIELD_NS) {
        sched_yield();
        return true;
    }
    // The sleep grows with the time already waited, so that a long wait costs little.
    uint64_t ns = waited / 16;
    ns = ns < FIRST_SLEEP_NS ? FIRST_SLEEP_NS : ns > LONGEST_SLEEP_NS ? LONGEST_SLEEP_NS : ns;
    nanosleep(&(struct timespec){0, (long)ns}, NULL);
    return true;
}
