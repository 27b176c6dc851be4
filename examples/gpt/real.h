// The numbers that the typed parts of the model compute with. These parts (attention, rotary, norm,
// mlp, ...) are compiled three times, with GPT_TYPE_FLOAT, GPT_TYPE_BF16 or GPT_TYPE_DOUBLE
// defined:
//   stored   what weights and activations are in memory
//   real     what is computed in, and weight gradients
// Their functions' names end in the type: GPT_TYPED.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_REAL_H
#define GPT_REAL_H

#include <nccl.h>

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define GPT_JOIN(name, type)   name##_##type
#define GPT_SUFFIX(name, type) GPT_JOIN(name, type)
#define GPT_TYPED(name)        GPT_SUFFIX(name, GPT_TYPE)

#if defined(GPT_TYPE_DOUBLE)
#define GPT_TYPE double_
typedef double real;
typedef double stored;
#elif defined(GPT_TYPE_BF16)
#define GPT_TYPE bf16
typedef float real;
typedef uint16_t stored;
#else
#define GPT_TYPE float_
typedef float real;
typedef float stored;
#endif

#if defined(GPT_TYPE_BF16)
enum { GPT_STORED_NCCL = ncclBfloat16, GPT_REAL_NCCL = ncclFloat32 };

static inline real load(stored x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// Rounded to nearest, ties to even; a NaN stays one.
static inline stored keep(real x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (stored)(x != x ? (bits >> 16) | 0x40u : rounded);
}
#else
#if defined(GPT_TYPE_DOUBLE)
enum { GPT_STORED_NCCL = ncclFloat64, GPT_REAL_NCCL = ncclFloat64 };
#else
enum { GPT_STORED_NCCL = ncclFloat32, GPT_REAL_NCCL = ncclFloat32 };
#endif

static inline real load(stored x)
{
    return x;
}

static inline stored keep(real x)
{
    return x;
}
#endif

#if defined(GPT_TYPE_DOUBLE)
static inline real real_exp(real x)
{
    return exp(x);
}

static inline real real_root(real x)
{
    return sqrt(x);
}
#else
// e^x with an error of 2 units in the last place, in operations that vectorise: x = n ln 2 + r, and
// the Taylor polynomial of e^r for |r| <= ln 2 / 2. Below -87 and above 88 as at these.
static inline real real_exp(real x)
{
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const float shift = 12582912.0f; // 1.5 * 2^23: its last bits hold the nearest whole number
    float shifted = x * 1.44269504f + shift;
    float n = shifted - shift;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + 0x3f800000u; // 2^n
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

static inline real real_root(real x)
{
    return sqrtf(x);
}
#endif

// 1 / (1 + e^-x)
static inline real real_sigmoid(real x)
{
    return 1 / (1 + real_exp(-x));
}

#endif
