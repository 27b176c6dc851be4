// A row of the fused all-reduce + RMSNorm in registers: rows of whole packs that are aligned to 16
// bytes, in blocks in which each thread is as many of row.cuh's logical threads as its packs have
// groups of four elements. One meeting of the block for each row. On real GPUs 1.1 to 5 times as
// fast as the way through shared memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_RMSNORM_REGISTERS_CUH
#define TUTTI_KERNELS_RMSNORM_REGISTERS_CUH

#include "rmsnorm_work.cuh"
#include "row.cuh"
#include "wide.cuh"

namespace tutti
{

// Threads of a block: 256 for float, 128 for types of 16 bits.
template <typename T> constexpr unsigned register_threads = norm_chunk / pack_size<T>;

// Loads that a thread has on their way, at most: more take registers from other blocks.
constexpr int loads_at_once = 16;

// A thread's part of a row: `packs` of them, at distances of the block's size; those beyond the row
// are zero.
template <typename T, int packs> struct register_row {
    static constexpr int size = pack_size<T>;
    wide<size> x[packs];
    unsigned count; // packs of the row

    __device__ __forceinline__ bool has(int k) const
    {
        return threadIdx.x + k * register_threads<T> < count;
    }
    // The element that pack k begins with.
    __device__ __forceinline__ size_t at(int k) const
    {
        return (size_t)(threadIdx.x + k * register_threads<T>)*size;
    }
    __device__ __forceinline__ pack<T> load(const T *array, int k) const
    {
        return has(k) ? load_pack(array + at(k)) : pack<T>();
    }

    // x (+)= what n ranks from `first` on have, of packs k .. k + several - 1: all loads on their
    // way at once.
    template <int n, int several, bool starts, typename Memory>
    __device__ __forceinline__ void add_ranks(const Memory &memory, size_t offset, int first, int k)
    {
        pack<T> value[several][n];
        TUTTI_UNROLL
        for (int r = 0; r < n; r++) {
            const T *from = memory.template at<const T>(offset, first + r);
            TUTTI_UNROLL
            for (int j = 0; j < several; j++) {
                value[j][r] = load(from, k + j);
            }
        }
        TUTTI_UNROLL
        for (int j = 0; j < several; j++) {
            TUTTI_UNROLL
            for (int r = 0; r < n; r++) {
                wide<size> more = widen(value[j][r]);
                x[k + j] = starts && r == 0 ? more : add(x[k + j], more);
            }
        }
    }

    // The same for any number of ranks.
    template <int several, typename Memory>
    __device__ __forceinline__ void add_any(const Memory &memory, size_t offset, int ranks, int k)
    {
        TUTTI_UNROLL
        for (int j = 0; j < several; j++) {
            TUTTI_UNROLL
            for (int i = 0; i < size; i++) {
                x[k + j].value[i] = -0.0f; // -0 + y is y for every y, 0 + y is not
            }
        }
        int r = 0;
        for (; r + 4 <= ranks; r += 4) {
            add_ranks<4, several, false>(memory, offset, r, k);
        }
        if (r + 2 <= ranks) {
            add_ranks<2, several, false>(memory, offset, r, k);
            r += 2;
        }
        if (r < ranks) {
            add_ranks<1, several, false>(memory, offset, r, k);
        }
    }

    // x = the sum over all ranks. n: how many, if that is known when it is compiled, else 0.
    template <int n, typename Memory>
    __device__ __forceinline__ void sum(const Memory &memory, size_t offset, int ranks)
    {
        constexpr int most = loads_at_once / (n == 0 ? 4 : n);
        constexpr int several = packs < most ? packs : most;
        TUTTI_UNROLL
        for (int k = 0; k < packs; k += several) {
            if constexpr (n > 0) {
                add_ranks<n, several, true>(memory, offset, 0, k);
            } else {
                add_any<several>(memory, offset, ranks, k);
            }
        }
    }

    __device__ __forceinline__ void add_array(const T *array)
    {
        pack<T> value[packs];
        TUTTI_UNROLL
        for (int k = 0; k < packs; k++) {
            value[k] = load(array, k);
        }
        TUTTI_UNROLL
        for (int k = 0; k < packs; k++) {
            x[k] = add(x[k], widen(value[k]));
        }
    }

    // The sum of the row's squares, in the order of row.cuh, in every thread. `slot`: norm_lanes
    // floats of shared memory that no thread has used since the block met before the last time.
    __device__ __forceinline__ float sum_squares(float *slot) const
    {
        TUTTI_UNROLL
        for (int lane = 0; lane < size / 4; lane++) {
            float partial = 0.0f;
            TUTTI_UNROLL
            for (int k = 0; k < packs; k++) {
                TUTTI_UNROLL
                for (int i = 4 * lane; i < 4 * lane + 4; i++) {
                    float value = x[k].value[i];
                    partial = __fadd_rn(partial, __fmul_rn(value, value));
                }
            }
            slot[threadIdx.x * (size / 4) + lane] = partial;
        }
        __syncthreads();
        const float *p = slot + threadIdx.x % 32;
        float a = __fadd_rn(__fadd_rn(p[0], p[128]), __fadd_rn(p[64], p[192]));
        float b = __fadd_rn(__fadd_rn(p[32], p[160]), __fadd_rn(p[96], p[224]));
        float sum = __fadd_rn(a, b);
        TUTTI_UNROLL
        for (int distance = 16; distance >= 1; distance /= 2) {
            sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, distance));
        }
        return sum;
    }

    // Stores round(x * scale (* gamma)) to all ranks.
    template <int n, typename Memory>
    __device__ __forceinline__ void store(const Memory &memory, size_t offset, int ranks,
                                          float scale, const T *gamma) const
    {
        TUTTI_UNROLL
        for (int k = 0; k < packs; k++) {
            if (!has(k)) {
                continue;
            }
            wide<size> y = multiply(x[k], scale);
            if (gamma != nullptr) {
                y = multiply(y, widen(load_pack(gamma + at(k))));
            }
            pack<T> value;
            narrow(&value, y);
            TUTTI_UNROLL
            for (int r = 0; r < (n == 0 ? ranks : n); r++) {
                store_pack(memory.template at<T>(offset, r) + at(k), value);
            }
        }
    }

    // The same of a row of one pack for each thread, by the multiprocessor's copy engine: an
    // element leaves its thread once. Done when the kernel ends. `row`: register_threads<T> packs
    // of shared memory, which threads may use again once the block has met.
    template <int ranks, typename Memory>
    __device__ __forceinline__ void store_bulk(const Memory &memory, size_t offset, float scale,
                                               const T *gamma, float4 *row) const
    {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        if (has(0)) {
            wide<size> y = multiply(x[0], scale);
            if (gamma != nullptr) {
                y = multiply(y, widen(load_pack(gamma + at(0))));
            }
            pack<T> value;
            narrow(&value, y);
            store_pack(reinterpret_cast<T *>(row + threadIdx.x), value);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (threadIdx.x < ranks) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n\t"
                         "cp.async.bulk.commit_group;\n\t"
                         "cp.async.bulk.wait_group.read 0;"
                         :
                         : "l"(memory.template at<T>(offset, (int)threadIdx.x)),
                           "r"((unsigned)__cvta_generic_to_shared(row)), "r"(count * 16)
                         : "memory");
        }
#endif
    }

    __device__ __forceinline__ void store_sum(T *to) const
    {
        TUTTI_UNROLL
        for (int k = 0; k < packs; k++) {
            if (has(k)) {
                pack<T> value;
                narrow(&value, x[k]);
                store_pack(to + at(k), value);
            }
        }
    }
};

// The most elements of a row.
constexpr size_t register_hidden = 16 * norm_chunk;

// Calls f(packs) for the kernel variant that has room for `hidden` elements, as a constant.
#ifdef VGPU_DEVICE_RUNTIME_H // each variant takes long to compile
#define TUTTI_FOR_PACKS(hidden, f) ((hidden) <= tutti::norm_chunk ? f(1) : f(16))
#else
#define TUTTI_FOR_PACKS(hidden, f)                                                                 \
    ((hidden) <= tutti::norm_chunk       ? f(1)                                                    \
     : (hidden) <= 2 * tutti::norm_chunk ? f(2)                                                    \
     : (hidden) <= 4 * tutti::norm_chunk ? f(4)                                                    \
     : (hidden) <= 8 * tutti::norm_chunk ? f(8)                                                    \
                                         : f(16))
#endif

// Where that is faster, as measured on an H200. Only for launches whose stores nobody waits for in
// the kernel.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
template <int packs, int ranks> constexpr bool stores_bulk = packs == 1 && ranks >= 8;
#else
template <int packs, int ranks> constexpr bool stores_bulk = false;
#endif

// The rows of one block of register_threads<T>, all of them packed. packs: at least hidden /
// norm_chunk, rounded up. ranks: work.ranks, or 0.
template <typename T, int packs, int ranks, typename Memory>
__device__ __forceinline__ void norm_rows_registers(const rmsnorm_work<Memory> &work,
                                                    const row_range &rows)
{
    __shared__ float slots[2][norm_lanes];
    __shared__ alignas(128) float4 result[stores_bulk<packs, ranks> ? register_threads<T> : 1];
    register_row<T, packs> held;
    held.count = (unsigned)(work.hidden / pack_size<T>);
    unsigned turn = 0;
    for (size_t token = rows.begin; token < rows.end; token += rows.step, turn ^= 1) {
        row_place<T> row = place_row<T>(work, token);
        held.template sum<ranks>(work.input, row.offset, work.ranks);
        if (row.residual != nullptr) {
            held.add_array(row.residual);
        }
        float scale = norm_scale(held.sum_squares(slots[turn]), work.hidden, work.eps);
        if constexpr (stores_bulk<packs, ranks>) {
            held.template store_bulk<ranks>(work.output, row.offset, scale, row.gamma, result);
        } else {
            held.template store<ranks>(work.output, row.offset, work.ranks, scale, row.gamma);
        }
        if (row.residual_out != nullptr) {
            held.store_sum(row.residual_out);
        }
    }
}

} // namespace tutti
#endif
