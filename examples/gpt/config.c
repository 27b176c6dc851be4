// See config.h. SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "try.h"

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

#define WHOLE_ROW(name, field, least, most, about)                                                 \
    {                                                                                              \
        name, GPT_WHOLE, GPT_MODEL, offsetof(struct gpt_config, field), least, most, NULL, "N",    \
            about                                                                                  \
    }
#define REAL_ROW(name, field, least, most, about)                                                  \
    {                                                                                              \
        name, GPT_REAL, GPT_MODEL, offsetof(struct gpt_config, field), least, most, NULL, "X",     \
            about                                                                                  \
    }
#define CHOICE_ROW(name, field, choices, about)                                                    \
    {                                                                                              \
        name, GPT_CHOICE, GPT_MODEL, offsetof(struct gpt_config, field), 0, 0, choices, choices,   \
            about                                                                                  \
    }
#define SEED_ROW(name, field, about)                                                               \
    {                                                                                              \
        name, GPT_SEED, GPT_MODEL, offsetof(struct gpt_config, field), 0, 0, NULL, "N", about      \
    }

const struct gpt_row gpt_config_rows[GPT_CONFIG_ROWS] = {
    WHOLE_ROW("layers", layers, 1, GPT_LAYERS_MOST, "blocks"),
    WHOLE_ROW("width", width, 1, GPT_WHOLE_MOST, "of the residual stream"),
    WHOLE_ROW("heads", heads, 1, GPT_WHOLE_MOST, "of queries"),
    WHOLE_ROW("kv-heads", kv_heads, 0, GPT_WHOLE_MOST, "of keys and values; 0: as many as heads"),
    WHOLE_ROW("context", context, 1, GPT_WHOLE_MOST, "tokens of a sequence"),
    WHOLE_ROW("mlp-width", mlp_width, 1, GPT_WHOLE_MOST, "inside an MLP or an expert"),
    CHOICE_ROW("norm", norm, "rms|layer", "RMSNorm or LayerNorm"),
    CHOICE_ROW("activation", activation, "swiglu|gelu", "of MLPs and experts"),
    CHOICE_ROW("type", type, "float|bf16|double", "of weights and activations"),
    REAL_ROW("dropout", dropout, 0, 0.999, "probability"),
    REAL_ROW("norm-eps", eps, 0, 1, "added inside the norms' roots"),
    REAL_ROW("rope-theta", rope_theta, 1.0001, 1e12, "base of rotary positions"),
    WHOLE_ROW("experts", experts, 0, GPT_WHOLE_MOST, "of a mixture-of-experts layer; 0: none"),
    WHOLE_ROW("experts-per-token", top_k, 1, GPT_WHOLE_MOST, "that the router chooses"),
    WHOLE_ROW("moe-every", moe_every, 1, GPT_WHOLE_MOST, "every N-th layer has experts"),
    REAL_ROW("balance", balance_alpha, 0, 1e6, "weight of the balance loss"),
    CHOICE_ROW("capacity", capacity, "grow|drop|error", "when an expert is full"),
    REAL_ROW("capacity-factor", capacity_factor, 1e-3, 1e6, "of an expert's mean"),
    SEED_ROW("seed", seed, "of weights, batches and dropout"),
};

// Whether a value is among those that its row allows.
static ncclResult_t check_row(const struct gpt_config *config, const struct gpt_row *row)
{
    const void *value = (const char *)config + row->place;
    if (row->form != GPT_WHOLE && row->form != GPT_REAL) {
        return ncclSuccess;
    }
    double number = row->form == GPT_WHOLE ? *(const int *)value : *(const double *)value;
    return number >= row->least && number <= row->most // not so for a NaN
               ? ncclSuccess
               : tuttiFail(ncclInvalidArgument, "gpt: %s is %.10g, must be from %.10g to %.10g",
                           row->name, number, row->least, row->most);
}

static ncclResult_t check_multiple(const char *name, int value, const char *of, int divisor)
{
    return value % divisor == 0 ? ncclSuccess
                                : tuttiFail(ncclInvalidArgument,
                                            "gpt: %s is %d, must be divisible by %s, which is %d",
                                            name, value, of, divisor);
}

static ncclResult_t check_heads(const struct gpt_config *c)
{
    if (c->kv_heads < 1) {
        return tuttiFail(ncclInvalidArgument, "gpt: kv-heads is %d, must be at least 1",
                         c->kv_heads);
    }
    TRY(check_multiple("width", c->width, "heads", c->heads));
    TRY(check_multiple("width / heads", c->width / c->heads, "2 (rotary pairs)", 2));
    return check_multiple("heads", c->heads, "kv-heads", c->kv_heads);
}

static ncclResult_t check_experts(const struct gpt_config *c, int ep)
{
    if (c->experts == 0) {
        return ep == 1 ? ncclSuccess
                       : tuttiFail(ncclInvalidArgument,
                                   "gpt: ep is %d, must be 1 in a model without experts", ep);
    }
    if (c->top_k > c->experts) {
        return tuttiFail(ncclInvalidArgument,
                         "gpt: experts-per-token is %d, must be at most experts, which is %d",
                         c->top_k, c->experts);
    }
    if (c->moe_every > c->layers) {
        return tuttiFail(ncclInvalidArgument,
                         "gpt: moe-every is %d, must be at most layers, which is %d, in a model "
                         "with experts",
                         c->moe_every, c->layers);
    }
    return check_multiple("experts", c->experts, "ep", ep);
}

ncclResult_t gpt_config_check(const struct gpt_config *config, int pp, int ep, int tp)
{
    for (int i = 0; i < GPT_CONFIG_ROWS; i++) {
        TRY(check_row(config, &gpt_config_rows[i]));
    }
    TRY(check_heads(config));
    TRY(check_multiple("layers", config->layers, "pp", pp));
    TRY(check_multiple("heads", config->heads, "tp", tp));
    TRY(check_multiple("kv-heads", config->kv_heads, "tp", tp));
    TRY(check_multiple("mlp-width", config->mlp_width, "tp", tp));
    if (config->vocabulary < tp) {
        return tuttiFail(ncclInvalidArgument, "gpt: vocabulary is %d, must be at least tp, %d",
                         config->vocabulary, tp);
    }
    return check_experts(config, ep);
}
