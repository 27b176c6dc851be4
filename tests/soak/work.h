// Pieces of work of all members of a communicator: each draws the same numbers. See soak.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_SOAK_WORK_H
#define TESTS_SOAK_WORK_H

#include "forms.h"
#include "soak.h"

// Word i of what one rank gives another.
uint32_t word_of(unsigned seed, int from, int to, size_t i);

void puts_around(struct member *m, struct draws *d);
void device_communicator(struct member *m, struct draws *d);
void normalise(struct member *m, struct draws *d);
// Of communicators that have ended.
void free_left_windows(void);

#endif
