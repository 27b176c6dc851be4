// Half and bf16 in software: the portable reference of all element conversions. Rounds to nearest
// even, keeps subnormals; a NaN becomes the one NaN 0x7fff, as in CUDA's conversions.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_REDUCE_HALF_H
#define TT_REDUCE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t tt_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float tt_float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float tt_float_from_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t rest = half & 0x7fffu;
    if (rest >= 0x7c00) { // infinity, NaN
        return tt_float_from_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    }
    if (rest >= 0x400) { // normal: 112 is the difference of the exponents' biases
        return tt_float_from_bits(sign | ((rest << 13) + (112u << 23)));
    }
    float magnitude = (float)rest * 0x1p-24f; // zero or subnormal; exact
    return tt_float_from_bits(sign | tt_float_bits(magnitude));
}

static inline uint16_t tt_half_from_float(float value)
{
    uint32_t bits = tt_float_bits(value);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) {
        return 0x7fff;
    }
    if (rest >= 0x477ff000) { // rounds beyond the largest half, 65504
        return (uint16_t)(sign | 0x7c00);
    }
    if (rest < 0x38800000) { // below the smallest normal half: let the float adder round at 2^-24
        float shifted = tt_float_from_bits(rest) + 0.5f;
        return (uint16_t)(sign | (tt_float_bits(shifted) - 0x3f000000));
    }
    uint32_t odd = rest >> 13 & 1;
    return (uint16_t)(sign | ((rest - (112u << 23) + 0xfff + odd) >> 13));
}

static inline float tt_float_from_bfloat16(uint16_t bfloat16)
{
    return tt_float_from_bits((uint32_t)bfloat16 << 16);
}

static inline uint16_t tt_bfloat16_from_float(float value)
{
    uint32_t bits = tt_float_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000) {
        return 0x7fff;
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
