// Operations on multicast addresses: a load that reduces over all members' memory, stores and
// atomics that reach every member.
//
// Order: a load combines the members in their order in the range, so that the result has one value
// whoever asks. Float and double add in their own precision; half and bfloat16 add in float with
// one rounding at the end, in the plain form as in .acc::f32; 8-bit floats add in half and saturate
// at the end; integers wrap. min and max of a number and a NaN is the number. Width: one access is
// 1 to 16 bytes, in one instruction per member where the width is a power of two; addresses must be
// aligned to it (else cudaErrorMisalignedAddress). An address that is no multicast address faults.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_MULTIMEM_H
#define VGPU_MULTIMEM_H

#include "device_runtime.h"
#include "small_float.h"

#ifdef __cplusplus
#include "device/atomics.h"
#include "float16_vectors.h"

extern "C++" {
namespace vgpu
{
namespace multimem
{

enum class operation { add, min, max, bit_and, bit_or, bit_xor };

// The range that holds [address, address + bytes): the thread's last one, or looked up.
inline const vgpu_multimem_range &find(const void *address, size_t bytes)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(address);
    if (__builtin_expect((at & (bytes - 1)) != 0, 0))
        vgpu_fault(cudaErrorMisalignedAddress,
                   "multimem access of %zu bytes at %p: must be aligned to %zu", bytes, address,
                   bytes);
    const vgpu_multimem_range &cached = vgpu_multimem_cache;
    if (__builtin_expect(at - cached.base < cached.bytes, 1))
        return cached;
    return *vgpu_multimem_find(at, bytes);
}

// Counts one operation, and keeps what it does to the members from being counted once more in
// programs compiled with `tutticc --count`.
class counted
{
    bool active;

  public:
    counted(const vgpu_multimem_range &range, size_t bytes, bool is_load) : active(vgpu_counting)
    {
        if (__builtin_expect(active, 0)) {
            vgpu_count_multimem(&range, bytes, is_load);
            vgpu_count_pause(true);
        }
    }
    ~counted()
    {
        if (__builtin_expect(active, 0))
            vgpu_count_pause(false);
    }
    counted(const counted &) = delete;
};

// ---- Kinds of elements
// --------------------------------------------------------------------------- `storage` is what PTX
// keeps in one register, `element` what is combined; accumulators are described below.

struct f32 {
    typedef float storage, element;
};
struct f64 {
    typedef double storage, element;
};
struct s32 {
    typedef int32_t storage;
    typedef int32_t element;
};
struct u32 {
    typedef uint32_t storage, element;
};
struct s64 {
    typedef int64_t storage, element;
};
struct u64 {
    typedef uint64_t storage, element;
};
struct f16 {
    typedef uint16_t storage, element;
};
struct f16x2 {
    typedef uint32_t storage;
    typedef f16 of;
};
struct bf16 {
    typedef uint16_t storage, element;
};
struct bf16x2 {
    typedef uint32_t storage;
    typedef bf16 of;
};
struct e4m3 {
    typedef uint8_t storage, element;
};
struct e4m3x2 {
    typedef uint16_t storage;
    typedef e4m3 of;
};
struct e4m3x4 {
    typedef uint32_t storage;
    typedef e4m3 of;
};
struct e5m2 {
    typedef uint8_t storage, element;
};
struct e5m2x2 {
    typedef uint16_t storage;
    typedef e5m2 of;
};
struct e5m2x4 {
    typedef uint32_t storage;
    typedef e5m2 of;
};

// A register's bytes as a vector that moves in one instruction and computes lane by lane.
template <class Element, size_t bytes> struct vector {
    typedef Element type __attribute__((vector_size(bytes)));
};

// What an access moves, as one value in one register.
template <size_t bytes> using bits = typename vector<char, bytes>::type;

// ---- How kinds accumulate
// ------------------------------------------------------------------------ reducer<Kind, bytes,
// op>::run(range, offset): combines `bytes` bytes at `offset` of all members.

template <class Vector, operation op> struct combine;
template <class Vector> struct combine<Vector, operation::add> {
    static Vector of(Vector a, Vector b)
    {
        return a + b;
    }
};
template <class Vector> struct combine<Vector, operation::min> {
    static Vector of(Vector a, Vector b)
    {
        return b < a ? b : a;
    }
};
template <class Vector> struct combine<Vector, operation::max> {
    static Vector of(Vector a, Vector b)
    {
        return a < b ? b : a;
    }
};
template <class Vector> struct combine<Vector, operation::bit_and> {
    static Vector of(Vector a, Vector b)
    {
        return a & b;
    }
};
template <class Vector> struct combine<Vector, operation::bit_or> {
    static Vector of(Vector a, Vector b)
    {
        return a | b;
    }
};
template <class Vector> struct combine<Vector, operation::bit_xor> {
    static Vector of(Vector a, Vector b)
    {
        return a ^ b;
    }
};

// Unsigned arithmetic, so that signed sums wrap.
template <class Element, operation op> struct arithmetic_element {
    typedef Element type;
};
template <> struct arithmetic_element<int32_t, operation::add> {
    typedef uint32_t type;
};
template <> struct arithmetic_element<int64_t, operation::add> {
    typedef uint64_t type;
};

template <class Kind, size_t bytes, operation op> struct reducer {
    typedef typename arithmetic_element<typename Kind::element, op>::type element;
    static inline __attribute__((always_inline)) bits<bytes> run(const vgpu_multimem_range &range,
                                                                 size_t offset)
    {
        typedef typename vector<element, bytes>::type vec;
        typedef vec __attribute__((may_alias)) aliasing_vec;
        char *const *member = range.member;
        vec result = *reinterpret_cast<const aliasing_vec *>(member[0] + offset);
        for (int i = 1, count = range.member_count; i < count; i++)
            result = combine<vec, op>::of(
                result, *reinterpret_cast<const aliasing_vec *>(member[i] + offset));
        return reinterpret_cast<bits<bytes>>(result);
    }
};

// The number where the other is a NaN; -0 below +0.
template <operation op> inline float choose(float a, float b)
{
    if (a != a)
        return b;
    if (b != b)
        return a;
    bool a_below = a < b || (a == b && __builtin_signbit(a));
    return a_below == (op == operation::min) ? a : b;
}
template <> inline float choose<operation::add>(float a, float b)
{
    return a + b;
}

template <operation op, class Floats> inline void choose_all(Floats &sum, const Floats &next)
{
    for (size_t j = 0; j < sizeof(Floats) / sizeof(float); j++)
        sum[j] = choose<op>(sum[j], next[j]);
}
// 16-bit floats: one float per element. Vectors: half_vectors or bfloat16_vectors.
template <class Vectors, size_t bytes, operation op> struct reducer16 {
    static_assert(op == operation::add || op == operation::min || op == operation::max,
                  "16-bit floats have add, min and max");
    static inline __attribute__((always_inline)) bits<bytes> run(const vgpu_multimem_range &range,
                                                                 size_t offset)
    {
        enum { n = bytes / 2 };
        typedef typename vectors_of<n>::floats floats;
        char *const *member = range.member;
        typedef typename vectors_of<n>::halves __attribute__((may_alias)) aliasing;
        floats sum, next;
        Vectors::template widen<n>(sum, *reinterpret_cast<const aliasing *>(member[0] + offset));
        for (int i = 1, count = range.member_count; i < count; i++) {
            Vectors::template widen<n>(next,
                                       *reinterpret_cast<const aliasing *>(member[i] + offset));
            if (op == operation::add)
                sum += next;
            else
                choose_all<op>(sum, next);
        }
        typename vectors_of<n>::halves result = Vectors::template narrow<n>(sum);
        return reinterpret_cast<bits<bytes>>(result);
    }
};
template <size_t bytes, operation op>
struct reducer<f16, bytes, op> : reducer16<half_vectors, bytes, op> {
};
template <size_t bytes, operation op>
struct reducer<bf16, bytes, op> : reducer16<bfloat16_vectors, bytes, op> {
};

// 8-bit floats: one half per element, rounded at each member.
struct e4m3_format {
    static float widen(uint8_t x)
    {
        return vgpu_half_to_float(vgpu_e4m3_to_half(x));
    }
    static uint8_t narrow(float x)
    {
        return vgpu_double_to_e4m3(x, 1);
    }
};
struct e5m2_format {
    static float widen(uint8_t x)
    {
        return vgpu_half_to_float(vgpu_e5m2_to_half(x));
    }
    static uint8_t narrow(float x)
    {
        return vgpu_double_to_e5m2(x, 1);
    }
};
template <class Format, size_t bytes, operation op> struct reducer8 {
    static_assert(op == operation::add || op == operation::min || op == operation::max,
                  "8-bit floats have add, min and max");
    static inline __attribute__((always_inline)) bits<bytes> run(const vgpu_multimem_range &range,
                                                                 size_t offset)
    {
        float sum[bytes];
        uint8_t raw[bytes];
        for (int i = 0; i < range.member_count; i++) {
            memcpy(raw, range.member[i] + offset, bytes);
            for (size_t j = 0; j < bytes; j++) {
                float x = Format::widen(raw[j]);
                sum[j] = i == 0 ? x : vgpu_half_to_float(vgpu_float_to_half(choose<op>(sum[j], x)));
            }
        }
        for (size_t j = 0; j < bytes; j++)
            raw[j] = Format::narrow(sum[j]);
        bits<bytes> all;
        memcpy(&all, raw, bytes);
        return all;
    }
};
template <size_t bytes, operation op>
struct reducer<e4m3, bytes, op> : reducer8<e4m3_format, bytes, op> {
};
template <size_t bytes, operation op>
struct reducer<e5m2, bytes, op> : reducer8<e5m2_format, bytes, op> {
};

// Packed kinds are their elements, more of them.
template <size_t bytes, operation op> struct reducer<f16x2, bytes, op> : reducer<f16, bytes, op> {
};
template <size_t bytes, operation op> struct reducer<bf16x2, bytes, op> : reducer<bf16, bytes, op> {
};
template <size_t bytes, operation op> struct reducer<e4m3x2, bytes, op> : reducer<e4m3, bytes, op> {
};
template <size_t bytes, operation op> struct reducer<e4m3x4, bytes, op> : reducer<e4m3, bytes, op> {
};
template <size_t bytes, operation op> struct reducer<e5m2x2, bytes, op> : reducer<e5m2, bytes, op> {
};
template <size_t bytes, operation op> struct reducer<e5m2x4, bytes, op> : reducer<e5m2, bytes, op> {
};

// ---- The operations
// --------------------------------------------------------------------------------

// Whether the thread's last range holds an access of `bytes` bytes, nothing is wrong with it and
// nobody counts: then there is nothing to do but the access.
inline __attribute__((always_inline)) bool is_plain(const void *address, size_t bytes)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(address);
    return __builtin_expect(at - vgpu_multimem_cache.base < vgpu_multimem_cache.bytes &&
                                (at & (bytes - 1)) == 0 && !vgpu_counting,
                            1);
}

// The rest, out of the way.
template <class Kind, size_t bytes, operation op>
__attribute__((noinline, cold)) bits<bytes> load_reduce_slowly(const void *address)
{
    const vgpu_multimem_range &range = find(address, bytes);
    counted once(range, bytes, true);
    return reducer<Kind, bytes, op>::run(range, reinterpret_cast<uintptr_t>(address) - range.base);
}

// out[0..registers-1] = the members' values at `address` combined. Kind: one of the above.
template <class Kind, int registers, operation op>
inline __attribute__((always_inline)) void load_reduce(typename Kind::storage (&out)[registers],
                                                       const void *address)
{
    const size_t bytes = sizeof(typename Kind::storage) * registers;
    static_assert(bytes <= 16, "a multimem access has at most 16 bytes");
    bits<bytes> all;
    if (is_plain(address, bytes))
        all = reducer<Kind, bytes, op>::run(
            vgpu_multimem_cache, reinterpret_cast<uintptr_t>(address) - vgpu_multimem_cache.base);
    else
        all = load_reduce_slowly<Kind, bytes, op>(address);
    memcpy(out, &all, bytes);
}

// `value` into every member, by one instruction each.
template <class Value>
inline __attribute__((always_inline)) void store_members(const vgpu_multimem_range &range,
                                                         const void *address, const Value &value)
{
    typedef typename vector<char, sizeof(Value)>::type vec;
    typedef vec __attribute__((may_alias)) aliasing_vec;
    size_t offset = reinterpret_cast<uintptr_t>(address) - range.base;
    vec raw;
    memcpy(&raw, &value, sizeof(raw));
    char *const *member = range.member;
    for (int i = 0, count = range.member_count; i < count; i++)
        *reinterpret_cast<aliasing_vec *>(member[i] + offset) = raw;
}
template <class Value>
__attribute__((noinline, cold)) void store_slowly(void *address, const Value &value)
{
    const vgpu_multimem_range &range = find(address, sizeof(Value));
    counted once(range, sizeof(Value), false);
    store_members(range, address, value);
}

// Writes `value` (1, 2, 4, 8 or 16 bytes) to every member.
template <class Value>
inline __attribute__((always_inline)) void store(void *address, const Value &value)
{
    static_assert(sizeof(Value) <= 16 && (sizeof(Value) & (sizeof(Value) - 1)) == 0,
                  "a multimem access has 1 to 16 bytes");
    if (is_plain(address, sizeof(Value)))
        store_members(vgpu_multimem_cache, address, value);
    else
        store_slowly(address, value);
}

// A store whose every element is an atomic store of the given order (__ATOMIC_RELAXED or
// __ATOMIC_RELEASE). Value: 1 to 8 bytes.
template <class Value> inline void store_atomic(void *address, Value value, int order)
{
    const vgpu_multimem_range &range = find(address, sizeof(Value));
    counted once(range, sizeof(Value), false);
    size_t offset = reinterpret_cast<uintptr_t>(address) - range.base;
    for (int i = 0; i < range.member_count; i++)
        __atomic_store(reinterpret_cast<Value *>(range.member[i] + offset), &value, order);
}

// One member's atomic update.
template <operation op> struct atomic_operation;
#define VGPU_MULTIMEM_ATOMIC(op, function)                                                         \
    template <> struct atomic_operation<operation::op> {                                           \
        template <class Element> static void run(Element *address, Element value, int order)       \
        {                                                                                          \
            function(address, value, order);                                                       \
        }                                                                                          \
    };
VGPU_MULTIMEM_ATOMIC(add, __atomic_fetch_add)
VGPU_MULTIMEM_ATOMIC(bit_and, __atomic_fetch_and)
VGPU_MULTIMEM_ATOMIC(bit_or, __atomic_fetch_or)
VGPU_MULTIMEM_ATOMIC(bit_xor, __atomic_fetch_xor)
#undef VGPU_MULTIMEM_ATOMIC
template <class Element>
inline void update_in_order(Element *address, Element value, int order, bool larger)
{
    Element old = __atomic_load_n(address, __ATOMIC_RELAXED);
    Element wanted;
    do
        wanted = (old < value) == larger ? value : old;
    while (!__atomic_compare_exchange_n(address, &old, wanted, false, order, __ATOMIC_RELAXED));
}
template <> struct atomic_operation<operation::min> {
    template <class Element> static void run(Element *address, Element value, int order)
    {
        update_in_order(address, value, order, false);
    }
};
template <> struct atomic_operation<operation::max> {
    template <class Element> static void run(Element *address, Element value, int order)
    {
        update_in_order(address, value, order, true);
    }
};

// Combines `value` into every member's integer at `address`, atomically per member. E: a 32- or
// 64-bit integer. order: __ATOMIC_RELAXED, or __ATOMIC_RELEASE for the members' later readers to
// see what the caller wrote before.
template <operation op, class Element> inline void reduce(void *address, Element value, int order)
{
    const vgpu_multimem_range &range = find(address, sizeof(Element));
    counted once(range, sizeof(Element), false);
    size_t offset = reinterpret_cast<uintptr_t>(address) - range.base;
    for (int i = 0; i < range.member_count; i++)
        atomic_operation<op>::run(reinterpret_cast<Element *>(range.member[i] + offset), value,
                                  order);
}

// The same for floats: adds `value` (float, double, or any type of 2, 4 or 8 bytes that `add`
// takes) element by element.
template <class Value, class Function>
inline void reduce_with(void *address, int elements, const Value *values, Function add)
{
    size_t bytes = sizeof(Value) * static_cast<size_t>(elements);
    const vgpu_multimem_range &range = find(address, bytes);
    counted once(range, bytes, false);
    size_t offset = reinterpret_cast<uintptr_t>(address) - range.base;
    for (int i = 0; i < range.member_count; i++) {
        for (int j = 0; j < elements; j++) {
            Value value = values[j];
            atomic_update(reinterpret_cast<Value *>(range.member[i] + offset) + j,
                          [&](Value old) { return add(old, value); });
        }
    }
}

} // namespace multimem
} // namespace vgpu
} // extern "C++"
#endif
#endif
