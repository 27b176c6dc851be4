// What the tests of tuttiMoe share: tokens and choices that every rank can work out for all ranks,
// and results by the order of sums that expert.h states, written once more, one number at a time.
// SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_MOE_FOR_TESTS_H
#define PARALLEL_MOE_FOR_TESTS_H

#include "member.h"
#include "tutti.h"
#include "tutti_parallel/expert.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

struct moe_case {
    struct tuttiMoeOptions options;
    size_t (*tokens)(int rank);
    int only;  // every token's first choice is this expert (choices 1); -1: as they come
    int lanes; // ranks of a host
    int size;  // ranks
};

static inline uint32_t mix(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t h = a * 0x9e3779b1u ^ (b + 0x7f4a7c15u) * 0x85ebca6bu ^ (c + 1) * 0xc2b2ae35u;
    h ^= h >> 15;
    h *= 0x2c1b3c6du;
    return h ^ (h >> 13);
}

// Between -2 and 2, of 24 bits.
static inline double any_value(int rank, size_t token, size_t i)
{
    return (double)(mix((uint32_t)rank, (uint32_t)token, (uint32_t)i) >> 8) / (1 << 22) - 2;
}

static inline float rounded_bfloat16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

// A number as an element of the type.
static inline double rounded(ncclDataType_t type, double value)
{
    return type == ncclFloat64    ? value
           : type == ncclBfloat16 ? (double)rounded_bfloat16((float)value)
                                  : (double)(float)value;
}

static inline size_t bytes_of(ncclDataType_t type)
{
    return type == ncclFloat64 ? 8 : type == ncclBfloat16 ? 2 : 4;
}

static inline double get(const void *array, ncclDataType_t type, size_t i)
{
    if (type == ncclBfloat16) {
        uint32_t bits = (uint32_t)((const uint16_t *)array)[i] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        return (double)value;
    }
    return type == ncclFloat64 ? ((const double *)array)[i] : (double)((const float *)array)[i];
}

static inline void put(void *array, ncclDataType_t type, size_t i, double value)
{
    if (type == ncclBfloat16) {
        float narrow = rounded_bfloat16((float)value);
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof bits);
        ((uint16_t *)array)[i] = (uint16_t)(bits >> 16);
    } else if (type == ncclFloat64) {
        ((double *)array)[i] = value;
    } else {
        ((float *)array)[i] = (float)value;
    }
}

static inline ncclDataType_t gradient_of(const struct moe_case *c)
{
    return c->options.datatype == ncclFloat64 ? ncclFloat64 : ncclFloat32;
}

// Element i of a token, of what an expert makes of it, of a weight, of a gradient.
static inline double token_value(const struct moe_case *c, int rank, size_t t, size_t i)
{
    return rounded(c->options.datatype, any_value(rank, t, i));
}
static inline double expert_value(const struct moe_case *c, int expert, double token)
{
    return rounded(c->options.datatype, token * (1 + expert % 5) - 0.25 * expert);
}
static inline double weight_value(const struct moe_case *c, int rank, size_t t, int j)
{
    return rounded(gradient_of(c), 0.5 + any_value(rank + 100, t, (size_t)j) / 8);
}

// A token's experts: different ones, in no order.
static inline void choose_experts(const struct moe_case *c, int rank, size_t t, int32_t *out)
{
    int experts = c->options.experts;
    for (int j = 0; j < c->options.choices; j++) {
        uint32_t next = mix((uint32_t)rank + 7, (uint32_t)t, (uint32_t)j) % (uint32_t)experts;
        for (int seen = 0; seen < j; seen++) {
            if ((uint32_t)out[seen] == next) {
                next = (next + 1) % (uint32_t)experts;
                seen = -1;
            }
        }
        out[j] = (int32_t)next;
    }
    if (c->only >= 0) {
        out[0] = c->only;
    }
}

// The rank of an expert, by tuttiSplitCounts.
static inline int owner_of(const struct moe_case *c, int expert)
{
    size_t first[RANKS_MAX];
    (void)tuttiSplitCounts((size_t)c->options.experts, c->size, NULL, first);
    int rank = c->size - 1;
    while (first[rank] > (size_t)expert) {
        rank--;
    }
    return rank;
}

// How many rows of an expert come before choice (rank, t) of it; with rank `size`: all.
static inline size_t place_of(const struct moe_case *c, int expert, int rank, size_t t)
{
    size_t place = 0;
    int32_t chosen[64];
    for (int r = 0; r <= rank && r < c->size; r++) {
        for (size_t other = 0; other < (r == rank ? t : c->tokens(r)); other++) {
            choose_experts(c, r, other, chosen);
            for (int j = 0; j < c->options.choices; j++) {
                place += chosen[j] == expert;
            }
        }
    }
    return place;
}

static inline bool is_kept(const struct moe_case *c, int expert, int rank, size_t t)
{
    return c->options.rule != tuttiMoeDrop || place_of(c, expert, rank, t) < c->options.capacity;
}

// One element of a sum of a token's parts: `part(c, rank, t, column, expert, i)`, products already,
// in the type's arithmetic and the stated order.
typedef double (*part_function)(const struct moe_case *c, int rank, size_t t, int j, int expert,
                                size_t i);

static inline double add_in(ncclDataType_t type, double a, double b)
{
    return type == ncclFloat64 ? a + b : (double)((float)a + (float)b);
}

static inline double expected_sum(const struct moe_case *c, ncclDataType_t type, int rank, size_t t,
                                  const bool *kept, part_function part, size_t i)
{
    int32_t chosen[64];
    choose_experts(c, rank, t, chosen);
    double all = 0;
    bool any_host = false;
    for (int host = 0; host < c->size / c->lanes; host++) {
        double of_host = 0;
        bool any_rank = false;
        for (int lane = 0; lane < c->lanes; lane++) {
            double of_rank = 0;
            bool any = false;
            for (int e = 0; e < c->options.experts; e++) {
                for (int j = 0; j < c->options.choices; j++) {
                    if (chosen[j] == e && kept[j] && owner_of(c, e) == host * c->lanes + lane) {
                        double value = part(c, rank, t, j, e, i);
                        of_rank = any ? add_in(type, of_rank, value) : value;
                        any = true;
                    }
                }
            }
            if (any) {
                of_rank = rounded(type, of_rank);
                of_host = any_rank ? add_in(type, of_host, of_rank) : of_rank;
                any_rank = true;
            }
        }
        if (any_rank) {
            of_host = rounded(type, of_host);
            all = any_host ? add_in(type, all, of_host) : of_host;
            any_host = true;
        }
    }
    return rounded(type, all);
}

// weight * result, in float or double.
static inline double weighted_part(const struct moe_case *c, int rank, size_t t, int j, int expert,
                                   size_t i)
{
    double value = expert_value(c, expert, token_value(c, rank, t, i));
    double weight = weight_value(c, rank, t, j);
    return c->options.datatype == ncclFloat64 ? weight * value
                                              : (double)((float)value * (float)weight);
}

// ---- A rank's arrays, in device memory ----------------------------------------------------------

struct moe_arrays {
    size_t count;
    void *tokens, *out, *weights;
    int32_t *indices;
};

// In the stream: cudaFree waits for all work of the device, also of other ranks.
static inline void *device_array(const struct member *m, size_t bytes)
{
    void *memory = NULL;
    EXPECT_CUDA(cudaMallocAsync(&memory, bytes > 0 ? bytes : 1, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    return memory;
}

static inline struct moe_arrays make_arrays(const struct moe_case *c, const struct member *m)
{
    int rank = m->rank;
    struct moe_arrays a = {.count = c->tokens(rank)};
    size_t hidden = c->options.hidden, choices = (size_t)c->options.choices;
    if (a.count == 0) {
        return a; // NULL pointers
    }
    a.tokens = device_array(m, a.count * hidden * bytes_of(c->options.datatype));
    a.out = device_array(m, a.count * hidden * bytes_of(c->options.datatype));
    a.weights = device_array(m, a.count * choices * bytes_of(gradient_of(c)));
    a.indices = device_array(m, a.count * choices * sizeof *a.indices);
    for (size_t t = 0; t < a.count; t++) {
        choose_experts(c, rank, t, a.indices + t * choices);
        for (size_t i = 0; i < hidden; i++) {
            put(a.tokens, c->options.datatype, t * hidden + i, token_value(c, rank, t, i));
        }
        for (size_t j = 0; j < choices; j++) {
            put(a.weights, gradient_of(c), t * choices + j, weight_value(c, rank, t, (int)j));
        }
    }
    return a;
}

static inline void free_array(const struct member *m, void *memory)
{
    if (memory != NULL) {
        EXPECT_CUDA(cudaFreeAsync(memory, m->stream));
    }
}

static inline void free_arrays(const struct member *m, struct moe_arrays *a)
{
    free_array(m, a->tokens);
    free_array(m, a->out);
    free_array(m, a->weights);
    free_array(m, a->indices);
}

static inline struct moe_case case_of(int size, int experts, int choices, size_t hidden)
{
    struct moe_case c = {.options = TUTTI_MOE_OPTIONS_INITIALIZER, .only = -1, .lanes = size};
    c.size = size;
    c.options.experts = experts;
    c.options.choices = choices;
    c.options.hidden = hidden;
    c.options.maxTokens = 200;
    return c;
}

static inline size_t odd_tokens(int rank)
{
    return (size_t)(rank * 5 + 3) % 11;
}
// ---- What a rank has received -------------------------------------------------------------------

static inline bool check_row(const struct moe_case *c, const void *rows, size_t row, int rank,
                             size_t t)
{
    size_t hidden = c->options.hidden, wrong = 0;
    for (size_t i = 0; i < hidden; i++) {
        wrong += get(rows, c->options.datatype, row * hidden + i) != token_value(c, rank, t, i);
    }
    return EXPECT_EQ(wrong, 0);
}

// All rows of an expert, in order of source rank, then token.
static inline void check_expert(const struct moe_case *c, const struct tuttiMoeReceived *received,
                                int local)
{
    int32_t chosen[64];
    size_t row = received->offsets[local], limit = received->counts[local], place = 0;
    for (int r = 0; r < c->size; r++) {
        for (size_t t = 0; t < c->tokens(r); t++) {
            choose_experts(c, r, t, chosen);
            for (int j = 0; j < c->options.choices; j++) {
                if (chosen[j] == received->firstExpert + local) {
                    if (place < limit && !check_row(c, received->rows, row + place, r, t)) {
                        return;
                    }
                    place++;
                }
            }
        }
    }
    size_t kept = c->options.rule == tuttiMoeDrop && place > c->options.capacity
                      ? c->options.capacity
                      : place;
    EXPECT_EQ(limit, kept);
    EXPECT_EQ(received->offsets[local] % c->options.align, 0);
}

// The rows first to end - 1 are zeros.
static inline void check_padding(const struct moe_case *c, const struct tuttiMoeReceived *received,
                                 size_t first, size_t end)
{
    size_t hidden = c->options.hidden, wrong = 0;
    for (size_t i = first * hidden; i < end * hidden; i++) {
        wrong += get(received->rows, c->options.datatype, i) != 0;
    }
    EXPECT_EQ(wrong, 0);
}

static inline void check_received(const struct moe_case *c, tuttiMoeRoute_t route, int rank)
{
    struct tuttiMoeReceived received;
    size_t counts[RANKS_MAX], first[RANKS_MAX], end = 0;
    EXPECT_OK(tuttiMoeGetReceived(route, &received));
    EXPECT_OK(tuttiSplitCounts((size_t)c->options.experts, c->size, counts, first));
    EXPECT_EQ(received.experts, counts[rank]);
    EXPECT_EQ(received.firstExpert, first[rank]);
    for (int e = 0; e < received.experts; e++) {
        check_expert(c, &received, e);
        check_padding(c, &received, end, received.offsets[e]);
        end = received.offsets[e] + received.counts[e];
    }
    check_padding(c, &received, end, received.rowCount);
    EXPECT_EQ(received.rowCount % c->options.align, 0);
}

// What the experts do, in place.
static inline void run_experts(const struct moe_case *c, tuttiMoeRoute_t route)
{
    struct tuttiMoeReceived received;
    EXPECT_OK(tuttiMoeGetReceived(route, &received));
    size_t hidden = c->options.hidden;
    for (int e = 0; e < received.experts; e++) {
        size_t begin = received.offsets[e] * hidden, count = received.counts[e] * hidden;
        for (size_t i = begin; i < begin + count; i++) {
            double token = get(received.rows, c->options.datatype, i);
            put(received.rows, c->options.datatype, i,
                expert_value(c, received.firstExpert + e, token));
        }
    }
}

static inline void check_out(const struct moe_case *c, const struct moe_arrays *a, int rank)
{
    int32_t chosen[64];
    bool kept[64];
    size_t wrong = 0, hidden = c->options.hidden;
    for (size_t t = 0; t < a->count; t++) {
        choose_experts(c, rank, t, chosen);
        for (int j = 0; j < c->options.choices; j++) {
            kept[j] = is_kept(c, chosen[j], rank, t);
        }
        for (size_t i = 0; i < hidden; i += 1 + hidden / 50) {
            double right = expected_sum(c, c->options.datatype, rank, t, kept, weighted_part, i);
            wrong += get(a->out, c->options.datatype, t * hidden + i) != right;
        }
    }
    EXPECT_EQ(wrong, 0);
}

// Dispatch, experts, combine; once more by the same route; once more by a new one.
static inline void round_trip(const struct moe_case *c, struct member *m)
{
    tuttiMoe_t moe = NULL;
    struct moe_arrays a = make_arrays(c, m);
    if (!EXPECT_OK(tuttiMoeCreate(m->comm, &c->options, &moe))) {
        return;
    }
    tuttiMoeRoute_t route[2] = {NULL, NULL};
    for (int turn = 0; turn < 3; turn++) {
        tuttiMoeRoute_t *now = &route[turn / 2];
        if (turn == 1) {
            EXPECT_OK(tuttiMoeDispatchAgain(*now, a.tokens, m->stream));
        } else if (!EXPECT_OK(tuttiMoeDispatch(moe, a.tokens, a.count, a.indices, a.weights, now,
                                               m->stream))) {
            break;
        }
        EXPECT_CUDA(cudaStreamSynchronize(m->stream));
        check_received(c, *now, m->rank);
        run_experts(c, *now);
        struct tuttiMoeReceived received;
        EXPECT_OK(tuttiMoeGetReceived(*now, &received));
        EXPECT_OK(tuttiMoeCombine(*now, received.rows, a.out, m->stream));
        EXPECT_CUDA(cudaStreamSynchronize(m->stream));
        check_out(c, &a, m->rank);
        if (received.rowCount > 0) { // padding must be cleared again
            memset(received.rows, 0x3f,
                   received.rowCount * c->options.hidden * bytes_of(c->options.datatype));
        }
    }
    EXPECT_OK(tuttiMoeRouteDestroy(route[0]));
    EXPECT_OK(tuttiMoeRouteDestroy(route[1]));
    EXPECT_OK(tuttiMoeDestroy(moe));
    free_arrays(m, &a);
}

static inline void run_case(int rank, int size, struct moe_case c)
{
    struct member m;
    c.size = size;
    if (member_join(&m, rank, size)) {
        round_trip(&c, &m);
        member_leave(&m);
    }
}

#endif
