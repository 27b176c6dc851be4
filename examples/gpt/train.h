// A whole training: from the start or from a checkpoint, to the last step.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_TRAIN_H
#define GPT_TRAIN_H

#include "options.h"
#include "world.h"

// step: the folder of the checkpoint that is gone on from; NULL: from the start. Collective.
bool gpt_train(const struct gpt_options *options, struct gpt_world *world, const char *step,
               struct gpt_problem *problem);

#endif
