// See parameters.h. SPDX-License-Identifier: Apache-2.0
#include "parameters.h"

#include "random.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpt_place gpt_place_whole(void)
{
    return (struct gpt_place){1, 0, 1, 0, 1, 0};
}

void gpt_stage_layers(const struct gpt_config *config, const struct gpt_place *place, int *first,
                      int *count)
{
    *count = config->layers / place->pp;
    *first = *count * place->pp_rank;
}

struct maker {
    const struct gpt_config *config;
    const struct gpt_place *place;
    struct gpt_parameters *parameters;
    int room;
    int layer; // of what is added
    int expert;
    double elements;  // so far; a double, as their number may not fit into size_t
    bool failed;      // no memory
    bool is_too_much; // more than can be counted with
};

enum { MATRICES_MOST = 1 << 20 };
static const double elements_most = 0x1p44; // far from where a number of bytes overflows

enum kind { MATRIX, RESIDUAL_MATRIX, GAIN, SHIFT };

// The own part of a dimension of `size` that is split over tp.
static void own_part(const struct gpt_place *place, size_t size, size_t *first, size_t *count)
{
    size_t share = size / (size_t)place->tp, more = size % (size_t)place->tp;
    size_t rank = (size_t)place->tp_rank;
    *count = share + (rank < more ? 1 : 0);
    *first = rank * share + (rank < more ? rank : more);
}

static bool is_stopped(const struct maker *maker)
{
    return maker->failed || maker->is_too_much;
}

// NULL: the table ends here.
static struct gpt_parameter *next_parameter(struct maker *maker)
{
    struct gpt_parameters *p = maker->parameters;
    maker->is_too_much = maker->is_too_much || p->count == MATRICES_MOST;
    if (is_stopped(maker)) {
        return NULL;
    }
    if (p->count == maker->room) {
        int room = 2 * maker->room + 16;
        struct gpt_parameter *all = realloc(p->all, (size_t)room * sizeof *all);
        if (all == NULL) {
            maker->failed = true;
            return NULL;
        }
        p->all = all;
        maker->room = room;
    }
    return &p->all[p->count++];
}

static void add(struct maker *maker, enum kind kind, enum gpt_split split, int rows, int columns,
                const char *format, ...) __attribute__((format(printf, 6, 7)));

// rows, columns: of the whole matrix.
static void add(struct maker *maker, enum kind kind, enum gpt_split split, int rows, int columns,
                const char *format, ...)
{
    struct gpt_parameter *p = next_parameter(maker);
    if (p == NULL) {
        return;
    }
    memset(p, 0, sizeof *p);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(p->name, sizeof p->name, format, arguments);
    va_end(arguments);
    p->rows = (size_t)rows;
    p->columns = (size_t)columns;
    p->split = split;
    p->layer = maker->layer;
    p->expert = maker->expert;
    p->is_norm = kind == GAIN || kind == SHIFT;
    p->mean = kind == GAIN ? 1 : 0;
    if (!p->is_norm) {
        p->deviation = kind == RESIDUAL_MATRIX ? 0.02 / sqrt(2.0 * maker->config->layers) : 0.02;
    }
    p->slice_rows = p->rows;
    p->slice_columns = p->columns;
    if (split == GPT_SPLIT_ROWS) {
        own_part(maker->place, p->rows, &p->first_row, &p->slice_rows);
    } else if (split == GPT_SPLIT_COLUMNS) {
        own_part(maker->place, p->columns, &p->first_column, &p->slice_columns);
    }
    maker->elements += (double)p->slice_rows * (double)p->slice_columns;
    maker->is_too_much = maker->elements > elements_most;
}

// The parameter added last and the one before it are one matrix.
static void join(struct maker *maker)
{
    if (!is_stopped(maker)) {
        maker->parameters->all[maker->parameters->count - 1].joined = true;
    }
}

static void add_norm(struct maker *maker, const char *name)
{
    add(maker, GAIN, GPT_SPLIT_NONE, 1, maker->config->width, "%s.gamma", name);
    if (maker->config->norm == GPT_NORM_LAYER) {
        add(maker, SHIFT, GPT_SPLIT_NONE, 1, maker->config->width, "%s.beta", name);
    }
}

static void add_attention(struct maker *maker)
{
    const struct gpt_config *c = maker->config;
    int kv_width = c->width / c->heads * c->kv_heads;
    add(maker, MATRIX, GPT_SPLIT_ROWS, c->width, c->width, "layer.%d.attention.query",
        maker->layer);
    add(maker, MATRIX, GPT_SPLIT_ROWS, kv_width, c->width, "layer.%d.attention.key", maker->layer);
    join(maker);
    add(maker, MATRIX, GPT_SPLIT_ROWS, kv_width, c->width, "layer.%d.attention.value",
        maker->layer);
    join(maker);
    add(maker, RESIDUAL_MATRIX, GPT_SPLIT_COLUMNS, c->width, c->width, "layer.%d.attention.output",
        maker->layer);
}

// prefix: "layer.3.mlp" or "layer.3.expert.5".
static void add_mlp(struct maker *maker, const char *prefix)
{
    const struct gpt_config *c = maker->config;
    if (c->activation == GPT_SWIGLU) {
        add(maker, MATRIX, GPT_SPLIT_ROWS, c->mlp_width, c->width, "%s.gate", prefix);
    }
    add(maker, MATRIX, GPT_SPLIT_ROWS, c->mlp_width, c->width, "%s.up", prefix);
    if (c->activation == GPT_SWIGLU) {
        join(maker);
    }
    add(maker, RESIDUAL_MATRIX, GPT_SPLIT_COLUMNS, c->width, c->mlp_width, "%s.down", prefix);
}

static void add_dense_block(struct maker *maker)
{
    char name[GPT_NAME_BYTES / 2];
    (void)snprintf(name, sizeof name, "layer.%d.norm1", maker->layer);
    add_norm(maker, name);
    add_attention(maker);
    (void)snprintf(name, sizeof name, "layer.%d.norm2", maker->layer);
    add_norm(maker, name);
    if (gpt_is_moe(maker->config, maker->layer)) {
        add(maker, MATRIX, GPT_SPLIT_NONE, maker->config->experts, maker->config->width,
            "layer.%d.router", maker->layer);
    } else {
        (void)snprintf(name, sizeof name, "layer.%d.mlp", maker->layer);
        add_mlp(maker, name);
    }
}

static void add_experts(struct maker *maker)
{
    int count = maker->config->experts / maker->place->ep;
    for (int i = 0; i < count && !is_stopped(maker); i++) {
        char name[GPT_NAME_BYTES / 2];
        maker->expert = maker->place->ep_rank * count + i;
        (void)snprintf(name, sizeof name, "layer.%d.expert.%d", maker->layer, maker->expert);
        add_mlp(maker, name);
    }
}

static void add_all(struct maker *maker)
{
    const struct gpt_config *c = maker->config;
    int first, count;
    gpt_stage_layers(c, maker->place, &first, &count);
    maker->expert = -1;
    if (maker->place->pp_rank == 0) {
        maker->layer = -1;
        add(maker, MATRIX, GPT_SPLIT_ROWS, c->vocabulary, c->width, "embedding");
    }
    for (maker->layer = first; maker->layer < first + count; maker->layer++) {
        add_dense_block(maker);
    }
    if (maker->place->pp_rank == maker->place->pp - 1) {
        maker->layer = c->layers;
        add_norm(maker, "norm");
        add(maker, MATRIX, GPT_SPLIT_ROWS, c->vocabulary, c->width, "head");
    }
    for (maker->layer = first; maker->layer < first + count; maker->layer++) {
        if (gpt_is_moe(c, maker->layer)) {
            add_experts(maker);
        }
    }
}

static size_t round_up(size_t elements)
{
    return (elements + GPT_ALIGNMENT - 1) / GPT_ALIGNMENT * GPT_ALIGNMENT;
}

static void lay_out(struct gpt_parameters *parameters)
{
    size_t end = 0; // of the slice before
    parameters->dense = 0;
    for (int i = 0; i < parameters->count; i++) {
        struct gpt_parameter *p = &parameters->all[i];
        p->offset = p->joined ? end : round_up(end);
        end = p->offset + gpt_slice_elements(p);
        if (p->expert < 0) {
            parameters->dense = round_up(end);
        }
    }
    parameters->elements = round_up(end);
    parameters->experts = parameters->elements - parameters->dense;
}

ncclResult_t gpt_parameters_make(const struct gpt_config *config, const struct gpt_place *place,
                                 struct gpt_parameters *parameters)
{
    memset(parameters, 0, sizeof *parameters);
    ncclResult_t result = gpt_config_check(config, place->pp, place->ep, place->tp);
    if (result != ncclSuccess) {
        return result;
    }
    struct maker maker = {.config = config, .place = place, .parameters = parameters};
    add_all(&maker);
    if (is_stopped(&maker)) {
        gpt_parameters_free(parameters);
        return maker.failed
                   ? tuttiFail(ncclSystemError, "gpt: no memory for the table of %d layers",
                               config->layers)
                   : tuttiFail(ncclInvalidArgument,
                               "gpt: layers is %d, width %d, mlp-width %d, experts %d: on one rank "
                               "that must be at most %d matrices and %.0f elements",
                               config->layers, config->width, config->mlp_width, config->experts,
                               MATRICES_MOST, elements_most);
    }
    lay_out(parameters);
    return ncclSuccess;
}

void gpt_parameters_free(struct gpt_parameters *parameters)
{
    free(parameters->all);
    memset(parameters, 0, sizeof *parameters);
}

const struct gpt_parameter *gpt_parameter_find(const struct gpt_parameters *parameters,
                                               const char *name)
{
    for (int i = 0; i < parameters->count; i++) {
        if (strcmp(parameters->all[i].name, name) == 0) {
            return &parameters->all[i];
        }
    }
    return NULL;
}

size_t gpt_slice_elements(const struct gpt_parameter *parameter)
{
    return parameter->slice_rows * parameter->slice_columns;
}

void gpt_parameter_initial(const struct gpt_parameter *p, uint64_t seed, float *values)
{
    uint64_t stream = gpt_hash(p->name);
    uint64_t have = UINT64_MAX; // the block in `normal`
    double normal[4] = {0, 0, 0, 0};
    for (size_t row = 0; row < p->slice_rows; row++) {
        for (size_t column = 0; column < p->slice_columns; column++) {
            uint64_t index = (p->first_row + row) * p->columns + p->first_column + column;
            if (p->deviation != 0 && index / 4 != have) {
                have = index / 4;
                gpt_normal(seed, stream, have, normal);
            }
            *values++ = (float)(p->mean + p->deviation * normal[index % 4]);
        }
    }
}

void gpt_parameters_initial(const struct gpt_parameters *parameters, uint64_t seed, float *values)
{
    memset(values, 0, parameters->elements * sizeof *values);
    for (int i = 0; i < parameters->count; i++) {
        gpt_parameter_initial(&parameters->all[i], seed, values + parameters->all[i].offset);
    }
}
