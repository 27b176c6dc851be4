// Loops that wait for other threads of the block, of other blocks and of the host.
// SPDX-License-Identifier: Apache-2.0
#include "check.cuh"

__global__ void between_blocks(volatile int *go, volatile int *out)
{
    if (threadIdx.x == 0 && blockIdx.x + 1 < gridDim.x) {
        while (go[blockIdx.x] == 0)
            ;
        out[blockIdx.x] = go[blockIdx.x] + 1;
    }
    if (threadIdx.x == 0 && blockIdx.x > 0)
        go[blockIdx.x - 1] = blockIdx.x;
}

__global__ void between_threads(int *out)
{
    __shared__ int ready, seen[6];
    if (threadIdx.x == 0)
        ready = 0;
    for (int i = 0; i < 6; i++)
        if (threadIdx.x == 0)
            seen[i] = 0;
    __syncthreads();
    // The first thread waits for the second, in each form of loop.
    volatile int *v = seen;
    if (threadIdx.x == 0) {
        while (*(volatile int *)&ready == 0) {
        }
        v[0] = 1;
        do {
        } while (v[1] == 0);
        v[2] = 1;
        for (; v[3] == 0;)
            ;
        int now;
        do {
            now = *(volatile int *)&seen[4];
        } while (now == 0);
        do
            now++;
        while (now < 5);
        if (blockIdx.x == 0)
            *out = now;
    } else {
        *(volatile int *)&ready = 1;
        while (v[0] == 0) {
            (void)*(volatile int *)&seen[5];
        }
        v[1] = 1;
        while (v[2] == 0)
            ;
        v[3] = 1;
        v[4] = 2;
    }
}

__global__ void lambdas(int *out)
{
    __shared__ int value, list[4];
    extern __shared__ int dynamic[];
    auto set = [=](int i) {
        value = 10;
        list[i] = 20;
        dynamic[i] = 30;
        auto inner = [=] { list[0]++; };
        inner();
    };
    auto without = [](int *p) {
        __shared__ int own;
        own = 40;
        *p = own;
    };
    list[0] = 0;
    set(1);
    int n;
    without(&n);
    auto hidden = [](int value) { return value; };
    *out = value + list[1] + dynamic[1] + n + list[0] + hidden(100);
}

// One after the other, as many as fit.
template <class T> __global__ void counted(T *out)
{
    for (int i = 0; i < 3; i++)
        *out += i;
    int n = 3;
    while (n-- > 0)
        ++*out;
    do
        ++*out;
    while (n-- > 0);
}
template __global__ void counted<int>(int *);

int main()
{
    int *m = make<int>(64);
    between_blocks<<<8, 32>>>(m, m + 16);
    CHECK_CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < 7; i++)
        CHECK(m[16 + i] == i + 2);
    between_threads<<<2, 2>>>(m);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(m[0] == 5);
    lambdas<<<1, 1, 16>>>(m);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(m[0] == 10 + 20 + 30 + 40 + 1 + 100);
    m[0] = 0;
    counted<<<1, 1>>>(m);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(m[0] == 3 + 3 + 1);
    return report();
}
