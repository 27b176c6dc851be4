// The file of losses: a line "STEP LOSS" for each step, the loss with 9 digits.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_LOSSES_H
#define GPT_LOSSES_H

#include "curve.h"

#include <stdint.h>
#include <stdio.h>

// Opens it for steps after `step`: what the file has of steps up to that one stays, and comes into
// the curve; the rest is of a run that was ended and is cut off. step 0: begins anew.
bool gpt_losses_open(const char *path, uint64_t step, struct gpt_curve *curve, FILE **file,
                     struct gpt_problem *problem);

#endif
