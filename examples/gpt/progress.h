// The line that says how far a training is: rewritten in place on a terminal, else one line now and
// then. Rank 0 alone writes.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_PROGRESS_H
#define GPT_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

struct gpt_progress {
    bool shown;    // this rank writes
    bool terminal; // stdout is one
    int first, steps;
    size_t tokens;    // of a step
    double step_s;    // of the last steps, smoothed; 0: none yet
    double counted_s; // all of them but the first two
    int counted;
    double last_time;  // when the last step ended
    double last_shown; // and when a line was last written
};

// Seconds since some time; for differences.
double gpt_now(void);

// first: the step before the first that will run; steps: of the whole training.
void gpt_progress_open(struct gpt_progress *progress, bool shown, int first, int steps,
                       size_t tokens);

// After each step. loss, norm: of the step's batch.
void gpt_progress_step(struct gpt_progress *progress, int step, double loss, double rate,
                       double norm);

// A line of its own, between those of steps; format as for printf, without the line's end.
void gpt_progress_say(struct gpt_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// After the last one: how long a step took, on average.
void gpt_progress_end(struct gpt_progress *progress);

// What takes long between steps does not count as theirs: call it after.
void gpt_progress_skip(struct gpt_progress *progress);

#endif
