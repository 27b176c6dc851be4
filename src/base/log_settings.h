// What the texts of NCCL_DEBUG and its relatives mean. Nothing here reads the environment or
// writes.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BASE_LOG_SETTINGS_H
#define TT_BASE_LOG_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

// A word of a list that means nothing; length 0: there is none.
struct tt_log_unknown {
    const char *word;
    int length;
};

// NCCL_DEBUG: an enum tt_log_level, NCCL's ABORT (4), or 0 for NONE, for "" and for what is no
// level.
int tt_log_level_of(const char *text, struct tt_log_unknown *unknown);

// NCCL_DEBUG_SUBSYS: the bits of enum tt_log_subsystem; "" stands for INIT,BOOTSTRAP,ENV.
uint64_t tt_log_subsystems_of(const char *text, struct tt_log_unknown *unknown);

// NCCL_DEBUG_TIMESTAMP_LEVELS: bit l is set where lines of level l begin with the time.
uint64_t tt_log_stamped_of(const char *text, struct tt_log_unknown *unknown);

// Writes the local time as NCCL_DEBUG_TIMESTAMP_FORMAT wants it: as strftime, %1f to %9f are digits
// of the second, underscores are spaces. "" where it does not fit.
void tt_log_stamp(const char *format, const struct timespec *now, char *out, size_t bytes);

#endif
