// Tests of reduce_copy.h: every function on every type, many counts, misaligned places, every kind
// of thread group; each rank's whole destination window is compared bit for bit with what the host
// computes, so that a byte beside the right ones shows too.
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_DEVICE_REDUCE_COPY_CUH
#define TESTS_DEVICE_REDUCE_COPY_CUH

#include "ranks_of_devices.h"
#include "reduce_copy_calls.cuh"

#include <vector>

// ---- Elements on the host -----------------------------------------------------------------------

static inline unsigned hash_of(unsigned a, unsigned b)
{
    unsigned x = a * 2654435761u ^ (b + 0x9e3779b9u) * 2246822519u;
    x ^= x >> 15;
    x *= 3266489917u;
    return x ^ x >> 13;
}

// make: an element; add: one step of a sum in `sum`; sum and round: into it and back.
template <typename T> struct host_rules {
    using sum = unsigned long long;
    static T make(unsigned hash)
    {
        return (T)((unsigned long long)hash * 0x9e3779b97f4a7c15u);
    }
    static sum widen(T value)
    {
        return (sum)value;
    }
    static sum add(sum a, sum b)
    {
        return a + b;
    }
    static T round(sum total)
    {
        return (T)total;
    }
};
static inline double value_of(unsigned hash)
{
    return ((double)(hash % 4001) - 2000) * 0.0037;
}
template <typename F> struct host_float_rules {
    using sum = F;
    static F make(unsigned hash)
    {
        return (F)value_of(hash);
    }
    static F widen(F value)
    {
        return value;
    }
    static F add(F a, F b)
    {
        return a + b;
    }
    static F round(F total)
    {
        return total;
    }
};
template <> struct host_rules<float> : host_float_rules<float> {
};
template <> struct host_rules<double> : host_float_rules<double> {
};
template <typename T> struct host_short_rules {
    using sum = float;
    static T make(unsigned hash)
    {
        return T((float)value_of(hash));
    }
    static float widen(T value)
    {
        return (float)value;
    }
    static float add(float a, float b)
    {
        return a + b;
    }
    static T round(float total)
    {
        return T(total);
    }
};
template <> struct host_rules<__half> : host_short_rules<__half> {
};
template <> struct host_rules<__nv_bfloat16> : host_short_rules<__nv_bfloat16> {
};
// Sums of halves are exact in float, so that one rounding to half is the half's own addition.
template <typename T> struct host_fp8_rules : host_short_rules<T> {
    static float add(float a, float b)
    {
        return __half2float(__float2half_rn(a + b));
    }
};
template <> struct host_rules<__nv_fp8_e4m3> : host_fp8_rules<__nv_fp8_e4m3> {
};
template <> struct host_rules<__nv_fp8_e5m2> : host_fp8_rules<__nv_fp8_e5m2> {
};

// ---- Cases --------------------------------------------------------------------------------------

enum { FROM_ARRAYS = 3, TO_ARRAYS = 2, BLOCK = 64 };

// One call of one rank: `count` elements, `from_shift` and `to_shift` elements behind places that
// are aligned to 64 bytes; place and length of the case's slice in both windows, per rank.
struct call_case {
    size_t count, from_shift, to_shift;
    size_t place, slice; // elements
    size_t displacement; // of local arrays
};

struct case_list {
    std::vector<call_case> cases;
    size_t elements; // of a window

    case_list(size_t element_bytes, int ranks)
    {
        static const size_t counts[] = {0, 1, 2, 3, 15, 16, 17, 61, 1023};
        static const size_t shifts[][2] = {{0, 0}, {1, 1}, {1, 2}, {3, 7}, {2, 6}};
        elements = 0;
        for (const size_t(&shift)[2] : shifts) {
            for (size_t count : counts) {
                if (count < 1000 || shift[0] == shift[1]) {
                    add(count, shift[0], shift[1], element_bytes, ranks);
                }
            }
        }
        add(2600, 5, 5, element_bytes, ranks);
    }
    void add(size_t count, size_t from, size_t to, size_t element_bytes, int ranks)
    {
        size_t line = 64 / element_bytes;
        call_case one = {count, from, to, elements, 0, 0};
        // Distances of local arrays that keep the alignment, and in every third case ones that do
        // not.
        one.displacement = (count + line) / line * line + (cases.size() % 3 == 2 ? 1 : 0);
        size_t used = one.displacement * (FROM_ARRAYS - 1) + count + 16;
        one.slice = (used + line - 1) / line * line;
        elements += one.slice * (size_t)ranks;
        cases.push_back(one);
    }
};

// ---- Kernels ------------------------------------------------------------------------------------

enum group_kind { CTA, WARP, TILE, THREAD, LANES, SPAN, GROUP_KINDS };

constexpr unsigned LANE_MASK = 0x5a00ff07u;

__device__ static inline ncclCoopAny group_of(int kind)
{
    switch (kind) {
    case CTA:
        return ncclCoopCta();
    case WARP:
        return ncclCoopWarp();
    case TILE:
        return ncclCoopTile<8>();
    case THREAD:
        return ncclCoopThread();
    case LANES:
        return ncclCoopLanes(LANE_MASK);
    default:
        return ncclCoopWarpSpan(0, BLOCK / 32, 3);
    }
}
// Threads of which one group may consist, others aside.
__device__ static inline unsigned group_width(int kind)
{
    return kind == TILE ? 8 : kind == THREAD ? 1 : kind == WARP || kind == LANES ? 32 : BLOCK;
}

__device__ static inline call_places places_of(const call_case &one, ncclWindow_t from,
                                               ncclWindow_t to, int rank, size_t element_bytes)
{
    size_t begin = one.place + one.slice * (size_t)rank;
    return call_places{from,
                       to,
                       (begin + one.from_shift) * element_bytes,
                       (begin + one.to_shift) * element_bytes,
                       one.displacement,
                       one.displacement,
                       FROM_ARRAYS,
                       TO_ARRAYS};
}

// Each rank reduces and copies its own slices of the windows. `comm` is the one of the LSA team
// that all ranks form.
template <int number, typename T>
__global__ void call_all(ncclWindow_t from, ncclWindow_t to, ncclDevComm comm,
                         const call_case *cases, unsigned count, int kind)
{
    if (kind == LANES && (LANE_MASK >> threadIdx.x % 32 & 1) == 0) {
        return;
    }
    ncclCoopAny group = group_of(kind);
    unsigned width = group_width(kind);
    for (unsigned c = threadIdx.x / width; c < count; c += BLOCK / width) {
        call_places at = places_of(cases[c], from, to, comm.lsaRank, sizeof(T));
        call_function<number, T>(group, at, comm, cases[c].count);
    }
}

// ---- What is right ------------------------------------------------------------------------------

template <typename T> static T element_of(int rank, size_t i)
{
    return host_rules<T>::make(hash_of((unsigned)rank + 1, (unsigned)i));
}
static inline unsigned char untouched(size_t byte)
{
    return (unsigned char)(byte * 7 + 0x33);
}

// Results of every case for each rank that calls it: results[kind] at the case's place and slice.
template <typename T> struct expected_results {
    std::vector<T> sum, custom, own, local;

    expected_results(const case_list &list, int ranks)
        : sum(list.elements), custom(list.elements), own(list.elements), local(list.elements)
    {
        for (const call_case &one : list.cases) {
            for (int caller = 0; caller < ranks; caller++) {
                compute(one, caller, ranks);
            }
        }
    }
    void compute(const call_case &one, int caller, int ranks)
    {
        using rules = host_rules<T>;
        size_t begin = one.place + one.slice * (size_t)caller;
        for (size_t i = 0; i < one.count; i++) {
            size_t at = begin + one.from_shift + i;
            typename rules::sum total = rules::widen(element_of<T>(0, at));
            T other = element_of<T>(0, at);
            for (int r = 1; r < ranks; r++) {
                total = rules::add(total, rules::widen(element_of<T>(r, at)));
                other = halve_and_add<T>()(other, element_of<T>(r, at));
            }
            sum[begin + i] = rules::round(total);
            custom[begin + i] = other;
            own[begin + i] = element_of<T>(caller, at);
            total = rules::widen(element_of<T>(caller, at));
            for (int k = 1; k < FROM_ARRAYS; k++) {
                size_t next = at + (size_t)k * one.displacement;
                total = rules::add(total, rules::widen(element_of<T>(caller, next)));
            }
            local[begin + i] = rules::round(total);
        }
    }
    const std::vector<T> &of(const call_kind &kind, int ranks) const
    {
        if (kind.from != MEMBERS) {
            return kind.from == OWN ? own : local;
        }
        // One source is copied, whatever the operator.
        return kind.custom && ranks > 1 ? custom : sum;
    }
};

// What rank `rank`'s window holds after all ranks called.
template <typename T>
static void expected_image(const case_list &list, const call_kind &kind,
                           const std::vector<T> &result, int rank, int ranks,
                           std::vector<unsigned char> &image)
{
    for (size_t i = 0; i < image.size(); i++) {
        image[i] = untouched(i);
    }
    for (const call_case &one : list.cases) {
        for (int caller = 0; caller < ranks; caller++) {
            if (kind.to != MEMBERS && caller != rank) {
                continue;
            }
            size_t begin = one.place + one.slice * (size_t)caller;
            for (int k = 0; k < (kind.to == LOCAL ? TO_ARRAYS : 1); k++) {
                size_t to = begin + one.to_shift + (size_t)k * one.displacement;
                if (one.count > 0) {
                    memcpy(&image[to * sizeof(T)], &result[begin], one.count * sizeof(T));
                }
            }
        }
    }
}

// ---- Running it ---------------------------------------------------------------------------------

template <typename T> struct reduce_copy_test {
    device_rank &me;
    const case_list list;
    const expected_results<T> expected;
    test_window from, to;
    ncclDevComm comm;
    call_case *cases;
    std::vector<unsigned char> fresh, image, got;

    reduce_copy_test(device_rank &me)
        : me(me), list(sizeof(T), me.size), expected(list, me.size), from(), to(), comm(),
          cases(nullptr), fresh(list.elements * sizeof(T)), image(fresh.size()), got(fresh.size())
    {
    }
    bool open()
    {
        size_t case_bytes = list.cases.size() * sizeof(call_case);
        if (!open_window(me, fresh.size(), &from) || !open_window(me, fresh.size(), &to) ||
            !open_device_comm(me, 1, &comm) ||
            !EXPECT_CUDA(cudaMalloc((void **)&cases, case_bytes))) {
            return false;
        }
        std::vector<T> source(list.elements);
        for (size_t i = 0; i < source.size(); i++) {
            source[i] = element_of<T>(me.rank, i);
        }
        for (size_t i = 0; i < fresh.size(); i++) {
            fresh[i] = untouched(i);
        }
        return copy(cases, list.cases.data(), case_bytes, cudaMemcpyHostToDevice) &&
               copy(from.memory, source.data(), fresh.size(), cudaMemcpyHostToDevice);
    }
    void close()
    {
        meet(me);
        EXPECT_CUDA(cudaFree(cases));
        EXPECT_OK(ncclDevCommDestroy(me.comm, &comm));
        close_window(me, &to);
        close_window(me, &from);
    }
    bool copy(void *destination, const void *source, size_t bytes, cudaMemcpyKind kind)
    {
        return EXPECT_CUDA(cudaMemcpyAsync(destination, source, bytes, kind, me.stream)) &&
               EXPECT_CUDA(cudaStreamSynchronize(me.stream));
    }
    template <int number> void run(int kind)
    {
        copy(to.memory, fresh.data(), fresh.size(), cudaMemcpyHostToDevice);
        meet(me);
        call_all<number, T><<<1, BLOCK, 0, me.stream>>>(from.handle, to.handle, comm, cases,
                                                        (unsigned)list.cases.size(), kind);
        EXPECT_CUDA(cudaStreamSynchronize(me.stream));
        meet(me);
        copy(got.data(), to.memory, got.size(), cudaMemcpyDeviceToHost);
        if (memcmp(got.data(), image.data(), got.size()) != 0) {
            report(number, kind);
        }
    }
    // Names the first wrong byte.
    void report(int number, int kind)
    {
        size_t i = 0;
        while (got[i] == image[i]) {
            i++;
        }
        size_t element = i / sizeof(T);
        const call_case *one = &list.cases[0];
        for (const call_case &next : list.cases) {
            one = next.place <= element ? &next : one;
        }
        size_t begin = one->place + (element - one->place) / one->slice * one->slice;
        printf("function %d, group %d, %zu-byte elements, count %zu, shifts %zu and %zu: byte %zu "
               "of element %zd is %02x, right is %02x\n",
               number, kind, sizeof(T), one->count, one->from_shift, one->to_shift, i % sizeof(T),
               (ssize_t)(element - begin - one->to_shift), got[i], image[i]);
        EXPECT(!"the destination window is right");
    }
    // On real GPUs multimem may be missing, never on the virtual ones of these tests.
    bool has_what(const call_kind &kind) const
    {
        bool wanted = kind.multimem_from || kind.multimem_to;
        EXPECT(me.properties.multimemSupport || !is_virtual);
        return me.properties.multimemSupport || !wanted;
    }
    // Function `number` and those after it, with each of `kinds` kinds of groups.
    template <int number> void run_from(int kinds)
    {
        if constexpr (number < CALLS) {
            if constexpr (can_call<T>(number)) {
                const call_kind &kind = call_kinds[number];
                expected_image(list, kind, expected.of(kind, me.size), me.rank, me.size, image);
                for (int i = 0; i < kinds && has_what(kind); i++) {
                    run<number>((number + i) % GROUP_KINDS);
                }
            }
            run_from<number + 1>(kinds);
        }
    }
};

// Every function on type T. kinds: how many kinds of groups each function runs with.
template <typename T> static void all_functions(device_rank &me, int kinds)
{
    reduce_copy_test<T> test(me);
    if (test.open()) {
        test.template run_from<0>(kinds);
        test.close();
    }
}

#endif
