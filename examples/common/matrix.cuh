// SPDX-License-Identifier: Apache-2.0
// The numbers of the RMSNorm lessons: input, reference, comparison, for float, half and bf16.
// A matrix has `tokens` rows of `hidden` elements. Rank r's input element i is a fixed
// pseudo-random number in [0, 1), so that each rank can tell every other rank's input.
#ifndef EXAMPLES_COMMON_MATRIX_CUH
#define EXAMPLES_COMMON_MATRIX_CUH

#include "lesson.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <stdint.h>

// Element type <-> float, on host and device.
__host__ __device__ inline float to_float(float value)
{
    return value;
}
__host__ __device__ inline float to_float(__half value)
{
    return __half2float(value);
}
__host__ __device__ inline float to_float(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}

template <typename T> __host__ __device__ T from_float(float value);
template <> __host__ __device__ inline float from_float<float>(float value)
{
    return value;
}
template <> __host__ __device__ inline __half from_float<__half>(float value)
{
    return __float2half_rn(value);
}
template <> __host__ __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value)
{
    return __float2bfloat16_rn(value);
}

// How far a result may be off: absolutely, or relative to the reference. Half and bf16 are rounded
// once or twice (multimem rounds the sum too), to 11 and 8 bits.
template <typename T> struct tolerance;
template <> struct tolerance<float> {
    static constexpr double absolute = 1e-5, relative = 1e-4;
};
template <> struct tolerance<__half> {
    static constexpr double absolute = 1e-5, relative = 2e-3;
};
template <> struct tolerance<__nv_bfloat16> {
    static constexpr double absolute = 1e-5, relative = 1.6e-2;
};

// Element i of rank's input: an integer hash, its top 24 bits as a fraction, rounded to T.
template <typename T> T input_element(int rank, size_t i)
{
    uint64_t x = (uint64_t)i + ((uint64_t)(rank + 1) << 48);
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 29)) * 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    return from_float<T>((float)(x >> 40 & 0xffffff) * (1.0f / (1 << 24)));
}

template <typename T> void fill_input(T *matrix, size_t elements, int rank)
{
    for (size_t i = 0; i < elements; i++) {
        matrix[i] = input_element<T>(rank, i);
    }
}

// Rows first_token .. end_token - 1 of the expected output, in double precision: the sum over all
// ranks, divided by the root of (the mean of its squares + eps). A row of zeros stays one.
template <typename T>
void expect_rows(float *expected, size_t first_token, size_t end_token, size_t hidden, int ranks,
                 float eps)
{
    for (size_t token = first_token; token < end_token; token++) {
        double squares = 0;
        for (size_t i = token * hidden; i < (token + 1) * hidden; i++) {
            double sum = 0;
            for (int rank = 0; rank < ranks; rank++) {
                sum += (double)to_float(input_element<T>(rank, i));
            }
            expected[i] = (float)sum;
            squares += sum * sum;
        }
        double root = sqrt(squares / (double)hidden + (double)eps);
        for (size_t i = token * hidden; i < (token + 1) * hidden; i++) {
            expected[i] = root > 0 ? (float)((double)expected[i] / root) : 0.0f;
        }
    }
}

// Elements first .. end - 1 of the sum over all ranks, in double precision.
template <typename T> void expect_sums(float *expected, size_t first, size_t end, int ranks)
{
    for (size_t i = first; i < end; i++) {
        double sum = 0;
        for (int rank = 0; rank < ranks; rank++) {
            sum += (double)to_float(input_element<T>(rank, i));
        }
        expected[i] = (float)sum;
    }
}

// True when every element is within the tolerance of its type; prints the first that is not.
template <typename T>
bool compare(const T *result, const float *expected, size_t elements, size_t hidden, int rank)
{
    size_t wrong = 0;
    for (size_t i = 0; i < elements; i++) {
        double difference = fabs((double)to_float(result[i]) - (double)expected[i]);
        // Not `>`: a NaN is wrong too.
        if (!(difference < tolerance<T>::absolute) &&
            !(difference < tolerance<T>::relative * fabs((double)expected[i]))) {
            if (wrong++ == 0) {
                printf("rank %d: token %zu, element %zu is %g, should be %g\n", rank, i / hidden,
                       i % hidden, (double)to_float(result[i]), (double)expected[i]);
            }
        }
    }
    if (wrong > 0) {
        printf("rank %d: %zu of %zu elements are wrong\n", rank, wrong, elements);
    }
    return wrong == 0;
}

#endif
