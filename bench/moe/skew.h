// Three ways of tokens to experts' ranks, under more and more skewed routing.
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_MOE_SKEW_H
#define BENCH_MOE_SKEW_H

enum { WAYS = 3, SKEWS = 6 };

struct skew_point {
    double skew;        // expert e is chosen with a weight of 1 / (e + 1)^skew
    double share;       // of all rows, the busiest rank's; 1 / ranks is even
    double time[WAYS];  // milliseconds
    double bytes[WAYS]; // that travel, padding included
};
extern const char *const skew_ways[WAYS];

void measure_skews(struct skew_point *points);
// Writes the picture; ends the program where that fails.
void draw_skews(const struct skew_point *points, const char *path);

#endif
