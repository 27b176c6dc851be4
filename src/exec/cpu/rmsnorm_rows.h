// The arithmetic of the fused RMSNorm on one row, in several instruction sets that agree in every
// bit.
//
// A row is worked on in segments of at most TT_NORM_SEGMENT elements, held as float in the
// caller's scratch: load sums over the ranks in rank order (+ residual) and adds the squares into
// 256 partial sums; after the last segment fold adds those in a tree; then store, per segment.
// Which partial sum a square goes to and in which order is fixed: element i belongs to group i /
// 4, group g to partial sum g mod 256, ascending.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CPU_RMSNORM_ROWS_H
#define TT_EXEC_CPU_RMSNORM_ROWS_H

#include "exec/executor.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    TT_NORM_LANES = 256,
    TT_NORM_GROUP = 4,
    TT_NORM_SEGMENT = 16384, // floats: 64 KiB, a quarter of a native block's stack, inside L2
};

// One row of one operation; all pointers are to its first element.
struct tt_norm_row {
    struct tt_symmetric input, output;
    int ranks;
    const char *gamma;    // [hidden] or NULL
    const char *residual; // or NULL
    char *residual_out;   // or NULL
    size_t ahead;         // bytes from here to the row that comes next; its input is prefetched
    bool stream;          // store the output past the caches; the caller fences afterwards
};

struct tt_norm_type {
    size_t bytes; // of an element
    // x[0 .. count) = elements first .. first + count of the row, summed over the ranks. Adds their
    // squares to partial[256]. first: a multiple of TT_NORM_SEGMENT.
    void (*load)(float *x, float *partial, const struct tt_norm_row *row, size_t first,
                 size_t count);
    // Stores x * scale (* gamma) to all ranks, and x to residual_out where the row has one.
    void (*store)(const struct tt_norm_row *row, const float *x, float scale, size_t first,
                  size_t count);
};

struct tt_norm_variant {
    const char *name;
    bool (*usable)(void); // on this processor
    struct tt_norm_type float32, float16, bfloat16;
    // The tree over the partial sums, which it overwrites.
    float (*fold)(float *partial);
};

// All variants that were compiled in, best first; NULL ends the list. The last one, "portable", is
// usable everywhere.
extern const struct tt_norm_variant *const tt_norm_variants[];
// The best one that is usable here; the same at every call.
const struct tt_norm_variant *tt_norm_variant(void);
// 1 / sqrt(sum / hidden + eps), 0 where the root is 0; each step rounded once.
float tt_norm_scale(float sum, size_t hidden, float eps);

#endif
