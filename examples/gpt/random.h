// Random numbers that have a place instead of a history: number i of a stream can be computed
// alone, by any rank. Philox4x32-10: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel Random
// Numbers: As Easy as 1, 2, 3", SC 2011.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_RANDOM_H
#define GPT_RANDOM_H

#include <stdint.h>

// 4 x 32 random bits for a counter and a key.
static inline void gpt_philox(const uint32_t counter[4], uint64_t key, uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0;
        uint64_t b = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

// 64 bits that stand for a text (FNV-1a: G. Fowler, L. Noll, P. Vo, 1991).
uint64_t gpt_hash(const char *text);

// Four numbers of the standard normal distribution: numbers 4 * block to 4 * block + 3 of the
// stream that `seed` and `stream` name. By G. Box and M. Muller, "A Note on the Generation of
// Random Normal Deviates", 1958.
void gpt_normal(uint64_t seed, uint64_t stream, uint64_t block, double out[4]);

#endif
