// What one rank has of a model, in numbers, and where its activations lie.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_SIZES_H
#define GPT_SIZES_H

#include "model.h"

#include <tutti_parallel/expert.h>

struct gpt_sizes {
    size_t stored_bytes, real_bytes; // of an element (real.h)
    size_t width, head_size;
    size_t heads, kv_heads; // this rank's
    size_t attended;        // heads * head_size
    size_t qkv;             // (heads + 2 kv_heads) * head_size
    size_t mlp;             // this rank's part of mlp_width
    size_t hidden;          // mlp, twice that for SwiGLU
    size_t vocabulary;      // this rank's part
    size_t whole_vocabulary;
    size_t experts, top_k;   // all experts; of a token
    size_t own_experts;      // this rank's
    int moe_layers;          // of the stage
    size_t context, tokens;  // of a sequence; of a micro-batch
    size_t own_tokens;       // of them, the most that a rank has between layers
    int first_layer, layers; // of the stage
    bool first_stage, last_stage;
};

// Errors: ncclInvalidArgument, with the number that cannot be.
ncclResult_t gpt_shape_check(const struct gpt_shape *shape, const struct gpt_config *config);

struct gpt_sizes gpt_sizes_of(const struct gpt_config *config, const struct gpt_shape *shape,
                              const struct gpt_place *place);

// Memory that grows when more is asked for, and keeps nothing then. Zeros: none yet.
struct gpt_growing {
    void *data;
    size_t bytes;
};
// In the order of a stream: waits for that, not for what other ranks have on the device.
ncclResult_t gpt_grow(struct gpt_growing *memory, size_t bytes, cudaStream_t stream);

// What the forward pass of a layer keeps for its backward pass, of one micro-batch. Stored unless
// said otherwise.
struct gpt_layer_activations {
    void *attention_in;  // [own tokens x width], the residual stream before norm1; not ours where
                         // the stage before has sent it
    void *qkv;           // [tokens x qkv], turned
    void *probabilities; // [sequences x heads x context x context]
    void *attended;      // [tokens x attended]
    void *mlp_in;        // [own tokens x width], the residual stream before norm2
    void *hidden;        // [tokens x hidden]; NULL in layers with experts
    // In layers with experts:
    void *router_logits, *router_probabilities; // [tokens x experts], real
    void *router_weights;                       // [tokens x top_k], real
    int32_t *router_indices;                    // [tokens x top_k]
    tuttiMoeRoute_t route;
    struct gpt_growing rows; // [rows of this rank's experts x (width + hidden + width)]
    size_t most_rows;        // that came at once
};

// A micro-batch's data: [sequences x context] each, the program's.
struct gpt_batch {
    const int32_t *tokens, *targets;
    size_t first_sequence; // in the global batch
};

// A micro-batch between its forward and its backward pass.
struct gpt_slot {
    struct gpt_layer_activations *layers; // [layers of the stage]
    void *head_in;                        // [own tokens x width], before the last norm
    void *logits;                         // [tokens x vocabulary], real
    double *sums;                         // [3 x tokens], of the cross-entropy
    struct gpt_batch batch;
};

// What every layer uses in turn.
struct gpt_scratch {
    void *rows;        // [tokens x width], stored: input or output of a layer's matrices; the
                       // boundary's under sequence parallelism
    void *act;         // [tokens x mlp], stored
    void *scores;      // [GPT_ATTENTION_BLOCK x context], real
    void *rotary;      // [context x head_size], real: the table
    void *dx;          // [own tokens x width], real: of the residual stream
    void *dy;          // [tokens x width], real: of rows as output
    void *drows;       // [tokens x width], real: of rows as input
    void *dmiddle;     // [tokens x max(attended, mlp)], real
    void *dhidden;     // [tokens x max(qkv, hidden)], real
    void *drouter;     // [tokens x (experts + top_k)], real
    double *losses;    // [tokens]
    void *next_logits; // [whole vocabulary], real
    struct gpt_growing expert_middle; // of one expert: gradients and activations of its rows
    struct gpt_growing expert_dx;     // [rows x width], real
    size_t most_expert_rows;          // of one expert, that came at once
    size_t most_backward_rows;        // of one layer, that a backward pass had
};

// Lays out a slot from `memory` on (NULL: to count only) and returns its bytes. slot->layers has
// room for the stage's layers.
size_t gpt_lay_out_slot(const struct gpt_sizes *sizes, const struct gpt_config *config,
                        char *memory, struct gpt_slot *slot);
size_t gpt_lay_out_scratch(const struct gpt_sizes *sizes, const struct gpt_shape *shape,
                           char *memory, struct gpt_scratch *scratch);

// Bytes of gpt_layer_activations.rows and of gpt_scratch.expert_middle for so many rows.
size_t gpt_expert_bytes(const struct gpt_sizes *sizes, size_t rows);
size_t gpt_expert_middle_bytes(const struct gpt_sizes *sizes, size_t rows);

#endif
