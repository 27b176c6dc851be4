// Text that a trained model writes.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_SAMPLE_H
#define GPT_SAMPLE_H

#include "options.h"
#include "world.h"

#include <stddef.h>

// Loads the weights of a checkpoint's folder and writes prompt and sample to stdout, on rank 0.
// Ranks may be tensor, expert or data parallel. Collective.
bool gpt_sample(const struct gpt_options *options, struct gpt_world *world, const char *step,
                struct gpt_problem *problem);

// The token that `number`, 0 to 1, chooses by scores / temperature, of the top_k with the highest
// scores (0: of all). Of equal scores the lower token comes first. temperature 0: the highest.
// scores: [count], changed.
int gpt_choose(float *scores, int count, double temperature, int top_k, double number);

#endif
