// Every form of shared memory.
// SPDX-License-Identifier: Apache-2.0
#include "check.cuh"

enum { THREADS = 8 };

// Outside of functions.
extern __shared__ int dynamic_outside[];
__shared__ int outside[THREADS];
namespace space
{
static __shared__ volatile int inside;
}

struct three {
    int x, y;
    float z[2];
};

__global__ void forms(int *out)
{
    __shared__ int a;
    __shared__ int b[THREADS], *c, d[2][3];
    static __shared__ struct three s;
    __shared__ struct three rows[2];
    __shared__ union {
        int whole;
        char part[4];
    } u;
    __shared__ __align__(64) char aligned_macro[64];
    __shared__ alignas(128) char aligned_word[3];
    alignas(32) __shared__ char aligned_before[3];
    __shared__ char aligned_after[3] __attribute__((aligned(16)));
    volatile __shared__ int v;
    __shared__ int(*pointer_to_array)[THREADS];
    int me = threadIdx.x;
    if (me == 0) {
        a = 1, c = b, s.x = 2, s.z[1] = 3, rows[1].y = 4, u.whole = 0x01010101, d[1][2] = 6;
        v = 5;
        pointer_to_array = &b;
    }
    b[me] = me * 10;
    __syncthreads();
    if (me == THREADS - 1) {
        out[0] = a + c[3] + s.x + static_cast<int>(s.z[1]) + rows[1].y + u.part[2] + v + d[1][2];
        out[1] = (*pointer_to_array)[me];
        out[2] = sizeof(b) == THREADS * sizeof(int) && sizeof(d) == 6 * sizeof(int) &&
                 sizeof(s) == sizeof(three);
        out[3] = (reinterpret_cast<size_t>(aligned_macro) % 64 +
                  reinterpret_cast<size_t>(aligned_word) % 128 +
                  reinterpret_cast<size_t>(aligned_before) % 32 +
                  reinterpret_cast<size_t>(aligned_after) % 16) == 0;
    }
}

// One object per block, and none shared between blocks.
__global__ void per_block(int *out)
{
    __shared__ int count;
    if (threadIdx.x == 0)
        count = 100 * blockIdx.x;
    __syncthreads();
    atomicAdd(&count, 1);
    __syncthreads();
    if (threadIdx.x == 0)
        out[blockIdx.x] = count;
}

template <class T, int n> __device__ T *own_buffer()
{
    __shared__ T buffer[n];
    return buffer;
}
template <class T> __global__ void in_templates(T *out)
{
    __shared__ T value;
    T *other = own_buffer<T, 4>(), *third = own_buffer<T, 5>();
    if (threadIdx.x == 0) {
        value = 1, other[3] = 2, third[4] = 3;
        out[0] = value + other[3] + third[4] + own_buffer<T, 4>()[3];
        out[1] = other != third && &value != other;
    }
}

__device__ int *dynamic()
{
    extern __shared__ int words[];
    return words;
}
template <class T> __global__ void dynamic_forms(int *out, int n)
{
    extern __shared__ T typed[];
    extern __shared__ __align__(16) unsigned char bytes[];
    if (threadIdx.x == 0)
        for (int i = 0; i < n; i++)
            typed[i] = static_cast<T>(i);
    __syncthreads();
    if (threadIdx.x == 1) {
        out[0] = static_cast<int>(typed[n - 1]);
        out[1] = reinterpret_cast<void *>(typed) == reinterpret_cast<void *>(bytes) &&
                 dynamic() == static_cast<void *>(typed) &&
                 dynamic_outside == static_cast<void *>(typed);
        out[2] = reinterpret_cast<size_t>(bytes) % 16 == 0;
    }
}

__global__ void outside_forms(int *out)
{
    int me = threadIdx.x;
    outside[me] = me + blockIdx.x;
    if (me == 0)
        space::inside = 7;
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < THREADS; i++)
        sum += outside[i];
    { // hides the shared array
        int outside[1] = {1000};
        sum += outside[0];
    }
    if (me == 0)
        out[blockIdx.x] = sum + space::inside;
}

// Declared where control flow passes twice, and in nested scopes of one name.
__global__ void scopes(int *out)
{
    for (int i = 0; i < 2; i++) {
        __shared__ int again;
        if (i == 0)
            again = 3;
        else
            out[0] = again;
    }
    {
        __shared__ int same;
        same = 1;
        {
            __shared__ int same;
            same = 2;
        }
        out[1] = same;
    }
    auto in_lambda = [&](int x) {
        __shared__ int own;
        own = x;
        return own;
    };
    out[2] = in_lambda(5);
}

int main()
{
    int *out = make<int>(8);
    forms<<<1, THREADS>>>(out);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(out[0] == 1 + 30 + 2 + 3 + 4 + 1 + 5 + 6);
    CHECK(out[1] == (THREADS - 1) * 10 && out[2] == 1 && out[3] == 1);
    per_block<<<4, THREADS>>>(out);
    CHECK_CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < 4; i++)
        CHECK(out[i] == 100 * i + THREADS);
    in_templates<<<1, 2>>>(out);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(out[0] == 8 && out[1] == 1);
    dynamic_forms<double><<<1, 2, 10 * sizeof(double)>>>(out, 10);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(out[0] == 9 && out[1] == 1 && out[2] == 1);
    dynamic_forms<short><<<1, 2, 10 * sizeof(short)>>>(out, 10);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(out[0] == 9 && out[1] == 1);
    outside_forms<<<2, THREADS>>>(out);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(out[0] == 28 + 1007 && out[1] == 36 + 1007);
    scopes<<<1, 1>>>(out);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(out[0] == 3 && out[1] == 1 && out[2] == 5);
    return report();
}
