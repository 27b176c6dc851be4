// The data types of a layer. SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_PARALLEL_TYPES_H
#define TUTTI_PARALLEL_TYPES_H

#include <nccl.h>

// Each is ncclFloat32 or ncclBfloat16, or all three are ncclFloat64 (for checks of gradients).
// Gradients of weights have no entry: they are float, or double where all three are ncclFloat64,
// and always added to what their memory holds.
struct tuttiTypes {
    ncclDataType_t activations; // x and y: what layers read and give
    ncclDataType_t weights;     // matrices, tables, gamma, beta
    ncclDataType_t gradients;   // dx and dy: the loss's derivatives by x and y
};

#endif
