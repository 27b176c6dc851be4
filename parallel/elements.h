// Elements of the types that layers compute with: ncclFloat32, ncclFloat64, ncclBfloat16.
// SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_ELEMENTS_H
#define PARALLEL_ELEMENTS_H

#include "tutti_parallel/types.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Bytes of an element; 0: a type that layers do not have.
size_t parallel_element_bytes(ncclDataType_t type);
// The address of element `index`.
const void *parallel_at(const void *data, ncclDataType_t type, size_t index);
void *parallel_at_mutable(void *data, ncclDataType_t type, size_t index);

// count elements from `first` on, as double, and back with one rounding.
void parallel_load(const void *data, ncclDataType_t type, size_t first, size_t count, double *out);
void parallel_store(void *data, ncclDataType_t type, size_t first, size_t count, const double *in);

// Fails unless the three types are a combination that types.h allows. call, here and below: with
// what the texts of failures begin (part.h).
ncclResult_t parallel_check_types(const char *call, const struct tuttiTypes *types);
// Float, or double where activations are: what gradients of weights are in.
ncclDataType_t parallel_weight_gradients(const struct tuttiTypes *types);
// Fails unless a * b elements of 8 bytes can be in an address space. what: "tokens x width".
ncclResult_t parallel_check_elements(const char *call, const char *what, size_t a, size_t b);
// Memory for `count` elements as double, to be freed; count may be 0. ncclSystemError without.
ncclResult_t parallel_row(const char *call, size_t count, double **row_out);
// Fails where pointer is NULL and count is not 0.
ncclResult_t parallel_check_pointer(const char *call, const char *name, const void *pointer,
                                    size_t count);

static inline float parallel_from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

// To the nearest, ties to even; a NaN stays one.
static inline uint16_t parallel_to_bf16(float value)
{
    uint32_t wide;
    memcpy(&wide, &value, sizeof wide);
    if ((wide & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((wide >> 16) | 0x40u);
    }
    return (uint16_t)((wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
}

#endif
