// For tests of checkpoints: three small matrices in three kinds, shared out in several ways, whose
// elements are a function of their place.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_FAKE_PIECES_H
#define GPT_FAKE_PIECES_H

#include "expect.h"
#include "piece.h"
#include "tutti.h"

#include <stdlib.h>
#include <string.h>

enum { FAKE_MATRICES = 3, FAKE_KINDS = 3, FAKE_PIECES = FAKE_MATRICES * FAKE_KINDS };

enum fake_split { FAKE_ROWS, FAKE_COLUMNS, FAKE_RANGES, FAKE_RANGES_OF_HALVES, FAKE_SPLITS };

static const struct {
    const char *name;
    size_t rows, columns;
} fake_matrices[FAKE_MATRICES] = {{"wide", 7, 33}, {"row", 1, 13}, {"layer.0.tall", 61, 4}};

static const struct {
    enum gpt_kind kind;
    ncclDataType_t type;
} fake_kinds[FAKE_KINDS] = {
    {GPT_WEIGHT, ncclBfloat16}, {GPT_MASTER, ncclFloat32}, {GPT_MOMENT2, ncclFloat64}};

// An element's bits: never 0. generation: of what was saved.
static inline uint64_t fake_element(int matrix, int kind, size_t index, int generation)
{
    return ((uint64_t)(generation * 100 + matrix * 10 + kind) << 8 | 1) * 0x9E3779B97F4A7C15u +
           index * 2654435761u * 2 + 1;
}

// Compares (write false) or writes the elements of a piece. Returns how many are as they should be.
static inline size_t fake_touch(const struct gpt_piece *p, int matrix, int kind, int generation,
                                bool write)
{
    size_t bytes = gpt_data_type_bytes(p->type), right = 0;
    for (size_t i = 0; i < p->count; i++) {
        size_t row = p->first_row + (p->first + i) / p->column_count;
        size_t column = p->first_column + (p->first + i) % p->column_count;
        uint64_t bits = fake_element(matrix, kind, row * p->columns + column, generation);
        char *at = (char *)p->data + i * bytes;
        if (write) {
            memcpy(at, &bits, bytes);
        }
        right += memcmp(at, &bits, bytes) == 0 ? 1 : 0;
    }
    return right;
}

static inline void fake_share(size_t total, int rank, int size, size_t *first, size_t *count)
{
    size_t counts[64], firsts[64];
    EXPECT_OK(tuttiSplitCounts(total, size, counts, firsts));
    *first = firsts[rank];
    *count = counts[rank];
}

static inline void fake_shape(struct gpt_piece *p, enum fake_split split, int rank, int size)
{
    p->row_count = p->rows;
    p->column_count = p->columns;
    if (split == FAKE_ROWS) {
        fake_share(p->rows, rank, size, &p->first_row, &p->row_count);
    } else if (split == FAKE_COLUMNS) {
        fake_share(p->columns, rank, size, &p->first_column, &p->column_count);
    }
    bool halves = split == FAKE_RANGES_OF_HALVES && size % 2 == 0;
    if (halves) {
        fake_share(p->columns, rank % 2, 2, &p->first_column, &p->column_count);
    }
    size_t elements = p->row_count * p->column_count;
    p->count = elements;
    if (halves) {
        fake_share(elements, rank / 2, size / 2, &p->first, &p->count);
    } else if (split == FAKE_RANGES || split == FAKE_RANGES_OF_HALVES) {
        fake_share(elements, rank, size, &p->first, &p->count);
    }
}

// This rank's pieces: [FAKE_PIECES]. generation 0: zeros, to be loaded.
static inline void fake_make(struct gpt_piece *pieces, enum fake_split split, int rank, int size,
                             int generation)
{
    for (int i = 0; i < FAKE_PIECES; i++) {
        struct gpt_piece *p = &pieces[i];
        int matrix = i / FAKE_KINDS, kind = i % FAKE_KINDS;
        memset(p, 0, sizeof *p);
        p->name = fake_matrices[matrix].name;
        p->rows = fake_matrices[matrix].rows;
        p->columns = fake_matrices[matrix].columns;
        p->kind = fake_kinds[kind].kind;
        p->type = fake_kinds[kind].type;
        fake_shape(p, split, rank, size);
        p->data = calloc(p->count + 1, 8);
        if (EXPECT(p->data != NULL) && generation > 0) {
            (void)fake_touch(p, matrix, kind, generation, true);
        }
    }
}

// Whether all elements are those of a generation.
static inline bool fake_check(const struct gpt_piece *pieces, int generation)
{
    bool right = true;
    for (int i = 0; i < FAKE_PIECES; i++) {
        right = right && fake_touch(&pieces[i], i / FAKE_KINDS, i % FAKE_KINDS, generation,
                                    false) == pieces[i].count;
    }
    return right;
}

static inline void fake_free(struct gpt_piece *pieces)
{
    for (int i = 0; i < FAKE_PIECES; i++) {
        free(pieces[i].data);
    }
}

#endif
