// The two 8-bit floats in software: the portable reference of their conversions. Rounds to nearest
// even, keeps subnormals; what is too large becomes the largest finite number, infinities too; a
// NaN becomes the one NaN 0x7f. As in CUDA's saturating conversions.
//   e4m3: 4 bits of exponent (bias 7), no infinity, NaN 0x7f and 0xff, largest 448
//   e5m2: 5 bits of exponent (bias 15), infinity 0x7c, largest 57344
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_REDUCE_FP8_H
#define TT_REDUCE_FP8_H

#include "reduce/half.h"

static inline float tt_float_from_e4m3(uint8_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x80) << 24, rest = bits & 0x7fu;
    if (rest == 0x7f) {
        return tt_float_from_bits(sign | 0x7fc00000);
    }
    // As the fraction and exponent of a float whose exponent is 120 too small; exact.
    float magnitude = tt_float_from_bits(rest << 20) * 0x1p120f;
    return tt_float_from_bits(sign | tt_float_bits(magnitude));
}

static inline float tt_float_from_e5m2(uint8_t bits)
{
    return tt_float_from_half((uint16_t)(bits << 8));
}

static inline uint8_t tt_e4m3_from_float(float value)
{
    uint32_t bits = tt_float_bits(value);
    uint32_t sign = bits >> 24 & 0x80, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) {
        return 0x7f;
    }
    if (rest >= 0x43e00000) { // 448
        return (uint8_t)(sign | 0x7e);
    }
    if (rest < 0x3c800000) { // 2^-6: let the float adder round at 2^-9
        float shifted = tt_float_from_bits(rest) + 0x1p14f;
        return (uint8_t)(sign | (tt_float_bits(shifted) - 0x46800000));
    }
    return (uint8_t)(sign | ((rest - (120u << 23) + 0x7ffff + (rest >> 20 & 1)) >> 20));
}

static inline uint8_t tt_e5m2_from_float(float value)
{
    uint32_t bits = tt_float_bits(value);
    uint32_t sign = bits >> 24 & 0x80, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) {
        return 0x7f;
    }
    if (rest >= 0x47600000) { // 57344
        return (uint8_t)(sign | 0x7b);
    }
    if (rest < 0x38800000) { // 2^-14: let the float adder round at 2^-16
        float shifted = tt_float_from_bits(rest) + 0x1p7f;
        return (uint8_t)(sign | (tt_float_bits(shifted) - 0x43000000));
    }
    return (uint8_t)(sign | ((rest - (112u << 23) + 0xfffff + (rest >> 21 & 1)) >> 21));
}

#endif
