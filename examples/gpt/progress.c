// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_BYTES = 32, PLAIN_LINES = 50 };

double gpt_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void gpt_progress_open(struct gpt_progress *progress, bool shown, int first, int steps,
                       size_t tokens)
{
    memset(progress, 0, sizeof *progress);
    progress->shown = shown;
    progress->terminal = isatty(STDOUT_FILENO) == 1;
    progress->first = first;
    progress->steps = steps;
    progress->tokens = tokens;
    progress->last_time = gpt_now();
}

static void write_duration(char *text, double seconds)
{
    long s = (long)(seconds + 0.5);
    if (s < 60) {
        (void)snprintf(text, TEXT_BYTES, "%ld s", s);
    } else if (s < 3600) {
        (void)snprintf(text, TEXT_BYTES, "%ld:%02ld min", s / 60, s % 60);
    } else {
        (void)snprintf(text, TEXT_BYTES, "%ld:%02ld h", s / 3600, s / 60 % 60);
    }
}

// Whether the step's line is written: on a terminal ten times a second, else some 50 in all.
static bool is_due(const struct gpt_progress *progress, int step, double now)
{
    if (step == progress->first + 1 || step == progress->steps) {
        return true;
    }
    int every = (progress->steps + PLAIN_LINES - 1) / PLAIN_LINES;
    return progress->terminal ? now - progress->last_shown >= 0.1 : step % every == 0;
}

void gpt_progress_step(struct gpt_progress *progress, int step, double loss, double rate,
                       double norm)
{
    double now = gpt_now(), took = now - progress->last_time;
    progress->last_time = now;
    // The first step makes things that later ones find: it does not count.
    bool first = progress->step_s == 0 || step <= progress->first + 2;
    progress->step_s = first ? took : 0.9 * progress->step_s + 0.1 * took;
    progress->counted_s += first ? 0 : took;
    progress->counted += !first;
    if (!progress->shown || !is_due(progress, step, now)) {
        return;
    }
    char left[TEXT_BYTES];
    progress->last_shown = now;
    write_duration(left, (progress->steps - step) * progress->step_s);
    (void)printf("%sstep %*d/%d  loss %.4f  rate %.2e  norm %.3f  %.0f tokens/s  %s left%s",
                 progress->terminal ? "\r\033[K" : "", progress->steps < 1000 ? 3 : 6, step,
                 progress->steps, loss, rate, norm, (double)progress->tokens / progress->step_s,
                 left, progress->terminal && step < progress->steps ? "" : "\n");
    (void)fflush(stdout);
}

void gpt_progress_say(struct gpt_progress *progress, const char *format, ...)
{
    if (!progress->shown) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    (void)printf("%s", progress->terminal ? "\r\033[K" : "");
    (void)vprintf(format, arguments);
    (void)printf("\n");
    va_end(arguments);
    (void)fflush(stdout);
}

void gpt_progress_end(struct gpt_progress *progress)
{
    if (progress->counted > 0) {
        double each = progress->counted_s / progress->counted;
        gpt_progress_say(progress, "%d step%s after the first two: %.1f ms a step, %.0f tokens/s",
                         progress->counted, progress->counted == 1 ? "" : "s", 1e3 * each,
                         (double)progress->tokens / each);
    }
}

void gpt_progress_skip(struct gpt_progress *progress)
{
    progress->last_time = gpt_now();
}
