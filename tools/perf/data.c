// Inputs, and the results that follow from them.
//
// An element is a function of seed, rank and index, so nobody keeps inputs: the check makes them
// again, block by block, and reduces them with the library's portable element kernels (src/reduce)
// in rank order, in the stated accumulator, rounded once: the contract on bits of ARCHITECTURE.md.
//   CONTRACT: random bits within the type's middle range, so that a float sum in another order
//     differs somewhere; products stay near 1; nothing is a NaN.
//   EXACT: at most 4 ranks of an element are not neutral, with values +-2^e: every partial sum and
//     product is a number of every type, so any order gives the same bits.
// SPDX-License-Identifier: Apache-2.0
#include "perf.h"
#include "reduce/reduce.h"

#include <string.h>

// A good mix of 32 bits that compilers vectorise: lowbias32 by Chris Wellons,
// https://nullprogram.com/blog/2018/07/31/ (public domain).
static inline uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    x ^= x >> 16;
    return x;
}

static inline uint32_t mix_index(uint32_t key, size_t index)
{
    return mix(key ^ (uint32_t)index ^ mix((uint32_t)(index >> 32) + 0x9e3779b9U));
}

static uint32_t key_of(const struct perf_input *input, int rank)
{
    uint32_t seed = mix((uint32_t)input->seed ^ mix((uint32_t)(input->seed >> 32)));
    return mix(seed + (uint32_t)rank * 0x85ebca6bU);
}

// A float type: bits of its parts. The exponents of CONTRACT are bias + low ... bias + low +
// 2^range
// - 1.
struct layout {
    int fraction, exponent, bias;
    int low, range;
};

static const struct layout layouts[ncclNumTypes] = {
    [ncclFloat16] = {10, 5, 15, -4, 3},    [ncclFloat32] = {23, 8, 127, -8, 4},
    [ncclFloat64] = {52, 11, 1023, -8, 4}, [ncclBfloat16] = {7, 8, 127, -8, 4},
    [ncclFloat8e4m3] = {3, 4, 7, -3, 2},   [ncclFloat8e5m2] = {2, 5, 15, -4, 3},
};

static bool is_float(int type)
{
    return layouts[type].exponent > 0;
}

static bool is_signed(int type)
{
    return type == ncclInt8 || type == ncclInt32 || type == ncclInt64;
}

// The bits of +-2^exponent.
static uint64_t power_of_two(int type, int exponent, bool negative)
{
    const struct layout *l = &layouts[type];
    uint64_t bits = (uint64_t)(l->bias + exponent) << l->fraction;
    return bits | (uint64_t)negative << (l->fraction + l->exponent);
}

static uint64_t contract_float(const struct layout *l, bool product, uint32_t high, uint32_t low)
{
    uint64_t random = (uint64_t)high << 32 | low;
    // Products: from 1/2 to 2.
    int first = product ? -1 : l->low, range = product ? 1 : l->range;
    uint64_t fraction = random & ((1ull << l->fraction) - 1);
    uint64_t exponent = (uint64_t)(l->bias + first) + (random >> 52 & ((1u << range) - 1));
    return fraction | exponent << l->fraction | (random >> 63) << (l->fraction + l->exponent);
}

static void fill_contract(const struct perf_input *input, uint32_t key, size_t first, size_t count,
                          char *to)
{
    const size_t bytes = perf_type_bytes(input->type);
    const uint32_t other = mix(key + 1);
    const bool product = input->op == ncclProd;
    const struct layout layout = layouts[input->type];
    for (size_t i = 0; i < count; i++) {
        uint32_t high = mix_index(key, first + i), low = mix_index(other, first + i);
        uint64_t bits = is_float(input->type) ? contract_float(&layout, product, high, low)
                                              : (uint64_t)high << 32 | low;
        memcpy(to + i * bytes, &bits, bytes); // little endian
    }
}

// The same for floats, the case that large runs have.
static void fill_contract_float(bool product, uint32_t key, size_t first, size_t count,
                                uint32_t *to)
{
    const uint32_t base = product ? 126u : 119u, mask = product ? 1u : 15u;
    for (size_t i = 0; i < count; i++) {
        uint32_t random = mix_index(key, first + i);
        to[i] = (random & 0x807fffffu) | (base + (mix(random) & mask)) << 23;
    }
}

// shared: the same for all ranks' element; random: this rank's.
static uint64_t exact_bits(const struct perf_input *input, bool active, uint32_t shared,
                           uint32_t random)
{
    const bool product = input->op == ncclProd, negative = random & 1;
    if (is_float(input->type)) {
        int exponent = (int)(shared >> 16) % 4 - 2;
        if (product) {
            exponent = !active ? 0 : random & 2 ? 1 : -1;
        }
        return active || product ? power_of_two(input->type, exponent, negative) : 0;
    }
    int64_t value = active ? 1 + (int64_t)(random >> 8) % 4 : 0;
    if (product) {
        value = active ? 2 : 1;
    }
    return (uint64_t)(is_signed(input->type) && negative ? -value : value);
}

static void fill_exact(const struct perf_input *input, int rank, size_t first, size_t count,
                       char *to)
{
    enum { ACTIVE = 4 }; // ranks whose element is not neutral
    const size_t bytes = perf_type_bytes(input->type);
    const uint32_t of_all = key_of(input, -1), own = key_of(input, rank);
    for (size_t i = 0; i < count; i++) {
        uint32_t shared = mix_index(of_all, first + i), random = mix_index(own, first + i);
        int turn = (rank + (int)(shared % (uint32_t)input->nranks)) % input->nranks;
        uint64_t bits = exact_bits(input, turn < ACTIVE, shared, random);
        memcpy(to + i * bytes, &bits, bytes);
    }
}

void perf_fill(const struct perf_input *input, int rank, size_t first, size_t count, void *to)
{
    uint32_t key = key_of(input, rank);
    if (input->data == PERF_DATA_EXACT) {
        fill_exact(input, rank, first, count, to);
    } else if (input->type == ncclFloat32 && (uintptr_t)to % sizeof(uint32_t) == 0) {
        fill_contract_float(input->op == ncclProd, key, first, count, to);
    } else if (input->type == ncclFloat32) {
        uint32_t block[256];
        for (size_t i = 0; i < count; i += 256) {
            size_t n = count - i < 256 ? count - i : 256;
            fill_contract_float(input->op == ncclProd, key, first + i, n, block);
            memcpy((char *)to + i * sizeof *block, block, n * sizeof *block);
        }
    } else {
        fill_contract(input, key, first, count, to);
    }
}

void perf_factor(const struct perf_input *input, int rank, void *element)
{
    uint64_t bits;
    if (input->data == PERF_DATA_EXACT) { // 1 or 2, by the rank's parity
        bits = is_float(input->type) ? power_of_two(input->type, rank & 1, false)
                                     : 1 + (uint64_t)(rank & 1);
    } else {
        const struct layout *l = &layouts[input->type];
        uint32_t random = key_of(input, rank + PERF_MAX_RANKS);
        bits = is_float(input->type) ? contract_float(l, true, random, mix(random)) : random;
    }
    memcpy(element, &bits, sizeof bits);
}

// ---- Results ------------------------------------------------------------------------------------

static const struct tt_reduce_variant *portable(void)
{
    int last = 0;
    while (tt_reduce_variants[last + 1] != NULL) {
        last++;
    }
    return tt_reduce_variants[last];
}

static enum tt_reduce_operator operator_of(int op)
{
    switch (op) {
    case ncclProd:
        return TT_REDUCE_PROD;
    case ncclMax:
        return TT_REDUCE_MAX;
    case ncclMin:
        return TT_REDUCE_MIN;
    case ncclAvg:
        return TT_REDUCE_AVERAGE;
    case PERF_MULSUM:
        return TT_REDUCE_SCALED_SUM;
    default:
        return TT_REDUCE_SUM;
    }
}

void perf_reduce(const struct perf_input *input, size_t first, size_t count, uint64_t *scratch,
                 void *to)
{
    const void *in[PERF_MAX_RANKS];
    union tt_scalar scale[PERF_MAX_RANKS];
    for (int r = 0; r < input->nranks; r++) {
        void *block = scratch + (size_t)r * PERF_BLOCK;
        perf_fill(input, r, first, count, block);
        in[r] = block;
        uint64_t element = 0;
        perf_factor(input, r, &element);
        scale[r] = tt_scalar_of((ncclDataType_t)input->type, &element);
    }
    const struct tt_reduction reduction = {.type = (ncclDataType_t)input->type,
                                           .op = operator_of(input->op),
                                           .divisor = (uint64_t)input->nranks,
                                           .scale = scale};
    void *out[] = {to};
    const struct tt_reduce_places places = {out, 1, in, input->nranks};
    tt_reduce_with(portable(), &reduction, &places, count, false);
}

// Floats of one sign as integers that count them in order.
static int64_t place_in_order(const struct perf_input *input, const char *element)
{
    const struct layout *l = &layouts[input->type];
    uint64_t bits = 0, sign = 1ull << (l->fraction + l->exponent);
    memcpy(&bits, element, perf_type_bytes(input->type));
    return bits & sign ? -(int64_t)(bits & (sign - 1)) : (int64_t)bits;
}

size_t perf_differences(const struct perf_input *input, const void *got, const void *wanted,
                        size_t count)
{
    const size_t bytes = perf_type_bytes(input->type);
    if (memcmp(got, wanted, count * bytes) == 0) {
        return 0;
    }
    const bool tolerant =
        input->data == PERF_DATA_EXACT && input->op == ncclAvg && is_float(input->type);
    size_t differences = 0;
    for (size_t i = 0; i < count; i++) {
        const char *a = (const char *)got + i * bytes, *b = (const char *)wanted + i * bytes;
        if (memcmp(a, b, bytes) == 0) {
            continue;
        }
        if (tolerant) {
            int64_t apart = place_in_order(input, a) - place_in_order(input, b);
            differences += apart < -2 || apart > 2;
        } else {
            differences++;
        }
    }
    return differences;
}
