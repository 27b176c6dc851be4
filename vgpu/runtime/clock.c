// The device's clocks, as kernels read them. SPDX-License-Identifier: Apache-2.0
#include "pool.h"

// clock64 counts at 1.98 GHz, the boost clock of the machines that are played.
enum { CLOCK_NUMERATOR = 99, CLOCK_DENOMINATOR = 50 };

long long vgpu_clock(void)
{
    vgpu_yield();
    return (long long)(vgpu_now_ns() * CLOCK_NUMERATOR / CLOCK_DENOMINATOR);
}

unsigned long long vgpu_global_timer(void)
{
    vgpu_yield();
    return vgpu_now_ns();
}
