// The yardstick: several threads that copy at once, past the caches.
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_COPIES_H
#define BENCH_COPIES_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// `count` (at most 16) threads copy `bytes` bytes (a multiple of 64) each from from[i] to to[i]
// (multiples of 64), all at once. Returns the seconds from the first one's start to the last one's
// end; starting the threads is not counted.
double bench_copies(int count, char *const *to, char *const *from, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
