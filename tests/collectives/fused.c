// The fused RMSNorm against its parts, bit for bit: a reduction, rows normalised one by one, a
// gather, each a collective of its own. In float, where nothing is rounded in between; half and
// bfloat16 go through float as well and are rounded at the end, as the fused one does.
// C23, C26 of the fused path: nccl#1026, vllm#51290.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tutti.h>

enum { MOST_RANKS = 65, LANES = 256, GROUP = 4 };

struct shape {
    size_t tokens, hidden;
    ncclDataType_t type;
    bool with_gamma;
};

static const struct shape shapes[] = {
    {16, 64, ncclFloat32, false},  {7, 1, ncclFloat32, false},     {33, 257, ncclFloat32, true},
    {3, 4096, ncclFloat32, false}, {5, 20001, ncclFloat32, true},  {40, 130, ncclFloat16, false},
    {9, 1023, ncclFloat16, true},  {13, 2052, ncclBfloat16, true}, {65, 8, ncclBfloat16, false},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0], MOST = 5 * 20001, SLOT = MOST * 4 };

static size_t elements_of(const struct shape *shape)
{
    return shape->tokens * shape->hidden;
}

// As ARCHITECTURE.md has it: element i's square goes to partial sum i / 4 mod 256, those are added
// as a tree; every step is rounded once.
static float scale_of(const float *row, size_t hidden, float eps)
{
    float partial[LANES] = {0};
    for (size_t i = 0; i < hidden; i++) {
        float square = row[i] * row[i];
        partial[i / GROUP % LANES] += square;
    }
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int t = 0; t < half; t++) {
            partial[t] += partial[t + half];
        }
    }
    float mean = partial[0] / (float)hidden;
    return 1.0F / sqrtf(mean + eps);
}

// Rows of sums become rows of the result's type.
static void normalise(const float *sums, size_t rows, const struct shape *shape, const char *gamma,
                      char *out)
{
    size_t element = bytes_of_type(shape->type);
    for (size_t row = 0; row < rows; row++) {
        const float *x = sums + row * shape->hidden;
        float scale = scale_of(x, shape->hidden, 1e-6F);
        for (size_t i = 0; i < shape->hidden; i++) {
            float y = x[i] * scale;
            if (shape->with_gamma) {
                y *= (float)get_number(gamma + i * element, shape->type);
            }
            put_number(out + (row * shape->hidden + i) * element, shape->type, y);
        }
    }
}

// A rank's memory: window (input, output), and the parts' own.
struct work {
    struct member m;
    char *gamma, *sums, *rows; // on the device
    char *host[3];
};

static void fill(struct work *w, const struct shape *shape, unsigned seed)
{
    size_t element = bytes_of_type(shape->type);
    for (size_t i = 0; i < elements_of(shape); i++) {
        put_input(w->host[0] + i * element, shape->type, w->m.rank, i, seed);
    }
    for (size_t i = 0; i < shape->hidden; i++) {
        put_input(w->host[1] + i * element, shape->type, 1000, i, seed);
    }
    EXPECT_CUDA(
        cudaMemcpy(w->m.memory, w->host[0], elements_of(shape) * element, cudaMemcpyDefault));
    EXPECT_CUDA(cudaMemcpy(w->gamma, w->host[1], shape->hidden * element, cudaMemcpyDefault));
}

// The input as float, where the parts read it.
static void widen(struct work *w, const struct shape *shape)
{
    size_t element = bytes_of_type(shape->type);
    float *wide = (float *)(void *)w->host[2];
    for (size_t i = 0; i < elements_of(shape); i++) {
        wide[i] = (float)get_number(w->host[0] + i * element, shape->type);
    }
    EXPECT_CUDA(cudaMemcpy(w->sums, wide, elements_of(shape) * sizeof(float), cudaMemcpyDefault));
}

static void run_fused(struct work *w, const struct shape *shape)
{
    struct tuttiRMSNormOptions options = TUTTI_RMSNORM_OPTIONS_INITIALIZER;
    options.gamma = shape->with_gamma ? w->gamma : NULL;
    EXPECT_OK(tuttiAllReduceRMSNorm(w->m.memory, w->m.memory + SLOT, shape->tokens, shape->hidden,
                                    &options, shape->type, w->m.comm, w->m.stream));
    EXPECT_CUDA(cudaStreamSynchronize(w->m.stream));
}

// Each rank its tokens; the result ends in w->rows.
static void run_parts(struct work *w, const struct shape *shape)
{
    struct member *m = &w->m;
    size_t counts[MOST_RANKS], first[MOST_RANKS], element = bytes_of_type(shape->type);
    EXPECT_OK(tuttiSplitCounts(shape->tokens, m->size, counts, first));
    size_t own = counts[m->rank];
    for (int r = 0; r < m->size; r++) {
        counts[r] *= shape->hidden;
    }
    char *part = w->sums + SLOT;
    bool is_even = shape->tokens % (size_t)m->size == 0;
    EXPECT_OK(
        is_even
            ? ncclReduceScatter(w->sums, part, counts[0], ncclFloat, ncclSum, m->comm, m->stream)
            : tuttiReduceScatterV(w->sums, part, counts, ncclFloat, ncclSum, m->comm, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    size_t elements = own * shape->hidden;
    EXPECT_CUDA(cudaMemcpy(w->host[2], part, elements * sizeof(float), cudaMemcpyDefault));
    normalise((float *)(void *)w->host[2], own, shape, w->host[1], w->host[0]);
    EXPECT_CUDA(cudaMemcpy(part, w->host[0], elements * element, cudaMemcpyDefault));
    EXPECT_OK(is_even ? ncclAllGather(part, w->rows, counts[0], shape->type, m->comm, m->stream)
                      : tuttiAllGatherV(part, elements, w->rows, counts, NULL, shape->type, m->comm,
                                        m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
}

// The other way: everybody has all sums, and normalises all rows.
static void run_whole(struct work *w, const struct shape *shape)
{
    struct member *m = &w->m;
    size_t elements = elements_of(shape);
    EXPECT_OK(ncclAllReduce(w->sums, w->sums, elements, ncclFloat, ncclSum, m->comm, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    EXPECT_CUDA(cudaMemcpy(w->host[2], w->sums, elements * sizeof(float), cudaMemcpyDefault));
    normalise((float *)(void *)w->host[2], shape->tokens, shape, w->host[1], w->host[0]);
}

static void compare(struct work *w, const struct shape *shape)
{
    struct member *m = &w->m;
    size_t bytes = elements_of(shape) * bytes_of_type(shape->type);
    int before = expect_failures();
    fill(w, shape, (unsigned)(shape->tokens + shape->hidden));
    run_fused(w, shape);
    widen(w, shape);
    run_parts(w, shape);
    EXPECT_CUDA(cudaMemcpy(w->host[0], m->memory + SLOT, bytes, cudaMemcpyDefault));
    EXPECT_CUDA(cudaMemcpy(w->host[2], w->rows, bytes, cudaMemcpyDefault));
    EXPECT(memcmp(w->host[0], w->host[2], bytes) == 0);
    uint64_t hash = hash_of(w->host[0], bytes), hashes[MOST_RANKS];
    ranks_gather(&hash, hashes, sizeof hash);
    for (int r = 0; r < m->size; r++) {
        EXPECT(hashes[r] == hash);
    }
    run_whole(w, shape);
    EXPECT(hash_of(w->host[0], bytes) == hash);
    if (expect_failures() > before) {
        fprintf(stderr, "  (rank %d of %d: %zu x %zu %s)\n", m->rank, m->size, shape->tokens,
                shape->hidden, name_of_type(shape->type));
    }
    ranks_barrier();
}

// C26: bfloat16 sums of a 256 and ones are exact in float wherever the 256 stands: a row of 263 + 1
// = 264 normalises to ones.
static void rotate(struct work *w)
{
    struct member *m = &w->m;
    enum { TOKENS = 4, HIDDEN = 512, ALL = TOKENS * HIDDEN };
    struct tuttiRMSNormOptions options = TUTTI_RMSNORM_OPTIONS_INITIALIZER;
    options.eps = 0;
    for (int where = 0; where < m->size; where++) {
        for (size_t i = 0; i < ALL; i++) {
            put_number(w->host[0] + 2 * i, ncclBfloat16, m->rank == where ? 256 : 1);
        }
        EXPECT_CUDA(cudaMemcpy(m->memory, w->host[0], 2 * ALL, cudaMemcpyDefault));
        EXPECT_OK(tuttiAllReduceRMSNorm(m->memory, m->memory + SLOT, TOKENS, HIDDEN, &options,
                                        ncclBfloat16, m->comm, m->stream));
        EXPECT_CUDA(cudaStreamSynchronize(m->stream));
        EXPECT_CUDA(cudaMemcpy(w->host[0], m->memory + SLOT, 2 * ALL, cudaMemcpyDefault));
        int wrong = 0;
        for (size_t i = 0; i < ALL; i++) {
            wrong += get_number(w->host[0] + 2 * i, ncclBfloat16) != 1;
        }
        EXPECT_EQ(wrong, 0);
        ranks_barrier();
    }
}

static void all_shapes(int rank, int size)
{
    struct work w;
    if (!member_join(&w.m, rank, size) || !member_open_window(&w.m, 2 * SLOT)) {
        return;
    }
    EXPECT_CUDA(cudaMalloc((void **)&w.gamma, SLOT));
    EXPECT_CUDA(cudaMalloc((void **)&w.sums, 2 * SLOT));
    EXPECT_CUDA(cudaMalloc((void **)&w.rows, SLOT));
    for (int i = 0; i < 3; i++) {
        w.host[i] = malloc(SLOT);
    }
    for (int i = 0; i < (size > 8 ? 3 : SHAPES); i++) {
        compare(&w, &shapes[i]);
    }
    rotate(&w);
    for (int i = 0; i < 3; i++) {
        free(w.host[i]);
    }
    EXPECT_CUDA(cudaFree(w.gamma));
    EXPECT_CUDA(cudaFree(w.sums));
    EXPECT_CUDA(cudaFree(w.rows));
    ranks_barrier();
    member_leave(&w.m);
}

static void threads(void)
{
    for (int i = 0; i < few_or(is_full() ? 7 : 6, 4); i++) {
        run_thread_ranks(test_sizes[i], all_shapes, 120);
    }
}

static void processes(void)
{
    for (int i = 0; has_processes() && i < process_size_count() - (is_full() ? 0 : 2); i++) {
        run_ranks(test_sizes[i], all_shapes, 120);
    }
}

int main(void)
{
    RUN(threads);
    RUN(processes);
    return expect_result();
}
