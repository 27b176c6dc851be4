// __device__, __constant__ and __managed__ variables: one per device, found by name from host and
// kernels.
// SPDX-License-Identifier: Apache-2.0
#include "check.cuh"

struct point {
    int x, y;
};

__device__ int counter = 5;
__device__ int table[4] = {1, 2, 3, 4}, *pointer, other = 6;
static __device__ float fraction;
__constant__ float coefficients[3];
__constant__ struct point origin = {7, 8};
__device__ const int whole = 9;
__device__ constexpr int fixed = 10;
__constant__ const char text[] = "text";
const __device__ int primes[] = {2, 3, 5};
__managed__ int managed = 11;
__device__ __managed__ int both = 12;
extern __device__ int declared;
__device__ int declared = 13;
namespace space
{
__device__ int nested = 14;
namespace
{
__device__ int hidden = 15;
}
} // namespace space
__device__ point points[2] = {{1, 2}, {3, 4}};
__device__ void (*function)(int *);
alignas(64) __device__ char aligned[64];

struct user {
    int counter; // not the variable
    __device__ user() : counter(100) {}
    __device__ int get() const
    {
        return counter + ::counter;
    }
};

__device__ int parameter(int counter)
{
    return counter + 1;
}
__device__ int locals()
{
    int sum = counter;
    for (int counter = 0; counter < 3; counter++)
        sum += counter;
    sum += counter;
    {
        point counter = {1000, 0};
        const auto &table = counter;
        sum += counter.x + table.y;
    }
    auto lambda = [](int counter) { return counter * 2; };
    return sum + lambda(1) + table[1];
}

__global__ void look(int *out)
{
    user u;
    point p = {20, 30};
    point *pp = &points[1];
    out[0] = counter++;
    out[1] = table[2] + other;
    pointer = table;
    out[2] = pointer[3];
    out[3] = u.get();
    out[4] = parameter(40);
    out[5] = locals();
    out[6] = static_cast<int>(coefficients[1] * 10);
    out[7] = origin.x + p.x + pp->y;
    int sized[whole + fixed];
    out[8] = sizeof(sized) / sizeof(int);
    out[9] = text[1] + primes[2] + (*&managed)++ + both + declared + space::nested + space::hidden +
             ::other;
    fraction = 0.5f;
    out[10] = reinterpret_cast<size_t>(aligned) % 64 == 0 && sizeof(table) == 16;
}
__device__ int *zero()
{
    __device__ static int zero = 0, one[2] = {1, 2};
    zero += one[1];
    auto f = [] { return &zero; };
    return f();
}
__global__ void count_calls(int *out)
{
    zero();
    *out = *zero();
}
__global__ void add(int n)
{
    atomicAdd(&counter, n);
    if (threadIdx.x == 0)
        space::nested += n;
}
template <class T> __global__ void in_template(T *out)
{
    *out = static_cast<T>(counter + table[0]);
}

static void test_one_device(int *out)
{
    const float values[3] = {1.5f, 2.5f, 3.5f};
    CHECK_CUDA(cudaMemcpyToSymbol(coefficients, values, sizeof(values)));
    look<<<1, 1>>>(out);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(out[0] == 5 && out[1] == 9 && out[2] == 4 && out[3] == 106 && out[4] == 41);
    CHECK(out[5] == 6 + 3 + 6 + 1000 + 2 + 2);
    CHECK(out[6] == 25 && out[7] == 7 + 20 + 4 && out[8] == 19);
    CHECK(out[9] == 'e' + 5 + 11 + 12 + 13 + 14 + 15 + 6);
    CHECK(out[10] == 1);
    CHECK(managed == 12);
    int value = 0;
    CHECK_CUDA(cudaMemcpyFromSymbol(&value, counter, sizeof(value)));
    CHECK(value == 6);
    float half = 0;
    CHECK_CUDA(cudaMemcpyFromSymbol(&half, fraction, sizeof(half)));
    CHECK(half == 0.5f);
    value = 77;
    CHECK_CUDA(cudaMemcpyToSymbol(table, &value, sizeof(value), 2 * sizeof(int)));
    int copy[4];
    CHECK_CUDA(cudaMemcpyFromSymbol(copy, table, sizeof(copy)));
    CHECK(copy[1] == 2 && copy[2] == 77);
    CHECK_CUDA(cudaMemcpyFromSymbol(&value, space::nested, sizeof(value)));
    CHECK(value == 14);
    void *address = nullptr;
    size_t bytes = 0;
    CHECK_CUDA(cudaGetSymbolAddress(&address, points));
    CHECK_CUDA(cudaGetSymbolSize(&bytes, points));
    CHECK(address != nullptr && bytes == 16);
    in_template<<<1, 1>>>(out);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(out[0] == 7);
}

// Each device counts for itself; the host's object is neither.
static void test_two_devices(int *out)
{
    int devices = 0;
    CHECK_CUDA(cudaGetDeviceCount(&devices));
    for (int device = 0; device < 2 && device < devices; device++) {
        CHECK_CUDA(cudaSetDevice(device));
        add<<<1, 4>>>(device + 1);
        CHECK_CUDA(cudaDeviceSynchronize());
        int value = 0;
        CHECK_CUDA(cudaMemcpyFromSymbol(&value, counter, sizeof(value)));
        CHECK(value == (device == 0 ? 6 + 4 : 5 + 8));
        count_calls<<<1, 1>>>(out);
        CHECK_CUDA(cudaDeviceSynchronize());
        CHECK(*out == 4);
    }
    CHECK_CUDA(cudaSetDevice(0));
    int value = 0;
    CHECK_CUDA(cudaMemcpyFromSymbol(&value, counter, sizeof(value)));
    CHECK(value == 10 && counter == 5);
}

int main()
{
    int *out = make<int>(16);
    test_one_device(out);
    test_two_devices(out);
    return report();
}
