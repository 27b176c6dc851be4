// The table of a model's weights: each is a global matrix with a name, of which a rank has a slice.
// A rank's slices lie one behind the other in one buffer, in the order in which the forward pass
// uses them: first all dense ones, then those of experts. Gradients lie at the same places of a
// buffer of their own.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_PARAMETERS_H
#define GPT_PARAMETERS_H

#include "config.h"

enum gpt_split { GPT_SPLIT_NONE, GPT_SPLIT_ROWS, GPT_SPLIT_COLUMNS };

enum { GPT_NAME_BYTES = 64 };
// Slices begin at multiples of this many elements, but for those that are `joined` to the one
// before: they follow it at once, so that both are one matrix. What lies between slices is 0,
// always.
enum { GPT_ALIGNMENT = 32 };

struct gpt_parameter {
    char name[GPT_NAME_BYTES];    // "layer.3.attention.query"
    size_t rows, columns;         // of the whole matrix; a vector has one row
    enum gpt_split split;         // over the tensor ranks, by tuttiSplitCounts
    int layer;                    // its block; -1: embedding; config.layers: final norm and head
    int expert;                   // -1: dense
    bool joined;                  // key and value to query, up to gate
    bool is_norm;                 // a gain or shift of a norm: without weight decay
    double mean, deviation;       // of its initial values, which are normal
    size_t first_row, slice_rows; // this rank's rows of it
    size_t first_column, slice_columns; // and columns
    size_t offset;                      // of the slice, in elements, in the buffers
};

// Which part of the model a rank has.
struct gpt_place {
    int pp, pp_rank; // stages: layers / pp layers each
    int ep, ep_rank; // experts / ep experts each
    int tp, tp_rank;
};

// {1, 0, 1, 0, 1, 0}: the whole model.
struct gpt_place gpt_place_whole(void);

struct gpt_parameters {
    struct gpt_parameter *all; // [count]
    int count;
    size_t dense;    // elements of the dense part, padding included
    size_t experts;  // elements of the experts' part, which follows
    size_t elements; // of both: what the buffers hold
};

// The table of the rank at `place`. To be freed. Errors: gpt_config_check's, ncclSystemError.
ncclResult_t gpt_parameters_make(const struct gpt_config *config, const struct gpt_place *place,
                                 struct gpt_parameters *parameters);
void gpt_parameters_free(struct gpt_parameters *parameters);

// The first and the number of layers of the stage at `place`.
void gpt_stage_layers(const struct gpt_config *config, const struct gpt_place *place, int *first,
                      int *count);

// A parameter by its name; NULL: this rank has none of it.
const struct gpt_parameter *gpt_parameter_find(const struct gpt_parameters *parameters,
                                               const char *name);

// Elements of this rank's slice.
size_t gpt_slice_elements(const struct gpt_parameter *parameter);

// The slice's initial values: each a function of seed, name and the element's place in the whole
// matrix, so that they are the same whatever the mesh. values: [slice_rows x slice_columns].
void gpt_parameter_initial(const struct gpt_parameter *parameter, uint64_t seed, float *values);

// All slices' initial values, at their offsets, padding 0. values: [elements] of float.
void gpt_parameters_initial(const struct gpt_parameters *parameters, uint64_t seed, float *values);

#endif
