// The losses of a training as a picture (SVG): one line for the batches, one for validation.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_CURVE_H
#define GPT_CURVE_H

#include "problem.h"

struct gpt_point {
    int step;
    double loss;
};

struct gpt_curve {
    struct gpt_point *points; // [count]
    int count, room;
};

// Adds a point at the end.
bool gpt_curve_add(struct gpt_curve *curve, int step, double loss, struct gpt_problem *problem);
void gpt_curve_free(struct gpt_curve *curve);

// Replaces the file. validation: may be empty.
bool gpt_curve_write(const char *path, const struct gpt_curve *training,
                     const struct gpt_curve *validation, struct gpt_problem *problem);

#endif
