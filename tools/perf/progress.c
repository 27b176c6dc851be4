// A bar on stderr where that is a terminal and the run has lasted a while; gone before each line.
// SPDX-License-Identifier: Apache-2.0
#include "perf.h"

#include <unistd.h>

void perf_progress(struct perf_report *report, double steps)
{
    enum { WIDTH = 32 };
    const double patience_s = 2; // shorter runs show none
    if (report == NULL) {
        return;
    }
    report->done += steps;
    double passed = perf_now() - report->begun;
    if (report->all <= 0 || passed < patience_s || !isatty(STDERR_FILENO)) {
        return;
    }
    double part = report->done < report->all ? report->done / report->all : 1;
    int full = (int)(part * WIDTH), left = (int)(passed / part - passed + 0.5);
    (void)fprintf(stderr, "\r[%.*s%.*s] %3.0f %%, %d:%02d left ", full,
                  "################################", WIDTH - full,
                  "................................", part * 100, left / 60, left % 60);
    (void)fflush(stderr);
    report->bar_shown = true;
}

void perf_progress_clear(struct perf_report *report)
{
    if (report != NULL && report->bar_shown) {
        (void)fputs("\r\033[K", stderr);
        (void)fflush(stderr);
        report->bar_shown = false;
    }
}
