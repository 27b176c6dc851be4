// Products in double. See matmul_internal.h. SPDX-License-Identifier: Apache-2.0
#include "elements.h"
#include "fail.h"
#include "matmul_internal.h"
#include "matmul_tiles.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>

#define REAL         double
#define NAME(x)      x##_double
#define GEMM         dgemm
#define TILE         of_double
#define TILE_COLUMNS columns_double

// out[i * out_step] = data[first + i * step].
static void load_run(const void *data, ncclDataType_t type, size_t first, size_t step, size_t count,
                     double *out, size_t out_step)
{
    const double *in = (const double *)data + first;
    (void)type; // ncclFloat64
    for (size_t i = 0; i < count; i++) {
        out[i * out_step] = in[i * step];
    }
}

static void store_run(void *data, ncclDataType_t type, size_t first, size_t count, const double *in)
{
    (void)type;
    memcpy((double *)data + first, in, count * sizeof *in);
}

#include "matmul_body.h"
