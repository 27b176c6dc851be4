// A model's insides, for the functions that compute its passes. These are compiled for each type
// (real.h): memory is void here, and each type's functions know what it holds.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_PASS_H
#define GPT_PASS_H

#include "sizes.h"

#include <tutti_parallel/sequence.h>
#include <tutti_parallel/tensor.h>

// Numbers of a layer's parameters in the table; -1: it has none of that kind.
struct gpt_norm_parameters {
    int gamma, beta;
};
struct gpt_mlp_parameters {
    int gate, up, down; // gate and up are one matrix where there is a gate
};
struct gpt_layer_parameters {
    struct gpt_norm_parameters norm1, norm2;
    int query, key, value, output; // query, key and value are one matrix
    int router;
    struct gpt_mlp_parameters mlp;      // of a layer without experts
    struct gpt_mlp_parameters *experts; // [own experts]; NULL: a layer without
};

// Of the pass that runs: fewer tokens than the model has room for where text is written.
struct gpt_extent {
    size_t sequences, length, tokens;
    size_t first_own, own; // of the tokens, those that this rank has between layers
};

struct gpt_typed;

struct gpt_model {
    struct gpt_config config;
    struct gpt_shape shape;
    struct gpt_place place;
    struct gpt_sizes sizes;
    const struct tuttiMesh *mesh;
    cudaStream_t stream;
    const struct gpt_typed *typed;

    struct gpt_parameters parameters;
    struct gpt_layer_parameters *layers; // [layers of the stage]
    struct gpt_mlp_parameters *experts;  // of all layers
    int embedding, head;                 // -1: another stage's
    struct gpt_norm_parameters norm;
    size_t *vocabulary_parts; // [tp]
    void *weights, *gradients;

    void *slot_memory, *scratch_memory;
    struct gpt_slot *slots;
    struct gpt_layer_activations *slot_layers; // of all slots
    struct gpt_scratch scratch;
    struct gpt_bytes bytes;

    struct tuttiBoundary *boundary; // NULL without sequence parallelism
    tuttiMoe_t moe;                 // NULL without experts
    struct tuttiTypes types;
    struct tuttiNorm norm_kind;

    struct gpt_extent extent;
    uint64_t step;
    int micro_batches;         // of the step
    int backward_passes;       // of them that have begun
    struct gpt_batch *batches; // [batch_room], of the step
    int batch_room;
    size_t step_tokens; // of the global batch
    bool training;
    bool is_last; // the backward pass that runs is the step's last
    struct gpt_losses losses;
    gpt_gradient_ready ready;
    void *ready_context;
    gpt_layer_needed needed;
    void *needed_context;
};

// The functions of one type.
struct gpt_typed {
    void (*fill)(void *weights, const float *values, size_t elements);
    void (*rotary_table)(struct gpt_model *model);
    ncclResult_t (*forward)(struct gpt_model *model, struct gpt_slot *slot, const void *input,
                            void *output);
    ncclResult_t (*backward)(struct gpt_model *model, struct gpt_slot *slot,
                             const void *output_gradient, void *input_gradient);
    // Scores after the last token of slot's sequence.
    ncclResult_t (*next)(struct gpt_model *model, struct gpt_slot *slot, float *logits);
};
extern const struct gpt_typed gpt_typed_float_, gpt_typed_bf16, gpt_typed_double_;

// A parameter's slice and its gradient; NULL for number -1.
const void *gpt_weight(const struct gpt_model *model, int parameter);
void *gpt_gradient(const struct gpt_model *model, int parameter);

// Tells the program that parameters have all their contributions, if they have. -1: nothing.
ncclResult_t gpt_is_ready(struct gpt_model *model, int parameter);

// Tells the program that weights of a layer (of the whole model) are used from here on.
ncclResult_t gpt_need(const struct gpt_model *model, int layer);

// What the host wrote or will read of the stream's work is there.
ncclResult_t gpt_wait(const struct gpt_model *model);

// A linear layer over the tensor ranks; in, out: of the whole layer.
struct tuttiLinear gpt_linear(const struct gpt_model *model, size_t in, size_t out);

#endif
