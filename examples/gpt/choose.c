// SPDX-License-Identifier: Apache-2.0
#include "sample.h"

#include <math.h>

static int highest(const float *scores, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++) {
        best = scores[i] > scores[best] ? i : best;
    }
    return best;
}

// The score that a token must have, and how many with just this score count, the lowest first.
static float find_limit(const float *scores, int count, int top_k, int *equals)
{
    float limit = INFINITY;
    for (int left = top_k; left > 0;) {
        float next = -INFINITY;
        int many = 0;
        for (int i = 0; i < count; i++) {
            if (scores[i] < limit && scores[i] > next) {
                next = scores[i];
                many = 0;
            }
            many += scores[i] == next ? 1 : 0;
        }
        if (many == 0) {
            break;
        }
        *equals = left < many ? left : many;
        left -= many;
        limit = next;
    }
    return limit;
}

int gpt_choose(float *scores, int count, double temperature, int top_k, double number)
{
    int best = highest(scores, count);
    if (temperature == 0) {
        return best;
    }
    if (top_k > 0 && top_k < count) {
        int equals = 0;
        float limit = find_limit(scores, count, top_k, &equals);
        for (int i = 0; i < count; i++) {
            bool kept = scores[i] > limit || (scores[i] == limit && equals-- > 0);
            scores[i] = kept ? scores[i] : -INFINITY;
        }
    }
    double highest_score = scores[best], sum = 0;
    for (int i = 0; i < count; i++) {
        sum += exp((scores[i] - highest_score) / temperature);
    }
    double rest = number * sum;
    for (int i = 0; i < count; i++) {
        rest -= exp((scores[i] - highest_score) / temperature);
        if (rest < 0) {
            return i;
        }
    }
    return best;
}
