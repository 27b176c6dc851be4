// Products whose sums are float; elements are float or bf16. See matmul_internal.h.
// SPDX-License-Identifier: Apache-2.0
#include "elements.h"
#include "fail.h"
#include "matmul_internal.h"
#include "matmul_tiles.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>

#define REAL         float
#define NAME(x)      x##_float
#define GEMM         sgemm
#define TILE         of_float
#define TILE_COLUMNS columns_float

// out[i * out_step] = data[first + i * step].
static void load_run(const void *data, ncclDataType_t type, size_t first, size_t step, size_t count,
                     float *out, size_t out_step)
{
    if (type == ncclFloat32) {
        const float *in = (const float *)data + first;
        for (size_t i = 0; i < count; i++) {
            out[i * out_step] = in[i * step];
        }
    } else {
        const uint16_t *in = (const uint16_t *)data + first;
        for (size_t i = 0; i < count; i++) {
            out[i * out_step] = parallel_from_bf16(in[i * step]);
        }
    }
}

static void store_run(void *data, ncclDataType_t type, size_t first, size_t count, const float *in)
{
    if (type == ncclFloat32) {
        memcpy((float *)data + first, in, count * sizeof *in);
        return;
    }
    uint16_t *out = (uint16_t *)data + first;
    for (size_t i = 0; i < count; i++) {
        out[i] = parallel_to_bf16(in[i]);
    }
}

#include "matmul_body.h"
