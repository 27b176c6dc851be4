// Measures the processor's clock against CLOCK_MONOTONIC. See ticks.h.
// SPDX-License-Identifier: Apache-2.0
#include "base/ticks.h"

#include "base/wait.h"

#include <pthread.h>
#include <time.h>

enum { TRIES = 5, LEAST_NS = 1000000 };

struct moment {
    uint64_t ticks, ns;
};

// Both clocks at one moment: the try that was disturbed least.
static struct moment look(void)
{
    struct moment best = {0, 0};
    uint64_t shortest = UINT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = tt_ticks(), ns = tt_now_ns(), took = tt_ticks() - before;
        if (took < shortest) {
            shortest = took;
            best = (struct moment){before + took / 2, ns};
        }
    }
    return best;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct moment first; // set once

static void look_first(void)
{
    first = look();
}

struct tt_ticks_scale tt_ticks_measure(void)
{
    pthread_once(&once, look_first);
    struct moment now = look();
    while (now.ns - first.ns < LEAST_NS) {
        nanosleep(&(struct timespec){0, LEAST_NS}, NULL);
        now = look();
    }
    double scale = (double)(now.ns - first.ns) / (double)(now.ticks - first.ticks);
    return (struct tt_ticks_scale){now.ticks, now.ns, scale};
}
