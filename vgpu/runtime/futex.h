// Sleeping on a word of memory. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_FUTEX_H
#define VGPU_RUNTIME_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Sleeps while *word is `seen`, at most timeout_ns (0: for ever). May return early.
static inline void vgpu_futex_wait(atomic_uint *word, unsigned seen, uint64_t timeout_ns)
{
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                               .tv_nsec = (long)(timeout_ns % 1000000000u)};
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, timeout_ns ? &timeout : NULL, NULL, 0);
}

static inline void vgpu_futex_wake(atomic_uint *word, int threads)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

#endif
