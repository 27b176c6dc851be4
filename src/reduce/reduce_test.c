// Every element kernel that runs here against a literal reading of reduce.h: all pairs of 1-byte
// elements, all 16-bit elements with sampled partners, special and random wider ones; all tails, in
// place, several outputs, past the caches. The conversions of 8-bit floats against their
// definition.
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "reduce/fp8.h"
#include "reduce/half.h"
#include "reduce/reduce.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRS = 65536, MOST_INS = 9, MOST_OUTS = 3, BESIDE = 64 };

static const char *const type_names[TT_REDUCE_TYPES] = {"int8",   "uint8",    "int32", "uint32",
                                                        "int64",  "uint64",   "half",  "float",
                                                        "double", "bfloat16", "e4m3",  "e5m2"};
static const char *const operator_names[TT_REDUCE_OPERATORS] = {"sum", "prod",    "min",
                                                                "max", "average", "scaled sum"};

static uint64_t random_state = 7;
static uint64_t random_bits(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state >> 16 ^ random_state << 32;
}

// ---- The reference, one element at a time

static bool is_integer(ncclDataType_t type)
{
    return type <= ncclUint64;
}
static bool is_signed(ncclDataType_t type)
{
    return type == ncclInt8 || type == ncclInt32 || type == ncclInt64;
}

// An integer element, extended to 64 bits.
static uint64_t integer_at(ncclDataType_t type, const char *at)
{
    uint64_t bits = 0;
    size_t bytes = tt_type_bytes(type);
    memcpy(&bits, at, bytes);
    unsigned unused = 64 - 8 * (unsigned)bytes;
    return is_signed(type) ? (uint64_t)((int64_t)(bits << unused) >> unused) : bits;
}

static uint64_t integer_step(ncclDataType_t type, enum tt_reduce_operator op, uint64_t a,
                             uint64_t b)
{
    bool below = is_signed(type) ? (int64_t)a < (int64_t)b : a < b;
    switch (op) {
    case TT_REDUCE_PROD:
        return a * b;
    case TT_REDUCE_MIN:
        return below ? a : b;
    case TT_REDUCE_MAX:
        return below ? b : a;
    default:
        return a + b;
    }
}

static void integer_reference(const struct tt_reduction *reduction, const void *const *in, int ins,
                              size_t offset, char *out)
{
    ncclDataType_t type = reduction->type;
    uint64_t result = 0;
    for (int r = 0; r < ins; r++) {
        uint64_t value = integer_at(type, (const char *)in[r] + offset);
        if (reduction->op == TT_REDUCE_SCALED_SUM) {
            value *= reduction->scale[r].integer;
        }
        result = r == 0 ? value : integer_step(type, reduction->op, result, value);
        char wrapped[8];
        memcpy(wrapped, &result, sizeof wrapped);
        result = integer_at(type, wrapped);
    }
    if (reduction->op == TT_REDUCE_AVERAGE) {
        result = is_signed(type) ? (uint64_t)((int64_t)result / (int64_t)reduction->divisor)
                                 : result / reduction->divisor;
    }
    memcpy(out, &result, tt_type_bytes(type));
}

// double holds every float: the reference has one accumulator, and rounds to float where that is
// the accumulator. A float sum or product rounded by way of double is the same.
static double float_step(enum tt_reduce_operator op, double a, double b)
{
    bool below = a < b || (a == b && signbit(a));
    switch (op) {
    case TT_REDUCE_PROD:
        return a * b;
    case TT_REDUCE_MIN:
        return isnan(a) ? b : isnan(b) || below ? a : b;
    case TT_REDUCE_MAX:
        return isnan(a) ? b : isnan(b) || !(a < b || (a == b && signbit(a))) ? a : b;
    default:
        return a + b;
    }
}

static double float_at(ncclDataType_t type, const char *at)
{
    union tt_scalar value = tt_scalar_of(type, at);
    return type == ncclFloat64 ? value.float64 : (double)value.float32;
}

static void put_float(ncclDataType_t type, double value, char *out)
{
    float narrow = (float)value;
    uint16_t half =
        type == ncclFloat16 ? tt_half_from_float(narrow) : tt_bfloat16_from_float(narrow);
    uint8_t byte = type == ncclFloat8e4m3 ? tt_e4m3_from_float(narrow) : tt_e5m2_from_float(narrow);
    const void *from = type == ncclFloat64                           ? (const void *)&value
                       : type == ncclFloat32                         ? (const void *)&narrow
                       : type == ncclFloat16 || type == ncclBfloat16 ? (const void *)&half
                                                                     : (const void *)&byte;
    memcpy(out, from, tt_type_bytes(type));
}

static double rounded(ncclDataType_t type, double value)
{
    return type == ncclFloat64 ? value : (double)(float)value;
}

static void float_reference(const struct tt_reduction *reduction, const void *const *in, int ins,
                            size_t offset, char *out)
{
    ncclDataType_t type = reduction->type;
    double result = 0;
    for (int r = 0; r < ins; r++) {
        double value = float_at(type, (const char *)in[r] + offset);
        if (reduction->op == TT_REDUCE_SCALED_SUM) {
            const union tt_scalar *scale = &reduction->scale[r];
            value *= type == ncclFloat64 ? scale->float64 : (double)scale->float32;
            value = rounded(type, value);
        }
        result = r == 0 ? value : rounded(type, float_step(reduction->op, result, value));
    }
    if (reduction->op == TT_REDUCE_AVERAGE) {
        result = rounded(type, result / (double)reduction->divisor);
    }
    put_float(type, result, out);
}

static void reference(const struct tt_reduction *reduction, const void *const *in, int ins,
                      size_t count, char *out)
{
    size_t element = tt_type_bytes(reduction->type);
    for (size_t i = 0; i < count; i++) {
        if (is_integer(reduction->type)) {
            integer_reference(reduction, in, ins, i * element, out + i * element);
        } else {
            float_reference(reduction, in, ins, i * element, out + i * element);
        }
    }
}

// Same bits; of float and double any NaN for a NaN.
static bool same(ncclDataType_t type, const char *a, const char *b)
{
    if ((type == ncclFloat32 || type == ncclFloat64) && isnan(float_at(type, a))) {
        return isnan(float_at(type, b));
    }
    return memcmp(a, b, tt_type_bytes(type)) == 0;
}

static bool check(const struct tt_reduce_variant *variant, const struct tt_reduction *reduction,
                  const char *wanted, const char *got, size_t count)
{
    size_t element = tt_type_bytes(reduction->type);
    for (size_t i = 0; i < count; i++) {
        if (!EXPECT(same(reduction->type, wanted + i * element, got + i * element))) {
            printf("  %s, %s of %s, element %zu of %zu\n", variant->name,
                   operator_names[reduction->op], type_names[reduction->type], i, count);
            return false;
        }
    }
    return true;
}

// ---- Inputs

// Bits of all kinds: random, and often what is special in the type.
static void fill(ncclDataType_t type, char *to, size_t count)
{
    static const double special[] = {0.0,    -0.0,    1.0,   -1.0,    0x1p-149, 0x1p-1074,
                                     3.4e38, 1.7e308, 1e-40, 65504.0, 448.0,    0.5};
    size_t element = tt_type_bytes(type);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = random_bits(), choice = random_bits() % 8;
        memcpy(to + i * element, &bits, element);
        if (choice == 0 && !is_integer(type)) {
            double value = bits % 16 == 0   ? NAN
                           : bits % 16 == 1 ? (double)INFINITY
                           : bits % 16 == 2 ? -(double)INFINITY
                                            : special[bits % (sizeof special / sizeof special[0])];
            put_float(type, value, to + i * element);
        } else if (choice < 5 && !is_integer(type)) { // of like size, so that sums round
            put_float(type, (double)(int64_t)bits * 0x1p-60, to + i * element);
        } else if (choice == 0) { // integers at the ends of their range
            uint64_t end = (bits & 1 ? (uint64_t)1 << (8 * element - 1) : 0) - (bits >> 1 & 1);
            memcpy(to + i * element, &end, element);
        }
    }
}

// Factors and divisor for a reduction.
static struct tt_reduction make_reduction(ncclDataType_t type, enum tt_reduce_operator op, int ins,
                                          union tt_scalar *scale)
{
    static const double factors[] = {0.5, 1.0 / 3, -2.0, 1.0, 1.0 / 7, 3.0, 0.0, 100.0, -1.0};
    for (int r = 0; r < ins; r++) {
        char element[8] = {0};
        if (is_integer(type)) {
            uint64_t bits = random_bits();
            memcpy(element, &bits, sizeof bits);
        } else {
            put_float(type, factors[r], element);
        }
        scale[r] = tt_scalar_of(type, element);
    }
    uint64_t divisor = (uint64_t)(ins + (int)(random_bits() % 300));
    return (struct tt_reduction){.type = type, .op = op, .divisor = divisor, .scale = scale};
}

// Runs all usable variants on inputs that the caller has filled.
static void check_variants(const struct tt_reduction *reduction, const void *const *in, int ins,
                           size_t count)
{
    size_t bytes = count * tt_type_bytes(reduction->type) + 1;
    char *wanted = malloc(bytes), *got = malloc(bytes);
    reference(reduction, in, ins, count, wanted);
    for (size_t v = 0; tt_reduce_variants[v] != NULL; v++) {
        if (tt_reduce_variants[v]->usable()) {
            void *out[] = {got};
            struct tt_reduce_places places = {out, 1, in, ins};
            memset(got, 0x5a, bytes);
            tt_reduce_with(tt_reduce_variants[v], reduction, &places, count, false);
            check(tt_reduce_variants[v], reduction, wanted, got, count);
            EXPECT_EQ(got[bytes - 1], 0x5a);
        }
    }
    free(wanted);
    free(got);
}

// ---- Cases

// All pairs of bytes, with a third input.
static void pairs_of_bytes(void)
{
    static const ncclDataType_t types[] = {ncclInt8, ncclUint8, ncclFloat8e4m3, ncclFloat8e5m2};
    char *a = malloc(PAIRS), *b = malloc(PAIRS), *c = malloc(PAIRS);
    for (int i = 0; i < PAIRS; i++) {
        a[i] = (char)(i & 0xff);
        b[i] = (char)(i >> 8);
        c[i] = (char)random_bits();
    }
    const void *in[] = {a, b, c};
    union tt_scalar scale[3];
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        for (int op = 0; op < TT_REDUCE_OPERATORS; op++) {
            for (int ins = 1; ins <= 3; ins++) {
                struct tt_reduction reduction =
                    make_reduction(types[t], (enum tt_reduce_operator)op, ins, scale);
                check_variants(&reduction, in, ins, PAIRS);
            }
        }
    }
    free(a);
    free(b);
    free(c);
}

// All 16-bit elements, and as many of the wider ones, with partners of all kinds.
static void wider_elements(void)
{
    enum { INS = 4 };
    char *memory[INS];
    const void *in[INS];
    union tt_scalar scale[INS];
    for (int r = 0; r < INS; r++) {
        in[r] = memory[r] = malloc(PAIRS * sizeof(double));
    }
    for (int type = ncclInt32; type <= ncclBfloat16; type++) {
        for (int r = 0; r < INS; r++) {
            fill((ncclDataType_t)type, memory[r], PAIRS);
        }
        for (unsigned i = 0; tt_type_bytes((ncclDataType_t)type) == 2 && i < PAIRS; i++) {
            uint16_t bits = (uint16_t)i;
            memcpy(memory[1] + 2 * i, &bits, 2);
        }
        for (int op = 0; op < TT_REDUCE_OPERATORS; op++) {
            for (int ins = 2; ins <= INS; ins += 2) {
                struct tt_reduction reduction =
                    make_reduction((ncclDataType_t)type, (enum tt_reduce_operator)op, ins, scale);
                check_variants(&reduction, in, ins, PAIRS);
            }
        }
    }
    for (int r = 0; r < INS; r++) {
        free(memory[r]);
    }
}

// One call of tt_reduce_with on shifted memory; outputs apart or in place.
struct call {
    struct tt_reduction reduction;
    size_t count, shift; // elements; inputs and outputs begin `shift` into their memory
    int ins, outs;
    int replaced; // the input that the first output replaces, or -1
    bool stream;
};

static void check_call(const struct tt_reduce_variant *variant, const struct call *call, char **in,
                       char **out, char *wanted)
{
    size_t element = tt_type_bytes(call->reduction.type), bytes = call->count * element;
    size_t shift = BESIDE + call->shift * element;
    const void *from[MOST_INS];
    void *to[MOST_OUTS];
    for (int r = 0; r < call->ins; r++) {
        fill(call->reduction.type, in[r] + shift, call->count);
        from[r] = in[r] + shift;
    }
    for (int o = 0; o < call->outs; o++) {
        memset(out[o], 0x5a, shift + bytes + BESIDE);
        to[o] = out[o] + shift;
    }
    if (call->replaced >= 0) {
        to[0] = in[call->replaced] + shift;
    }
    reference(&call->reduction, from, call->ins, call->count, wanted);
    struct tt_reduce_places places = {to, call->outs, from, call->ins};
    tt_reduce_with(variant, &call->reduction, &places, call->count, call->stream);
    tt_reduce_fence();
    for (int o = 0; o < call->outs; o++) {
        bool right = check(variant, &call->reduction, wanted, to[o], call->count);
        for (size_t i = 0; i < BESIDE && (o > 0 || call->replaced < 0); i++) {
            right = right && EXPECT_EQ(((char *)to[o])[-1 - (ptrdiff_t)i], 0x5a) &&
                    EXPECT_EQ(((char *)to[o])[bytes + i], 0x5a);
        }
        if (!right) {
            printf("  count %zu, shift %zu, %d inputs, %d outputs, replaced %d, stream %d\n",
                   call->count, call->shift, call->ins, call->outs, call->replaced, call->stream);
        }
    }
}

// All tails of the widest kernels, and counts beyond a block.
static void tails_and_places(void)
{
    enum { COUNTS = 280, ROOM = 6000 * 8 + 4 * BESIDE };
    char *in[MOST_INS], *out[MOST_OUTS], *wanted = malloc(ROOM);
    union tt_scalar scale[MOST_INS];
    for (int r = 0; r < MOST_INS; r++) {
        in[r] = aligned_alloc(64, ROOM / 64 * 64 + 64);
    }
    for (int o = 0; o < MOST_OUTS; o++) {
        out[o] = aligned_alloc(64, ROOM / 64 * 64 + 64);
    }
    for (size_t v = 0; tt_reduce_variants[v] != NULL; v++) {
        for (int type = 0; type < TT_REDUCE_TYPES && tt_reduce_variants[v]->usable(); type++) {
            for (int i = 0; i < COUNTS; i++) {
                struct call call = {.count =
                                        (size_t)(i < COUNTS - 4 ? i : 1000 * (COUNTS - i) + i)};
                call.ins = 1 + (int)(random_bits() % MOST_INS);
                call.outs = 1 + (int)(random_bits() % MOST_OUTS);
                call.shift = random_bits() % 9;
                call.replaced = (int)(random_bits() % (unsigned)(call.ins + 1)) - 1;
                call.stream = random_bits() & 1;
                call.reduction = make_reduction((ncclDataType_t)type,
                                                (enum tt_reduce_operator)(i % TT_REDUCE_OPERATORS),
                                                call.ins, scale);
                check_call(tt_reduce_variants[v], &call, in, out, wanted);
            }
        }
    }
    for (int r = 0; r < MOST_INS; r++) {
        free(in[r]);
    }
    for (int o = 0; o < MOST_OUTS; o++) {
        free(out[o]);
    }
    free(wanted);
}

// What bits of an 8-bit float mean, by their definition.
static double defined(unsigned bits, int exponent_bits, bool has_infinity)
{
    int fraction_bits = 7 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (int)(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    double fraction = (double)(bits & ((1u << fraction_bits) - 1));
    double sign = bits & 0x80 ? -1 : 1;
    if (has_infinity && exponent == 31) {
        return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
    }
    if (!has_infinity && (bits & 0x7f) == 0x7f) {
        return (double)NAN;
    }
    double unit = ldexp(1, (exponent == 0 ? 1 : exponent) - bias - fraction_bits);
    return sign * unit * (fraction + (exponent == 0 ? 0 : ldexp(1, fraction_bits)));
}

// The nearest of all finite ones, ties to the even bits: what rounding means.
static unsigned nearest(double value, int exponent_bits, unsigned largest)
{
    unsigned best = 0;
    double best_distance = (double)INFINITY;
    for (unsigned bits = 0; bits <= largest; bits++) {
        double distance = fabs(fabs(value) - defined(bits, exponent_bits, exponent_bits == 5));
        if (distance < best_distance || (distance == best_distance && bits % 2 == 0)) {
            best = bits;
            best_distance = distance;
        }
    }
    return best | (signbit(value) ? 0x80 : 0);
}

static void eight_bit_floats(void)
{
    for (unsigned bits = 0; bits < 256; bits++) {
        double e4m3 = defined(bits, 4, false), e5m2 = defined(bits, 5, true);
        float got = tt_float_from_e4m3((uint8_t)bits);
        EXPECT(isnan(e4m3) ? isnan(got) : (double)got == e4m3 && !signbit(got) == !signbit(e4m3));
        got = tt_float_from_e5m2((uint8_t)bits);
        EXPECT(isnan(e5m2) ? isnan(got) : (double)got == e5m2 && !signbit(got) == !signbit(e5m2));
    }
    for (unsigned i = 0; i < 20000; i++) {
        // Random ones of all sizes that matter, and the exact middles between neighbours.
        float value =
            ldexpf((float)(int32_t)random_bits() * 0x1p-31f, (int)(random_bits() % 40) - 22);
        if (i % 4 == 0) {
            unsigned low = (unsigned)(random_bits() % 0x7d);
            value = (float)(i % 8 == 0
                                ? defined(low, 4, false) + defined(low + 1, 4, false)
                                : defined(low % 0x7b, 5, true) + defined(low % 0x7b + 1, 5, true)) /
                    2;
        }
        EXPECT_EQ(tt_e4m3_from_float(value), nearest((double)value, 4, 0x7e));
        EXPECT_EQ(tt_e5m2_from_float(value), nearest((double)value, 5, 0x7b));
    }
    EXPECT_EQ(tt_e4m3_from_float(INFINITY), 0x7e);
    EXPECT_EQ(tt_e5m2_from_float(-INFINITY), 0xfb);
    EXPECT_EQ(tt_e4m3_from_float(NAN), 0x7f);
    EXPECT_EQ(tt_e5m2_from_float(-NAN), 0x7f);
}

static void one_is_chosen(void)
{
    const struct tt_reduce_variant *chosen = tt_reduce_variant();
    EXPECT(chosen->usable());
    EXPECT(chosen == tt_reduce_variant());
    size_t last = 0;
    for (size_t v = 0; tt_reduce_variants[v] != NULL; v++) {
        if (tt_reduce_variants[v]->usable()) {
            printf("  runs here: %s\n", tt_reduce_variants[v]->name);
        }
        last = v;
    }
    EXPECT_STR(tt_reduce_variants[last]->name, "portable");
    EXPECT_EQ(tt_type_bytes((ncclDataType_t)TT_REDUCE_TYPES), 0);
    EXPECT_EQ(tt_type_bytes((ncclDataType_t)-1), 0);
}

int main(void)
{
    RUN(eight_bit_floats);
    RUN(pairs_of_bytes);
    RUN(wider_elements);
    RUN(tails_and_places);
    RUN(one_is_chosen);
    return expect_result();
}
