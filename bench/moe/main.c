// tuttiMoeDispatch and tuttiMoeCombine: their rate, and dispatch under skewed routing, drawn into
// the file that the argument names. Exit status 1 where the bar is missed.
// SPDX-License-Identifier: Apache-2.0
#include "rate.h"
#include "skew.h"

#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 4096 };

int main(int argc, char **argv)
{
    struct skew_point points[SKEWS];
    if (argc < 2 || argc > 3 || argv[1][0] == '-') {
        fprintf(stderr, "usage: moe FILE.svg [TOKENS]   tokens of each rank, default: %d\n",
                TOKENS);
        return 2;
    }
    long tokens = argc == 3 ? atol(argv[2]) : TOKENS;
    if (tokens < 1 || tokens > 1 << 20) {
        fprintf(stderr, "moe: %s tokens; must be 1 to %d\n", argv[2], 1 << 20);
        return 2;
    }
    bool met = measure_rate((size_t)tokens);
    measure_skews(points);
    draw_skews(points, argv[1]);
    printf("drawn: %s\n", argv[1]);
    return met ? 0 : 1;
}
