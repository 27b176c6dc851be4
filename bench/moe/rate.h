// The rate of dispatch and combine. SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_MOE_RATE_H
#define BENCH_MOE_RATE_H

#include <stdbool.h>
#include <stddef.h>

// tokens: of each rank. Prints what it measures; whether the bar is met.
bool measure_rate(size_t tokens);

#endif
