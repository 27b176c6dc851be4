// How reduce_copy.h's functions move data. A call's elements form a head and a tail, taken one by
// one, and between them packs of 16 bytes (or 4, or single elements, where the arrays' addresses
// differ by less), which the threads of the group take in turn; a thread loads several packs before
// it adds them. On virtual devices each thread takes one run of neighbouring elements instead, in
// loops that the compiler vectorises; multimem accesses stay packs.
// Whichever thread adds an element, it adds the sources in ascending order.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_REDUCE_COPY__IMPL_H_
#define NCCL_DEVICE_REDUCE_COPY__IMPL_H_

#include "../tutti_multimem.h"
#include "reduce_copy__types.h"

#if NCCL_CHECK_CUDACC
// A test of virtual devices defines TUTTI_REDUCE_COPY_AS_ON_GPU to run what real ones run.
#if NCCL_DEVICE_CHECKED && !defined(TUTTI_REDUCE_COPY_AS_ON_GPU)
#define TUTTI_REDUCE_COPY_IN_RUNS 1
#else
#define TUTTI_REDUCE_COPY_IN_RUNS 0
#endif
// Virtual devices call them: what names the same kinds of arrays then shares them.
#if NCCL_DEVICE_CHECKED
#define TUTTI_REDUCE_COPY_FUNCTION __device__ inline
#else
#define TUTTI_REDUCE_COPY_FUNCTION NCCL_DEVICE_INLINE
#endif

namespace nccl
{
namespace utility
{

// ---- Accesses ----------------------------------------------------------------------------------

// One access of `bytes` bytes to memory that is aligned to as many.
template <int bytes> struct AccessWord;
template <> struct AccessWord<2> {
    using Type = uint16_t;
};
template <> struct AccessWord<4> {
    using Type = uint32_t;
};
template <> struct AccessWord<8> {
    using Type = uint2;
};
template <> struct AccessWord<16> {
    using Type = uint4;
};

// What the hardware's multimem instructions can do, told when a program is compiled.
template <typename Value> NCCL_DEVICE_INLINE void checkMultimemSource()
{
    constexpr bool isShortInteger = sizeof(Value) < 4 && std::is_integral<Value>::value;
    static_assert(
        !isShortInteger,
        "a multimem source has no 8- and 16-bit integers: the hardware does not add them. "
        "Use the function with an LSA source (ncclLsaReduceSum...), or "
        "tuttiMultimemLoadReduce<tuttiSum, T>(window, offset, comm)");
    static_assert(TUTTI_MULTIMEM_FP8 || !isFp8<Value>(),
                  "a multimem source with fp8 needs an architecture-specific target from sm_100a "
                  "on. Use the function with an LSA source (ncclLsaReduceSum...), or "
                  "tuttiMultimemLoadReduce<tuttiSum, T>(window, offset, comm)");
    static_assert(isShortInteger || canMultimemSum<Value>(),
                  "a multimem source has float, double, __half, __nv_bfloat16, fp8, or 32- or "
                  "64-bit integers. Use the function with an LSA source (ncclLsaReduce...)");
}
// The same for sources and destinations.
template <typename Value> NCCL_DEVICE_INLINE void checkMultimem()
{
#ifdef __CUDA_ARCH__
    static_assert(__CUDA_ARCH__ >= 900 || always_false<Value>::value,
                  "a multimem source or destination needs compute capability 9.0 (sm_90). Below, "
                  "use the function with LSA sources and destinations (ncclLsaReduceSum..., "
                  "ncclLsaCopy)");
#endif
}

template <bool isMultimem> struct Access {
    template <typename Value, int n>
    static NCCL_DEVICE_INLINE void load(Value (&value)[n], Value const *from)
    {
        if NCCL_IF_CONSTEXPR (n == 1) {
            value[0] = *from;
        } else {
            using Word = typename AccessWord<n *(int)sizeof(Value)>::Type;
            Word word = *reinterpret_cast<Word const *>(from);
            memcpy(value, &word, sizeof word);
        }
    }
    template <typename Value, int n>
    static NCCL_DEVICE_INLINE void store(Value *to, Value const (&value)[n])
    {
        if NCCL_IF_CONSTEXPR (n == 1) {
            *to = value[0];
        } else {
            using Word = typename AccessWord<n *(int)sizeof(Value)>::Type;
            Word word;
            memcpy(&word, value, sizeof word);
            *reinterpret_cast<Word *>(to) = word;
        }
    }
};

// An element that is smaller than the 4 bytes of the smallest multimem access. On real devices the
// word around it is loaded, and stored to by two atomic operations that leave its other bits alone.
#if NCCL_DEVICE_CHECKED
template <typename Value> struct SmallMultimem;
template <> struct SmallMultimem<__half> {
    using Kind = vgpu::multimem::f16;
};
template <> struct SmallMultimem<__nv_bfloat16> {
    using Kind = vgpu::multimem::bf16;
};
template <> struct SmallMultimem<__nv_fp8_e4m3> {
    using Kind = vgpu::multimem::e4m3;
};
template <> struct SmallMultimem<__nv_fp8_e5m2> {
    using Kind = vgpu::multimem::e5m2;
};
template <typename Value> NCCL_DEVICE_INLINE Value loadSmallMultimem(Value const *from)
{
    using Kind = typename SmallMultimem<Value>::Kind;
    typename Kind::storage bits[1];
    vgpu::multimem::load_reduce<Kind, 1, vgpu::multimem::operation::add>(bits, from);
    Value value;
    memcpy(&value, bits, sizeof value);
    return value;
}
template <typename Value> NCCL_DEVICE_INLINE void storeSmallMultimem(Value *to, Value value)
{
    vgpu::multimem::store(to, value);
}
#else
template <typename Value> NCCL_DEVICE_INLINE Value loadSmallMultimem(Value const *from)
{
    constexpr int perWord = 4 / (int)sizeof(Value);
    uintptr_t address = (uintptr_t)from;
    tuttiVector<Value, perWord> word = tuttiMultimemLoadSum(
        reinterpret_cast<tuttiVector<Value, perWord> const *>(address & ~3ull));
    uint32_t bits;
    memcpy(&bits, &word, 4);
    bits >>= (address & 3) * 8;
    Value value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <typename Value> NCCL_DEVICE_INLINE void storeSmallMultimem(Value *to, Value value)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    uintptr_t address = (uintptr_t)to;
    unsigned int shift = (unsigned int)(address & 3) * 8;
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    uint32_t mask = ((1u << (8 * sizeof(Value) % 32)) - 1) << shift;
    asm volatile("multimem.red.relaxed.sys.global.and.b32 [%0], %1;"
                 :
                 : "l"(address & ~3ull), "r"(~mask)
                 : "memory");
    asm volatile("multimem.red.relaxed.sys.global.or.b32 [%0], %1;"
                 :
                 : "l"(address & ~3ull), "r"(bits << shift)
                 : "memory");
#else
    (void)to;
    (void)value;
#endif
}
#endif

template <> struct Access<true> {
    template <typename Value, int n>
    static NCCL_DEVICE_INLINE void load(Value (&value)[n], Value const *from)
    {
        if NCCL_IF_CONSTEXPR (n * sizeof(Value) < 4) {
            value[0] = loadSmallMultimem(from);
        } else {
            tuttiVector<Value, n> sum =
                tuttiMultimemLoadSum(reinterpret_cast<tuttiVector<Value, n> const *>(from));
            memcpy(value, &sum, sizeof value);
        }
    }
    template <typename Value, int n>
    static NCCL_DEVICE_INLINE void store(Value *to, Value const (&value)[n])
    {
        if NCCL_IF_CONSTEXPR (n * sizeof(Value) < 4) {
            storeSmallMultimem(to, value[0]);
        } else {
            using Word = typename AccessWord<n *(int)sizeof(Value)>::Type;
            Word word;
            memcpy(&word, value, sizeof word);
            tuttiMultimemStore(reinterpret_cast<Word *>(to), word);
        }
    }
};

// ---- One call ----------------------------------------------------------------------------------

template <typename Value, bool srcMultimem, bool dstMultimem, typename Coop, typename Source,
          typename Target, typename Red>
struct ReduceCopyCall {
    using Element = Value;
    using Operator = Red;
    using Load = Access<srcMultimem>;
    using Store = Access<dstMultimem>;
    static constexpr bool hasOneSource = Source::isOne;
    // Words of 4 bytes at the ends of what is moved in larger packs.
    static constexpr bool hasWordEdges = sizeof(Value) < 4 && (srcMultimem || dstMultimem);

    Coop coop;
    Source source;
    Target target;
    Red const &red;
};

// Type of partial results. A single source is copied bit by bit.
template <typename Call, bool isSingle> struct PartialResult {
    using Type = typename Accumulation<typename Call::Operator, typename Call::Element>::Type;
};
template <typename Call> struct PartialResult<Call, true> {
    using Type = typename Call::Element;
};

// sum = value, or sum + value by the call's operator.
template <bool isSingle, typename Call, typename Value, typename Sum, int n>
NCCL_DEVICE_INLINE void addPack(Call const &call, Sum (&sum)[n], Value const (&value)[n],
                                bool isFirst)
{
    if (isSingle || isFirst) {
        ArrayConversion<Sum, Value>::run(sum, value);
    } else if NCCL_IF_CONSTEXPR (!isSingle) {
        Sum wide[n];
        ArrayConversion<Sum, Value>::run(wide, value);
        ArrayAccumulation<typename Call::Operator, Value>::run(call.red, sum, wide);
    }
}

// Reduces and stores `packs` packs of n elements, the first at element `first`, each `distance`
// elements from the one before. `batch` sources are loaded before they are added.
template <bool isSingle, int n, int packs, int batch, typename Call>
NCCL_DEVICE_INLINE void reducePacks(Call const &call, size_t first, size_t distance)
{
    using Value = typename Call::Element;
    using Sum = typename PartialResult<Call, isSingle>::Type;
    const int sources = isSingle ? 1 : call.source.count();
    Sum sum[packs][n] = {};
    int s = 0;
    do { // there is at least one source
        Value value[batch][packs][n];
#pragma unroll
        for (int b = 0; b < batch; b++) {
            if (b == 0 || s + b < sources) {
                Value const *from = call.source(s + b) + first;
#pragma unroll
                for (int p = 0; p < packs; p++) {
                    Call::Load::load(value[b][p], from + p * distance);
                }
            }
        }
#pragma unroll
        for (int b = 0; b < batch; b++) {
            if (b == 0 || s + b < sources) {
#pragma unroll
                for (int p = 0; p < packs; p++) {
                    addPack<isSingle>(call, sum[p], value[b][p], b == 0 && s == 0);
                }
            }
        }
        s += batch;
    } while (s < sources);
    Value result[packs][n];
#pragma unroll
    for (int p = 0; p < packs; p++) {
        ArrayConversion<Value, Sum>::run(result[p], sum[p]);
    }
    for (int d = 0; d < call.target.count(); d++) {
        Value *to = call.target(d) + first;
#pragma unroll
        for (int p = 0; p < packs; p++) {
            Call::Store::store(to + p * distance, result[p]);
        }
    }
}

// Packs of n elements in [begin, end), of which there is a whole number: taken in turn by the
// threads of the group, `packs` at a time.
template <bool isSingle, int n, int packs, int batch, typename Call>
TUTTI_REDUCE_COPY_FUNCTION void reduceShare(Call const &call, size_t begin, size_t end)
{
    size_t pack = (size_t)call.coop.thread_rank();
    size_t step = (size_t)call.coop.size();
    size_t last = (end - begin) / n;
#if TUTTI_REDUCE_COPY_IN_RUNS
    size_t share = roundUp(divUp(last, step), (size_t)64);
    pack *= share;
    last = pack + share < last ? pack + share : last;
    step = 1;
#endif
    if NCCL_IF_CONSTEXPR (packs > 1) {
        for (; pack + (packs - 1) * step < last; pack += packs * step) {
            reducePacks<isSingle, n, packs, batch>(call, begin + pack * n, step * n);
        }
    }
#pragma unroll 1
    for (; pack < last; pack += step) {
        reducePacks<isSingle, n, 1, 1>(call, begin + pack * n, 0);
    }
}

// One pack after the other.
template <int n, typename Call>
NCCL_DEVICE_INLINE void reduceFew(Call const &call, size_t begin, size_t end)
{
    if NCCL_IF_CONSTEXPR (Call::hasOneSource) {
        reduceShare<true, n, 1, 1>(call, begin, end);
    } else if (call.source.count() == 1) {
        reduceShare<true, n, 1, 1>(call, begin, end);
    } else {
        reduceShare<false, n, 1, 1>(call, begin, end);
    }
}

// The bulk: `packs` packs in flight per thread, of one source or, where there are many, of several.
template <int n, int packs, typename Call>
NCCL_DEVICE_INLINE void reduceBulk(Call const &call, size_t begin, size_t end)
{
#if TUTTI_REDUCE_COPY_IN_RUNS
    reduceFew<n>(call, begin, end);
#else
    if NCCL_IF_CONSTEXPR (Call::hasOneSource) {
        reduceShare<true, n, packs, 1>(call, begin, end);
    } else if (call.source.count() == 1) {
        reduceShare<true, n, packs, 1>(call, begin, end);
    } else if (call.source.count() < 4) {
        reduceShare<false, n, packs, 1>(call, begin, end);
    } else {
        reduceShare<false, n, (packs + 3) / 4, 4>(call, begin, end);
    }
#endif
}

// Elements from an address to the next one that is aligned to `bytes`, at most `count`.
template <typename Value>
NCCL_DEVICE_INLINE size_t elementsUpTo(uintptr_t address, int bytes, size_t count)
{
    size_t elements = (size_t)(-address & (uintptr_t)(bytes - 1)) / sizeof(Value);
    return elements < count ? elements : count;
}

// A head or tail: elements [begin, end) one by one; with words between them where `hasWords`.
template <bool hasWords, typename Call>
NCCL_DEVICE_INLINE void reduceEdge(Call const &call, uintptr_t base, size_t begin, size_t end)
{
    using Value = typename Call::Element;
    if NCCL_IF_CONSTEXPR (hasWords) {
        constexpr int perWord = 4 / (int)sizeof(Value);
        size_t word = begin + elementsUpTo<Value>(base + begin * sizeof(Value), 4, end - begin);
        size_t after = word + roundDown(end - word, (size_t)perWord);
        reduceFew<1>(call, begin, word);
        reduceFew<perWord>(call, word, after);
        begin = after;
    }
    reduceFew<1>(call, begin, end);
}

// Packs of `bytes` bytes with what lies before and after them. base: an address that all arrays
// equal modulo `bytes`.
template <int bytes, int unroll, typename Call>
NCCL_DEVICE_INLINE void reduceAligned(Call const &call, uintptr_t base, size_t count)
{
    using Value = typename Call::Element;
    constexpr int n = bytes / (int)sizeof(Value);
    constexpr int packs = unroll / n < 1 ? 1 : unroll / n > 16 ? 16 : unroll / n;
    size_t begin = elementsUpTo<Value>(base, bytes, count);
    size_t end = begin + roundDown(count - begin, (size_t)n);
    constexpr bool hasWords = bytes > 4 && Call::hasWordEdges;
    reduceBulk<n, packs>(call, begin, end);
    if NCCL_IF_CONSTEXPR (n > 1) {
#pragma unroll 1
        for (int side = 0; side < 2; side++) {
            reduceEdge<hasWords>(call, base, side == 0 ? 0 : end, side == 0 ? begin : count);
        }
    }
}

template <int unroll, typename Call>
NCCL_DEVICE_INLINE void reduceInPacks(Call const &call, size_t count)
{
    using Value = typename Call::Element;
    uintptr_t base = (uintptr_t)call.source(0);
    uintptr_t differences = call.source.differences(base) | call.target.differences(base);
    if (differences % 16 == 0) {
        reduceAligned<16, unroll>(call, base, count);
    } else if (sizeof(Value) < 4 && differences % 4 == 0) {
        reduceAligned<sizeof(Value) < 4 ? 4 : (int)sizeof(Value), unroll>(call, base, count);
    } else {
        reduceAligned<(int)sizeof(Value), unroll>(call, base, count);
    }
}

// ---- Runs, on virtual devices ------------------------------------------------------------------

#if TUTTI_REDUCE_COPY_IN_RUNS
// The compiler need not ask whether arrays overlap those of a run's partial results.
#define TUTTI_REDUCE_COPY_VECTORISED _Pragma("GCC ivdep")

// What copies an element, as classes do not in loops that the compiler vectorises.
template <int bytes> struct RawElement {
    using Type = typename AccessWord<bytes>::Type;
};
template <> struct RawElement<1> {
    using Type = uint8_t;
};
template <> struct RawElement<8> {
    using Type = uint64_t;
};
template <typename Value>
NCCL_DEVICE_INLINE void copyElements(Value *to, Value const *from, int count)
{
    using Raw = typename RawElement<(int)sizeof(Value)>::Type;
    Raw *rawTo = reinterpret_cast<Raw *>(to);
    Raw const *rawFrom = reinterpret_cast<Raw const *>(from);
    TUTTI_REDUCE_COPY_VECTORISED
    for (int i = 0; i < count; i++) {
        rawTo[i] = rawFrom[i];
    }
}

// result = elements [first, first + count), at most `most`, of all sources reduced.
template <bool isSingle, int most, typename Call, typename Value>
NCCL_DEVICE_INLINE void reduceRun(Call const &call, Value (&result)[most], size_t first, int count)
{
    if NCCL_IF_CONSTEXPR (isSingle) {
        copyElements(result, call.source(0) + first, count);
    } else {
        using Steps = Accumulation<typename Call::Operator, Value>;
        using Sum = typename Steps::Type;
        Sum sum[most];
        Value const *from = call.source(0) + first;
        TUTTI_REDUCE_COPY_VECTORISED
        for (int i = 0; i < count; i++) {
            sum[i] = Conversion<Sum, Value>::of(from[i]);
        }
        for (int s = 1; s < call.source.count(); s++) {
            from = call.source(s) + first;
            TUTTI_REDUCE_COPY_VECTORISED
            for (int i = 0; i < count; i++) {
                sum[i] = Steps::step(call.red, sum[i], Conversion<Sum, Value>::of(from[i]));
            }
        }
        TUTTI_REDUCE_COPY_VECTORISED
        for (int i = 0; i < count; i++) {
            result[i] = Conversion<Value, Sum>::of(sum[i]);
        }
    }
}

// Reduces and stores elements [first, first + count).
template <bool isSingle, int most, typename Call>
NCCL_DEVICE_INLINE void moveRun(Call const &call, size_t first, int count)
{
    typename Call::Element result[most];
    reduceRun<isSingle>(call, result, first, count);
    for (int d = 0; d < call.target.count(); d++) {
        copyElements(call.target(d) + first, result, count);
    }
}

template <bool isSingle, typename Call>
NCCL_DEVICE_INLINE void reduceRuns(Call const &call, size_t count)
{
    constexpr int most = 1024 / (int)sizeof(typename Call::Element);
    size_t share = roundUp(divUp(count, (size_t)call.coop.size()), (size_t)most);
    size_t first = share * (size_t)call.coop.thread_rank();
    size_t end = first + share < count ? first + share : count;
    for (; first + most <= end; first += most) {
        moveRun<isSingle, most>(call, first, most);
    }
    if (first < end) {
        moveRun<isSingle, most>(call, first, (int)(end - first));
    }
}
#endif

// ---- Entry -------------------------------------------------------------------------------------

#if NCCL_DEVICE_CHECKED
template <typename Call, typename IntCount>
__device__ inline void checkReduceCopy(Call const &call, IntCount count)
{
    using Value = typename Call::Element;
    if (count < 0) {
        vgpu_fault(cudaErrorInvalidValue,
                   "reduction or copy of %lld elements: the count must be 0 or more",
                   (long long)count);
    }
    if (call.source.count() < 1 || call.target.count() < 0) {
        vgpu_fault(cudaErrorInvalidValue,
                   "reduction or copy from %d sources to %d destinations: there must be a source, "
                   "and not less than 0 destinations",
                   call.source.count(), call.target.count());
    }
    if (count == 0) {
        return;
    }
    uintptr_t base = (uintptr_t)call.source(0);
    uintptr_t bits = call.source.differences(base) | call.target.differences(base) | base;
    if (bits % sizeof(Value) != 0) {
        vgpu_fault(cudaErrorMisalignedAddress,
                   "reduction or copy: elements of %zu bytes, but not all addresses (the first "
                   "source's is %p) are multiples of that",
                   sizeof(Value), (void *)base);
    }
}
#endif

template <typename Value, bool srcMultimem, bool dstMultimem, int unroll, typename Coop,
          typename Source, typename Target, typename Red, typename IntCount>
TUTTI_REDUCE_COPY_FUNCTION void reduceCopy(Coop coop, Source source, Target target, Red const &red,
                                           IntCount count)
{
    static_assert(std::is_integral<IntCount>::value, "the count is an integer");
    static_assert(sizeof(Value) <= 16 && (sizeof(Value) & (sizeof(Value) - 1)) == 0,
                  "elements have 1, 2, 4, 8 or 16 bytes");
    static_assert(unroll > 0, "UNROLL is the number of elements in flight, at least 1");
    using Call = ReduceCopyCall<Value, srcMultimem, dstMultimem, Coop, Source, Target, Red>;
    Call call = {coop, source, target, red};
    if NCCL_IF_CONSTEXPR (srcMultimem) {
        checkMultimemSource<Value>();
    }
    if NCCL_IF_CONSTEXPR (srcMultimem || dstMultimem) {
        checkMultimem<Value>();
    }
#if NCCL_DEVICE_CHECKED
    if (coop.thread_rank() == 0) {
        checkReduceCopy(call, count);
    }
#endif
    if (!(count > 0) || source.count() < 1 || target.count() < 1) {
        return;
    }
#if TUTTI_REDUCE_COPY_IN_RUNS
    if NCCL_IF_CONSTEXPR (srcMultimem || dstMultimem) {
        reduceInPacks<unroll>(call, (size_t)count);
    } else if NCCL_IF_CONSTEXPR (Call::hasOneSource) {
        reduceRuns<true>(call, (size_t)count);
    } else if (source.count() == 1) {
        reduceRuns<true>(call, (size_t)count);
    } else {
        reduceRuns<false>(call, (size_t)count);
    }
#else
    reduceInPacks<unroll>(call, (size_t)count);
#endif
}

#undef TUTTI_REDUCE_COPY_VECTORISED
#undef TUTTI_REDUCE_COPY_FUNCTION
} // namespace utility
} // namespace nccl
#endif

#endif
