// The numbers of a stage's parameters in the table, by what they are for.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_NUMBERS_H
#define GPT_NUMBERS_H

#include "pass.h"

// Fills model->embedding, head, norm and layers, which have room.
void gpt_number_parameters(struct gpt_model *model);

#endif
