// What kernels use of C++ and of the C library: printf, assert, allocation, lambdas, pointers to
// functions, managed variables; which memory a pointer names; clocks.
// SPDX-License-Identifier: Apache-2.0
#include "../programs/check.cuh"

#include <array>
#include <cassert>
#include <cstdint>
#include <limits>
#include <string>
#include <unistd.h>

#define WANT(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: thread %u: %s does not hold\n", __FILE__, __LINE__, threadIdx.x,        \
                   #condition);                                                                    \
            atomicAdd(bad, 1);                                                                     \
        }                                                                                          \
    } while (0)

// ---- printf and assert: what they write --------------------------------------------------------

// What `run` writes to a stream's descriptor.
template <class F> static std::string captured(FILE *stream, F run)
{
    fflush(stream);
    int descriptor = fileno(stream), saved = dup(descriptor);
    FILE *file = tmpfile();
    dup2(fileno(file), descriptor);
    run();
    // Not flushed here: what a kernel writes is out when it has been waited for.
    dup2(saved, descriptor);
    close(saved);
    std::string text;
    rewind(file);
    for (int c; (c = fgetc(file)) != EOF;)
        text += static_cast<char>(c);
    fclose(file);
    return text;
}

__global__ void prints(int *bad)
{
    if (threadIdx.x == 0) {
        WANT(printf("%d|%5i|%-4u|%04x|%X|%o|%c|%%\n", -3, 42, 7u, 0xabu, 0xCDu, 8u, 'x') == 7);
        WANT(std::printf("%ld %lu %lld %llu %zu %hd %hhx\n", -1L, 2UL, -3LL, 4ULL, sizeof(int),
                         static_cast<short>(-5), static_cast<unsigned char>(200)) == 7);
        WANT(::printf("%f %.2f %8.3e %g %a %*d\n", 1.5, 2.0 / 3, 1e10, 0.0001, 1.0, 4, 9) == 7);
        WANT(printf("%s and %.3s %10s|\n", "text", "cut off", "right") == 3);
        WANT(printf("plain\n") == 0);
    }
    __syncthreads();
    for (int i = 0; i < 3; i++)
        printf("thread %d line %d\n", threadIdx.x, i);
}

static void test_printing(int *bad)
{
    std::string text = captured(stdout, [=] {
        prints<<<1, 4>>>(bad);
        CHECK_CUDA(cudaDeviceSynchronize());
    });
    std::string begin = "-3|   42|7   |00ab|CD|10|x|%\n"
                        "-1 2 -3 4 4 -5 c8\n"
                        "1.500000 0.67 1.000e+10 0.0001 0x1p+0    9\n"
                        "text and cut      right|\n"
                        "plain\n";
    CHECK(text.compare(0, begin.size(), begin) == 0);
    for (int thread = 0; thread < 4; thread++) {
        size_t at = 0;
        for (int line = 0; line < 3; line++) {
            char wanted[64];
            snprintf(wanted, sizeof(wanted), "thread %d line %d\n", thread, line);
            at = text.find(wanted, at);
            CHECK(at != std::string::npos);
        }
    }
    CHECK(text.size() == begin.size() + 12 * strlen("thread 0 line 0\n"));
}

__global__ void asserts(int n)
{
    assert(n > 0 && "positive");
    assert(threadIdx.x != 5 || blockIdx.x != 1);
}
const int ASSERT_LINE = __LINE__ - 2;

static void test_assertions()
{
    CHECK_CUDA(cudaSetDevice(3));
    asserts<<<1, 8>>>(1);
    CHECK_CUDA(cudaDeviceSynchronize());
    std::string text = captured(stderr, [] {
        asserts<<<2, 8>>>(1);
        CHECK(cudaDeviceSynchronize() == cudaErrorAssert);
    });
    char place[64];
    snprintf(place, sizeof(place), "language.cu:%d", ASSERT_LINE);
    CHECK(text.find(place) != std::string::npos);
    CHECK(text.find("block (1,0,0)") != std::string::npos);
    CHECK(text.find("thread (5,0,0)") != std::string::npos);
    CHECK(text.find("threadIdx.x != 5 || blockIdx.x != 1") != std::string::npos);
    // The error stays.
    int *memory = nullptr;
    CHECK(cudaMalloc(&memory, 4) == cudaErrorAssert);
    CHECK(cudaGetLastError() == cudaErrorAssert && cudaGetLastError() == cudaErrorAssert);
    CHECK_CUDA(cudaSetDevice(0));
    CHECK_CUDA(cudaGetLastError());
}

// ---- Memory ------------------------------------------------------------------------------------

struct node {
    int value;
    node *next;
    __device__ node(int v, node *n) : value(v), next(n) {}
    __device__ ~node()
    {
        value = -1;
    }
};
__constant__ int table[4] = {1, 2, 3, 4};
__device__ static int squares[8] = {0, 1, 4, 9, 16, 25, 36, 49};
__managed__ int shared_with_host = 5;
__managed__ float samples[3];

__global__ void memory(int *bad, int *global)
{
    __shared__ int shared[4];
    extern __shared__ double dynamic[];
    int local = 1;
    WANT(__isShared(&shared[3]) && __isShared(&dynamic[1]) && !__isShared(&local));
    WANT(__isLocal(&local) && !__isLocal(global) && !__isGlobal(&local) && !__isGlobal(shared));
    WANT(__isGlobal(global) && __isGlobal(&squares[2]) && __isConstant(&table[1]));
    WANT(!__isConstant(global) && !__isGlobal(&table[0]));
    WANT(__cvta_global_to_generic(__cvta_generic_to_global(global)) == global);
    WANT(__cvta_local_to_generic(__cvta_generic_to_local(&local)) == &local);
    node *list = nullptr;
    for (int i = 0; i < 10; i++)
        list = new node(i, list);
    int sum = 0;
    while (list) {
        node *next = list->next;
        sum += list->value;
        delete list;
        list = next;
    }
    WANT(sum == 45);
    int *words = static_cast<int *>(malloc(100 * sizeof(int)));
    WANT(words != nullptr);
    memset(words, 0x11, 100 * sizeof(int));
    memcpy(words + 1, squares, sizeof(squares));
    WANT(words[0] == 0x11111111 && words[8] == 49 && words[99] == 0x11111111);
    free(words);
    WANT(table[2] == 3);
    if (threadIdx.x == 0) {
        squares[0] += shared_with_host;
        shared_with_host = 6;
        samples[2] = 2.5f;
    }
    alignas(16) char raw[sizeof(node)];
    node *placed = new (raw) node(7, nullptr);
    WANT(placed->value == 7);
    placed->~node();
    WANT(__ldg(global) == 0 && __ldcg(global) == 0 && __ldcs(global) == 0 && __ldcv(global) == 0);
    float4 four = make_float4(1, 2, 3, 4), *at = reinterpret_cast<float4 *>(global + 4);
    if (threadIdx.x == 0) {
        __stcs(at, four);
        __stwt(at + 1, __ldca(at));
        WANT(__ldlu(at + 1).w == 4.0f);
    }
}

// Dynamic shared memory under several types.
__global__ void as_int(int *out)
{
    extern __shared__ int cells[];
    cells[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = cells[blockDim.x - 1 - threadIdx.x];
}
template <class T> __global__ void as_type(T *out)
{
    extern __shared__ unsigned char raw[];
    T *cells = reinterpret_cast<T *>(raw);
    cells[threadIdx.x] = T(threadIdx.x) / 2;
    __syncthreads();
    out[threadIdx.x] = cells[blockDim.x - 1 - threadIdx.x];
}
__global__ void as_vector(float4 *out)
{
    extern __shared__ __align__(16) float4 vectors[];
    vectors[threadIdx.x] = make_float4(threadIdx.x, 0, 0, 1);
    __syncthreads();
    out[threadIdx.x] = vectors[blockDim.x - 1 - threadIdx.x];
}

// ---- Functions ---------------------------------------------------------------------------------

typedef int (*binary)(int, int);
__device__ int add(int a, int b)
{
    return a + b;
}
__device__ int multiply(int a, int b)
{
    return a * b;
}
__device__ binary operations[2] = {add, multiply};
template <int... values> struct sum_of_values;
template <> struct sum_of_values<> {
    static constexpr int value = 0;
};
template <int first, int... rest> struct sum_of_values<first, rest...> {
    static constexpr int value = first + sum_of_values<rest...>::value;
};
struct counter {
    static constexpr int STEP = 3;
    static __device__ int twice(int n)
    {
        return 2 * n;
    }
    __host__ __device__ int operator()(int n) const
    {
        return n * STEP;
    }
};
constexpr __host__ __device__ int factorial(int n)
{
    return n <= 1 ? 1 : n * factorial(n - 1);
}
template <class F> __global__ void each(F f, int *out, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        f(i, out);
}
__global__ void __launch_bounds__(128, 2, 1) functions(int *bad, const __grid_constant__ int n)
{
    WANT(operations[0](3, 4) == 7 && operations[1](3, 4) == 12);
    binary chosen = n > 0 ? multiply : add;
    WANT(chosen(5, 6) == 30 && (*chosen)(5, 6) == 30);
    WANT((sum_of_values<1, 2, 3>::value) == 6 && counter::twice(counter::STEP) == 6);
    static_assert(factorial(5) == 120, "constexpr");
    WANT(counter()(4) == 12 && factorial(n) == 24);
    WANT(std::numeric_limits<float>::max() > 3e38f && std::max(2, n) == 4);
    std::array<int, 3> numbers = {{1, 2, 3}};
    int sum = 0;
    for (int x : numbers)
        sum += x;
    WANT(sum == 6);
    auto square = [n](int x) { return x * x + n; };
    WANT(square(3) == 13);
    long long begin = clock64();
    clock_t ticks = clock();
    __nanosleep(1000);
    WANT(clock64() > begin && clock() >= ticks);
    WANT(dim3(2, 3).y == 3 && dim3(4).z == 1 && gridDim.x * blockDim.x == 32);
    uint3 place = threadIdx;
    WANT(place.x == threadIdx.x && warpSize == 32);
}

static void test_functions(int *bad)
{
    int *out = make<int>(64);
    functions<<<1, 32>>>(bad, 4);
    int factor = 3;
    each<<<1, 8>>>([=] __device__(int i, int *o) { o[i] = i * factor; }, out, 16);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(out[15] == 45);
    auto both = [factor] __host__ __device__(int i, int *o) { o[i] += factor; };
    both(0, out);
    each<<<1, 8>>>(both, out, 16);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(out[0] == 6 && out[15] == 48);
    as_int<<<1, 8, 8 * sizeof(int)>>>(out);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(out[0] == 7 && out[7] == 0);
    double *doubles = make<double>(8);
    as_type<<<1, 8, 8 * sizeof(double)>>>(doubles);
    float4 *vectors = make<float4>(8);
    as_vector<<<1, 8, 8 * sizeof(float4)>>>(vectors);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(doubles[0] == 3.5 && vectors[1].x == 6.0f && vectors[1].w == 1.0f);
}

__global__ void traps(int which)
{
    if (which == 0)
        __trap();
    __brkpt();
}

int main()
{
    int *bad = make<int>(1), *global = make<int>(64);
    test_printing(bad);
    memory<<<1, 2, 64>>>(bad, global);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(shared_with_host == 6 && samples[2] == 2.5f);
    test_functions(bad);
    CHECK(*bad == 0);
    test_assertions();
    CHECK_CUDA(cudaSetDevice(2));
    traps<<<1, 1>>>(1);
    CHECK_CUDA(cudaDeviceSynchronize());
    traps<<<1, 1>>>(0);
    CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
    CHECK_CUDA(cudaSetDevice(0));
    return report();
}
