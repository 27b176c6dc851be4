// Dispatch and combine of a mixture of experts inside one host (LSA team), each one kernel: rows
// are stored straight into the windows of the ranks that they are for, the ranks' kernels meet, and
// what arrived is spread or added. One source for nvcc and tutticc. parallel/moe.h says what items
// and records are; this file works on one host, where every token is an item of its own rank.
//
// Block b of each rank works on the items whose number is b modulo the number of blocks, and on
// what other ranks have sent for such items: so blocks of one number need to meet no others.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_MOE_CUH
#define TUTTI_KERNELS_MOE_CUH

#include "../parallel/moe_job.h"
#include "elements.cuh"

#include <nccl.h>
#include <nccl_device.h>

namespace tutti
{

constexpr int moe_warp = 32;
constexpr int moe_most_choices = 64;

// ---- Arithmetic: every operation rounded once, as on the processor ------------------------------

__device__ __forceinline__ float moe_multiply(float a, float b)
{
    return __fmul_rn(a, b);
}
__device__ __forceinline__ double moe_multiply(double a, double b)
{
    return __dmul_rn(a, b);
}
__device__ __forceinline__ float moe_add(float a, float b)
{
    return __fadd_rn(a, b);
}
__device__ __forceinline__ double moe_add(double a, double b)
{
    return __dadd_rn(a, b);
}

// What an element is added up in, and the ways there and back.
template <typename T> struct moe_element {
    typedef float sum;
    static __device__ __forceinline__ float widen(T value)
    {
        return to_float(value);
    }
    static __device__ __forceinline__ void narrow(T *to, float value)
    {
        from_float(to, value);
    }
};
template <> struct moe_element<double> {
    typedef double sum;
    static __device__ __forceinline__ double widen(double value)
    {
        return value;
    }
    static __device__ __forceinline__ void narrow(double *to, double value)
    {
        *to = value;
    }
};

// ---- Rows ---------------------------------------------------------------------------------------

// By all threads of the block.
__device__ __forceinline__ void moe_copy(char *to, const char *from, size_t bytes)
{
    if (is_pack_aligned(reinterpret_cast<size_t>(to) | reinterpret_cast<size_t>(from) | bytes)) {
        for (size_t i = threadIdx.x; i < bytes / 16; i += blockDim.x) {
            reinterpret_cast<float4 *>(to)[i] = reinterpret_cast<const float4 *>(from)[i];
        }
        return;
    }
    for (size_t i = threadIdx.x; i < bytes / 2; i += blockDim.x) { // elements have at least 2
        reinterpret_cast<uint16_t *>(to)[i] = reinterpret_cast<const uint16_t *>(from)[i];
    }
}

__device__ __forceinline__ void moe_clear(char *to, size_t bytes)
{
    for (size_t i = threadIdx.x; i < bytes / 2; i += blockDim.x) {
        reinterpret_cast<uint16_t *>(to)[i] = 0;
    }
}

// to[i] = the sum over r, ascending, of (weight(r) *) row(r)[i]; by all threads of the block. n: of
// the elements that a thread takes at once.
template <typename T, int n, typename Row, typename Weight>
__device__ __forceinline__ void moe_sum_of(T *to, int count, size_t hidden, bool weighted, Row row,
                                           Weight weight)
{
    typedef typename moe_element<T>::sum number;
    for (size_t i = threadIdx.x * (size_t)n; i < hidden; i += blockDim.x * (size_t)n) {
        number sum[n];
        for (int r = 0; r < count; r++) {
            T value[n];
            if constexpr (n > 1) {
                pack<T> values = load_pack(row(r) + i);
                memcpy(value, &values, sizeof values);
            } else {
                value[0] = row(r)[i];
            }
            number factor = weighted ? (number)weight(r) : (number)1;
            TUTTI_UNROLL
            for (int k = 0; k < n; k++) {
                number product = moe_multiply(moe_element<T>::widen(value[k]), factor);
                sum[k] = r == 0 ? product : moe_add(sum[k], product);
            }
        }
        T result[n];
        TUTTI_UNROLL
        for (int k = 0; k < n; k++) {
            moe_element<T>::narrow(&result[k], sum[k]);
        }
        if constexpr (n > 1) {
            pack<T> values;
            memcpy(&values, result, sizeof values);
            store_pack(to + i, values);
        } else {
            to[i] = result[0];
        }
    }
}

// aligned: whether all rows begin at multiples of 16 bytes.
template <typename T, typename Row, typename Weight>
__device__ __forceinline__ void moe_sum(T *to, int count, size_t hidden, bool aligned,
                                        bool weighted, Row row, Weight weight)
{
    if (aligned) {
        moe_sum_of<T, pack_size<T>>(to, count, hidden, weighted, row, weight);
    } else {
        moe_sum_of<T, 1>(to, count, hidden, weighted, row, weight);
    }
}

// ---- Stages -------------------------------------------------------------------------------------

__device__ __forceinline__ const moe_record *moe_record_at(const moe_job &job, size_t i)
{
    return reinterpret_cast<const moe_record *>(job.record + i * job.record_bytes);
}
__device__ __forceinline__ const moe_choice *moe_choices_of(const moe_record *record)
{
    return reinterpret_cast<const moe_choice *>(record + 1);
}
__device__ __forceinline__ bool moe_is_mine(int32_t item)
{
    return (unsigned)item % gridDim.x == blockIdx.x;
}
__device__ __forceinline__ char *moe_row(const moe_job &job, ncclWindow_t window, int lane,
                                         int32_t row)
{
    return static_cast<char *>(ncclGetLsaPointer(window, (size_t)row * job.row_bytes, lane));
}
__device__ __forceinline__ char *moe_own_row(const moe_job &job, ncclWindow_t window, int32_t row)
{
    return static_cast<char *>(ncclGetLocalPointer(window, (size_t)row * job.row_bytes));
}

__device__ __forceinline__ void moe_meet(const ncclDevComm &comm)
{
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier(cta, comm, ncclTeamTagLsa(), blockIdx.x);
    barrier.sync(cta, cuda::memory_order_acq_rel);
}

// Each of this rank's tokens to the ranks that have experts for it: once to each.
__device__ __forceinline__ void moe_push(const moe_job &job, ncclWindow_t window)
{
    for (size_t i = blockIdx.x; i < job.item_count; i += gridDim.x) {
        const int32_t *item = job.item + i * job.item_words;
        const char *from = job.from + (size_t)item[MOE_ITEM_TOKEN] * job.row_bytes;
        for (int32_t r = 0; r < item[MOE_ITEM_RANKS]; r++) {
            const int32_t *place = item + MOE_ITEM_HEAD + 2 * r;
            moe_copy(moe_row(job, window, place[0], place[1]), from, job.row_bytes);
        }
    }
}

__device__ __forceinline__ void moe_clear_padding(const moe_job &job, ncclWindow_t window)
{
    for (size_t e = blockIdx.x; e < job.padding_count; e += gridDim.x) {
        const int32_t *rows = job.padding + 2 * e;
        if (rows[1] > 0) {
            moe_clear(moe_own_row(job, window, rows[0]), (size_t)rows[1] * job.row_bytes);
        }
    }
}

// ---- Kernels ------------------------------------------------------------------------------------

__global__ void moe_dispatch(moe_job job, ncclWindow_t window, ncclDevComm comm)
{
    moe_push(job, window);
    moe_meet(comm);
    for (size_t i = 0; i < job.record_count; i++) {
        const moe_record *record = moe_record_at(job, i);
        if (moe_is_mine(record->item)) {
            const moe_choice *choice = moe_choices_of(record);
            const char *from = moe_own_row(job, window, choice[0].row);
            for (int32_t c = 1; c < record->count; c++) {
                moe_copy(moe_own_row(job, window, choice[c].row), from, job.row_bytes);
            }
        }
    }
    moe_clear_padding(job, window);
}

template <typename T>
__global__ void moe_combine(moe_job job, ncclWindow_t window, ncclDevComm comm)
{
    size_t addresses = reinterpret_cast<size_t>(job.from) | reinterpret_cast<size_t>(job.to);
    bool aligned = is_pack_aligned(addresses | job.row_bytes);
    for (size_t i = 0; i < job.record_count; i++) {
        const moe_record *record = moe_record_at(job, i);
        if (moe_is_mine(record->item)) {
            const moe_choice *choice = moe_choices_of(record);
            size_t slot = job.slots + (size_t)record->slot * job.row_bytes;
            moe_sum<T>(
                static_cast<T *>(ncclGetLsaPointer(window, slot, record->lane)), record->count,
                job.hidden, aligned, job.weighted,
                [&](int c) {
                    return reinterpret_cast<const T *>(job.from +
                                                       (size_t)choice[c].row * job.row_bytes);
                },
                [&](int c) { return choice[c].weight; });
        }
    }
    moe_meet(comm);
    for (size_t t = 0; t < job.list_count; t++) {
        char *to = job.to + t * job.row_bytes;
        int32_t number = job.list[t];
        if (number < 0 && t % gridDim.x == blockIdx.x) {
            moe_clear(to, job.row_bytes);
        } else if (number >= 0 && moe_is_mine(number)) {
            const int32_t *item = job.item + (size_t)number * job.item_words;
            const char *slots = static_cast<const char *>(ncclGetLocalPointer(
                window, job.slots + (size_t)item[MOE_ITEM_SLOT] * job.row_bytes));
            moe_sum<T>(
                reinterpret_cast<T *>(to), item[MOE_ITEM_RANKS], job.hidden, aligned, false,
                [&](int r) {
                    return reinterpret_cast<const T *>(slots + (size_t)r * job.row_bytes);
                },
                [](int) { return 1.0; });
        }
    }
}

// One warp for each record. G: of gradients, T: of the experts' results.
template <typename G, typename T>
__device__ __forceinline__ void moe_spread_grads(const moe_job &job, ncclWindow_t window, size_t i,
                                                 double *partial)
{
    unsigned lane = threadIdx.x % moe_warp;
    const moe_choice *choice = moe_choices_of(moe_record_at(job, i));
    const G *grad = reinterpret_cast<const G *>(moe_own_row(job, window, choice[0].row));
    for (int32_t c = moe_record_at(job, i)->count - 1; c >= 0; c--) {
        const T *result =
            reinterpret_cast<const T *>(job.results) + (size_t)choice[c].row * job.hidden;
        double sum = 0;
        for (size_t k = lane; k < job.hidden; k += moe_warp) {
            double product = __dmul_rn((double)grad[k], (double)moe_element<T>::widen(result[k]));
            sum = __dadd_rn(sum, product);
        }
        partial[lane] = sum;
        __syncwarp();
        if (lane == 0) {
            for (int l = 1; l < moe_warp; l++) {
                sum = __dadd_rn(sum, partial[l]);
            }
            static_cast<G *>(job.weight_grads)[i * job.record_choices + (size_t)c] = (G)sum;
        }
        G *to = reinterpret_cast<G *>(moe_own_row(job, window, choice[c].row));
        for (size_t k = lane; k < job.hidden; k += moe_warp) {
            to[k] = moe_multiply(grad[k], (G)choice[c].weight);
        }
        __syncwarp();
    }
}

template <typename G, typename T>
__global__ void moe_backward(moe_job job, ncclWindow_t window, ncclDevComm comm)
{
    __shared__ double partial[8][moe_warp];
    unsigned warp = threadIdx.x / moe_warp, warps = blockDim.x / moe_warp, seen = 0;
    moe_push(job, window);
    moe_meet(comm);
    for (size_t i = 0; i < job.record_count; i++) {
        if (moe_is_mine(moe_record_at(job, i)->item) && seen++ % warps == warp) {
            moe_spread_grads<G, T>(job, window, i, partial[warp]);
        }
    }
    moe_clear_padding(job, window);
}

// Gradients of pairs to [tokens x list_width].
template <typename G> __global__ void moe_scatter(moe_job job)
{
    size_t first = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    for (size_t i = first; i < job.record_count; i += gridDim.x * (size_t)blockDim.x) {
        const moe_record *record = moe_record_at(job, i);
        const moe_choice *choice = moe_choices_of(record);
        for (int32_t c = 0; c < record->count; c++) {
            size_t at = (size_t)record->token * job.list_width + (size_t)choice[c].column;
            reinterpret_cast<G *>(job.to)[at] =
                static_cast<const G *>(job.weight_grads)[i * job.record_choices + (size_t)c];
        }
    }
}

} // namespace tutti
#endif
