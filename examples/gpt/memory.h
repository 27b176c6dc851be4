// Bytes of each rank: what formulas predict, and what was allocated.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_MEMORY_H
#define GPT_MEMORY_H

#include "training.h"

// Rank 0 writes a table to stdout, for each rank up to four lines: predicted, before anything is
// made; allocated; and where rows of experts have no capacity, so that they are predicted as if all
// experts were used evenly: at most, what no routing exceeds, and counted, the formula with the
// rows that came. After a step, which may have made memory grow. Collective.
bool gpt_memory_table(struct gpt_training *training, struct gpt_problem *problem);

#endif
