// Every row kernel that runs here against a literal reading of the contract on bits, and against
// double precision; the conversions of half and bf16 against the compiler's own, over all values.
// SPDX-License-Identifier: Apache-2.0
#include "base/split.h"
#include "exec/cpu/rmsnorm_rows.h"
#include "expect.h"
#include "reduce/half.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 8 };

static uint32_t random_state = 12345;
static float random_float(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (float)(random_state >> 8) * 0x1p-24f * 4.0f - 1.5f;
}

// One element type as the reference sees it.
struct element {
    const char *name;
    size_t bytes;
    float (*get)(const char *);
    void (*put)(char *, float);
};

static float get_float32(const char *from)
{
    float value;
    memcpy(&value, from, sizeof value);
    return value;
}
static void put_float32(char *to, float value)
{
    memcpy(to, &value, sizeof value);
}
static float get_float16(const char *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return tt_float_from_half(value);
}
static void put_float16(char *to, float value)
{
    uint16_t half = tt_half_from_float(value);
    memcpy(to, &half, sizeof half);
}
static float get_bfloat16(const char *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return tt_float_from_bfloat16(value);
}
static void put_bfloat16(char *to, float value)
{
    uint16_t half = tt_bfloat16_from_float(value);
    memcpy(to, &half, sizeof half);
}

static const struct element elements[] = {
    {"float32", 4, get_float32, put_float32},
    {"float16", 2, get_float16, put_float16},
    {"bfloat16", 2, get_bfloat16, put_bfloat16},
};

// The contract, as it is written: nothing clever.
static void reference_row(const struct tt_norm_row *row, const struct element *type, size_t hidden,
                          float eps)
{
    float *x = malloc(hidden * sizeof *x);
    for (size_t i = 0; i < hidden; i++) {
        x[i] = type->get(row->input.base + i * type->bytes);
        for (int rank = 1; rank < row->ranks; rank++) {
            x[i] += type->get(row->input.base + (size_t)rank * row->input.stride + i * type->bytes);
        }
        if (row->residual != NULL) {
            x[i] += type->get(row->residual + i * type->bytes);
        }
    }
    float partial[256] = {0};
    for (size_t i = 0; i < hidden; i++) {
        float squared = x[i] * x[i];
        partial[i / 4 % 256] += squared;
    }
    for (int distance = 128; distance >= 1; distance /= 2) {
        for (int t = 0; t < distance; t++) {
            partial[t] += partial[t + distance];
        }
    }
    float mean = partial[0] / (float)hidden;
    float root = sqrtf(mean + eps);
    float scale = root == 0 ? 0 : 1 / root;
    for (size_t i = 0; i < hidden; i++) {
        float y = x[i] * scale;
        if (row->gamma != NULL) {
            y *= type->get(row->gamma + i * type->bytes);
        }
        for (int rank = 0; rank < row->ranks; rank++) {
            type->put(row->output.base + (size_t)rank * row->output.stride + i * type->bytes, y);
        }
        if (row->residual_out != NULL) {
            type->put(row->residual_out + i * type->bytes, x[i]);
        }
    }
    free(x);
}

static void variant_row(const struct tt_norm_variant *variant, const struct tt_norm_row *row,
                        const struct tt_norm_type *type, size_t hidden, float eps)
{
    static float x[TT_NORM_SEGMENT] __attribute__((aligned(64)));
    float partial[256] __attribute__((aligned(64))) = {0};
    size_t segments = (hidden + TT_NORM_SEGMENT - 1) / TT_NORM_SEGMENT;
    for (size_t s = 0; s < segments; s++) {
        size_t first = s * TT_NORM_SEGMENT;
        size_t count = hidden - first < TT_NORM_SEGMENT ? hidden - first : TT_NORM_SEGMENT;
        type->load(x, partial, row, first, count);
    }
    float scale = tt_norm_scale(variant->fold(partial), hidden, eps);
    for (size_t s = segments; s-- > 0;) {
        size_t first = s * TT_NORM_SEGMENT;
        size_t count = hidden - first < TT_NORM_SEGMENT ? hidden - first : TT_NORM_SEGMENT;
        type->load(x, partial, row, first, count);
        type->store(row, x, scale, first, count);
    }
}

struct shape {
    size_t hidden;
    int ranks;
    bool gamma, residual, in_place, misaligned;
};

// A row set with random contents behind guards; everything of it lies in one block of memory.
struct row_set {
    char *memory;
    size_t bytes;
    struct tt_norm_row row;
};

static struct row_set make_row_set(const struct shape *shape, const struct element *type)
{
    size_t stride = (shape->hidden * type->bytes + 64 + 127) / 64 * 64;
    size_t pieces = 2 * (size_t)shape->ranks + 3;
    struct row_set set = {.bytes = pieces * stride};
    set.memory = aligned_alloc(64, set.bytes);
    memset(set.memory, 0x5a, set.bytes);
    size_t shift = shape->misaligned ? type->bytes : 0;
    char *piece = set.memory + shift;
    set.row.input = (struct tt_symmetric){piece, stride};
    char *output = shape->in_place ? piece : piece + (size_t)shape->ranks * stride;
    set.row.output = (struct tt_symmetric){output, stride};
    set.row.ranks = shape->ranks;
    piece += 2 * (size_t)shape->ranks * stride;
    set.row.gamma = shape->gamma ? piece : NULL;
    set.row.residual = shape->residual ? piece + stride : NULL;
    set.row.residual_out = shape->residual ? piece + 2 * stride : NULL;
    for (size_t p = 0; p < pieces; p++) {
        for (size_t i = 0; i < shape->hidden; i++) {
            type->put(set.memory + shift + p * stride + i * type->bytes, random_float());
        }
    }
    return set;
}

static void check_shape(const struct shape *shape, size_t type_index)
{
    const struct element *type = &elements[type_index];
    struct row_set reference = make_row_set(shape, type);
    struct row_set wanted = {.memory = malloc(reference.bytes), .bytes = reference.bytes};
    memcpy(wanted.memory, reference.memory, reference.bytes);
    char *start = reference.memory;
    reference_row(&reference.row, type, shape->hidden, 1e-6f);
    for (const struct tt_norm_variant *const *v = tt_norm_variants; *v != NULL; v++) {
        if (!(*v)->usable()) {
            continue;
        }
        for (int stream = 0; stream < 2; stream++) {
            char *copy = aligned_alloc(64, wanted.bytes);
            memcpy(copy, wanted.memory, wanted.bytes);
            struct tt_norm_row row = reference.row;
            row.input.base = copy + (row.input.base - start);
            row.output.base = copy + (row.output.base - start);
            row.gamma = row.gamma == NULL ? NULL : copy + (row.gamma - start);
            row.residual = row.residual == NULL ? NULL : copy + (row.residual - start);
            row.residual_out = row.residual_out == NULL ? NULL : copy + (row.residual_out - start);
            row.stream = stream == 1 && (uintptr_t)row.output.base % 64 == 0;
            const struct tt_norm_type *types[] = {&(*v)->float32, &(*v)->float16, &(*v)->bfloat16};
            variant_row(*v, &row, types[type_index], shape->hidden, 1e-6f);
            bool same = memcmp(copy, reference.memory, reference.bytes) == 0;
            if (!same) {
                printf(
                    "%s %s: hidden %zu ranks %d gamma %d residual %d in place %d misaligned %d\n",
                    (*v)->name, type->name, shape->hidden, shape->ranks, shape->gamma,
                    shape->residual, shape->in_place, shape->misaligned);
            }
            EXPECT(same);
            free(copy);
        }
    }
    free(wanted.memory);
    free(reference.memory);
}

static void test_shapes(void)
{
    static const size_t hiddens[] = {1,    2,    3,    4,    5,     31,    64,   127,
                                     1000, 1024, 1025, 4099, 16384, 16385, 70000};
    static const int ranks[] = {1, 2, 3, 5, 8};
    for (size_t h = 0; h < sizeof hiddens / sizeof hiddens[0]; h++) {
        for (size_t r = 0; r < sizeof ranks / sizeof ranks[0]; r++) {
            for (unsigned bits = 0; bits < 16; bits++) {
                if (hiddens[h] > 5000 && r % 2 == 0) {
                    continue;
                }
                struct shape shape = {hiddens[h],      ranks[r],        (bits & 1) != 0,
                                      (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
                for (size_t type = 0; type < 3; type++) {
                    check_shape(&shape, type);
                }
            }
        }
    }
}

static void test_against_double(void)
{
    struct shape shape = {4099, 3, true, true, false, false};
    struct row_set set = make_row_set(&shape, &elements[0]);
    const struct tt_norm_variant *variant = tt_norm_variant();
    variant_row(variant, &set.row, &variant->float32, shape.hidden, 1e-6f);
    double squares = 0;
    double *x = malloc(shape.hidden * sizeof *x);
    for (size_t i = 0; i < shape.hidden; i++) {
        x[i] = (double)get_float32(set.row.residual + 4 * i);
        for (int rank = 0; rank < shape.ranks; rank++) {
            x[i] += (double)get_float32(set.row.input.base + (size_t)rank * set.row.input.stride +
                                        4 * i);
        }
        squares += x[i] * x[i];
    }
    double scale = 1 / sqrt(squares / (double)shape.hidden + 1e-6), worst = 0;
    for (size_t i = 0; i < shape.hidden; i++) {
        double wanted = x[i] * scale * (double)get_float32(set.row.gamma + 4 * i);
        double error = fabs((double)get_float32(set.row.output.base + 4 * i) - wanted);
        worst = error > worst ? error : worst;
    }
    EXPECT(worst < 2e-6);
    free(x);
    free(set.memory);
}

// Rows that are all zero, or hold what is not a number.
static void test_special_rows(void)
{
    for (const struct tt_norm_variant *const *v = tt_norm_variants; *v != NULL; v++) {
        if (!(*v)->usable()) {
            continue;
        }
        float in[100] = {0}, out[100];
        struct tt_norm_row row = {.input = {(char *)in, 0}, .output = {(char *)out, 0}, .ranks = 1};
        memset(out, 0x7f, sizeof out);
        variant_row(*v, &row, &(*v)->float32, 100, 0);
        for (int i = 0; i < 100; i++) {
            EXPECT(out[i] == 0.0f);
        }
        in[57] = NAN;
        in[3] = 1;
        variant_row(*v, &row, &(*v)->float32, 100, 1e-6f);
        for (int i = 0; i < 100; i++) {
            EXPECT(isnan(out[i]));
        }
        in[57] = INFINITY; // its square makes the scale 0: infinity times 0
        variant_row(*v, &row, &(*v)->float32, 100, 1e-6f);
        EXPECT(isnan(out[57]));
        EXPECT(out[3] == 0.0f);
    }
}

static void test_conversions(void)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t half = (uint16_t)bits;
        _Float16 native;
        memcpy(&native, &half, sizeof native);
        float wanted = (float)native, got = tt_float_from_half(half);
        EXPECT(isnan(wanted) ? isnan(got) : tt_float_bits(got) == tt_float_bits(wanted));
        EXPECT(isnan(wanted) ? tt_half_from_float(got) == 0x7fff : tt_half_from_float(got) == half);
        float wide = tt_float_from_bfloat16(half);
        EXPECT_EQ(tt_float_bits(wide), bits << 16);
        EXPECT(isnan(wide) ? tt_bfloat16_from_float(wide) == 0x7fff
                           : tt_bfloat16_from_float(wide) == half);
    }
    unsigned long wrong = 0;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32;
         bits += 641) { // odd: reaches every pattern of low bits
        float value = tt_float_from_bits((uint32_t)bits);
        _Float16 native = (_Float16)value;
        uint16_t wanted;
        memcpy(&wanted, &native, sizeof wanted);
        wrong += tt_half_from_float(value) != (isnan(value) ? 0x7fff : wanted);
        // bf16: the nearer of the two neighbours, the even one of two equally near.
        uint32_t low = (uint32_t)bits & 0xffff, down = (uint32_t)bits >> 16;
        uint32_t near = low > 0x8000 || (low == 0x8000 && (down & 1)) ? down + 1 : down;
        wrong += tt_bfloat16_from_float(value) != (isnan(value) ? 0x7fff : near);
    }
    EXPECT_EQ(wrong, 0);
}

static void test_split(void)
{
    EXPECT_EQ(tt_split_first(100, 3, 1), 34);
    EXPECT_EQ(tt_split_first(100, 3, 2), 67);
    EXPECT_EQ(tt_split_first(100, 3, 3), 100);
    EXPECT_EQ(tt_split_first(2, 8, 2), 2);
    EXPECT_EQ(tt_split_first(2, 8, 8), 2);
    EXPECT_EQ(tt_split_first(SIZE_MAX, 3, 3), SIZE_MAX);
}

int main(void)
{
    RUN(test_split);
    RUN(test_conversions);
    RUN(test_special_rows);
    RUN(test_against_double);
    RUN(test_shapes);
    return expect_result();
}
