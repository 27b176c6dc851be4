// Inputs and the right results. The inputs are those of NCCL's examples: std::mt19937 with seed
// 42 + rank, uniform in [0, 1).
// SPDX-License-Identifier: Apache-2.0
#include "demo.h"

#include <cmath>
#include <random>

static const size_t elements = (size_t)DEMO_TOKENS * DEMO_HIDDEN;

void demo_make_input(float *to, int rank)
{
    std::mt19937 generator((unsigned)(DEMO_SEED + rank));
    std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
    for (size_t i = 0; i < elements; i++) {
        to[i] = uniform(generator);
    }
}

void demo_add_inputs(double *sums, int from, int to)
{
    for (int rank = from; rank < to; rank++) {
        std::mt19937 generator((unsigned)(DEMO_SEED + rank));
        std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
        for (size_t i = 0; i < elements; i++) {
            sums[i] += (double)uniform(generator);
        }
    }
}

void demo_normalise(double *wanted, const double *sums, double eps)
{
    for (size_t token = 0; token < DEMO_TOKENS; token++) {
        const double *row = sums + token * DEMO_HIDDEN;
        double squares = 0;
        for (size_t i = 0; i < DEMO_HIDDEN; i++) {
            squares += row[i] * row[i];
        }
        double root = std::sqrt(squares / DEMO_HIDDEN + eps);
        for (size_t i = 0; i < DEMO_HIDDEN; i++) {
            wanted[token * DEMO_HIDDEN + i] = row[i] / root;
        }
    }
}
