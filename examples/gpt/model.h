// A GPT on one rank of a mesh: its slices of the weights, their gradients, and the forward and
// backward pass of its stage. Vectors are computed on the host, in device memory of virtual GPUs.
//
// One step of training, on every rank:
//     gpt_model_begin_step(model, step, micro-batches, tokens of the global batch, true);
//     for each micro-batch m: gpt_model_set_batch(model, m, tokens, targets, first sequence);
//     gpt_stage_forward and gpt_stage_backward for each, in the order of the pipeline's schedule;
//     losses = gpt_model_losses(model);
//     sum gradients and losses over the data ranks, then the optimizer's step on the weights.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include "config.h"
#include "parameters.h"

#include <tutti_parallel/mesh.h>

struct gpt_model;

struct gpt_shape {
    int sequences;          // of one micro-batch
    int slots;              // micro-batches that are between forward and backward at once, at most
    bool sequence_parallel; // norms, dropout and residuals on this tensor rank's tokens alone
};

// What this rank has of the loss of a step: the sums of its micro-batches, each already divided by
// the tokens (sequences) of the global batch. Cross-entropy is counted on the last stage, the
// balance loss on the stage of its layer, both on tensor rank 0 alone (0 elsewhere): the sum over
// all ranks of the mesh is the loss.
struct gpt_losses {
    double cross_entropy;
    double balance;
};

// Bytes on this rank, allocated.
struct gpt_bytes {
    size_t weights, gradients;
    size_t activations; // of all slots
    size_t scratch;     // used again by every layer
};

// Makes the model of this rank; weights have their initial values, gradients are 0. mesh, stream:
// used until the end, not owned. Collective over the mesh. Errors: gpt_config_check's;
// ncclInvalidArgument for a shape that cannot be; ncclUnhandledCudaError without memory.
ncclResult_t gpt_model_create(const struct gpt_config *config, const struct gpt_shape *shape,
                              const struct tuttiMesh *mesh, cudaStream_t stream,
                              struct gpt_model **model);
ncclResult_t gpt_model_destroy(struct gpt_model *model);

const struct gpt_config *gpt_model_config(const struct gpt_model *model);
const struct gpt_parameters *gpt_model_parameters(const struct gpt_model *model);
// [parameters.elements] each, device memory. Weights in the config's type (bf16: uint16_t);
// gradients in float, or double for GPT_DOUBLE.
void *gpt_model_weights(struct gpt_model *model);
void *gpt_model_gradients(struct gpt_model *model);
struct gpt_bytes gpt_model_bytes(const struct gpt_model *model);

// Rows of experts that one rank has room for. Their number is what the routing makes it.
struct gpt_rows {
    size_t kept;      // between forward and backward, of all slots and layers together
    size_t of_rank;   // the most of one layer in a backward pass
    size_t of_expert; // the most of one expert
};
// Where all experts are used evenly: tokens * top_k of a layer.
struct gpt_rows gpt_even_rows(const struct gpt_config *config, const struct gpt_shape *shape,
                              const struct gpt_place *place);
// The most that can come: of an expert all tokens of the ep ranks, or its capacity; of a layer
// those of all its experts, and a token at most top_k times.
struct gpt_rows gpt_most_rows(const struct gpt_config *config, const struct gpt_shape *shape,
                              const struct gpt_place *place);
// What gpt_model_create makes room for: the most where a capacity bounds them, else the even rows.
struct gpt_rows gpt_first_rows(const struct gpt_config *config, const struct gpt_shape *shape,
                               const struct gpt_place *place);
// The first, or what has come until now where that was more: counted as the router sends them.
struct gpt_rows gpt_model_rows(const struct gpt_model *model);

// What gpt_model_bytes will be, without making anything. rows: as of one of the above.
ncclResult_t gpt_predict_bytes(const struct gpt_config *config, const struct gpt_shape *shape,
                               const struct gpt_place *place, const struct gpt_rows *rows,
                               struct gpt_bytes *bytes);

// Elements of what one stage sends to the next for one micro-batch, and gets back as its gradient:
// [tokens x width], under sequence parallelism of this rank's tokens; in gpt_model_data_type, and
// the gradient in gpt_model_gradient_type.
size_t gpt_stage_elements(const struct gpt_model *model);
ncclDataType_t gpt_model_data_type(const struct gpt_model *model);
ncclDataType_t gpt_model_gradient_type(const struct gpt_model *model);

// Called in the backward pass of a step's last micro-batch, as soon as the gradient of parameter
// number `parameter` of the table has all contributions of this rank's micro-batches; once for each
// parameter. Dense ones come in the opposite of the table's order, and so do experts'. An error
// ends the backward pass with it.
typedef ncclResult_t (*gpt_gradient_ready)(void *context, int parameter);
void gpt_model_on_gradient(struct gpt_model *model, gpt_gradient_ready ready, void *context);

// Called in every forward pass before it uses weights of a layer for the first time: -1 for the
// embedding, then the stage's layers, ascending, then config.layers for the last norm and the head.
// The weights are there on return. So they may still be on their way when the pass begins.
typedef ncclResult_t (*gpt_layer_needed)(void *context, int layer);
void gpt_model_on_layer(struct gpt_model *model, gpt_layer_needed needed, void *context);

// Losses become 0, and gradients in training. step: names the dropout's random numbers.
// micro_batches: of this step on this rank. tokens: of the global batch (its sequences * context),
// by which sums are divided. training: false: no dropout, forward passes only.
ncclResult_t gpt_model_begin_step(struct gpt_model *model, uint64_t step, int micro_batches,
                                  size_t tokens, bool training);

// Names micro-batch number micro_batch's data: [sequences x context] each, host memory that lives
// until its backward pass (or forward, without one). Every rank of a tensor or pipeline group gives
// the same. first_sequence: the number of its first sequence in the global batch, for dropout.
ncclResult_t gpt_model_set_batch(struct gpt_model *model, int micro_batch, const int32_t *tokens,
                                 const int32_t *targets, size_t first_sequence);

// The pipeline's callbacks: context is the model. input, output: [gpt_stage_elements]; input is
// NULL on the first stage, output on the last. Synchronous: done on return.
ncclResult_t gpt_stage_forward(void *context, int micro_batch, const void *input, void *output);
// output_gradient: of the output; NULL on the last stage. input_gradient: NULL on the first stage.
// Adds to the weights' gradients.
ncclResult_t gpt_stage_backward(void *context, int micro_batch, const void *output_gradient,
                                void *input_gradient);

// This rank's sums since gpt_model_begin_step.
struct gpt_losses gpt_model_losses(const struct gpt_model *model);

// Scores of the next token after tokens [count], 1 to context of them: logits: [vocabulary], float,
// host memory, whole on every tensor rank. Only in a mesh without stages (pp 1), on every rank of
// it. Ends a step: its losses and data are lost.
ncclResult_t gpt_model_next(struct gpt_model *model, const int32_t *tokens, int count,
                            float *logits);

#endif
