// The functions of moe_rows.h on vectors of 32 bytes, which compilers split where the processor has
// none. The including file defines MOE_ROWS (the table's name), and store_32(to, vector) and
// fence() for stores past the caches. SPDX-License-Identifier: Apache-2.0
#include <stdint.h>
#include <string.h>

typedef float floats __attribute__((vector_size(32)));
typedef uint32_t words __attribute__((vector_size(32)));
typedef int32_t mask __attribute__((vector_size(32)));

enum { DOT_LANES = 32 };

// ---- Elements -----------------------------------------------------------------------------------

static inline float widen_one(uint16_t element)
{
    uint32_t bits = (uint32_t)element << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// To the nearest, ties to even; every NaN becomes 0x7fff.
static inline uint16_t narrow_one(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = value != value ? 0x7fffu << 16 : bits + 0x7fffu + ((bits >> 16) & 1);
    return (uint16_t)(bits >> 16);
}

static inline words load_words(const void *from)
{
    words value;
    memcpy(&value, from, sizeof value);
    return value;
}

// bf16 elements stand two in a word; all of one half make a vector without being moved about.
static inline floats low_halves(words elements)
{
    return (floats)(elements << 16);
}

static inline floats high_halves(words elements)
{
    return (floats)(elements & 0xffff0000u);
}

// As narrow_one; the rounded bits are the upper half of each word.
static inline words narrow_up(floats value)
{
    words bits = (words)value, is_nan = (words)(mask)(value != value);
    words rounded = bits + 0x7fffu + ((bits >> 16) & 1);
    return (rounded & ~is_nan) | (0x7fff0000u & is_nan);
}

static inline words join_halves(floats low, floats high)
{
    return (narrow_up(low) >> 16) | (narrow_up(high) & 0xffff0000u);
}

static inline int may_pass(const void *to, int past)
{
    return past && (uintptr_t)to % 32 == 0;
}

// ---- Copy ---------------------------------------------------------------------------------------

static void copy_row(void *to, const void *from, size_t bytes, int past)
{
    char *out = to;
    const char *in = from;
    size_t i = 0;
    if (!may_pass(to, past)) {
        memcpy(to, from, bytes);
        return;
    }
    for (; i + 64 <= bytes; i += 64) {
        floats low, high;
        memcpy(&low, in + i, sizeof low);
        memcpy(&high, in + i + 32, sizeof high);
        store_32(out + i, low);
        store_32(out + i + 32, high);
    }
    memcpy(out + i, in + i, bytes - i);
}

// ---- Sums ---------------------------------------------------------------------------------------

static inline void store_floats(void *to, floats value, int past)
{
    if (past) {
        store_32(to, value);
    } else {
        memcpy(to, &value, sizeof value);
    }
}

static inline float factor_of(const double *weights, int r)
{
    return weights != NULL ? (float)weights[r] : 1;
}

static void sum_float32(void *to, const void *const *rows, const double *weights, int count,
                        size_t hidden, int past)
{
    float *out = to;
    size_t i = 0;
    past = may_pass(to, past);
    for (; i + 32 <= hidden; i += 32) {
        floats sum[4] = {{0}};
        for (int r = 0; r < count; r++) {
            const float *row = (const float *)rows[r] + i;
            float factor = factor_of(weights, r);
            for (int k = 0; k < 4; k++) {
                floats value;
                memcpy(&value, row + 8 * k, sizeof value);
                value *= factor;
                sum[k] = r == 0 ? value : sum[k] + value;
            }
        }
        for (int k = 0; k < 4; k++) {
            store_floats(out + i + 8 * k, sum[k], past);
        }
    }
    for (; i < hidden; i++) {
        float sum = 0;
        for (int r = 0; r < count; r++) {
            float value = ((const float *)rows[r])[i] * factor_of(weights, r);
            sum = r == 0 ? value : sum + value;
        }
        out[i] = sum;
    }
}

static void sum_bfloat16(void *to, const void *const *rows, const double *weights, int count,
                         size_t hidden, int past)
{
    uint16_t *out = to;
    size_t i = 0;
    past = may_pass(to, past);
    for (; i + 32 <= hidden; i += 32) {
        floats sum[4] = {{0}};
        for (int r = 0; r < count; r++) {
            float factor = factor_of(weights, r);
            const uint16_t *row = (const uint16_t *)rows[r] + i;
            words first = load_words(row), second = load_words(row + 16);
            const floats value[4] = {low_halves(first) * factor, high_halves(first) * factor,
                                     low_halves(second) * factor, high_halves(second) * factor};
            for (int k = 0; k < 4; k++) {
                sum[k] = r == 0 ? value[k] : sum[k] + value[k];
            }
        }
        store_floats(out + i, (floats)join_halves(sum[0], sum[1]), past);
        store_floats(out + i + 16, (floats)join_halves(sum[2], sum[3]), past);
    }
    for (; i < hidden; i++) {
        float sum = 0;
        for (int r = 0; r < count; r++) {
            float value = widen_one(((const uint16_t *)rows[r])[i]) * factor_of(weights, r);
            sum = r == 0 ? value : sum + value;
        }
        out[i] = narrow_one(sum);
    }
}

static void sum_float64(void *to, const void *const *rows, const double *weights, int count,
                        size_t hidden, int past)
{
    double *out = to;
    (void)past;
    for (size_t i = 0; i < hidden; i++) {
        double sum = 0;
        for (int r = 0; r < count; r++) {
            double value = ((const double *)rows[r])[i] * (weights != NULL ? weights[r] : 1);
            sum = r == 0 ? value : sum + value;
        }
        out[i] = sum;
    }
}

// ---- Dot products -------------------------------------------------------------------------------

static double add_lanes(const double *lanes)
{
    double sum = lanes[0];
    for (int l = 1; l < DOT_LANES; l++) {
        sum += lanes[l];
    }
    return sum;
}

static double dot_float32(const void *grad, const void *row, size_t hidden)
{
    const float *a = grad, *b = row;
    double lanes[DOT_LANES] = {0};
    size_t i = 0;
    for (; i + DOT_LANES <= hidden; i += DOT_LANES) {
        for (int l = 0; l < DOT_LANES; l++) {
            lanes[l] += (double)a[i + (size_t)l] * (double)b[i + (size_t)l];
        }
    }
    for (int l = 0; i < hidden; i++, l++) {
        lanes[l] += (double)a[i] * (double)b[i];
    }
    return add_lanes(lanes);
}

static double dot_bfloat16(const void *grad, const void *row, size_t hidden)
{
    const float *a = grad;
    const uint16_t *b = row;
    double lanes[DOT_LANES] = {0};
    size_t i = 0;
    for (; i + DOT_LANES <= hidden; i += DOT_LANES) {
        for (int l = 0; l < DOT_LANES; l++) {
            lanes[l] += (double)a[i + (size_t)l] * (double)widen_one(b[i + (size_t)l]);
        }
    }
    for (int l = 0; i < hidden; i++, l++) {
        lanes[l] += (double)a[i] * (double)widen_one(b[i]);
    }
    return add_lanes(lanes);
}

static double dot_float64(const void *grad, const void *row, size_t hidden)
{
    const double *a = grad, *b = row;
    double lanes[DOT_LANES] = {0};
    for (size_t i = 0; i < hidden; i++) {
        lanes[i % DOT_LANES] += a[i] * b[i];
    }
    return add_lanes(lanes);
}

const struct moe_rows MOE_ROWS = {copy_row,    sum_float32,  sum_bfloat16, sum_float64,
                                  dot_float32, dot_bfloat16, dot_float64,  fence};
