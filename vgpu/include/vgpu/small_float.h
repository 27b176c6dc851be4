// Half (binary16), bfloat16 and 8-bit floats as bits: conversions from and to float and double,
// exact in every bit. C and C++.
//
// Formats are described, not named, to one rounding routine; the common conversions have
// branch-free forms that vectorise. A NaN becomes the format's own NaN: 0x7fff for half and
// bfloat16, 0x7f for both 8-bit formats; 0x7fffffff from a half. A bfloat16 keeps its bits on the
// way to float.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_SMALL_FLOAT_H
#define VGPU_SMALL_FLOAT_H

#include <stdint.h>
#include <string.h>

#define VGPU_SMALL_FLOAT static inline __attribute__((unused))

enum vgpu_rounding { VGPU_ROUND_NEAREST, VGPU_ROUND_ZERO, VGPU_ROUND_UP, VGPU_ROUND_DOWN };

// A format: significand bits including the hidden one, exponent of the smallest normal number, and
// the bit patterns (without sign) of the largest finite number, of what lies beyond it, and of a
// NaN.
struct vgpu_small_format {
    int precision;
    int least_exponent;
    uint32_t largest, infinity, nan;
    int sign_bit;
};

#define VGPU_FORMAT(name) static const struct vgpu_small_format __attribute__((unused)) name
VGPU_FORMAT(vgpu_format_half) = {11, -14, 0x7bff, 0x7c00, 0x7fff, 15};
VGPU_FORMAT(vgpu_format_bfloat16) = {8, -126, 0x7f7f, 0x7f80, 0x7fff, 15};
VGPU_FORMAT(vgpu_format_e4m3) = {4, -6, 0x7e, 0x7f, 0x7f, 7};
VGPU_FORMAT(vgpu_format_e5m2) = {3, -14, 0x7b, 0x7c, 0x7f, 7};
#undef VGPU_FORMAT

VGPU_SMALL_FLOAT uint32_t vgpu_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}
VGPU_SMALL_FLOAT float vgpu_bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}
VGPU_SMALL_FLOAT uint64_t vgpu_double_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}
VGPU_SMALL_FLOAT double vgpu_bits_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

// x in the given format, rounded once. `saturate`: what would become infinity becomes the largest
// finite number instead (infinite x too); a NaN stays one.
VGPU_SMALL_FLOAT uint32_t vgpu_narrow(double x, struct vgpu_small_format format,
                                      enum vgpu_rounding mode, int saturate)
{
    uint64_t bits = vgpu_double_bits(x);
    uint32_t negative = (uint32_t)(bits >> 63);
    uint32_t sign = negative << format.sign_bit;
    uint64_t magnitude = bits & 0x7fffffffffffffffull;
    if (magnitude > 0x7ff0000000000000ull)
        return format.nan;
    if (magnitude == 0x7ff0000000000000ull)
        return sign | (saturate ? format.largest : format.infinity);

    // x = significand * 2^(exponent - 52); the result is a multiple of 2^unit.
    int exponent = (int)(magnitude >> 52) - 1023;
    uint64_t significand = magnitude & 0x000fffffffffffffull;
    if (exponent == -1023)
        exponent = -1022;
    else
        significand |= 0x0010000000000000ull;
    int least_unit = format.least_exponent - (format.precision - 1);
    int unit = exponent - (format.precision - 1);
    if (unit < least_unit)
        unit = least_unit;
    int shift = unit - (exponent - 52);
    if (shift > 60)
        shift = 60;

    uint64_t kept = significand >> shift;
    uint64_t dropped = significand & ((1ull << shift) - 1);
    uint64_t half = 1ull << (shift - 1);
    int up = 0;
    switch (mode) {
    case VGPU_ROUND_NEAREST:
        up = dropped > half || (dropped == half && (kept & 1) != 0);
        break;
    case VGPU_ROUND_UP:
        up = dropped != 0 && !negative;
        break;
    case VGPU_ROUND_DOWN:
        up = dropped != 0 && negative;
        break;
    default:
        break;
    }
    kept += (uint64_t)up;

    // A significand that reached the hidden bit moves the exponent field by itself.
    uint64_t result = ((uint64_t)(unit - least_unit) << (format.precision - 1)) + kept;
    if (result > format.largest) {
        int stays_finite = mode == VGPU_ROUND_ZERO || (mode == VGPU_ROUND_UP && negative) ||
                           (mode == VGPU_ROUND_DOWN && !negative);
        return sign | (saturate || stays_finite ? format.largest : format.infinity);
    }
    return sign | (uint32_t)result;
}

// `small` where x < limit, else `large` (x and limit below 2^31): by a mask from the sign of the
// difference, so that no compiler makes a branch of it and loops vectorise.
VGPU_SMALL_FLOAT uint32_t vgpu_pick(uint32_t x, uint32_t limit, uint32_t small, uint32_t large)
{
    uint32_t mask = (uint32_t)((int32_t)(x - limit) >> 31);
    return large ^ ((large ^ small) & mask);
}

// ---- Half --------------------------------------------------------------------------------------

// float to half, to nearest even.
VGPU_SMALL_FLOAT uint16_t vgpu_float_to_half(float x)
{
    uint32_t bits = vgpu_float_bits(x);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    // Normal results: round in the integer, then move the exponent's bias from 127 to 15.
    uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
    // Subnormal ones: adding 0.5 leaves the significand in units of 2^-24, rounded by the addition.
    uint32_t subnormal = vgpu_float_bits(vgpu_bits_float(magnitude) + 0.5f) - vgpu_float_bits(0.5f);
    uint32_t result = vgpu_pick(magnitude, 0x38800000u, subnormal, normal);
    result = vgpu_pick(magnitude, 0x477ff000u, result, 0x7c00u);
    return (uint16_t)vgpu_pick(magnitude, 0x7f800001u, result | sign, 0x7fffu);
}

VGPU_SMALL_FLOAT float vgpu_half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t magnitude = half & 0x7fffu;
    uint32_t normal = (magnitude << 13) + (112u << 23);
    // Subnormals: the significand below a leading 2^-14, minus that.
    uint32_t subnormal = vgpu_float_bits(vgpu_bits_float((113u << 23) + (magnitude << 13)) -
                                         vgpu_bits_float(113u << 23));
    uint32_t result = vgpu_pick(magnitude, 0x400u, subnormal, normal);
    result = vgpu_pick(magnitude, 0x7c00u, result, 0x7f800000u);
    return vgpu_bits_float(vgpu_pick(magnitude, 0x7c01u, result | sign, 0x7fffffffu));
}

VGPU_SMALL_FLOAT uint16_t vgpu_double_to_half(double x, enum vgpu_rounding mode)
{
    return (uint16_t)vgpu_narrow(x, vgpu_format_half, mode, 0);
}

// ---- bfloat16 ----------------------------------------------------------------------------------

// float to bfloat16, to nearest even.
VGPU_SMALL_FLOAT uint16_t vgpu_float_to_bfloat16(float x)
{
    uint32_t bits = vgpu_float_bits(x);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
}

VGPU_SMALL_FLOAT float vgpu_bfloat16_to_float(uint16_t bfloat16)
{
    return vgpu_bits_float((uint32_t)bfloat16 << 16);
}

VGPU_SMALL_FLOAT uint16_t vgpu_double_to_bfloat16(double x, enum vgpu_rounding mode)
{
    return (uint16_t)vgpu_narrow(x, vgpu_format_bfloat16, mode, 0);
}

// ---- 8-bit floats ------------------------------------------------------------------------------

VGPU_SMALL_FLOAT uint8_t vgpu_double_to_e4m3(double x, int saturate)
{
    return (uint8_t)vgpu_narrow(x, vgpu_format_e4m3, VGPU_ROUND_NEAREST, saturate);
}
VGPU_SMALL_FLOAT uint8_t vgpu_double_to_e5m2(double x, int saturate)
{
    return (uint8_t)vgpu_narrow(x, vgpu_format_e5m2, VGPU_ROUND_NEAREST, saturate);
}

// Both 8-bit formats are subsets of half.
VGPU_SMALL_FLOAT uint16_t vgpu_e5m2_to_half(uint8_t x)
{
    return (uint16_t)((x & 0x7fu) > 0x7cu ? 0x7fffu : (uint32_t)x << 8);
}
VGPU_SMALL_FLOAT uint16_t vgpu_e4m3_to_half(uint8_t x)
{
    uint32_t sign = (uint32_t)(x & 0x80u) << 8;
    uint32_t magnitude = x & 0x7fu;
    if (magnitude == 0x7fu)
        return 0x7fffu;
    if (magnitude >= 8u) // normal: the exponent's bias moves from 7 to 15
        return (uint16_t)(sign | ((magnitude << 7) + (8u << 10)));
    if (magnitude == 0)
        return (uint16_t)sign;
    // Subnormal: m * 2^-9, normal as a half.
    uint32_t top = magnitude >= 4u ? 2u : magnitude >= 2u ? 1u : 0u;
    return (uint16_t)(sign | (top + 6u) << 10 | (magnitude << (10u - top) & 0x3ffu));
}

#endif
