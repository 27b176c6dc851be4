// The processor's own clock: three instructions a look, for what is stamped at every operation.
// Equal on all cores, and in all processes, of a host; turned into CLOCK_MONOTONIC only where
// somebody reads it. (Of the compiler's header for it, x86intrin.h, the 70,000 lines take longer to
// compile than any of our files.)
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BASE_TICKS_H
#define TT_BASE_TICKS_H

#include <stdint.h>
#if !defined(__x86_64__) && !defined(__aarch64__)
#include "base/wait.h"
#endif

// Never 0; of no fixed unit.
static inline uint64_t tt_ticks(void)
{
#ifdef __x86_64__
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return tt_now_ns();
#endif
}

// How ticks and CLOCK_MONOTONIC go together, from a look at both now and one at the process's first
// call of this; those two are at least a millisecond apart, which the first call may wait for.
struct tt_ticks_scale {
    uint64_t ticks, ns;
    double ns_per_tick;
};
struct tt_ticks_scale tt_ticks_measure(void);

// Nanoseconds of CLOCK_MONOTONIC at `ticks`, exact to some microseconds.
static inline uint64_t tt_ticks_ns(const struct tt_ticks_scale *scale, uint64_t ticks)
{
    return scale->ns +
           (uint64_t)(int64_t)((double)(int64_t)(ticks - scale->ticks) * scale->ns_per_tick);
}

#endif
