// Bytes of each rank: what formulas predict, and what was allocated.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_MEMORY_H
#define GPT_MEMORY_H

#include "training.h"

// Rank 0 writes the table to stdout. After a step, which may have made memory grow. Collective.
bool gpt_memory_table(struct gpt_training *training, struct gpt_problem *problem);

#endif
