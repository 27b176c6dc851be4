// The innermost loop where there is no BLAS: 4 rows and two vectors of columns of C in registers,
// over blocks of A and B that lie in the order in which it reads them.
// SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_MATMUL_TILES_H
#define PARALLEL_MATMUL_TILES_H

#include <stddef.h>

enum { TILE_ROWS = 4, TILE_COLUMNS_MOST = 16 };

// out[4 x columns] = sum over p < inner of a[p][4] (a column) times b[p][columns] (a row).
struct parallel_tiles {
    size_t columns_float, columns_double;
    void (*of_float)(size_t inner, const float *a, const float *b, float *out);
    void (*of_double)(size_t inner, const double *a, const double *b, double *out);
};

// Those that fit this processor, and those that fit every one.
const struct parallel_tiles *parallel_tiles(void);
extern const struct parallel_tiles parallel_plain_tiles;

#endif
