// tuttiMultimem by window: every operator and element type, with the multicast instruction where
// there is one and in a loop over the members where there is none, against the members' values
// combined in rank order on the host; stores of every size; updates by all ranks at once.
// SPDX-License-Identifier: Apache-2.0
#include "ranks_of_devices.h"

#include <limits>
#include <vector>

enum { BYTES = 4096, USED = 256 };
enum op { SUM, PROD, MIN, MAX, AND, OR, XOR, OPS };

// ---- Elements on the host
// ---------------------------------------------------------------------------------------

template <typename E> struct rules {
    static constexpr bool whole = std::numeric_limits<E>::is_integer;
    using wide = E;
    static E make(double value)
    {
        return (E)(long long)value;
    }
    static wide widen(E e)
    {
        return e;
    }
    static wide step(wide w)
    {
        return w;
    }
    static E narrow(wide w)
    {
        return w;
    }
};
template <> inline float rules<float>::make(double value)
{
    return (float)value;
}
template <> inline double rules<double>::make(double value)
{
    return value;
}
template <typename E> struct small_rules {
    static constexpr bool whole = false;
    using wide = float;
    static float step(float w)
    {
        return w;
    }
};
template <> struct rules<__half> : small_rules<__half> {
    static __half make(double value)
    {
        return __float2half((float)value);
    }
    static float widen(__half e)
    {
        return __half2float(e);
    }
    static __half narrow(float w)
    {
        return __float2half(w);
    }
};
template <> struct rules<__nv_bfloat16> : small_rules<__nv_bfloat16> {
    static __nv_bfloat16 make(double value)
    {
        return __float2bfloat16((float)value);
    }
    static float widen(__nv_bfloat16 e)
    {
        return __bfloat162float(e);
    }
    static __nv_bfloat16 narrow(float w)
    {
        return __float2bfloat16(w);
    }
};
template <typename E> struct fp8_rules : small_rules<E> {
    static E make(double value)
    {
        return E((float)value);
    }
    static float widen(E e)
    {
        return (float)e;
    }
    static float step(float w)
    {
        return __half2float(__float2half(w));
    }
    static E narrow(float w)
    {
        return E(w);
    }
};
template <> struct rules<__nv_fp8_e4m3> : fp8_rules<__nv_fp8_e4m3> {
};
template <> struct rules<__nv_fp8_e5m2> : fp8_rules<__nv_fp8_e5m2> {
};

template <typename W> static W combine_numbers(op which, W a, W b)
{
    switch (which) {
    case SUM:
        return a + b;
    case PROD:
        return a * b;
    case MIN:
        return a != a || b < a ? b : a; // no zeros of both signs, no NaN on the right
    default:
        return a != a || a < b ? b : a;
    }
}
template <typename W> static W combine(op which, W a, W b)
{
    if constexpr (!std::numeric_limits<W>::is_integer) {
        return combine_numbers(which, a, b);
    } else {
        unsigned long long x = (unsigned long long)a;
        unsigned long long y = (unsigned long long)b;
        switch (which) {
        case SUM:
            return (W)(x + y);
        case PROD:
            return (W)(x * y);
        case AND:
            return (W)(x & y);
        case OR:
            return (W)(x | y);
        case XOR:
            return (W)(x ^ y);
        default:
            return combine_numbers(which, a, b);
        }
    }
}

// ---- Kernels
// ----------------------------------------------------------------------------------------------------

template <typename Op, typename V>
__device__ void load(ncclWindow_t window, ncclDevComm const &comm, V *out, int i)
{
    out[i] = tuttiMultimemLoadReduce<Op, V>(window, i * sizeof(V), comm);
}
template <typename Op, typename V>
__device__ void red(ncclWindow_t window, ncclDevComm const &comm, V const *in, int i)
{
    tuttiMultimemRed<Op>(window, i * sizeof(V), comm, in[i]);
}
#define FOR_OPERATOR(call)                                                                         \
    for (int i = threadIdx.x; i < count; i += blockDim.x) {                                        \
        switch (which) {                                                                           \
        case SUM:                                                                                  \
            call(tuttiSum);                                                                        \
            break;                                                                                 \
        case PROD:                                                                                 \
            call(tuttiProd);                                                                       \
            break;                                                                                 \
        case MIN:                                                                                  \
            call(tuttiMin);                                                                        \
            break;                                                                                 \
        case MAX:                                                                                  \
            call(tuttiMax);                                                                        \
            break;                                                                                 \
        default:                                                                                   \
            if constexpr (whole) {                                                                 \
                if (which == AND) {                                                                \
                    call(tuttiAnd);                                                                \
                } else if (which == OR) {                                                          \
                    call(tuttiOr);                                                                 \
                } else {                                                                           \
                    call(tuttiXor);                                                                \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }
template <typename V, bool whole>
__global__ void load_all(op which, ncclWindow_t window, ncclDevComm comm, V *out, int count)
{
#define CALL(Op) (load<Op, V>(window, comm, out, i))
    FOR_OPERATOR(CALL)
#undef CALL
}
template <typename V, bool whole>
__global__ void red_all(op which, ncclWindow_t window, ncclDevComm comm, V const *in, int count)
{
#define CALL(Op) (red<Op, V>(window, comm, in, i))
    FOR_OPERATOR(CALL)
#undef CALL
}
template <typename V>
__global__ void store_all(ncclWindow_t window, ncclDevComm comm, V const *in, int count)
{
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        tuttiMultimemStore(window, i * sizeof(V), comm, in[i]);
    }
}

// ---- One type
// ---------------------------------------------------------------------------------------------------

struct setting {
    test_window window;
    ncclDevComm comm[2]; // without multicast, with it
    int comms;
    char *buffer; // USED bytes of device memory
};

static void copy(device_rank &me, void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    EXPECT_CUDA(cudaMemcpyAsync(to, from, bytes, kind, me.stream));
    EXPECT_CUDA(cudaStreamSynchronize(me.stream));
}

// Values whose sums and products of few are exact in every type but the widest half-way cases:
// order of updates then does not matter. For loads any value serves.
static double value_of(int rank, int i, bool exact)
{
    int n = (rank * 31 + i * 7) % 23 - 9;
    return exact ? (n % 3 == 0 ? 1 : n % 3 < 0 ? -1 : 2) : n * 1.37 + 0.2;
}

template <typename E> static std::vector<E> values(int rank, bool exact)
{
    std::vector<E> all(USED / sizeof(E));
    for (size_t i = 0; i < all.size(); i++) {
        all[i] = rules<E>::make(value_of(rank, (int)i, exact));
    }
    return all;
}

// What a load gives: one rounding at the end.
template <typename E> static std::vector<E> loaded(int ranks, op which)
{
    using r = rules<E>;
    std::vector<E> result = values<E>(0, false);
    for (size_t i = 0; i < result.size(); i++) {
        typename r::wide total = r::widen(result[i]);
        for (int rank = 1; rank < ranks; rank++) {
            E next = rules<E>::make(value_of(rank, (int)i, false));
            total = r::step(combine(which, total, r::widen(next)));
        }
        result[i] = r::narrow(total);
    }
    return result;
}

// What all ranks' updates leave of `start`: a rounding at each.
template <typename E>
static std::vector<E> updated(int ranks, op which, std::vector<E> const &start)
{
    using r = rules<E>;
    std::vector<E> result = start;
    for (int rank = 0; rank < ranks; rank++) {
        std::vector<E> next = values<E>(rank, true);
        for (size_t i = 0; i < result.size(); i++) {
            result[i] = r::narrow(r::step(combine(which, r::widen(result[i]), r::widen(next[i]))));
        }
    }
    return result;
}

template <typename V, typename E> static void loads(device_rank &me, setting &s)
{
    constexpr bool whole = rules<E>::whole;
    std::vector<E> mine = values<E>(me.rank, false);
    std::vector<E> got(mine.size());
    copy(me, s.window.memory, mine.data(), USED, cudaMemcpyHostToDevice);
    meet(me);
    for (int which = 0; which < (whole ? OPS : AND); which++) {
        std::vector<E> right = loaded<E>(me.size, (op)which);
        for (int c = 0; c < s.comms; c++) {
            load_all<V, whole><<<1, 32, 0, me.stream>>>((op)which, s.window.handle, s.comm[c],
                                                        (V *)s.buffer, USED / (int)sizeof(V));
            EXPECT_CUDA(cudaGetLastError());
            copy(me, got.data(), s.buffer, USED, cudaMemcpyDeviceToHost);
            if (!EXPECT_EQ(memcmp(got.data(), right.data(), USED), 0)) {
                fprintf(stderr, "  element of %zu bytes, operator %d, multicast %d\n", sizeof(E),
                        which, c);
            }
        }
    }
    meet(me);
}

// All ranks update all members at once.
template <typename V, typename E> static void reds(device_rank &me, setting &s)
{
    constexpr bool whole = rules<E>::whole;
    std::vector<E> start = values<E>(99, true);
    std::vector<E> mine = values<E>(me.rank, true);
    std::vector<E> got(mine.size());
    copy(me, s.buffer, mine.data(), USED, cudaMemcpyHostToDevice);
    for (int which = 0; which < (whole ? OPS : AND); which++) {
        std::vector<E> right = updated<E>(me.size, (op)which, start);
        for (int c = 0; c < s.comms; c++) {
            copy(me, s.window.memory, start.data(), USED, cudaMemcpyHostToDevice);
            meet(me);
            red_all<V, whole><<<1, 32, 0, me.stream>>>((op)which, s.window.handle, s.comm[c],
                                                       (V const *)s.buffer, USED / (int)sizeof(V));
            EXPECT_CUDA(cudaStreamSynchronize(me.stream));
            meet(me);
            copy(me, got.data(), s.window.memory, USED, cudaMemcpyDeviceToHost);
            if (!EXPECT_EQ(memcmp(got.data(), right.data(), USED), 0)) {
                fprintf(stderr, "  element of %zu bytes, red %d, multicast %d\n", sizeof(E), which,
                        c);
            }
            meet(me);
        }
    }
}

// Every rank in turn stores its values to all.
template <typename V> static void stores(device_rank &me, setting &s)
{
    std::vector<uint8_t> got(USED), right(USED);
    for (int c = 0; c < s.comms; c++) {
        for (int root = 0; root < me.size; root++) {
            for (int i = 0; i < USED; i++) {
                right[i] = (uint8_t)(root * 77 + c * 5 + i * 3);
            }
            meet(me);
            if (me.rank == root) {
                copy(me, s.buffer, right.data(), USED, cudaMemcpyHostToDevice);
                store_all<V><<<1, 32, 0, me.stream>>>(s.window.handle, s.comm[c],
                                                      (V const *)s.buffer, USED / (int)sizeof(V));
                EXPECT_CUDA(cudaStreamSynchronize(me.stream));
            }
            meet(me);
            copy(me, got.data(), s.window.memory, USED, cudaMemcpyDeviceToHost);
            EXPECT_EQ(memcmp(got.data(), right.data(), USED), 0);
        }
    }
    meet(me);
}

template <typename V, typename E> static void type(device_rank &me, setting &s)
{
    loads<V, E>(me, s);
    reds<V, E>(me, s);
}

static void all_types(device_rank &me)
{
    setting s = {};
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    if (!open_window(me, BYTES, &s.window) || !EXPECT_CUDA(cudaMalloc((void **)&s.buffer, USED)) ||
        !EXPECT_OK(ncclDevCommCreate(me.comm, &needs, &s.comm[s.comms++]))) {
        return;
    }
    needs.lsaMultimem = true;
    if (me.properties.multimemSupport &&
        !EXPECT_OK(ncclDevCommCreate(me.comm, &needs, &s.comm[s.comms++]))) {
        return;
    }
    type<int8_t, int8_t>(me, s);
    type<tuttiVector<int32_t, 2>, int32_t>(me, s);
    type<float4, float>(me, s);
    type<__half2, __half>(me, s);
#ifndef FEW_TYPES
    type<tuttiVector<uint8_t, 16>, uint8_t>(me, s);
    type<int16_t, int16_t>(me, s);
    type<uint32_t, uint32_t>(me, s);
    type<int64_t, int64_t>(me, s);
    type<tuttiVector<uint64_t, 2>, uint64_t>(me, s);
    type<float, float>(me, s);
    type<double, double>(me, s);
    type<__half, __half>(me, s);
    type<tuttiVector<__nv_bfloat16, 8>, __nv_bfloat16>(me, s);
    type<tuttiVector<__nv_fp8_e4m3, 4>, __nv_fp8_e4m3>(me, s);
    type<__nv_fp8_e5m2, __nv_fp8_e5m2>(me, s);
#endif
    stores<uint8_t>(me, s);
    stores<__half>(me, s);
    stores<tuttiVector<int8_t, 2>>(me, s);
    stores<float>(me, s);
    stores<uint64_t>(me, s);
    stores<float4>(me, s);
    for (int c = 0; c < s.comms; c++) {
        EXPECT_OK(ncclDevCommDestroy(me.comm, &s.comm[c]));
    }
    EXPECT_CUDA(cudaFree(s.buffer));
    close_window(me, &s.window);
}

static void run_all_types(void)
{
    run_thread_ranks(4, as_rank<all_types>, 60);
}
static void run_all_types_as_processes(void)
{
    run_ranks(3, as_rank<all_types>, 60);
}
static void run_all_types_alone(void)
{
    run_thread_ranks(1, as_rank<all_types>, 60);
}

int main(void)
{
    RUN(run_all_types);
    RUN(run_all_types_as_processes);
    RUN(run_all_types_alone);
    return expect_result();
}
