// See numbers.h. SPDX-License-Identifier: Apache-2.0
#include "numbers.h"

#include <stdio.h>

// prefix: "layer.3.attention." with its dot. -1: this rank has none.
static int number(const struct gpt_model *model, const char *prefix, const char *name)
{
    char whole[2 * GPT_NAME_BYTES];
    (void)snprintf(whole, sizeof whole, "%s%s", prefix, name);
    const struct gpt_parameter *parameter = gpt_parameter_find(&model->parameters, whole);
    return parameter == NULL ? -1 : (int)(parameter - model->parameters.all);
}

static struct gpt_norm_parameters number_norm(const struct gpt_model *model, const char *prefix)
{
    return (struct gpt_norm_parameters){number(model, prefix, "gamma"),
                                        number(model, prefix, "beta")};
}

static struct gpt_mlp_parameters number_mlp(const struct gpt_model *model, const char *prefix)
{
    return (struct gpt_mlp_parameters){number(model, prefix, "gate"), number(model, prefix, "up"),
                                       number(model, prefix, "down")};
}

static void number_experts(struct gpt_model *model, int layer, struct gpt_mlp_parameters *experts)
{
    int count = model->config.experts / model->place.ep;
    for (int i = 0; i < count; i++) {
        char prefix[GPT_NAME_BYTES];
        (void)snprintf(prefix, sizeof prefix, "layer.%d.expert.%d.", layer,
                       model->place.ep_rank * count + i);
        experts[i] = number_mlp(model, prefix);
    }
}

static void number_layer(struct gpt_model *model, int layer, struct gpt_layer_parameters *numbers)
{
    char prefix[GPT_NAME_BYTES];
    (void)snprintf(prefix, sizeof prefix, "layer.%d.norm1.", layer);
    numbers->norm1 = number_norm(model, prefix);
    (void)snprintf(prefix, sizeof prefix, "layer.%d.norm2.", layer);
    numbers->norm2 = number_norm(model, prefix);
    (void)snprintf(prefix, sizeof prefix, "layer.%d.attention.", layer);
    numbers->query = number(model, prefix, "query");
    numbers->key = number(model, prefix, "key");
    numbers->value = number(model, prefix, "value");
    numbers->output = number(model, prefix, "output");
    (void)snprintf(prefix, sizeof prefix, "layer.%d.", layer);
    numbers->router = number(model, prefix, "router");
    (void)snprintf(prefix, sizeof prefix, "layer.%d.mlp.", layer);
    numbers->mlp = number_mlp(model, prefix);
}

void gpt_number_parameters(struct gpt_model *model)
{
    struct gpt_mlp_parameters *experts = model->experts;
    model->embedding = number(model, "", "embedding");
    model->head = number(model, "", "head");
    model->norm = number_norm(model, "norm.");
    for (int i = 0; i < model->sizes.layers; i++) {
        int layer = model->sizes.first_layer + i;
        number_layer(model, layer, &model->layers[i]);
        if (gpt_is_moe(&model->config, layer)) {
            model->layers[i].experts = experts;
            number_experts(model, layer, experts);
            experts += model->config.experts / model->place.ep;
        }
    }
}
