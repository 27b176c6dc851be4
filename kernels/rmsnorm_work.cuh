// What a block of the fused all-reduce + RMSNorm works on: the team's arrays, the rank's own, and
// the rows that are the block's.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_RMSNORM_WORK_CUH
#define TUTTI_KERNELS_RMSNORM_WORK_CUH

#include "elements.cuh"
#include "share.cuh"
#include "team_memory.cuh"

namespace tutti
{

template <typename Memory> struct rmsnorm_work {
    Memory input, output;  // of row 0
    size_t tokens, hidden; // rows and elements of a row, row-major
    const void *gamma;     // [hidden] or NULL
    const void *residual;  // [tokens x hidden] or NULL; own tokens are read
    void *residual_out;    // [tokens x hidden] or NULL; own tokens are written
    float eps;
    unsigned segment; // floats of a row in dynamic shared memory: all of them, rounded up to a
                      // multiple of 4, or a multiple of 1024
    int ranks, rank;
};

// Where one row lies.
template <typename T> struct row_place {
    size_t offset; // bytes from row 0
    const T *gamma, *residual;
    T *residual_out;
    bool packed; // everything is aligned for accesses of 16 bytes
};

template <typename T, typename Memory>
__device__ __forceinline__ row_place<T> place_row(const rmsnorm_work<Memory> &work, size_t token)
{
    size_t start = token * work.hidden;
    row_place<T> row;
    row.offset = start * sizeof(T);
    row.gamma = static_cast<const T *>(work.gamma);
    row.residual =
        work.residual == nullptr ? nullptr : static_cast<const T *>(work.residual) + start;
    row.residual_out =
        work.residual_out == nullptr ? nullptr : static_cast<T *>(work.residual_out) + start;
    row.packed = is_pack_aligned(
        work.input.alignment(row.offset) | work.output.alignment(row.offset) |
        reinterpret_cast<size_t>(row.gamma) | reinterpret_cast<size_t>(row.residual) |
        reinterpret_cast<size_t>(row.residual_out));
    return row;
}

struct row_range {
    size_t begin, end, step;
};

// The rows of block `block` of the `blocks` of a rank: neighbours of its own tokens, or
// (interleaved) every `blocks`-th, so that all blocks together go through memory once.
template <typename Memory>
__device__ __forceinline__ row_range rows_of_block(const rmsnorm_work<Memory> &work, size_t block,
                                                   size_t blocks, bool interleaved)
{
    size_t ranks = (size_t)work.ranks, rank = (size_t)work.rank;
    size_t first = split_first(work.tokens, ranks, rank);
    size_t end = split_first(work.tokens, ranks, rank + 1);
    row_range rows = {first + block, end, blocks};
    if (!interleaved) {
        size_t own = end - first;
        rows.begin = first + split_first(own, blocks, block);
        rows.end = first + split_first(own, blocks, block + 1);
        rows.step = 1;
    }
    return rows;
}

} // namespace tutti
#endif
