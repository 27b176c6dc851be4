// The learning rate: it rises evenly in the first steps, then falls by half a cosine.
// I. Loshchilov and F. Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017
// (without restarts).
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_SCHEDULE_H
#define GPT_SCHEDULE_H

#include <math.h>

struct gpt_rates {
    double highest, lowest;
    int warmup, steps;
};

// The rate of step `step`, from 1 on: highest * step / warmup in the warm-up; then, from the step
// after it on, lowest + (highest - lowest) * (1 + cos(pi * x)) / 2 with x from 0, the step after
// the warm-up, to 1, one step after the last.
static inline double gpt_learning_rate(const struct gpt_rates *rates, int step)
{
    const double pi = 3.14159265358979323846;
    if (step <= rates->warmup) {
        return rates->highest * step / rates->warmup;
    }
    if (step > rates->steps) {
        return rates->lowest;
    }
    double x = (double)(step - 1 - rates->warmup) / (rates->steps - rates->warmup);
    return rates->lowest + (rates->highest - rates->lowest) * (1 + cos(pi * x)) / 2;
}

#endif
