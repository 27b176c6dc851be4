// Upper bounds on time that hold on a loaded machine, too: they judge what the tested code took,
// not what other programs took from it.
//   struct stopwatch watch = stopwatch_start(); ...; EXPECT_WITHIN(watch, 3);
//   while (state == ncclSuccess && stopwatch_is_within(&watch, 3)) {...}
// The rule: time counts by the part of the machine (of the cores that this process may use) that
// other programs left idle or to the test. Where they used three quarters of it, a second counts a
// quarter. What the test itself uses, its ranks and the children it has waited for included, is no
// excuse. On a quiet machine all time counts; and on any a twentieth, so that bounded loops end.
// Under sanitizers all bounds are five times as long.
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_SUPPORT_STOPWATCH_H
#define TESTS_SUPPORT_STOPWATCH_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct stopwatch { // seconds
    double wall_s; // the clock
    double own_s;  // CPU time of the test
    double busy_s; // CPU time of everything on the cores that it may use
};

struct stopwatch stopwatch_start(void);
// Seconds since the start by the clock: for lower bounds, and to tell.
double stopwatch_s(const struct stopwatch *watch);
// Those of them that count.
double stopwatch_counted_s(const struct stopwatch *watch);
// Whether at most `most_s` seconds count (five times that under sanitizers). Cheap until then.
bool stopwatch_is_within(const struct stopwatch *watch, double most_s);
// The rule: what counts of `wall_s` > 0 seconds in which the test had own_s seconds of `cores`
// cores that were busy for busy_s in all.
double stopwatch_rule_s(double wall_s, double own_s, double busy_s, int cores);

// The check that stopwatch_is_within(&watch, most_s); a failure tells all numbers.
#define EXPECT_WITHIN(watch, most_s) stopwatch_expect(&(watch), (most_s), __FILE__, __LINE__)
bool stopwatch_expect(const struct stopwatch *watch, double most_s, const char *file, int line);

#ifdef __cplusplus
}
#endif
#endif
