// See config.h. SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include <math.h>

struct gpt_config gpt_config_default(void)
{
    return (struct gpt_config){
        .layers = 4,
        .width = 128,
        .heads = 4,
        .kv_heads = 4,
        .context = 128,
        .vocabulary = 256,
        .mlp_width = 352,
        .norm = GPT_NORM_RMS,
        .activation = GPT_SWIGLU,
        .dropout = 0,
        .eps = 1e-5,
        .rope_theta = 10000,
        .experts = 0,
        .top_k = 2,
        .moe_every = 2,
        .balance_alpha = 0.01,
        .capacity = GPT_CAPACITY_GROW,
        .capacity_factor = 1.25,
        .seed = 1,
        .type = GPT_FLOAT,
    };
}

bool gpt_is_moe(const struct gpt_config *config, int layer)
{
    return config->experts > 0 && (layer + 1) % config->moe_every == 0;
}

size_t gpt_type_bytes(enum gpt_type type)
{
    return type == GPT_DOUBLE ? sizeof(double)
           : type == GPT_BF16 ? sizeof(uint16_t)
                              : sizeof(float);
}

size_t gpt_gradient_bytes(enum gpt_type type)
{
    return type == GPT_DOUBLE ? sizeof(double) : sizeof(float);
}

static ncclResult_t check_positive(const char *name, int value)
{
    return value > 0
               ? ncclSuccess
               : tuttiFail(ncclInvalidArgument, "gpt: %s is %d, must be at least 1", name, value);
}

static ncclResult_t check_multiple(const char *name, int value, const char *of, int divisor)
{
    return value % divisor == 0 ? ncclSuccess
                                : tuttiFail(ncclInvalidArgument,
                                            "gpt: %s is %d, must be divisible by %s, which is %d",
                                            name, value, of, divisor);
}

static ncclResult_t first_error(const ncclResult_t *results, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (results[i] != ncclSuccess) {
            return results[i];
        }
    }
    return ncclSuccess;
}

static ncclResult_t check_sizes(const struct gpt_config *c)
{
    const struct {
        const char *name;
        int value;
    } sizes[] = {{"layers", c->layers},      {"width", c->width},     {"heads", c->heads},
                 {"kv_heads", c->kv_heads},  {"context", c->context}, {"vocabulary", c->vocabulary},
                 {"mlp_width", c->mlp_width}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ncclResult_t result = check_positive(sizes[i].name, sizes[i].value);
        if (result != ncclSuccess) {
            return result;
        }
    }
    ncclResult_t result = check_multiple("width", c->width, "heads", c->heads);
    if (result == ncclSuccess) {
        result = check_multiple("width / heads", c->width / c->heads, "2 (rotary pairs)", 2);
    }
    return result != ncclSuccess ? result
                                 : check_multiple("heads", c->heads, "kv_heads", c->kv_heads);
}

static ncclResult_t check_numbers(const struct gpt_config *c)
{
    if (!(c->dropout >= 0 && c->dropout < 1)) {
        return tuttiFail(ncclInvalidArgument, "gpt: dropout is %g, must be at least 0 and below 1",
                         c->dropout);
    }
    if (!(c->eps >= 0) || !isfinite(c->eps)) {
        return tuttiFail(ncclInvalidArgument, "gpt: eps is %g, must be finite and at least 0",
                         c->eps);
    }
    if (!(c->rope_theta > 1) || !isfinite(c->rope_theta)) {
        return tuttiFail(ncclInvalidArgument, "gpt: rope_theta is %g, must be finite and above 1",
                         c->rope_theta);
    }
    return ncclSuccess;
}

static ncclResult_t check_experts(const struct gpt_config *c)
{
    if (c->experts < 0) {
        return tuttiFail(ncclInvalidArgument, "gpt: experts is %d, must be at least 0", c->experts);
    }
    if (c->experts == 0) {
        return ncclSuccess;
    }
    if (c->top_k < 1 || c->top_k > c->experts) {
        return tuttiFail(ncclInvalidArgument, "gpt: top_k is %d, must be 1 to %d (experts)",
                         c->top_k, c->experts);
    }
    if (!(c->balance_alpha >= 0) || !isfinite(c->balance_alpha)) {
        return tuttiFail(ncclInvalidArgument,
                         "gpt: balance_alpha is %g, must be finite and at least 0",
                         c->balance_alpha);
    }
    if (c->capacity != GPT_CAPACITY_GROW && !(c->capacity_factor > 0)) {
        return tuttiFail(ncclInvalidArgument, "gpt: capacity_factor is %g, must be above 0",
                         c->capacity_factor);
    }
    return check_positive("moe_every", c->moe_every);
}

ncclResult_t gpt_config_check(const struct gpt_config *config, int pp, int ep, int tp)
{
    ncclResult_t result = check_sizes(config);
    if (result != ncclSuccess) {
        return result;
    }
    const ncclResult_t parts[] = {check_numbers(config), check_experts(config)};
    result = first_error(parts, sizeof parts / sizeof parts[0]);
    if (result != ncclSuccess) {
        return result;
    }
    if (config->layers % pp != 0) {
        return check_multiple("layers", config->layers, "pp", pp);
    }
    if (config->heads % tp != 0) {
        return check_multiple("heads", config->heads, "tp", tp);
    }
    if (config->kv_heads % tp != 0) {
        return check_multiple("kv_heads", config->kv_heads, "tp", tp);
    }
    if (config->mlp_width % tp != 0) {
        return check_multiple("mlp_width", config->mlp_width, "tp", tp);
    }
    if (config->vocabulary < tp) {
        return tuttiFail(ncclInvalidArgument, "gpt: vocabulary is %d, must be at least tp, %d",
                         config->vocabulary, tp);
    }
    if (ep > 1 && config->experts == 0) {
        return tuttiFail(ncclInvalidArgument, "gpt: ep is %d, must be 1 in a model without experts",
                         ep);
    }
    return config->experts == 0 ? ncclSuccess
                                : check_multiple("experts", config->experts, "ep", ep);
}
