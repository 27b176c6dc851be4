// What a GPT is made of: the sizes of its parts and how they are computed.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_CONFIG_H
#define GPT_CONFIG_H

#include "row.h"
#include "tutti.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gpt_norm {
    GPT_NORM_RMS,  // x / sqrt(mean of squares + eps) * gamma (Zhang and Sennrich 2019)
    GPT_NORM_LAYER // (x - mean) / sqrt(variance + eps) * gamma + beta (Ba, Kiros, Hinton 2016)
};

enum gpt_activation {
    GPT_SWIGLU, // down(silu(gate(x)) * up(x)) (Shazeer, "GLU Variants Improve Transformer", 2020)
    GPT_GELU    // down(gelu(up(x))), gelu by its tanh form (Hendrycks and Gimpel 2016)
};

enum gpt_type {
    GPT_FLOAT,
    GPT_BF16,  // weights and activations; arithmetic and weight gradients in float
    GPT_DOUBLE // for gradient checks
};

// What happens to tokens beyond an expert's capacity.
enum gpt_capacity { GPT_CAPACITY_GROW, GPT_CAPACITY_DROP, GPT_CAPACITY_ERROR };

struct gpt_config {
    int layers;
    int width;      // of the residual stream
    int heads;      // of queries; width / heads is a head's size, even
    int kv_heads;   // of keys and values; divides heads
    int context;    // tokens of a sequence
    int vocabulary; // token ids are 0 to vocabulary - 1
    int mlp_width;  // inside an MLP, and inside an expert; divisible by tp
    enum gpt_norm norm;
    enum gpt_activation activation;
    double dropout;       // probability that an element becomes 0; 0: none
    double eps;           // of the norms
    double rope_theta;    // base of the rotary positions' wavelengths
    int experts;          // of a mixture-of-experts layer; 0: all layers are dense
    int top_k;            // experts of a token
    int moe_every;        // layer l has experts where (l + 1) % moe_every == 0
    double balance_alpha; // weight of the load-balancing loss
    enum gpt_capacity capacity;
    double capacity_factor; // an expert's capacity is factor * top_k * tokens / experts
    uint64_t seed;          // of initial values and dropout
    enum gpt_type type;
};

enum {
    GPT_CONFIG_ROWS = 19,
    GPT_LAYERS_MOST = 32767 // dropout has 16 bits for two sites of each layer and one more
};

// Every field but the vocabulary as a setting; places are in struct gpt_config.
extern const struct gpt_row gpt_config_rows[GPT_CONFIG_ROWS];

// A small model: 4 layers, width 128, 4 heads, context 128, bytes, float.
struct gpt_config gpt_config_default(void);

// Whether such a model exists and can be split over pp stages, ep expert ranks and tp tensor ranks;
// else ncclInvalidArgument with a text that names the setting, its value and what would be right.
ncclResult_t gpt_config_check(const struct gpt_config *config, int pp, int ep, int tp);

// Whether layer `layer` has experts.
bool gpt_is_moe(const struct gpt_config *config, int layer);

// Bytes of a weight or an activation; of a weight's gradient.
size_t gpt_type_bytes(enum gpt_type type);
size_t gpt_gradient_bytes(enum gpt_type type);

#endif
