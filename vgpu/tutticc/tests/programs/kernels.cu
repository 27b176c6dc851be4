// Every form in which kernels are declared, defined, named and launched.
// SPDX-License-Identifier: Apache-2.0
#include "check.cuh"

#include <type_traits>
#include <utility>

// ---- Forms of definition -----------------------------------------------------------------------

__global__ void plain(int *out)
{
    out[threadIdx.x] = threadIdx.x + 1;
}
static __global__ void is_static(int *out)
{
    *out = 2;
}
void __global__ word_later(int *out)
{
    *out = 3;
}
extern "C" __global__ void c_name(int *out)
{
    *out = 4;
}
__global__ static void __launch_bounds__(64) bounds_later(int *out)
{
    *out = 5;
}
__global__ void __launch_bounds__(2 * 16, 4) bounds(int *out)
{
    if (threadIdx.x == 0)
        *out = 6;
}
__launch_bounds__(32) __global__ void bounds_first(int *out)
{
    *out = 7;
}
inline __global__ void is_inline(int *out)
{
    *out = 8;
}
__global__ __attribute__((unused)) void attribute(int *out)
{
    *out = 9;
}
__global__ auto trailing(int *out) -> void
{
    *out = 10;
}
__global__ void many_lines(int *out)
{
    *out = 11;
}
namespace outer
{
namespace inner
{
__global__ void nested(int *out)
{
    *out = 12;
}
template <class T> __global__ void nested_template(T *out)
{
    *out = 13;
}
} // namespace inner
} // namespace outer
namespace
{
__global__ void hidden(int *out)
{
    *out = 14;
}
} // namespace
struct holder {
    static __global__ void member(int *out)
    {
        *out = 15;
    }
    template <int n> static __global__ void member_template(int *out)
    {
        *out = n;
    }
};

// ---- Parameters --------------------------------------------------------------------------------

struct pair {
    int a;
    double b;
};
struct alignas(64) wide {
    char c[64];
};
__global__ void unnamed(int, int *out, float, pair, const char *, void (*)(int), int (*)[3])
{
    *out = 20;
}
__global__ void values(const int a, const pair p, struct wide w, int *const out, unsigned char,
                       long long l)
{
    *out = a + p.a + static_cast<int>(p.b) + w.c[63] + static_cast<int>(l);
}
__global__ void arrays(int out[], const int table[4], int (*rows)[2], int (&reference)[2])
{
    out[0] = table[3] + rows[1][1] + reference[1];
}
__global__ void defaults(int *out, int a = 1, pair p = {2, 3.0}, int b = sizeof(int) > 2 ? 4 : 5)
{
    *out = a + p.a + b;
}
__global__ void restricted(int *__restrict__ out, const int *__restrict__ in,
                           const float *__restrict__ = nullptr)
{
    *out = *in;
}
__global__ void nothing() {}
__global__ void nothing_either(void) {}
__global__ void grid_constant(const __grid_constant__ pair p, int *out)
{
    *out = p.a;
}
typedef unsigned long word_type;
__global__ void typedefs(word_type, std::pair<int, float> p,
                         typename std::enable_if<true, int>::type n, int *out)
{
    *out = p.first + n;
}
enum color { red, green };
__global__ void elaborated(enum color c, struct pair p, unsigned, int *out)
{
    *out = c + p.a;
}

// ---- Templates ---------------------------------------------------------------------------------

template <typename T> __global__ void by_type(T *out, T value)
{
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *out = value;
}
template <typename T, int n = 7> __global__ void by_value(T *out)
{
    *out = n;
}
template <int n, typename...> __global__ void unnamed_parameters(int *out)
{
    *out = n;
}
template <typename T, typename = typename std::enable_if<std::is_integral<T>::value>::type>
__global__ void restricted_to(T *out)
{
    *out = 1;
}
template <typename T, typename std::enable_if<std::is_floating_point<T>::value, int>::type = 0>
__global__ void restricted_to(T *out)
{
    *out = 2;
}
template <class... Ts> __device__ int sum_of(Ts... values)
{
    int sum = 0;
    int unused[] = {0, (sum += static_cast<int>(values), 0)...};
    (void)unused;
    return sum;
}
template <typename... Ts> __global__ void pack(int *out, Ts... values)
{
    *out = sum_of(values...);
}
template <int... ns> __global__ void value_pack(int *out)
{
    *out = sum_of(ns...);
}
template <template <class, class...> class C, class T>
__global__ void template_template(C<T, T> in, T *out)
{
    *out = in.second;
}
template <class F> __global__ void run(F f, int *out)
{
    *out = f(*out);
}
template <typename T>
__global__ typename std::enable_if<sizeof(T) == 4>::type dependent_result(T *out)
{
    *out = 30;
}
template <int n> __global__ void __launch_bounds__(n) dependent_bounds(int *out)
{
    if (threadIdx.x == 0)
        *out = n;
}
// Specialisations and overloads.
template <typename T> __global__ void special(T *out)
{
    *out = 1;
}
template <> __global__ void special<double>(double *out)
{
    *out = 2;
}
__global__ void overloaded(int *out)
{
    *out = 1;
}
__global__ void overloaded(float *out)
{
    *out = 2;
}
template <class T> __global__ void overloaded(T **out)
{
    **out = 3;
}
template <class T> __global__ void overloaded(T *out, int)
{
    *out = 4;
}
// Declared before, defined after use.
__global__ void later(int *out, int n = 40);
template <class T> __global__ void later_template(T *out);

#define DEFINE_KERNEL(name, value)                                                                 \
    __global__ void name(int *out)                                                                 \
    {                                                                                              \
        *out = value;                                                                              \
    }
DEFINE_KERNEL(from_macro, 41)
#define LAUNCH(kernel, ...) kernel<<<1, 1>>>(__VA_ARGS__)

// A class template's kernel, launched from inside.
template <class T> struct launcher {
    static __global__ void body(T *out, T value)
    {
        *out = value;
    }
    void go(T *out, T value) const
    {
        body<<<1, 1>>>(out, value);
        launcher::template call<3><<<1, 1>>>(out + 1);
    }
    template <int n> static __global__ void call(T *out)
    {
        *out = n;
    }
};
template <class T> void launch_dependent(T *out)
{
    by_type<T><<<1, 1>>>(out, T(50));
    by_value<T, 51><<<dim3(1), dim3(1, 1)>>>(out + 1);
    outer::inner::nested_template<T><<<1, 1, 0, 0>>>(out + 2);
}

static int expect(int *out, int value, int line)
{
    cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess || *out != value) {
        printf("line %d: %d, not %d (%s)\n", line, *out, value, cudaGetErrorString(error));
        failures++;
    }
    *out = -1;
    return 0;
}
#define EXPECT(value) expect(out, value, __LINE__)

static void test_forms(int *out)
{
    plain<<<1, 3>>>(out);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(out[2] == 3);
    is_static<<<1, 1>>>(out), EXPECT(2);
    word_later<<<1, 1>>>(out), EXPECT(3);
    c_name<<<1, 1>>>(out), EXPECT(4);
    bounds_later<<<1, 1>>>(out), EXPECT(5);
    bounds<<<1, 32>>>(out), EXPECT(6);
    bounds_first<<<1, 1>>>(out), EXPECT(7);
    is_inline<<<1, 1>>>(out), EXPECT(8);
    attribute<<<1, 1>>>(out), EXPECT(9);
    trailing<<<1, 1>>>(out), EXPECT(10);
    many_lines<<<1, 1>>>(out);
    EXPECT(11);
    outer::inner::nested<<<1, 1>>>(out), EXPECT(12);
    ::outer::inner::nested_template<<<1, 1>>>(out), EXPECT(13);
    hidden<<<1, 1>>>(out), EXPECT(14);
    holder::member<<<1, 1>>>(out), EXPECT(15);
    holder::member_template<16><<<1, 1>>>(out), EXPECT(16);
    from_macro<<<1, 1>>>(out), EXPECT(41);
    LAUNCH(from_macro, out), EXPECT(41);
    LAUNCH((by_value<int, 42>), out), EXPECT(42);
    // Too many threads for the bounds: an error, and no launch.
    bounds<<<1, 33>>>(out);
    CHECK(cudaGetLastError() != cudaSuccess);
}

static void test_parameters(int *out)
{
    pair p = {3, 4.5};
    wide w = {};
    w.c[63] = 5;
    unnamed<<<1, 1>>>(1, out, 2.f, p, "", nullptr, nullptr), EXPECT(20);
    values<<<1, 1>>>(1, p, w, out, 'x', 6), EXPECT(19);
    int *table = make<int>(4), (*rows)[2] = reinterpret_cast<int(*)[2]>(table);
    table[3] = 7, table[1] = 8;
    defaults<<<1, 1>>>(out), EXPECT(7);
    defaults<<<1, 1>>>(out, 10, pair{20, 0}), EXPECT(34);
    restricted<<<1, 1>>>(out, table + 3), EXPECT(7);
    nothing<<<1, 1>>>();
    nothing_either<<<1, 1>>>();
    grid_constant<<<1, 1>>>(p, out), EXPECT(3);
    typedefs<<<1, 1>>>(1ul, std::make_pair(2, 3.f), 4, out), EXPECT(6);
    elaborated<<<1, 1>>>(green, p, 1u, out), EXPECT(4);
    (void)rows;
}

static void test_templates(int *out)
{
    by_type<<<1, 1>>>(out, 21), EXPECT(21);
    by_type<int><<<1, 1>>>(out, 22), EXPECT(22);
    by_value<int><<<1, 1>>>(out), EXPECT(7);
    by_value<int, (3 > 2 ? 23 : 0)><<<1, 1>>>(out), EXPECT(23);
    unnamed_parameters<24, int, std::pair<int, std::pair<int, int>>><<<1, 1>>>(out), EXPECT(24);
    restricted_to<<<1, 1>>>(out), EXPECT(1);
    pack<<<1, 1>>>(out), EXPECT(0);
    pack<<<1, 1>>>(out, 1, 2.5f, 'a', static_cast<short>(4)), EXPECT(104);
    value_pack<1, 2, 3><<<1, 1>>>(out), EXPECT(6);
    template_template<<<1, 1>>>(std::make_pair(1, 25), out), EXPECT(25);
    int base = 26;
    run<<<1, 1>>>([=] __device__(int) { return base; }, out), EXPECT(26);
    *out = 1;
    run<<<1, 1>>>([] __host__ __device__(int n) { return n + 26; }, out), EXPECT(27);
    dependent_result<<<1, 1>>>(out), EXPECT(30);
    dependent_bounds<32><<<1, 32>>>(out), EXPECT(32);
    special<<<1, 1>>>(out), EXPECT(1);
    overloaded<<<1, 1>>>(out), EXPECT(1);
    overloaded<<<1, 1>>>(out, 0), EXPECT(4);
    int **pointer = make<int *>(1);
    *pointer = out;
    overloaded<<<1, 1>>>(pointer), EXPECT(3);
    double *d = make<double>(1);
    special<<<1, 1>>>(d);
    restricted_to<<<1, 1>>>(d + 0);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(*d == 2.0);
    later<<<1, 1>>>(out), EXPECT(40);
    later_template<<<1, 1>>>(out), EXPECT(43);
    launcher<int>().go(out + 1, 44);
    launch_dependent(out + 3);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(out[1] == 44 && out[2] == 3 && out[3] == 50 && out[4] == 51 && out[5] == 13);
}

// ---- Other ways to launch ----------------------------------------------------------------------

typedef void (*kernel_pointer)(int *);

static void test_pointers(int *out)
{
    kernel_pointer table[] = {is_static, outer::inner::nested, by_value<int, 60>, holder::member};
    table[0]<<<1, 1>>>(out), EXPECT(2);
    (*table[1])<<<1, 1>>>(out), EXPECT(12);
    (table[2])<<<1, 1>>>(out), EXPECT(60);
    struct {
        kernel_pointer kernel[2];
    } object = {{table[3], table[0]}}, *reference = &object;
    object.kernel[0]<<<1, 1>>>(out), EXPECT(15);
    reference->kernel[1]<<<1, 1>>>(out), EXPECT(2);
    auto choose = [&](int i) { return table[i]; };
    choose(2)<<<1, 1>>>(out), EXPECT(60);
    // Kernels that are only named, never launched by <<<>>>.
    int value = 61;
    void *arguments[] = {&out, &value};
    CHECK_CUDA(cudaLaunchKernel((void *)&later, dim3(1), dim3(1), arguments, 0, 0));
    EXPECT(61);
    auto only_named = unnamed_parameters<62>;
    CHECK_CUDA(cudaLaunchKernel(reinterpret_cast<const void *>(only_named), dim3(1), dim3(1),
                                arguments, 0, 0));
    EXPECT(62);
    cudaFuncAttributes attributes;
    CHECK_CUDA(cudaFuncGetAttributes(&attributes, (const void *)bounds));
    CHECK(attributes.maxThreadsPerBlock == 32);
}

static void test_expressions(int *out)
{
    int n = 0;
    if (n == 0)
        is_static<<<1, 1>>>(out);
    else
        c_name<<<1, 1>>>(out);
    EXPECT(2);
    n ? is_static<<<1, 1>>>(out) : c_name<<<1, 1>>>(out);
    EXPECT(4);
    for (int i = 0; i < 3; i++)
        by_type<<<i + 1, (i < 2 ? 1 : 2)>>>(out, i);
    EXPECT(2);
    unsigned u = 1;
    size_t s = 2;
    plain<<<u, s>>>(out), cudaDeviceSynchronize();
    CHECK(out[1] == 2);
    dim3 grid{1, 1, 1};
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    plain<<<grid, {3, 1, 1}, s * sizeof(int), stream>>>(out);
    auto launch = [=] { c_name<<<grid, 1, 0, stream>>>(out); };
    launch(), EXPECT(4);
    CHECK_CUDA(cudaStreamDestroy(stream));
    // A shift and a comparison that only look like a launch.
    int x = 1 << 2, y = x << 3 >> 1;
    CHECK(y == 16 && (x < 5 && y > 3));
}

__global__ void later(int *out, int n)
{
    *out = n;
}
template <class T> __global__ void later_template(T *out)
{
    *out = 43;
}

int main()
{
    int *out = make<int>(16);
    test_forms(out);
    test_parameters(out);
    test_templates(out);
    test_pointers(out);
    test_expressions(out);
    return report();
}
