// Percentiles of samples, by nearest rank: the smallest value that is not below p percent of all.
// SPDX-License-Identifier: Apache-2.0
#include "perf.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const double *sorted, size_t n, size_t percent)
{
    size_t nearest = (n * percent + 99) / 100;
    return sorted[nearest > 0 ? nearest - 1 : 0];
}

struct perf_statistics perf_statistics_of(double *values, size_t n)
{
    struct perf_statistics s = {0};
    if (n == 0) {
        return s;
    }
    qsort(values, n, sizeof *values, compare);
    s.min = values[0];
    s.max = values[n - 1];
    s.p50 = percentile(values, n, 50);
    s.p90 = percentile(values, n, 90);
    s.p99 = percentile(values, n, 99);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += values[i];
    }
    s.mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) {
        squares += (values[i] - s.mean) * (values[i] - s.mean);
    }
    s.variation = s.mean > 0 ? sqrt(squares / (double)n) / s.mean * 100 : 0;
    return s;
}
