// Arrays of the layers' types, and what is in them, for tests of tensor and sequence parallelism.
// SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_LAYERS_FOR_TESTS_H
#define PARALLEL_LAYERS_FOR_TESTS_H

#include "expect.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct array {
    ncclDataType_t type;
    size_t count;
    void *data; // device memory, which the host reads and writes; never NULL
};

static inline size_t array_bytes(ncclDataType_t type)
{
    return type == ncclFloat64 ? 8 : type == ncclFloat32 ? 4 : 2;
}

static inline struct array array_make(ncclDataType_t type, size_t count)
{
    struct array a = {type, count, NULL};
    size_t bytes = count * array_bytes(type);
    if (!EXPECT_CUDA(cudaMalloc(&a.data, bytes + 64))) {
        exit(1);
    }
    memset(a.data, 0x5a, bytes + 64);
    return a;
}

static inline void array_free(struct array *a)
{
    EXPECT_CUDA(cudaFree(a->data));
    a->data = NULL;
}

static inline double array_get(const struct array *a, size_t i)
{
    if (a->type == ncclFloat64) {
        return ((const double *)a->data)[i];
    }
    float value;
    if (a->type == ncclFloat32) {
        value = ((const float *)a->data)[i];
    } else {
        uint32_t bits = (uint32_t)((const uint16_t *)a->data)[i] << 16;
        memcpy(&value, &bits, sizeof value);
    }
    return (double)value;
}

// The bf16 number nearest to a finite value, by search among its neighbours.
static inline uint16_t nearest_bf16(double value)
{
    float near = (float)value;
    uint32_t bits;
    memcpy(&bits, &near, sizeof bits);
    uint16_t below = (uint16_t)(bits >> 16); // towards zero
    double distance[2];
    for (int i = 0; i < 2; i++) {
        uint32_t wide = (uint32_t)(below + i) << 16;
        float candidate;
        memcpy(&candidate, &wide, sizeof candidate);
        distance[i] = fabs((double)candidate - (double)near);
    }
    bool up = distance[1] < distance[0] || (distance[1] == distance[0] && (below & 1) != 0);
    return (uint16_t)(below + (up ? 1 : 0));
}

static inline void array_set(struct array *a, size_t i, double value)
{
    if (a->type == ncclFloat64) {
        ((double *)a->data)[i] = value;
    } else if (a->type == ncclFloat32) {
        ((float *)a->data)[i] = (float)value;
    } else {
        ((uint16_t *)a->data)[i] = nearest_bf16(value);
    }
}

// A number between -1 and 1 with all its bits in use, the same wherever it is asked for.
static inline double ragged(int seed, size_t i)
{
    uint64_t x = ((uint64_t)i + 1) * 0x9e3779b97f4a7c15u + (uint64_t)seed * 0xbf58476d1ce4e5b9u;
    x ^= x >> 31;
    x *= 0x94d049bb133111ebu;
    x ^= x >> 29;
    return (double)(x >> 11) / 4503599627370496.0 - 1;
}

static inline void array_fill(struct array *a, int seed)
{
    for (size_t i = 0; i < a->count; i++) {
        array_set(a, i, ragged(seed, i));
    }
}

static inline void array_zero(struct array *a)
{
    memset(a->data, 0, a->count * array_bytes(a->type));
}

static inline struct array array_ragged(ncclDataType_t type, size_t count, int seed)
{
    struct array a = array_make(type, count);
    array_fill(&a, seed);
    return a;
}

// A call was refused as a bad argument, with a text that has this part.
static inline void refused(ncclResult_t result, const char *part)
{
    EXPECT_EQ(result, ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), part);
}

// How far a result may be from the right one, of sums of `terms` products of numbers up to 1.
static inline double tolerance_of(ncclDataType_t type, size_t terms)
{
    double n = (double)terms + 1;
    return type == ncclFloat64   ? 1e-15 * n
           : type == ncclFloat32 ? 3e-7 * n
                                 : 0.004 * sqrt(n) + 0.01;
}

// Element `i` of `total` things that are split over `size` ranks: the first of rank's part, and how
// many it has, by counting.
static inline void part_by_counting(size_t total, int size, int rank, size_t *first, size_t *count)
{
    size_t next = 0;
    *first = *count = 0;
    for (int r = 0; r <= rank; r++) {
        size_t have = 0;
        for (size_t i = (size_t)r; i < total; i += (size_t)size) {
            have++;
        }
        *first = next;
        *count = have;
        next += have;
    }
}

#endif
