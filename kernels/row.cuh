// The parts of RMSNorm that have nothing to do with communication: the sum of the squares of a row
// in shared memory, and the scale. Which operations in which order is a promise (the contract on
// bits): 256 logical threads, whatever blockDim is.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_ROW_CUH
#define TUTTI_KERNELS_ROW_CUH

#include "elements.cuh"
#include "wide.cuh"

namespace tutti
{

constexpr unsigned norm_lanes = 256;            // logical threads, and partial sums
constexpr unsigned norm_chunk = 4 * norm_lanes; // elements that give each lane one group of four

// A block's scratch besides the row itself.
struct norm_sums {
    float partial[norm_lanes];
    float folded[32];
};

// Adds the squares of x[0 .. count) to the partial sums; x is padded with zeros to a multiple of 4.
// Group g of four goes to lane g mod 256, ascending. is_first: the sums start here.
__device__ __forceinline__ void add_squares(norm_sums *sums, const float *x, size_t count,
                                            bool is_first)
{
    const float4 *group = reinterpret_cast<const float4 *>(x);
    size_t groups = (count + 3) / 4;
    if (is_first && blockDim.x == 1) { // as a block of virtual GPUs is
        memset(sums->partial, 0, sizeof sums->partial);
    } else if (is_first) {
        for (unsigned t = threadIdx.x; t < norm_lanes; t += blockDim.x) {
            sums->partial[t] = 0.0f;
        }
    }
    for (size_t chunk = 0; chunk < groups; chunk += norm_lanes) {
        unsigned end = groups - chunk < norm_lanes ? (unsigned)(groups - chunk) : norm_lanes;
        unsigned t = threadIdx.x;
#ifdef VGPU_DEVICE_RUNTIME_H
        for (; blockDim.x == 1 && t + 4 <= end; t += 4) {
            add_squares_of_four(sums->partial + t, x + 4 * (chunk + t));
        }
#endif
        for (; t < end; t += blockDim.x) {
            float4 v = group[chunk + t];
            float sum = sums->partial[t];
            sum = __fadd_rn(sum, __fmul_rn(v.x, v.x));
            sum = __fadd_rn(sum, __fmul_rn(v.y, v.y));
            sum = __fadd_rn(sum, __fmul_rn(v.z, v.z));
            sum = __fadd_rn(sum, __fmul_rn(v.w, v.w));
            sums->partial[t] = sum;
        }
    }
}

// The first three levels of the tree, for n neighbouring lanes of the 32 that remain.
template <int n> __device__ __forceinline__ void fold_lanes(norm_sums *sums, unsigned t)
{
    const float *p = sums->partial + t;
    wide<n> a = add(add(load_wide<n>(p), load_wide<n>(p + 128)),
                    add(load_wide<n>(p + 64), load_wide<n>(p + 192)));
    wide<n> b = add(add(load_wide<n>(p + 32), load_wide<n>(p + 160)),
                    add(load_wide<n>(p + 96), load_wide<n>(p + 224)));
    store_wide<n>(sums->folded + t, add(a, b));
}

// The binary tree over the 256 partial sums (distance 128, 64, .. 1). The first three levels run on
// 32 lanes, the rest in every thread, so that two meetings of the block suffice. All threads of the
// block call it; the caller has synchronised before.
__device__ __forceinline__ float fold_squares(norm_sums *sums)
{
    unsigned t = threadIdx.x;
    for (; blockDim.x == 1 && t < 32; t += 4) {
        fold_lanes<4>(sums, t);
    }
    for (; t < 32; t += blockDim.x) {
        fold_lanes<1>(sums, t);
    }
    __syncthreads();
    float sum[32];
    TUTTI_UNROLL
    for (int t = 0; t < 32; t++) {
        sum[t] = sums->folded[t];
    }
    TUTTI_UNROLL
    for (int distance = 16; distance >= 1; distance /= 2) {
        TUTTI_UNROLL
        for (int t = 0; t < distance; t++) {
            sum[t] = __fadd_rn(sum[t], sum[t + distance]);
        }
    }
    return sum[0];
}

// 1 / sqrt(mean of the squares + eps); 0 where the root is 0, so that a row of zeros gives zeros.
__device__ __forceinline__ float norm_scale(float sum_of_squares, size_t hidden, float eps)
{
    float mean = __fdiv_rn(sum_of_squares, (float)hidden);
    float root = __fsqrt_rn(__fadd_rn(mean, eps));
    return root == 0.0f ? 0.0f : __fdiv_rn(1.0f, root);
}

} // namespace tutti
#endif
