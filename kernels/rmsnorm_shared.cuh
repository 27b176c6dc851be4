// A row of the fused all-reduce + RMSNorm by way of shared memory: any size, alignment and number
// of threads that divides 256. What does not fit into shared memory is read again from the peers.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_RMSNORM_SHARED_CUH
#define TUTTI_KERNELS_RMSNORM_SHARED_CUH

#include "multimem.cuh"
#include "rmsnorm_work.cuh"
#include "row.cuh"
#include "share.cuh"
#include "wide.cuh"

namespace tutti
{

// Elements of a row in shared memory. A thread handles the same ones in all functions of this file,
// so that they need no barrier between them.
struct held_segment {
    float *x;
    size_t count;
    bool packed; // whole packs first, then single elements
};

// Calls f<n>(first) for groups of ranks that together are ranks 0 .. count: eight at a time, so
// that as many loads are on their way at once.
#define TUTTI_FOR_RANK_GROUPS(count, f)                                                            \
    for (int first = 0, take; first < (count);) {                                                  \
        int left = (count)-first;                                                                  \
        take = left >= 8 ? 8 : left >= 4 ? 4 : left;                                               \
        switch (take) {                                                                            \
        case 8:                                                                                    \
            f(8);                                                                                  \
            break;                                                                                 \
        case 4:                                                                                    \
            f(4);                                                                                  \
            break;                                                                                 \
        case 3:                                                                                    \
            f(3);                                                                                  \
            break;                                                                                 \
        case 2:                                                                                    \
            f(2);                                                                                  \
            break;                                                                                 \
        default:                                                                                   \
            f(1);                                                                                  \
        }                                                                                          \
        first += take;                                                                             \
    }

// x (+)= the elements of `ranks` ranks from `first` on, in rank order, which start at byte
// `offset`.
template <int ranks, typename T, typename Memory>
__device__ __forceinline__ void sum_ranks(const held_segment &held, const Memory &memory,
                                          size_t offset, int first)
{
    const T *from[ranks];
    TUTTI_UNROLL
    for (int r = 0; r < ranks; r++) {
        from[r] = memory.template at<const T>(offset, first + r);
    }
    constexpr int size = pack_size<T>;
    float *x = held.x;
    size_t packs = held.packed ? held.count / size : 0;
    for (size_t p = threadIdx.x; p < packs; p += blockDim.x) {
        pack<T> value[ranks];
        TUTTI_UNROLL
        for (int r = 0; r < ranks; r++) {
            value[r] = load_pack(from[r] + p * size);
        }
        wide<size> sum = widen(value[0]);
        if (first != 0) {
            sum = add(load_wide<size>(x + p * size), sum);
        }
        TUTTI_UNROLL
        for (int r = 1; r < ranks; r++) {
            sum = add(sum, widen(value[r]));
        }
        store_wide(x + p * size, sum);
    }
    for (size_t i = packs * size + threadIdx.x; i < held.count; i += blockDim.x) {
        float sum = to_float(from[0][i]);
        if (first != 0) {
            sum = __fadd_rn(x[i], sum);
        }
        TUTTI_UNROLL
        for (int r = 1; r < ranks; r++) {
            sum = __fadd_rn(sum, to_float(from[r][i]));
        }
        x[i] = sum;
    }
}

// x = the sum over all ranks of the team.
template <typename T, typename Memory>
__device__ __forceinline__ void sum_all(const held_segment &held, const Memory &memory,
                                        size_t offset, int count)
{
#define SUM(n) sum_ranks<n, T>(held, memory, offset, first)
    TUTTI_FOR_RANK_GROUPS(count, SUM)
#undef SUM
}

// The same by multicast; what is no whole pack is summed by plain loads.
template <typename T>
__device__ __forceinline__ void sum_all(const held_segment &held, const multimem_memory &memory,
                                        size_t offset, int count)
{
    constexpr int size = pack_size<T>;
    size_t packs = held.packed ? held.count / size : 0;
    if (packs > 0) {
        const T *from = memory.all<const T>(offset);
        for (size_t p = threadIdx.x; p < packs; p += blockDim.x) {
            store_wide(held.x + p * size, widen(multimem_sum(from + p * size)));
        }
    }
    size_t done = packs * size;
    if (done < held.count) {
        held_segment rest = {held.x + done, held.count - done, false};
        sum_all<T>(rest, static_cast<const window_memory &>(memory), offset + done * sizeof(T),
                   count);
    }
}

// x += residual, and zeros up to the next multiple of 4.
template <typename T>
__device__ __forceinline__ void finish_sum(const held_segment &held, const T *residual)
{
    constexpr int size = pack_size<T>;
    float *x = held.x;
    size_t count = held.count, packs = held.packed ? count / size : 0;
    if (residual != nullptr) {
        for (size_t p = threadIdx.x; p < packs; p += blockDim.x) {
            wide<size> more = widen(load_pack(residual + p * size));
            store_wide(x + p * size, add(load_wide<size>(x + p * size), more));
        }
        for (size_t i = packs * size + threadIdx.x; i < count; i += blockDim.x) {
            x[i] = __fadd_rn(x[i], to_float(residual[i]));
        }
    }
    for (size_t i = count + threadIdx.x; i < (count + 3) / 4 * 4; i += blockDim.x) {
        x[i] = 0.0f;
    }
}

// round(x * scale (* gamma)) of the pack that starts at element i.
template <typename T>
__device__ __forceinline__ pack<T> normal_pack(const float *x, float scale, const T *gamma,
                                               size_t i)
{
    constexpr int size = pack_size<T>;
    wide<size> y = multiply(load_wide<size>(x + i), scale);
    if (gamma != nullptr) {
        y = multiply(y, widen(load_pack(gamma + i)));
    }
    pack<T> value;
    narrow(&value, y);
    return value;
}

template <typename T>
__device__ __forceinline__ T normal_one(const float *x, float scale, const T *gamma, size_t i)
{
    float y = __fmul_rn(x[i], scale);
    if (gamma != nullptr) {
        y = __fmul_rn(y, to_float(gamma[i]));
    }
    T value;
    from_float(&value, y);
    return value;
}

// Stores the normalised elements to `ranks` ranks from `first` on.
template <int ranks, typename T, typename Memory>
__device__ __forceinline__ void store_ranks(const held_segment &held, float scale, const T *gamma,
                                            const Memory &memory, size_t offset, int first)
{
    T *to[ranks];
    TUTTI_UNROLL
    for (int r = 0; r < ranks; r++) {
        to[r] = memory.template at<T>(offset, first + r);
    }
    constexpr int size = pack_size<T>;
    size_t packs = held.packed ? held.count / size : 0;
    for (size_t p = threadIdx.x; p < packs; p += blockDim.x) {
        pack<T> value = normal_pack(held.x, scale, gamma, p * size);
        TUTTI_UNROLL
        for (int r = 0; r < ranks; r++) {
            store_pack(to[r] + p * size, value);
        }
    }
    for (size_t i = packs * size + threadIdx.x; i < held.count; i += blockDim.x) {
        T value = normal_one(held.x, scale, gamma, i);
        TUTTI_UNROLL
        for (int r = 0; r < ranks; r++) {
            to[r][i] = value;
        }
    }
}

template <typename T, typename Memory>
__device__ __forceinline__ void store_all(const held_segment &held, float scale, const T *gamma,
                                          const Memory &memory, size_t offset, int count)
{
#define STORE(n) store_ranks<n, T>(held, scale, gamma, memory, offset, first)
    TUTTI_FOR_RANK_GROUPS(count, STORE)
#undef STORE
}

template <typename T>
__device__ __forceinline__ void store_all(const held_segment &held, float scale, const T *gamma,
                                          const multimem_memory &memory, size_t offset, int count)
{
    constexpr int size = pack_size<T>;
    size_t packs = held.packed ? held.count / size : 0;
    if (packs > 0) {
        T *to = memory.all<T>(offset);
        for (size_t p = threadIdx.x; p < packs; p += blockDim.x) {
            multimem_store(to + p * size, normal_pack(held.x, scale, gamma, p * size));
        }
    }
    size_t done = packs * size;
    if (done < held.count) {
        held_segment rest = {held.x + done, held.count - done, false};
        store_all<T>(rest, scale, gamma == nullptr ? nullptr : gamma + done,
                     static_cast<const window_memory &>(memory), offset + done * sizeof(T), count);
    }
}

// residual_out = round(x).
template <typename T>
__device__ __forceinline__ void store_residual(const held_segment &held, T *to)
{
    constexpr int size = pack_size<T>;
    size_t packs = held.packed ? held.count / size : 0;
    for (size_t p = threadIdx.x; p < packs; p += blockDim.x) {
        store_pack(to + p * size, normal_pack<T>(held.x, 1.0f, nullptr, p * size));
    }
    for (size_t i = packs * size + threadIdx.x; i < held.count; i += blockDim.x) {
        from_float(&to[i], held.x[i]);
    }
}

// One segment of a row, from element `begin` on, into shared memory.
template <typename T, typename Memory>
__device__ __forceinline__ void load_segment(const held_segment &held,
                                             const rmsnorm_work<Memory> &work,
                                             const row_place<T> &row, size_t begin)
{
    sum_all<T>(held, work.input, row.offset + begin * sizeof(T), work.ranks);
    finish_sum<T>(held, row.residual == nullptr ? nullptr : row.residual + begin);
}

template <typename T, typename Memory>
__device__ __forceinline__ void store_segment(const held_segment &held, float scale,
                                              const rmsnorm_work<Memory> &work,
                                              const row_place<T> &row, size_t begin)
{
    const T *gamma = row.gamma == nullptr ? nullptr : row.gamma + begin;
    store_all<T>(held, scale, gamma, work.output, row.offset + begin * sizeof(T), work.ranks);
    if (row.residual_out != nullptr) {
        store_residual<T>(held, row.residual_out + begin);
    }
}

// One row: segments forwards for the squares, backwards for the stores, so that the last one, and a
// row of one segment, is read once.
template <typename T, typename Memory>
__device__ __forceinline__ void norm_row(float *x, norm_sums *sums,
                                         const rmsnorm_work<Memory> &work, const row_place<T> &row)
{
    held_segment held = {x, 0, row.packed};
    size_t begin = 0;
    TUTTI_MARK("reduce");
    for (;; begin += work.segment) {
        held.count = work.hidden - begin < work.segment ? work.hidden - begin : work.segment;
        load_segment<T>(held, work, row, begin);
        __syncthreads();
        add_squares(sums, x, held.count, begin == 0);
        __syncthreads();
        if (begin + held.count == work.hidden) {
            break;
        }
    }
    TUTTI_MARK("normalise");
    float scale = norm_scale(fold_squares(sums), work.hidden, work.eps);
    TUTTI_MARK("gather");
    for (;;) {
        store_segment<T>(held, scale, work, row, begin);
        if (begin == 0) {
            break;
        }
        begin -= work.segment;
        held.count = work.segment;
        __syncthreads(); // a full segment is shared out otherwise than the last one
        load_segment<T>(held, work, row, begin);
    }
}

// The rows of one block. Dynamic shared memory: work.segment floats.
template <typename T, typename Memory>
__device__ __forceinline__ void norm_rows_shared(const rmsnorm_work<Memory> &work,
                                                 const row_range &rows)
{
    extern __shared__ float4 tutti_row_memory[];
    __shared__ norm_sums sums;
    float *x = reinterpret_cast<float *>(tutti_row_memory);
    bool was_packed = true;
    for (size_t token = rows.begin; token < rows.end; token += rows.step) {
        row_place<T> row = place_row<T>(work, token);
        if (row.packed != was_packed) {
            __syncthreads(); // elements now belong to other threads
            was_packed = row.packed;
        }
        norm_row<T>(x, &sums, work, row);
    }
}

} // namespace tutti
#endif
