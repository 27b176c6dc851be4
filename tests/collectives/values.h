// Elements of every NCCL type on the host, and the one right result of each reduction: the inputs
// in rank order, with the accumulator that the contract on bits states (ARCHITECTURE.md), rounded
// once. Written apart from src/reduce, element by element, so that the two can be compared.
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_COLLECTIVES_VALUES_H
#define TESTS_COLLECTIVES_VALUES_H

#include <nccl.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Instead of an operator: sum of each input times its factor.
enum { SCALED_SUM = 1000 };

size_t bytes_of_type(ncclDataType_t type);
bool is_float_type(ncclDataType_t type);
const char *name_of_type(ncclDataType_t type);

// An element from a number, rounded to the type; and back.
void put_number(void *element, ncclDataType_t type, double number);
double get_number(const void *element, ncclDataType_t type);

// 64 well mixed bits.
uint64_t mix_bits(uint64_t value);

// Element `index` of what rank `rank` gives: any bits for integers, so that sums wrap; for floats a
// number of size 1/4 to 8 with a random fraction and sign.
void put_input(void *element, ncclDataType_t type, int rank, size_t index, unsigned seed);

// *out = in[0] op in[1] op ... op in[n - 1], of elements that lie `stride` bytes apart; factors: n
// elements in a row for SCALED_SUM, else NULL.
struct reference {
    ncclDataType_t type;
    int op; // ncclRedOp_t or SCALED_SUM
    const void *factors;
};
void put_reduction(void *out, const struct reference *reference, const void *in, size_t stride,
                   int n);

// Whether two elements are the same number; a NaN is as good as any other.
bool same_element(const void *a, const void *b, ncclDataType_t type);

// A hash of bytes (FNV-1a).
uint64_t hash_of(const void *data, size_t bytes);

#endif
