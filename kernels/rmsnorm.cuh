// All-reduce and RMSNorm of distributed rows in one kernel: each rank's blocks sum the rows of the
// rank's own tokens over all ranks' memory, normalise them and store them into every rank's output.
// By loads and stores (rmsnorm_lsa) or by multicast (rmsnorm_multimem). Any number of tokens,
// elements and ranks; float, __half, __nv_bfloat16; one source for nvcc and tutticc.
//
// A row stays in shared memory as float between the steps; what does not fit is read again from the
// peers. rmsnorm_lsa keeps the contract on bits: the result is that of tuttiAllReduceRMSNorm, for
// any blockDim that divides 256. rmsnorm_multimem has it for float on virtual GPUs.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_RMSNORM_CUH
#define TUTTI_KERNELS_RMSNORM_CUH

#include "elements.cuh"
#include "multimem.cuh"
#include "row.cuh"
#include "share.cuh"
#include "wide.cuh"

#include <nccl.h>
#include <nccl_device.h>

namespace tutti
{

// What a launch works on; equal on all ranks but for the pointers.
struct rmsnorm_arguments {
    ncclWindow_t input, output;         // may be one window
    size_t input_offset, output_offset; // of row 0, bytes; equal (in place) or disjoint ranges
    size_t tokens, hidden;              // rows and elements of a row, row-major
    const void *gamma;                  // [hidden] or NULL
    const void *residual;               // [tokens x hidden] or NULL; own tokens are read
    void *residual_out;                 // [tokens x hidden] or NULL; own tokens are written
    float eps;
    unsigned segment; // floats of a row in dynamic shared memory: all of them, rounded up to a
                      // multiple of 4, or a multiple of 1024
};

// Where one row lies. Offsets are those in the windows.
template <typename T> struct row_place {
    size_t input, output;
    const T *gamma, *residual;
    T *residual_out;
    bool packed; // everything is aligned for accesses of 16 bytes
};

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

// x (+)= the elements of `ranks` ranks from `first` on, in rank order, which start at byte `offset`
// of the window.
template <int ranks, typename T>
__device__ __forceinline__ void sum_ranks(const held_segment &held, ncclWindow_t window,
                                          size_t offset, int first)
{
    const T *from[ranks];
    TUTTI_UNROLL
    for (int r = 0; r < ranks; r++) {
        from[r] = reinterpret_cast<const T *>(ncclGetLsaPointer(window, offset, first + r));
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

// x = the sum over all ranks of the LSA team.
template <typename T>
__device__ __forceinline__ void sum_all(const held_segment &held, ncclWindow_t window,
                                        size_t offset, int count)
{
#define SUM(n) sum_ranks<n, T>(held, window, offset, first)
    TUTTI_FOR_RANK_GROUPS(count, SUM)
#undef SUM
}

// The same by multicast; what is no whole pack is summed by plain loads.
template <typename T>
__device__ __forceinline__ void sum_multimem(const held_segment &held, ncclWindow_t window,
                                             size_t offset, const ncclDevComm &comm)
{
    constexpr int size = pack_size<T>;
    size_t packs = held.packed ? held.count / size : 0;
    if (packs > 0) {
        const T *from =
            reinterpret_cast<const T *>(ncclGetLsaMultimemPointer(window, offset, comm));
        for (size_t p = threadIdx.x; p < packs; p += blockDim.x) {
            store_wide(held.x + p * size, widen(multimem_sum(from + p * size)));
        }
    }
    size_t done = packs * size;
    if (done < held.count) {
        held_segment rest = {held.x + done, held.count - done, false};
        sum_all<T>(rest, window, offset + done * sizeof(T), comm.lsaSize);
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
template <int ranks, typename T>
__device__ __forceinline__ void store_ranks(const held_segment &held, float scale, const T *gamma,
                                            ncclWindow_t window, size_t offset, int first)
{
    T *to[ranks];
    TUTTI_UNROLL
    for (int r = 0; r < ranks; r++) {
        to[r] = reinterpret_cast<T *>(ncclGetLsaPointer(window, offset, first + r));
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

template <typename T>
__device__ __forceinline__ void store_all(const held_segment &held, float scale, const T *gamma,
                                          ncclWindow_t window, size_t offset, int count)
{
#define STORE(n) store_ranks<n, T>(held, scale, gamma, window, offset, first)
    TUTTI_FOR_RANK_GROUPS(count, STORE)
#undef STORE
}

template <typename T>
__device__ __forceinline__ void store_multimem(const held_segment &held, float scale,
                                               const T *gamma, ncclWindow_t window, size_t offset,
                                               const ncclDevComm &comm)
{
    constexpr int size = pack_size<T>;
    size_t packs = held.packed ? held.count / size : 0;
    if (packs > 0) {
        T *to = reinterpret_cast<T *>(ncclGetLsaMultimemPointer(window, offset, comm));
        for (size_t p = threadIdx.x; p < packs; p += blockDim.x) {
            multimem_store(to + p * size, normal_pack(held.x, scale, gamma, p * size));
        }
    }
    size_t done = packs * size;
    if (done < held.count) {
        held_segment rest = {held.x + done, held.count - done, false};
        store_all<T>(rest, scale, gamma == nullptr ? nullptr : gamma + done, window,
                     offset + done * sizeof(T), comm.lsaSize);
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
template <typename T, bool multimem>
__device__ __forceinline__ void load_segment(const held_segment &held,
                                             const rmsnorm_arguments &args, const row_place<T> &row,
                                             size_t begin, const ncclDevComm &comm)
{
    size_t offset = row.input + begin * sizeof(T);
    if (multimem) {
        sum_multimem<T>(held, args.input, offset, comm);
    } else {
        sum_all<T>(held, args.input, offset, comm.lsaSize);
    }
    finish_sum<T>(held, row.residual == nullptr ? nullptr : row.residual + begin);
}

template <typename T, bool multimem>
__device__ __forceinline__ void
store_segment(const held_segment &held, float scale, const rmsnorm_arguments &args,
              const row_place<T> &row, size_t begin, const ncclDevComm &comm)
{
    size_t offset = row.output + begin * sizeof(T);
    const T *gamma = row.gamma == nullptr ? nullptr : row.gamma + begin;
    if (multimem) {
        store_multimem<T>(held, scale, gamma, args.output, offset, comm);
    } else {
        store_all<T>(held, scale, gamma, args.output, offset, comm.lsaSize);
    }
    if (row.residual_out != nullptr) {
        store_residual<T>(held, row.residual_out + begin);
    }
}

// One row: segments forwards for the squares, backwards for the stores, so that the last one, and a
// row of one segment, is read once.
template <typename T, bool multimem>
__device__ __forceinline__ void norm_row(float *x, norm_sums *sums, const rmsnorm_arguments &args,
                                         const row_place<T> &row, const ncclDevComm &comm)
{
    held_segment held = {x, 0, row.packed};
    size_t begin = 0;
    TUTTI_MARK("reduce");
    for (;; begin += args.segment) {
        held.count = args.hidden - begin < args.segment ? args.hidden - begin : args.segment;
        load_segment<T, multimem>(held, args, row, begin, comm);
        __syncthreads();
        add_squares(sums, x, held.count, begin == 0);
        __syncthreads();
        if (begin + held.count == args.hidden) {
            break;
        }
    }
    TUTTI_MARK("normalise");
    float scale = norm_scale(fold_squares(sums), args.hidden, args.eps);
    TUTTI_MARK("gather");
    for (;;) {
        store_segment<T, multimem>(held, scale, args, row, begin, comm);
        if (begin == 0) {
            break;
        }
        begin -= args.segment;
        held.count = args.segment;
        __syncthreads(); // a full segment is shared out otherwise than the last one
        load_segment<T, multimem>(held, args, row, begin, comm);
    }
}

template <typename T>
__device__ __forceinline__ row_place<T> place_row(const rmsnorm_arguments &args, size_t token)
{
    size_t start = token * args.hidden;
    row_place<T> row;
    row.input = args.input_offset + start * sizeof(T);
    row.output = args.output_offset + start * sizeof(T);
    row.gamma = static_cast<const T *>(args.gamma);
    row.residual =
        args.residual == nullptr ? nullptr : static_cast<const T *>(args.residual) + start;
    row.residual_out =
        args.residual_out == nullptr ? nullptr : static_cast<T *>(args.residual_out) + start;
    // Windows start at multiples of 4096.
    row.packed = is_pack_aligned(row.input | row.output | reinterpret_cast<size_t>(row.gamma) |
                                 reinterpret_cast<size_t>(row.residual) |
                                 reinterpret_cast<size_t>(row.residual_out));
    return row;
}

template <typename T, bool multimem>
__device__ __forceinline__ void norm_rows(const rmsnorm_arguments &args, const ncclDevComm &comm)
{
    extern __shared__ float4 tutti_row_memory[];
    __shared__ norm_sums sums;
    float *x = reinterpret_cast<float *>(tutti_row_memory);
    ncclCoopCta cta;
    // The barriers of ranks' blocks with one index belong together; a block without tokens comes
    // too.
    ncclLsaBarrierSession<ncclCoopCta> barrier{cta, comm, ncclTeamTagLsa(), blockIdx.x, multimem};
    TUTTI_MARK("wait for inputs");
    barrier.sync(cta, cuda::memory_order_acq_rel);

    // This rank's own rows, and of those this block's: neighbours, which memory serves best.
    size_t ranks = (size_t)comm.lsaSize, rank = (size_t)comm.lsaRank;
    size_t begin = split_first(args.tokens, ranks, rank);
    size_t own = split_first(args.tokens, ranks, rank + 1) - begin;
    size_t end = begin + split_first(own, gridDim.x, blockIdx.x + (size_t)1);
    begin += split_first(own, gridDim.x, blockIdx.x);
    bool was_packed = true;
    for (size_t token = begin; token < end; token++) {
        row_place<T> row = place_row<T>(args, token);
        if (row.packed != was_packed) {
            __syncthreads(); // elements now belong to other threads
            was_packed = row.packed;
        }
        norm_row<T, multimem>(x, &sums, args, row, comm);
    }

    TUTTI_MARK("wait for peers");
    barrier.sync(cta, cuda::memory_order_acq_rel);
    TUTTI_MARK(nullptr);
}

// Launch with the same grid and block on all ranks of the LSA team (which must be all ranks that
// share the rows); no more blocks than the device communicator has LSA barriers; blockDim.x a
// divisor of 256; args.segment * 4 bytes of dynamic shared memory. All blocks of all ranks that
// share a device must fit on it at once.
template <typename T>
__global__ void __launch_bounds__(norm_lanes) rmsnorm_lsa(rmsnorm_arguments args, ncclDevComm comm)
{
    norm_rows<T, false>(args, comm);
}

// The same, with a device communicator made with lsaMultimem. Tails of rows and rows that are not
// aligned to 16 bytes go by plain loads and stores.
template <typename T>
__global__ void __launch_bounds__(norm_lanes)
    rmsnorm_multimem(rmsnorm_arguments args, ncclDevComm comm)
{
    norm_rows<T, true>(args, comm);
}

} // namespace tutti
#endif
