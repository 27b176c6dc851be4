// See random.h. SPDX-License-Identifier: Apache-2.0
#include "random.h"

#include <math.h>
#include <stddef.h>

uint64_t gpt_hash(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *c = text; *c != 0; c++) {
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    }
    return hash;
}

// A number in (0, 1): the middle of one of 2^32 equal parts.
static double uniform(uint32_t bits)
{
    return (bits + 0.5) * 0x1p-32;
}

void gpt_normal(uint64_t seed, uint64_t stream, uint64_t block, double out[4])
{
    const double two_pi = 6.283185307179586476925286766559;
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream,
                                 (uint32_t)(stream >> 32)};
    uint32_t bits[4];
    gpt_philox(counter, seed, bits);
    for (size_t pair = 0; pair < 2; pair++) {
        double radius = sqrt(-2 * log(uniform(bits[2 * pair])));
        double angle = two_pi * uniform(bits[2 * pair + 1]);
        out[2 * pair] = radius * cos(angle);
        out[2 * pair + 1] = radius * sin(angle);
    }
}
