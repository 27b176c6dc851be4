// What a process holds of its system, to compare: memory, mappings, descriptors, threads, children.
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_SOAK_HOLDINGS_H
#define TESTS_SOAK_HOLDINGS_H

#include <stdbool.h>

enum holding {
    RESIDENT_KIB,  // Rss of /proc/self/smaps_rollup
    ANONYMOUS_KIB, // of it, memory of no file
    HEAP_KIB,      // that malloc has given out
    MAPPINGS,      // lines of /proc/self/maps
    MAPPED_MIB,    // addresses in them
    DESCRIPTORS,   // in /proc/self/fd
    THREADS,       // in /proc/self/task
    CHILDREN,      // processes, dead ones too
    DEVICE_KIB,    // given out on all devices
    ENTRIES,       // in /dev/shm and /tmp that the library names as its own
    HOLDINGS
};

struct holdings {
    long of[HOLDINGS];
};

// This process now; memory that malloc keeps and does not use goes back before. Of devices where it
// uses some.
struct holdings take_holdings(bool with_devices);
// Whether nothing grew by more than its slack; the slacks and their reasons stand in holdings.c.
bool holdings_are_kept(const struct holdings *first, const struct holdings *now);
// One line on stdout: each value, and what it was at first.
void print_holdings(const char *title, const struct holdings *first, const struct holdings *now);

// What was seen by and by, to see what creeps: in three parts of the time.
struct course {
    long sum[HOLDINGS][3];
    int looks[3];
};
// part: of the time that has passed, 0 to 1.
void add_to_course(struct course *course, double part, const struct holdings *now);
// One line on stdout: the mean of each value in each third; none where a third has no look.
void print_course(const char *title, const struct course *course);

#endif
