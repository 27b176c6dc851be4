// A flat buffer of gradients with odd sizes and gaps, and its values, for tests of data
// parallelism.
// SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_FLAT_FOR_TESTS_H
#define PARALLEL_FLAT_FOR_TESTS_H

#include "member.h"
#include "tutti_parallel/data.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

enum { FLAT_GRADIENTS = 10, FLAT_COUNT = 6000, FLAT_GAP_AT = 3100 };

// In the order of the forward pass; [3100, 3107) is a gap, and what is behind 5990.
static const struct tuttiGradient flat_gradients[FLAT_GRADIENTS] = {
    {0, 1, "embedding"}, {1, 0, "empty first"}, {1, 2000, "query"}, {2001, 7, NULL},
    {2008, 1000, "key"}, {3008, 92, "value"},   {3107, 0, NULL},    {3107, 2048, "up"},
    {5155, 3, "down"},   {5158, 832, "head"},
};

// Two numbers are equal (EXPECT_EQ compares whole numbers).
#define EXPECT_SAME(a, b) EXPECT_NEAR(a, b, 0)

struct flat_test {
    struct member m;
    struct tuttiGradients flat;
    size_t bytes; // of an element
    void *host;   // [FLAT_COUNT]
};

// Begins as a member with a buffer of gradients of the type.
static inline bool flat_begin(struct flat_test *t, int rank, int size, ncclDataType_t type)
{
    memset(t, 0, sizeof *t);
    if (!member_join(&t->m, rank, size)) {
        return false;
    }
    t->bytes = type == ncclFloat32 ? sizeof(float) : sizeof(double);
    t->flat = (struct tuttiGradients){NULL, FLAT_COUNT, type, flat_gradients, FLAT_GRADIENTS};
    t->host = malloc(FLAT_COUNT * t->bytes);
    return EXPECT(t->host != NULL) &&
           EXPECT_CUDA(cudaMalloc(&t->flat.buffer, FLAT_COUNT * t->bytes));
}

static inline void flat_end(struct flat_test *t)
{
    EXPECT_CUDA(cudaStreamSynchronize(t->m.stream));
    ranks_barrier();
    EXPECT_CUDA(cudaFree(t->flat.buffer));
    free(t->host);
    member_leave(&t->m);
}

static inline double flat_get(const struct flat_test *t, size_t i)
{
    return t->flat.type == ncclFloat32 ? (double)((const float *)t->host)[i]
                                       : ((const double *)t->host)[i];
}

static inline void flat_set(struct flat_test *t, size_t i, double value)
{
    if (t->flat.type == ncclFloat32) {
        ((float *)t->host)[i] = (float)value;
    } else {
        ((double *)t->host)[i] = value;
    }
}

// A small whole number that every rank, element and step has another of.
static inline double flat_whole(int rank, size_t i, int step)
{
    return (double)((rank + 1) * (int)(i % 97) + step);
}

// A number with all its bits in use, the same wherever it is asked for.
static inline double flat_ragged(int rank, size_t i)
{
    uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15u + (uint64_t)rank * 0xbf58476d1ce4e5b9u + 1;
    x ^= x >> 31;
    x *= 0x94d049bb133111ebu;
    x ^= x >> 29;
    return (double)(x >> 11) / 4503599627370496.0 - 1;
}

static inline void flat_upload(struct flat_test *t)
{
    EXPECT_CUDA(cudaMemcpyAsync(t->flat.buffer, t->host, FLAT_COUNT * t->bytes,
                                cudaMemcpyHostToDevice, t->m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(t->m.stream));
}

static inline void flat_download(struct flat_test *t)
{
    EXPECT_CUDA(cudaMemcpyAsync(t->host, t->flat.buffer, FLAT_COUNT * t->bytes,
                                cudaMemcpyDeviceToHost, t->m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(t->m.stream));
}

static inline void flat_fill(struct flat_test *t, int step)
{
    for (size_t i = 0; i < FLAT_COUNT; i++) {
        flat_set(t, i, flat_whole(t->m.rank, i, step));
    }
    flat_upload(t);
}

// A host function that holds a stream up until it is told, by an atomic_int, to go on.
static inline void flat_hold(void *argument)
{
    atomic_int *go_on = argument;
    while (!atomic_load(go_on)) {
        (void)usleep(100);
    }
}

// The sum over `size` ranks of flat_whole, by hand: exact in every type.
static inline double flat_sum(int size, size_t i, int step)
{
    return (double)(size * (size + 1) / 2 * (int)(i % 97) + size * step);
}

#endif
