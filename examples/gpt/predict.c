// How much memory a model takes, without making it. SPDX-License-Identifier: Apache-2.0
#include "sizes.h"
#include "try.h"

#include <math.h>
#include <stdlib.h>

// Whether the numbers of tokens, of layers in all slots and of bytes can be counted with, whatever
// the mesh: an upper bound of the activations' elements, in double.
static bool fits(const struct gpt_shape *shape, const struct gpt_config *c)
{
    const double most = 0x1p44; // elements: far from where a number of bytes overflows
    double tokens = (double)shape->sequences * c->context;
    double layers = (double)shape->slots * c->layers;
    double rows = c->experts > 0 ? c->top_k : 1; // in the MLPs, of a token
    double token = 12.0 * c->width + (double)c->heads * c->context + 4.0 * c->experts +
                   rows * (4.0 * c->width + 8.0 * c->mlp_width);
    return tokens <= INT32_MAX && layers <= INT32_MAX &&
           tokens * ((layers + 1) * token + (shape->slots + 1.0) * c->vocabulary) <= most;
}

ncclResult_t gpt_shape_check(const struct gpt_shape *shape, const struct gpt_config *config)
{
    if (shape->sequences < 1 || shape->slots < 1) {
        return tuttiFail(
            ncclInvalidArgument,
            "gpt: sequences of a micro-batch is %d and slots is %d, must be at least 1",
            shape->sequences, shape->slots);
    }
    return fits(shape, config)
               ? ncclSuccess
               : tuttiFail(ncclInvalidArgument,
                           "gpt: context is %d, batch / (dp x ep x micro-batches) %d, and %d "
                           "micro-batch%s kept at once: must be fewer, or the model smaller",
                           config->context, shape->sequences, shape->slots,
                           shape->slots == 1 ? " is" : "es are");
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

// The same in all slots and layers with experts.
static struct gpt_rows rows_of(const struct gpt_sizes *sizes, const struct gpt_shape *shape,
                               size_t of_rank, size_t of_expert)
{
    if (sizes->moe_layers == 0) {
        return (struct gpt_rows){0, 0, 0};
    }
    size_t places = (size_t)shape->slots * (size_t)sizes->moe_layers;
    return (struct gpt_rows){places * of_rank, of_rank, of_expert};
}

struct gpt_rows gpt_even_rows(const struct gpt_config *config, const struct gpt_shape *shape,
                              const struct gpt_place *place)
{
    struct gpt_sizes s = gpt_sizes_of(config, shape, place);
    size_t rows = s.tokens * s.top_k, experts = s.own_experts > 0 ? s.own_experts : 1;
    return rows_of(&s, shape, rows, (rows + experts - 1) / experts);
}

// Rows of one expert: at most the tokens of all ranks of the expert group, or its capacity
// (tuttiMoeOptions.capacityFactor).
static size_t most_of_expert(const struct gpt_config *config, size_t tokens)
{
    if (config->capacity == GPT_CAPACITY_GROW) {
        return tokens;
    }
    double capacity =
        ceil(config->capacity_factor * (double)tokens * config->top_k / config->experts);
    return capacity < 1 ? 1 : capacity < (double)tokens ? (size_t)capacity : tokens;
}

struct gpt_rows gpt_most_rows(const struct gpt_config *config, const struct gpt_shape *shape,
                              const struct gpt_place *place)
{
    struct gpt_sizes s = gpt_sizes_of(config, shape, place);
    if (s.experts == 0) {
        return (struct gpt_rows){0, 0, 0};
    }
    size_t tokens = s.tokens * (size_t)place->ep, of_expert = most_of_expert(config, tokens);
    size_t of_rank = smaller(tokens * smaller(s.top_k, s.own_experts), s.own_experts * of_expert);
    return rows_of(&s, shape, of_rank, of_expert);
}

struct gpt_rows gpt_first_rows(const struct gpt_config *config, const struct gpt_shape *shape,
                               const struct gpt_place *place)
{
    return config->capacity == GPT_CAPACITY_GROW ? gpt_even_rows(config, shape, place)
                                                 : gpt_most_rows(config, shape, place);
}

ncclResult_t gpt_predict_bytes(const struct gpt_config *config, const struct gpt_shape *shape,
                               const struct gpt_place *place, const struct gpt_rows *rows,
                               struct gpt_bytes *bytes)
{
    struct gpt_parameters parameters;
    TRY(gpt_parameters_make(config, place, &parameters));
    size_t elements = parameters.elements;
    gpt_parameters_free(&parameters);
    TRY(gpt_shape_check(shape, config));
    struct gpt_sizes sizes = gpt_sizes_of(config, shape, place);
    struct gpt_scratch scratch;
    struct gpt_slot slot = {.layers = calloc((size_t)sizes.layers, sizeof *slot.layers)};
    if (slot.layers == NULL) {
        return tuttiFail(ncclSystemError, "gpt: no memory for %d layers", sizes.layers);
    }
    size_t of_slot = gpt_lay_out_slot(&sizes, config, NULL, &slot);
    *bytes = (struct gpt_bytes){
        .weights = elements * sizes.stored_bytes,
        .gradients = elements * sizes.real_bytes,
        .activations = (size_t)shape->slots * of_slot + gpt_expert_bytes(&sizes, rows->kept),
        .scratch = gpt_lay_out_scratch(&sizes, shape, NULL, &scratch) +
                   gpt_expert_middle_bytes(&sizes, rows->of_expert) +
                   rows->of_rank * sizes.width * sizes.real_bytes,
    };
    if (shape->sequence_parallel) { // the boundary's rows
        bytes->scratch += sizes.tokens * sizes.width * sizes.stored_bytes;
    }
    free(slot.layers);
    return ncclSuccess;
}
