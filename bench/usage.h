// A benchmark's program answers -h and --help, and refuses what it does not know.
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_USAGE_H
#define BENCH_USAGE_H

#include <stdio.h>
#include <string.h>

// word: the first argument that the program does not know; NULL: one is missing. Prints `usage`,
// for any other word than -h and --help as an error that names it; returns the exit status.
static inline int bench_usage(const char *word, const char *usage)
{
    int asks = word != NULL && (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0);
    if (word != NULL && !asks) {
        (void)fprintf(stderr, "bench: %s: what is that?\n", word);
    }
    (void)fprintf(asks ? stdout : stderr, "usage: %s\n", usage);
    return asks ? 0 : 2;
}

#endif
