// The table of parameters, and random numbers: known values, and that slices of a mesh are slices
// of the whole. SPDX-License-Identifier: Apache-2.0
#include "parameters.h"

#include "expect.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The known answers that come with the paper's own sources (Random123, kat_vectors).
static void philox_known_answers(void)
{
    const struct {
        uint32_t counter[4];
        uint64_t key;
        uint32_t out[4];
    } known[] = {
        {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         0xffffffffffffffff,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         0x299f31d0a4093822,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t out[4];
        gpt_philox(known[i].counter, known[i].key, out);
        for (int j = 0; j < 4; j++) {
            EXPECT_EQ(out[j], known[i].out[j]);
        }
    }
}

static void normal_moments(void)
{
    const int blocks = 50000;
    double sums[4] = {0, 0, 0, 0};
    for (int block = 0; block < blocks; block++) {
        double x[4];
        gpt_normal(7, gpt_hash("a"), (uint64_t)block, x);
        for (int j = 0; j < 4; j++) {
            double power = 1;
            for (int k = 0; k < 4; k++) {
                power *= x[j];
                sums[k] += power;
            }
        }
    }
    double n = 4.0 * blocks;
    EXPECT_NEAR(sums[0] / n, 0, 0.01); // five deviations of each mean
    EXPECT_NEAR(sums[1] / n, 1, 0.016);
    EXPECT_NEAR(sums[2] / n, 0, 0.045);
    EXPECT_NEAR(sums[3] / n, 3, 0.11);
}

static struct gpt_config odd_config(void)
{
    struct gpt_config c = gpt_config_default();
    c.layers = 4;
    c.width = 24;
    c.heads = 4;
    c.kv_heads = 2;
    c.context = 5;
    c.vocabulary = 37;
    c.mlp_width = 20;
    c.norm = GPT_NORM_LAYER;
    c.experts = 4;
    return c;
}

// Every element of a slice is that of the whole matrix.
static void compare(const struct gpt_parameters *whole, const float *all,
                    const struct gpt_parameters *part, const float *some)
{
    for (int i = 0; i < part->count; i++) {
        const struct gpt_parameter *p = &part->all[i];
        const struct gpt_parameter *w = gpt_parameter_find(whole, p->name);
        if (!EXPECT(w != NULL)) {
            continue;
        }
        EXPECT_EQ(w->rows, p->rows);
        EXPECT_EQ(w->columns, p->columns);
        for (size_t row = 0; row < p->slice_rows; row++) {
            const float *mine = some + p->offset + row * p->slice_columns;
            const float *its = all + w->offset + (p->first_row + row) * p->columns;
            EXPECT(memcmp(mine, its + p->first_column, p->slice_columns * sizeof *mine) == 0);
        }
    }
}

static void slices_of_a_mesh(void)
{
    struct gpt_config config = odd_config();
    struct gpt_place place = gpt_place_whole();
    struct gpt_parameters whole;
    EXPECT_OK(gpt_parameters_make(&config, &place, &whole));
    float *all = malloc(whole.elements * sizeof *all), *some = malloc(whole.elements * sizeof *all);
    gpt_parameters_initial(&whole, 3, all);
    size_t elements = 0; // of all ranks' slices of matrices that are split
    for (int rank = 0; rank < 8; rank++) {
        struct gpt_parameters part;
        place = (struct gpt_place){2, rank / 4, 2, rank / 2 % 2, 2, rank % 2};
        EXPECT_OK(gpt_parameters_make(&config, &place, &part));
        EXPECT(part.elements <= whole.elements);
        EXPECT_EQ(part.dense + part.experts, part.elements);
        gpt_parameters_initial(&part, 3, some);
        compare(&whole, all, &part, some);
        for (int i = 0; i < part.count; i++) {
            const struct gpt_parameter *p = &part.all[i];
            elements += p->expert >= 0 ? gpt_slice_elements(p) : 0;
            EXPECT_EQ(p->expert >= 0, p->offset >= part.dense);
        }
        gpt_parameters_free(&part);
    }
    EXPECT_EQ(elements, 2 * 4 * 3 * 20 * 24); // layers, experts, matrices
    free(all);
    free(some);
    gpt_parameters_free(&whole);
}

static void initial_values(void)
{
    struct gpt_config config = gpt_config_default();
    struct gpt_place place = gpt_place_whole();
    struct gpt_parameters table;
    EXPECT_OK(gpt_parameters_make(&config, &place, &table));
    float *all = malloc(table.elements * sizeof *all);
    gpt_parameters_initial(&table, 3, all);
    const struct {
        const char *name;
        double deviation;
    } expected[] = {{"embedding", 0.02},
                    {"layer.1.attention.query", 0.02},
                    {"layer.1.attention.output", 0.02 / sqrt(8)},
                    {"layer.2.mlp.down", 0.02 / sqrt(8)},
                    {"head", 0.02}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const struct gpt_parameter *p = gpt_parameter_find(&table, expected[i].name);
        size_t count = gpt_slice_elements(p);
        double squares = 0;
        for (size_t j = 0; j < count; j++) {
            squares += (double)all[p->offset + j] * all[p->offset + j];
        }
        EXPECT_NEAR(sqrt(squares / (double)count) / expected[i].deviation, 1, 0.03);
    }
    const struct gpt_parameter *gamma = gpt_parameter_find(&table, "norm.gamma");
    EXPECT(all[gamma->offset] == 1.0f && all[gamma->offset + 127] == 1.0f);
    free(all);
    gpt_parameters_free(&table);
}

static void refused(struct gpt_config config, int pp, int ep, int tp, const char *text)
{
    EXPECT_EQ(gpt_config_check(&config, pp, ep, tp), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), text);
}

static void bad_configs(void)
{
    struct gpt_config c = odd_config();
    EXPECT_OK(gpt_config_check(&c, 2, 2, 2));
    refused(c, 3, 1, 1, "layers is 4, must be divisible by pp, which is 3");
    refused(c, 1, 3, 1, "experts is 4, must be divisible by ep, which is 3");
    refused(c, 1, 1, 3, "heads is 4, must be divisible by tp, which is 3");
    refused(c, 1, 1, 4, "kv-heads is 2, must be divisible by tp, which is 4");
    c.heads = 5;
    refused(c, 1, 1, 1, "width is 24, must be divisible by heads, which is 5");
    c = odd_config();
    c.heads = 8;
    c.kv_heads = 3;
    refused(c, 1, 1, 1, "width / heads is 3");
    c = odd_config();
    c.kv_heads = 3;
    refused(c, 1, 1, 1, "heads is 4, must be divisible by kv-heads, which is 3");
    c = odd_config();
    c.mlp_width = 21;
    refused(c, 1, 1, 2, "mlp-width is 21, must be divisible by tp, which is 2");
    c = odd_config();
    c.dropout = 1;
    refused(c, 1, 1, 1, "dropout is 1");
    c = odd_config();
    c.top_k = 5;
    refused(c, 1, 1, 1, "experts-per-token is 5, must be at most experts, which is 4");
    c.experts = 0;
    refused(c, 1, 2, 1, "ep is 2, must be 1");
    c.layers = 0;
    refused(c, 1, 1, 1, "layers is 0, must be from 1 to 32767");
    c.layers = 40000; // more than dropout has numbers for
    refused(c, 1, 1, 1, "layers is 40000, must be from 1 to 32767");
    c = odd_config();
    c.kv_heads = 0;
    refused(c, 1, 1, 1, "kv-heads is 0, must be at least 1");
    c = odd_config();
    c.eps = NAN;
    refused(c, 1, 1, 1, "norm-eps is nan, must be from 0 to 1");
    c = odd_config();
    c.rope_theta = 1;
    refused(c, 1, 1, 1, "rope-theta is 1, must be from 1.0001 to 1e+12");
    c = odd_config();
    c.moe_every = 0;
    refused(c, 1, 1, 1, "moe-every is 0, must be from 1 to 1073741824");
    c.moe_every = 5; // no layer would have experts
    refused(c, 1, 1, 1, "moe-every is 5, must be at most layers, which is 4");
    c.experts = 0;
    EXPECT_OK(gpt_config_check(&c, 1, 1, 1));
}

// Sizes whose product is more than size_t holds, or that would take hours to list.
static void too_large(void)
{
    const struct gpt_place place = gpt_place_whole();
    struct gpt_config wide = gpt_config_default(), many = odd_config();
    struct gpt_parameters table;
    wide.width = wide.mlp_width = 1 << 30;
    EXPECT_EQ(gpt_parameters_make(&wide, &place, &table), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "layers is 4, width 1073741824, mlp-width 1073741824");
    EXPECT(table.all == NULL);
    many.experts = 1 << 30;
    EXPECT_EQ(gpt_parameters_make(&many, &place, &table), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "experts 1073741824: on one rank that must be at most");
    EXPECT(table.all == NULL);
}

int main(void)
{
    RUN(philox_known_answers);
    RUN(normal_moments);
    RUN(slices_of_a_mesh);
    RUN(initial_values);
    RUN(bad_configs);
    RUN(too_large);
    return expect_result();
}
