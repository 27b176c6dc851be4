// Every wait of the host side: watches an abort flag and a clock, spins briefly, then yields, then
// sleeps up to 1 ms.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BASE_WAIT_H
#define TT_BASE_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

// Nanoseconds of CLOCK_MONOTONIC.
uint64_t tt_now_ns(void);

// Tells virtual GPUs in checking mode that this thread only waits; tt_wait_round does it too. To be
// called at least every 100 ms.
void tt_wait_told(void);

struct tt_wait {
    const _Atomic uint32_t *abort_flag; // may be NULL
    uint64_t start_ns;
    uint32_t rounds;
};
struct tt_wait tt_wait_begin(const _Atomic uint32_t *abort_flag);
// One round of waiting; false once the abort flag is set. The caller looks at its condition between
// rounds.
bool tt_wait_round(struct tt_wait *wait);

#endif
