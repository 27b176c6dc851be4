// The element kernels' source, compiled once per instruction set: the including file defines
// TT_VECTOR_BYTES, VARIANT and VARIANT_NAME. Sums stay in registers: four vectors at a time, over
// all inputs, so that the loads of one input do not wait for those of another.
// SPDX-License-Identifier: Apache-2.0

#include "reduce/reduce.h"
#include "reduce/vectors.h"

#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)

// Accumulators: a vector, its elements, and the results of comparisons.
#define VECTOR_OF(type) __attribute__((vector_size(TT_VECTOR_BYTES))) type
typedef VECTOR_OF(double) vector_double;
typedef VECTOR_OF(int64_t) vector_int64;
typedef VECTOR_OF(uint64_t) vector_uint64;
typedef VECTOR_OF(uint32_t) vector_uint32;
typedef VECTOR_OF(int8_t) vector_int8;
typedef VECTOR_OF(uint8_t) vector_uint8;
typedef vector_int vector_int32;

#define SELECT(vec, masks, mask, yes, no) (vec)(((mask) & (masks)(yes)) | (~(mask) & (masks)(no)))

// combine(a, b) of floats: the number where the other is none, -0 below +0.
#define DEFINE_FLOAT(vec, masks, scalar)                                                           \
    INLINE vec vec##_combine(vec a, vec b, enum tt_reduce_operator op)                             \
    {                                                                                              \
        switch (op) {                                                                              \
        case TT_REDUCE_PROD:                                                                       \
            return a * b;                                                                          \
        case TT_REDUCE_MIN: {                                                                      \
            masks first = (masks)(a < b) | ((masks)(a == b) & ((masks)a < 0)) | (masks)(b != b);   \
            return SELECT(vec, masks, first, a, b);                                                \
        }                                                                                          \
        case TT_REDUCE_MAX: {                                                                      \
            masks first = (masks)(a > b) | ((masks)(a == b) & ((masks)a >= 0)) | (masks)(b != b);  \
            return SELECT(vec, masks, first, a, b);                                                \
        }                                                                                          \
        default:                                                                                   \
            return a + b;                                                                          \
        }                                                                                          \
    }                                                                                              \
    INLINE vec vec##_scale(vec value, const union tt_scalar *factor)                               \
    {                                                                                              \
        return value * factor->scalar;                                                             \
    }
DEFINE_FLOAT(vector_float, vector_int, float32)
DEFINE_FLOAT(vector_double, vector_int64, float64)

INLINE vector_float vector_float_divide(vector_float value, uint64_t divisor)
{
    return value / (float)divisor;
}

INLINE vector_double vector_double_divide(vector_double value, uint64_t divisor)
{
    return value / (double)divisor;
}

// Integers wrap: sums and products are those of unsigned ones.
#define DEFINE_INTEGER(vec, wrapping, masks, element, wide)                                        \
    INLINE vec vec##_combine(vec a, vec b, enum tt_reduce_operator op)                             \
    {                                                                                              \
        switch (op) {                                                                              \
        case TT_REDUCE_PROD:                                                                       \
            return (vec)((wrapping)a * (wrapping)b);                                               \
        case TT_REDUCE_MIN:                                                                        \
            return SELECT(vec, masks, (masks)(a < b), a, b);                                       \
        case TT_REDUCE_MAX:                                                                        \
            return SELECT(vec, masks, (masks)(a > b), a, b);                                       \
        default:                                                                                   \
            return (vec)((wrapping)a + (wrapping)b);                                               \
        }                                                                                          \
    }                                                                                              \
    INLINE vec vec##_scale(vec value, const union tt_scalar *factor)                               \
    {                                                                                              \
        wrapping factors = (wrapping)((vec){0} + (element)factor->integer);                        \
        return (vec)((wrapping)value * factors);                                                   \
    }                                                                                              \
    INLINE vec vec##_divide(vec value, uint64_t divisor)                                           \
    {                                                                                              \
        for (size_t i = 0; i < sizeof(vec) / sizeof(element); i++) {                               \
            value[i] = (element)((wide)value[i] / (wide)divisor);                                  \
        }                                                                                          \
        return value;                                                                              \
    }
DEFINE_INTEGER(vector_int8, vector_uint8, vector_int8, int8_t, int64_t)
DEFINE_INTEGER(vector_uint8, vector_uint8, vector_int8, uint8_t, uint64_t)
DEFINE_INTEGER(vector_int32, vector_uint32, vector_int32, int32_t, int64_t)
DEFINE_INTEGER(vector_uint32, vector_uint32, vector_int32, uint32_t, uint64_t)
DEFINE_INTEGER(vector_int64, vector_uint64, vector_int64, int64_t, int64_t)
DEFINE_INTEGER(vector_uint64, vector_uint64, vector_int64, uint64_t, uint64_t)

// What one load brings, as accumulators.
#define SAME(value) (value)
#define DEFINE_ACCESS(type, vec, memory, widen_to, narrow_to)                                      \
    INLINE vec type##_load(const char *from)                                                       \
    {                                                                                              \
        memory value;                                                                              \
        memcpy(&value, from, sizeof value);                                                        \
        return widen_to(value);                                                                    \
    }                                                                                              \
    INLINE void type##_store(char *to, vec sum)                                                    \
    {                                                                                              \
        memory value = narrow_to(sum);                                                             \
        memcpy(to, &value, sizeof value);                                                          \
    }
DEFINE_ACCESS(int8, vector_int8, vector_int8, SAME, SAME)
DEFINE_ACCESS(uint8, vector_uint8, vector_uint8, SAME, SAME)
DEFINE_ACCESS(int32, vector_int32, vector_int32, SAME, SAME)
DEFINE_ACCESS(uint32, vector_uint32, vector_uint32, SAME, SAME)
DEFINE_ACCESS(int64, vector_int64, vector_int64, SAME, SAME)
DEFINE_ACCESS(uint64, vector_uint64, vector_uint64, SAME, SAME)
DEFINE_ACCESS(float16, vector_float, vector_short, half_widen, half_narrow)
DEFINE_ACCESS(float32, vector_float, vector_float, SAME, SAME)
DEFINE_ACCESS(float64, vector_double, vector_double, SAME, SAME)
DEFINE_ACCESS(bfloat16, vector_float, vector_short, bfloat16_widen, bfloat16_narrow)
DEFINE_ACCESS(e4m3, vector_float, vector_byte, e4m3_widen, e4m3_narrow)
DEFINE_ACCESS(e5m2, vector_float, vector_byte, e5m2_widen, e5m2_narrow)

// What a function of one type and operator does. `step`: bytes of memory behind one vector; a
// partial result has a whole vector there.
#define WIDTH(step) (TT_VECTOR_BYTES / (step))
#define DEFINE_REDUCE(type, vec, step)                                                             \
    INLINE vec type##_take(const char *from, const struct tt_reduction *reduction, int r,          \
                           enum tt_reduce_operator op)                                             \
    {                                                                                              \
        vec value = type##_load(from);                                                             \
        return op == TT_REDUCE_SCALED_SUM ? vec##_scale(value, &reduction->scale[r]) : value;      \
    }                                                                                              \
    /* One vector of the first input, `offset` bytes of elements into it. */                       \
    INLINE vec type##_begin(const char *first, size_t offset,                                      \
                            const struct tt_reduction *reduction, enum tt_reduce_operator op)      \
    {                                                                                              \
        vec value;                                                                                 \
        if (reduction->partial_in) {                                                               \
            memcpy(&value, first + offset * WIDTH(step), sizeof value);                            \
            return value;                                                                          \
        }                                                                                          \
        return type##_take(first + offset, reduction, 0, op);                                      \
    }                                                                                              \
    /* One vector of the result, to `at` bytes of elements into the output. */                     \
    INLINE void type##_finish(char *to, size_t at, vec sum, const struct tt_reduction *reduction,  \
                              enum tt_reduce_operator op)                                          \
    {                                                                                              \
        if (reduction->partial_out) {                                                              \
            memcpy(to + at * WIDTH(step), &sum, sizeof sum);                                       \
            return;                                                                                \
        }                                                                                          \
        type##_store(to + at,                                                                      \
                     op == TT_REDUCE_AVERAGE ? vec##_divide(sum, reduction->divisor) : sum);       \
    }                                                                                              \
    /* `bytes` bytes at `at` of the output and `offset` of inputs, less than a vector. */          \
    INLINE void type##_rest(char *to, size_t at, const void *const *in, int ins, size_t offset,    \
                            size_t bytes, const struct tt_reduction *reduction,                    \
                            enum tt_reduce_operator op)                                            \
    {                                                                                              \
        char piece[TT_VECTOR_BYTES] = {0};                                                         \
        size_t width = reduction->partial_in ? WIDTH(step) : 1;                                    \
        memcpy(piece, (const char *)in[0] + offset * width, bytes * width);                        \
        vec sum = type##_begin(piece, 0, reduction, op);                                           \
        for (int r = 1; r < ins; r++) {                                                            \
            memcpy(piece, (const char *)in[r] + offset, bytes);                                    \
            sum = vec##_combine(sum, type##_take(piece, reduction, r, op), op);                    \
        }                                                                                          \
        width = reduction->partial_out ? WIDTH(step) : 1;                                          \
        type##_finish(piece, 0, sum, reduction, op);                                               \
        memcpy(to + at * width, piece, bytes * width);                                             \
    }                                                                                              \
    /* `vectors` vectors. */                                                                       \
    INLINE void type##_some(char *to, size_t at, const void *const *in, int ins, size_t offset,    \
                            const struct tt_reduction *reduction, enum tt_reduce_operator op,      \
                            const size_t vectors)                                                  \
    {                                                                                              \
        vec sum[4];                                                                                \
        _Pragma("GCC unroll 4") for (size_t v = 0; v < vectors; v++)                               \
        {                                                                                          \
            sum[v] = type##_begin(in[0], offset + v * (step), reduction, op);                      \
        }                                                                                          \
        for (int r = 1; r < ins; r++) {                                                            \
            const char *from = (const char *)in[r] + offset;                                       \
            _Pragma("GCC unroll 4") for (size_t v = 0; v < vectors; v++)                           \
            {                                                                                      \
                vec value = type##_take(from + v * (step), reduction, r, op);                      \
                sum[v] = vec##_combine(sum[v], value, op);                                         \
            }                                                                                      \
        }                                                                                          \
        _Pragma("GCC unroll 4") for (size_t v = 0; v < vectors; v++)                               \
        {                                                                                          \
            type##_finish(to, at + v * (step), sum[v], reduction, op);                             \
        }                                                                                          \
    }                                                                                              \
    INLINE void type##_all(char *to, const void *const *in, int ins, size_t offset, size_t bytes,  \
                           const struct tt_reduction *reduction, enum tt_reduce_operator op)       \
    {                                                                                              \
        size_t at = 0;                                                                             \
        for (; at + 4 * (step) <= bytes; at += 4 * (step)) {                                       \
            type##_some(to, at, in, ins, offset + at, reduction, op, 4);                           \
        }                                                                                          \
        for (; at + (step) <= bytes; at += (step)) {                                               \
            type##_some(to, at, in, ins, offset + at, reduction, op, 1);                           \
        }                                                                                          \
        if (at < bytes) {                                                                          \
            type##_rest(to, at, in, ins, offset + at, bytes - at, reduction, op);                  \
        }                                                                                          \
    }

#define DEFINE_FUNCTION(type, element, op)                                                         \
    static void type##_##op(void *out, const void *const *in, int ins, size_t offset,              \
                            size_t count, const struct tt_reduction *reduction)                    \
    {                                                                                              \
        type##_all(out, in, ins, offset, count *(element), reduction, PASTE(TT_REDUCE_, op));      \
    }

#define DEFINE_TYPE(type, vec, element, step)                                                      \
    DEFINE_REDUCE(type, vec, step)                                                                 \
    DEFINE_FUNCTION(type, element, SUM)                                                            \
    DEFINE_FUNCTION(type, element, PROD)                                                           \
    DEFINE_FUNCTION(type, element, MIN)                                                            \
    DEFINE_FUNCTION(type, element, MAX)                                                            \
    DEFINE_FUNCTION(type, element, AVERAGE)                                                        \
    DEFINE_FUNCTION(type, element, SCALED_SUM)

// NOLINTBEGIN(readability-function-size): eight parameters of what is always inlined
DEFINE_TYPE(int8, vector_int8, 1, (size_t)TT_VECTOR_BYTES)
DEFINE_TYPE(uint8, vector_uint8, 1, (size_t)TT_VECTOR_BYTES)
DEFINE_TYPE(int32, vector_int32, 4, (size_t)TT_VECTOR_BYTES)
DEFINE_TYPE(uint32, vector_uint32, 4, (size_t)TT_VECTOR_BYTES)
DEFINE_TYPE(int64, vector_int64, 8, (size_t)TT_VECTOR_BYTES)
DEFINE_TYPE(uint64, vector_uint64, 8, (size_t)TT_VECTOR_BYTES)
DEFINE_TYPE(float16, vector_float, 2, (size_t)TT_VECTOR_BYTES / 2)
DEFINE_TYPE(float32, vector_float, 4, (size_t)TT_VECTOR_BYTES)
DEFINE_TYPE(float64, vector_double, 8, (size_t)TT_VECTOR_BYTES)
DEFINE_TYPE(bfloat16, vector_float, 2, (size_t)TT_VECTOR_BYTES / 2)
DEFINE_TYPE(e4m3, vector_float, 1, (size_t)TT_VECTOR_BYTES / 4)
DEFINE_TYPE(e5m2, vector_float, 1, (size_t)TT_VECTOR_BYTES / 4)
// NOLINTEND(readability-function-size)

static void stream_lines(void *to, const void *from, size_t lines)
{
    for (size_t i = 0; i < lines * 64; i += TT_VECTOR_BYTES) {
        vector_float value;
        memcpy(&value, (const char *)from + i, sizeof value);
        stream_floats((char *)to + i, value);
    }
}

#define FUNCTIONS(type)                                                                            \
    {                                                                                              \
        [TT_REDUCE_SUM] = type##_SUM, [TT_REDUCE_PROD] = type##_PROD,                              \
        [TT_REDUCE_MIN] = type##_MIN, [TT_REDUCE_MAX] = type##_MAX,                                \
        [TT_REDUCE_AVERAGE] = type##_AVERAGE, [TT_REDUCE_SCALED_SUM] = type##_SCALED_SUM,          \
    }

const struct tt_reduce_variant VARIANT = {
    .name = VARIANT_NAME,
    .usable = vector_usable,
    .function = {[ncclInt8] = FUNCTIONS(int8),
                 [ncclUint8] = FUNCTIONS(uint8),
                 [ncclInt32] = FUNCTIONS(int32),
                 [ncclUint32] = FUNCTIONS(uint32),
                 [ncclInt64] = FUNCTIONS(int64),
                 [ncclUint64] = FUNCTIONS(uint64),
                 [ncclFloat16] = FUNCTIONS(float16),
                 [ncclFloat32] = FUNCTIONS(float32),
                 [ncclFloat64] = FUNCTIONS(float64),
                 [ncclBfloat16] = FUNCTIONS(bfloat16),
                 [ncclFloat8e4m3] = FUNCTIONS(e4m3),
                 [ncclFloat8e5m2] = FUNCTIONS(e5m2)},
    .stream = stream_lines,
};
