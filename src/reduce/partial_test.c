// Reductions in parts: cut after any input, in two and in three, they have the bits of the whole;
// every type, operator, cut and variant, odd counts, any addresses, in place, several outputs, past
// the caches. And copies.
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "reduce/reduce.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_INS = 5, MOST_OUTS = 3, BESIDE = 64, MOST_COUNT = 5000, MARK = 0x5a };

static uint64_t random_state = 11;
static uint64_t random_bits(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state >> 16 ^ random_state << 32;
}

static size_t random_below(size_t limit)
{
    return (size_t)(random_bits() % limit);
}

// Memory with room around `bytes` bytes at any address: marks that nobody may touch.
struct piece {
    char *memory, *at;
    size_t bytes;
};

static struct piece take_piece(size_t bytes)
{
    struct piece piece = {malloc(bytes + 4 * BESIDE), NULL, bytes};
    memset(piece.memory, MARK, bytes + 4 * BESIDE);
    piece.at = piece.memory + BESIDE + random_below(BESIDE);
    return piece;
}

// True where nothing beside it was written. Frees it.
static bool give_piece(struct piece *piece)
{
    bool clean = true;
    for (size_t i = 1; i <= BESIDE; i++) {
        clean =
            clean && piece->at[-(ptrdiff_t)i] == MARK && piece->at[piece->bytes + i - 1] == MARK;
    }
    free(piece->memory);
    return clean;
}

// Bits of any kind, and numbers of like size, whose sums round.
static void fill(ncclDataType_t type, char *to, size_t count)
{
    size_t element = tt_type_bytes(type);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = random_bits();
        float narrow = (float)((double)(int64_t)bits * 0x1p-62);
        double wide = (double)narrow * 1.1;
        if (bits % 4 != 0 && type == ncclFloat32) {
            memcpy(to + i * element, &narrow, element);
        } else if (bits % 4 != 0 && type == ncclFloat64) {
            memcpy(to + i * element, &wide, element);
        } else {
            memcpy(to + i * element, &bits, element);
        }
    }
}

// Same bits; of float and double any NaN for a NaN.
static bool same(ncclDataType_t type, const char *a, const char *b, size_t count)
{
    size_t element = tt_type_bytes(type);
    for (size_t i = 0; i < count; i++, a += element, b += element) {
        union tt_scalar x = tt_scalar_of(type, a), y = tt_scalar_of(type, b);
        bool nan = (type == ncclFloat32 && isnan(x.float32) && isnan(y.float32)) ||
                   (type == ncclFloat64 && isnan(x.float64) && isnan(y.float64));
        if (!nan && memcmp(a, b, element) != 0) {
            return false;
        }
    }
    return true;
}

// The whole, and what its parts are made of.
struct whole {
    const struct tt_reduce_variant *variant;
    struct tt_reduction reduction;
    size_t count;
    int ins;
    const void *in[MOST_INS];
};

// Inputs first .. last of the whole; behind `partial` where it is not NULL. To `outs` outputs,
// accumulators where the last input is not the whole's last or `open` says so.
static void reduce_part(const struct whole *whole, int first, int last, const char *partial,
                        void *const *out, int outs, bool open)
{
    const void *in[MOST_INS + 1];
    union tt_scalar scale[MOST_INS + 1] = {{.integer = 0}};
    int ins = 0;
    if (partial != NULL) {
        scale[0].float64 = (double)NAN; // is never used
        in[ins++] = partial;
    }
    for (int r = first; r < last; r++) {
        scale[ins] = whole->reduction.scale[r];
        in[ins++] = whole->in[r];
    }
    struct tt_reduction reduction = whole->reduction;
    reduction.scale = scale;
    reduction.partial_in = partial != NULL;
    reduction.partial_out = open;
    struct tt_reduce_places places = {out, outs, in, ins};
    tt_reduce_with(whole->variant, &reduction, &places, whole->count, random_bits() & 1);
    tt_reduce_fence();
}

// Cuts after `one` and after `two` inputs (equal: once), and compares.
static bool cut(const struct whole *whole, int one, int two, const char *wanted)
{
    size_t wide = whole->count * tt_accumulator_bytes(whole->reduction.type);
    size_t bytes = whole->count * tt_type_bytes(whole->reduction.type);
    struct piece partial[MOST_OUTS], result[MOST_OUTS];
    void *to_partial[MOST_OUTS], *to_result[MOST_OUTS];
    int outs = 1 + (int)random_below(MOST_OUTS);
    for (int i = 0; i < outs; i++) {
        partial[i] = take_piece(wide);
        result[i] = take_piece(bytes);
        to_partial[i] = partial[i].at;
        to_result[i] = result[i].at;
    }
    reduce_part(whole, 0, one, NULL, to_partial, outs, true);
    if (two > one) { // the middle replaces what it begins with, in one of its outputs
        reduce_part(whole, one, two, partial[outs - 1].at, to_partial, outs, true);
    }
    reduce_part(whole, two, whole->ins, partial[random_below((size_t)outs)].at, to_result, outs,
                false);
    bool right = true;
    for (int i = 0; i < outs; i++) {
        right = right && same(whole->reduction.type, wanted, result[i].at, whole->count);
        right = give_piece(&partial[i]) && right;
        right = give_piece(&result[i]) && right;
    }
    if (!EXPECT(right)) {
        printf("  %s, type %d, operator %d, %d inputs cut after %d and %d, count %zu, %d outputs\n",
               whole->variant->name, whole->reduction.type, whole->reduction.op, whole->ins, one,
               two, whole->count, outs);
    }
    return right;
}

static void check_whole(const struct tt_reduce_variant *variant, ncclDataType_t type,
                        enum tt_reduce_operator op, size_t count)
{
    size_t bytes = count * tt_type_bytes(type);
    struct piece in[MOST_INS], wanted = take_piece(bytes);
    union tt_scalar scale[MOST_INS];
    struct whole whole = {variant, {.type = type, .op = op}, count, 0, {NULL}};
    whole.ins = 1 + (int)random_below(MOST_INS);
    whole.reduction.divisor = 1 + random_below(9);
    whole.reduction.scale = scale;
    for (int r = 0; r < whole.ins; r++) {
        in[r] = take_piece(bytes);
        fill(type, in[r].at, count);
        whole.in[r] = in[r].at;
        char factor[8] = {0};
        fill(type, factor, 1);
        scale[r] = tt_scalar_of(type, factor);
    }
    void *out[] = {wanted.at};
    struct tt_reduce_places places = {out, 1, whole.in, whole.ins};
    tt_reduce_with(variant, &whole.reduction, &places, count, false);
    for (int one = 1; one <= whole.ins; one++) {
        for (int two = one; two <= whole.ins; two++) {
            (void)cut(&whole, one, two, wanted.at);
        }
    }
    for (int r = 0; r < whole.ins; r++) {
        EXPECT(give_piece(&in[r]));
    }
    EXPECT(give_piece(&wanted));
}

static void cuts(void)
{
    static const size_t counts[] = {0, 1, 3, 17, 63, 129, 515, 1025, MOST_COUNT - 1};
    for (size_t v = 0; tt_reduce_variants[v] != NULL; v++) {
        for (int type = 0; type < TT_REDUCE_TYPES && tt_reduce_variants[v]->usable(); type++) {
            for (int op = 0; op < TT_REDUCE_OPERATORS; op++) {
                for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
                    check_whole(tt_reduce_variants[v], (ncclDataType_t)type,
                                (enum tt_reduce_operator)op, counts[i]);
                }
            }
        }
    }
}

// A partial result is what the contract says: sums of the small floats are floats that no one
// rounded, an average is not divided yet.
static void accumulators(void)
{
    const uint16_t one = 0x3c00, small = 0x0400; // 1 and 2^-14, as half
    const void *in[] = {&one, &small, &small};
    float sum = 0;
    void *out[] = {&sum};
    struct tt_reduction reduction = {ncclFloat16, TT_REDUCE_AVERAGE, 3, NULL, false, true};
    struct tt_reduce_places places = {out, 1, in, 3};
    tt_reduce(&reduction, &places, 1, false);
    EXPECT(sum == 1.0f + 0x1p-13f);
    EXPECT_EQ(tt_accumulator_bytes(ncclFloat8e5m2), 4);
    EXPECT_EQ(tt_accumulator_bytes(ncclFloat64), 8);
    EXPECT_EQ(tt_accumulator_bytes(ncclInt8), 1);
    EXPECT_EQ(tt_accumulator_bytes((ncclDataType_t)TT_REDUCE_TYPES), 0);
}

// A result in the place of an input, where both have elements.
static void in_place(void)
{
    for (int type = 0; type < TT_REDUCE_TYPES; type++) {
        ncclDataType_t kind = (ncclDataType_t)type;
        enum { COUNT = 333 };
        size_t bytes = COUNT * tt_type_bytes(kind), wide = COUNT * tt_accumulator_bytes(kind);
        struct piece a = take_piece(bytes), b = take_piece(bytes), partial = take_piece(wide);
        struct piece wanted = take_piece(bytes);
        fill(kind, a.at, COUNT);
        fill(kind, b.at, COUNT);
        void *to_wanted[] = {wanted.at}, *to_partial[] = {partial.at}, *to_b[] = {b.at};
        const void *both[] = {a.at, b.at}, *rest[] = {partial.at, b.at};
        struct tt_reduction reduction = {.type = kind, .op = TT_REDUCE_SUM};
        tt_reduce(&reduction, &(struct tt_reduce_places){to_wanted, 1, both, 2}, COUNT, false);
        reduction.partial_out = true;
        tt_reduce(&reduction, &(struct tt_reduce_places){to_partial, 1, both, 1}, COUNT, false);
        reduction.partial_out = false;
        reduction.partial_in = true;
        tt_reduce(&reduction, &(struct tt_reduce_places){to_b, 1, rest, 2}, COUNT, false);
        EXPECT(same(kind, wanted.at, b.at, COUNT));
        EXPECT(give_piece(&a) && give_piece(&b) && give_piece(&partial) && give_piece(&wanted));
    }
}

static void copies(void)
{
    for (size_t v = 0; tt_reduce_variants[v] != NULL; v++) {
        for (size_t i = 0; i < 600 && tt_reduce_variants[v]->usable(); i++) {
            size_t bytes = i < 300 ? i : random_below(40000);
            struct piece in = take_piece(bytes), out[MOST_OUTS];
            void *to[MOST_OUTS];
            int outs = 1 + (int)random_below(MOST_OUTS);
            fill(ncclInt8, in.at, bytes);
            for (int o = 0; o < outs; o++) {
                out[o] = take_piece(bytes);
                to[o] = out[o].at;
            }
            int replaced = (int)random_below(8); // where the input itself is an output
            to[replaced < outs ? replaced : 0] = replaced < outs ? in.at : to[0];
            tt_copy_with(tt_reduce_variants[v], to, outs, in.at, bytes, random_bits() & 1);
            tt_reduce_fence();
            for (int o = 0; o < outs; o++) {
                EXPECT(memcmp(to[o], in.at, bytes) == 0);
                EXPECT(give_piece(&out[o]));
            }
            EXPECT(give_piece(&in));
        }
    }
}

int main(void)
{
    RUN(cuts);
    RUN(accumulators);
    RUN(in_place);
    RUN(copies);
    return expect_result();
}
