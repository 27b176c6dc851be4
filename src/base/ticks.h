// The processor's own clock: two to three instructions a look, for what is stamped at every
// operation. Equal on all cores, and in all processes, of a host; turned into CLOCK_MONOTONIC only
// where somebody reads it.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BASE_TICKS_H
#define TT_BASE_TICKS_H

#include <stdint.h>
#ifdef __x86_64__
#include <x86intrin.h>
#elif !defined(__aarch64__)
#include "base/wait.h"
#endif

// Never 0; of no fixed unit.
static inline uint64_t tt_ticks(void)
{
#ifdef __x86_64__
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return tt_now_ns();
#endif
}

// Nanoseconds of CLOCK_MONOTONIC at `ticks`, a look of this host's. Exact to some microseconds; the
// first call of a process may take a millisecond. Any thread.
uint64_t tt_ticks_ns(uint64_t ticks);

#endif
