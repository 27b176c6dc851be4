// The row kernels' source, compiled once per instruction set: the including file sets
// TT_VECTOR_BYTES and VARIANT, and defines vector_usable, half_load, half_store and stream_store
// before. Vectors are the compiler's own vector types, so the operations and their order are those
// of the portable variant by construction. SPDX-License-Identifier: Apache-2.0

#include <stdint.h>
#include <string.h>

enum {
    LANES = TT_VECTOR_BYTES / 4,   // floats in a vector
    LINE = 64,                     // bytes stored to one rank before the next rank's turn
    FLOAT_STEP = LINE / 4 / LANES, // vectors that make a line, float
    SHORT_STEP = LINE / 2 / LANES, // and 16-bit types
    FLOAT_WIDTH = FLOAT_STEP * LANES,
    SHORT_WIDTH = SHORT_STEP * LANES,
};

#define INLINE static inline __attribute__((always_inline))

// Deinterleaving: the even and the odd elements of two vectors.
#if TT_VECTOR_BYTES == 64
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD  1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#elif TT_VECTOR_BYTES == 32
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD  1, 3, 5, 7, 9, 11, 13, 15
#else
#define EVEN 0, 2, 4, 6
#define ODD  1, 3, 5, 7
#endif
#ifdef __clang__
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK(a, b, ...) __builtin_shuffle(a, b, (vector_int){__VA_ARGS__})
#endif

INLINE vector_float load_floats(const void *from)
{
    vector_float value;
    memcpy(&value, from, sizeof value);
    return value;
}

INLINE void store_floats(void *to, vector_float value)
{
    memcpy(to, &value, sizeof value);
}

INLINE vector_float bfloat16_load(const void *from)
{
    vector_short halves;
    memcpy(&halves, from, sizeof halves);
    return (vector_float)(__builtin_convertvector(halves, vector_int) << 16);
}

INLINE vector_short bfloat16_round(vector_float value)
{
    vector_int bits = (vector_int)value;
    vector_int nan = (vector_int)(value != value); // all ones where not a number
    vector_int rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return __builtin_convertvector((rounded & ~nan) | (nan & 0x7fff), vector_short);
}

INLINE void bfloat16_store(void *to, vector_float value)
{
    vector_short halves = bfloat16_round(value);
    memcpy(to, &halves, sizeof halves);
}

// One element at a time, for ends of rows.
INLINE float float32_get(const void *from)
{
    float value;
    memcpy(&value, from, sizeof value);
    return value;
}

INLINE void float32_put(void *to, float value)
{
    memcpy(to, &value, sizeof value);
}

INLINE float float16_get(const void *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return tt_float_from_half(value);
}

INLINE void float16_put(void *to, float value)
{
    uint16_t half = tt_half_from_float(value);
    memcpy(to, &half, sizeof half);
}

INLINE float bfloat16_get(const void *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return tt_float_from_bfloat16(value);
}

INLINE void bfloat16_put(void *to, float value)
{
    uint16_t half = tt_bfloat16_from_float(value);
    memcpy(to, &half, sizeof half);
}

#define float32_load  load_floats
#define float32_store store_floats
#define float16_load  half_load
#define float16_store half_store

// A line's worth of vectors to one address, past the caches where `stream` (the address is then
// line-aligned).
#define DEFINE_PUT_LINE(type, bytes, step)                                                         \
    INLINE void type##_put_line(char *to, const vector_float *value, bool stream)                  \
    {                                                                                              \
        char line[LINE] __attribute__((aligned(LINE)));                                            \
        _Pragma("GCC unroll 8") for (int v = 0; v < (step); v++)                                   \
        {                                                                                          \
            type##_store(line + v * LANES * (bytes), value[v]);                                    \
        }                                                                                          \
        _Pragma("GCC unroll 8") for (int v = 0; v < LINE / TT_VECTOR_BYTES; v++)                   \
        {                                                                                          \
            vector_float part = load_floats(line + v * TT_VECTOR_BYTES);                           \
            if (stream) {                                                                          \
                stream_store(to + v * TT_VECTOR_BYTES, part);                                      \
            } else {                                                                               \
                store_floats(to + v * TT_VECTOR_BYTES, part);                                      \
            }                                                                                      \
        }                                                                                          \
    }

// x = sum over ranks in rank order (+ residual).
#define DEFINE_LOAD(type, bytes)                                                                   \
    static void type##_load_row(float *x, const struct tt_norm_row *row, size_t first,             \
                                size_t count)                                                      \
    {                                                                                              \
        const char *base = row->input.base + first * (bytes);                                      \
        const char *residual = row->residual == NULL ? NULL : row->residual + first * (bytes);     \
        size_t i = 0;                                                                              \
        for (; i + 4 * (size_t)LANES <= count; i += 4 * (size_t)LANES) {                           \
            const char *from = base + i * (bytes);                                                 \
            vector_float sum[4];                                                                   \
            _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++)                                    \
            {                                                                                      \
                sum[v] = type##_load(from + v * LANES * (bytes));                                  \
            }                                                                                      \
            for (int rank = 1; rank < row->ranks; rank++) {                                        \
                from += row->input.stride;                                                         \
                _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++)                                \
                {                                                                                  \
                    sum[v] += type##_load(from + v * LANES * (bytes));                             \
                }                                                                                  \
            }                                                                                      \
            _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++)                                    \
            {                                                                                      \
                if (residual != NULL) {                                                            \
                    sum[v] += type##_load(residual + (i + (size_t)(v * LANES)) * (bytes));         \
                }                                                                                  \
                store_floats(x + i + v * LANES, sum[v]);                                           \
            }                                                                                      \
        }                                                                                          \
        for (; i < count; i++) {                                                                   \
            const char *from = base + i * (bytes);                                                 \
            float sum = type##_get(from);                                                          \
            for (int rank = 1; rank < row->ranks; rank++) {                                        \
                from += row->input.stride;                                                         \
                sum += type##_get(from);                                                           \
            }                                                                                      \
            x[i] = residual == NULL ? sum : sum + type##_get(residual + i * (bytes));              \
        }                                                                                          \
        for (; i % TT_NORM_PADDING != 0; i++) {                                                    \
            x[i] = 0.0f;                                                                           \
        }                                                                                          \
    }

// out = round(x * scale (* gamma)) to all ranks.
#define DEFINE_STORE(type, bytes, step, width)                                                     \
    INLINE void type##_store_lines(const struct tt_norm_row *row, const float *x, float scale,     \
                                   size_t first, size_t count, bool stream)                        \
    {                                                                                              \
        char *base = row->output.base + first * (bytes);                                           \
        const char *gamma = row->gamma == NULL ? NULL : row->gamma + first * (bytes);              \
        for (size_t i = 0; i + (width) <= count; i += (width)) {                                   \
            vector_float y[step];                                                                  \
            _Pragma("GCC unroll 8") for (int v = 0; v < (step); v++)                               \
            {                                                                                      \
                y[v] = load_floats(x + i + v * LANES) * scale;                                     \
                if (gamma != NULL) {                                                               \
                    y[v] *= type##_load(gamma + (i + (size_t)(v * LANES)) * (bytes));              \
                }                                                                                  \
            }                                                                                      \
            char *to = base + i * (bytes);                                                         \
            for (int rank = 0; rank < row->ranks; rank++, to += row->output.stride) {              \
                type##_put_line(to, y, stream);                                                    \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void type##_store_row(const struct tt_norm_row *row, const float *x, float scale,       \
                                 size_t first, size_t count)                                       \
    {                                                                                              \
        if (row->stream) {                                                                         \
            type##_store_lines(row, x, scale, first, count, true);                                 \
        } else {                                                                                   \
            type##_store_lines(row, x, scale, first, count, false);                                \
        }                                                                                          \
        for (size_t i = count - count % (width); i < count; i++) {                                 \
            float y = x[i] * scale;                                                                \
            if (row->gamma != NULL) {                                                              \
                y *= type##_get(row->gamma + (first + i) * (bytes));                               \
            }                                                                                      \
            char *to = row->output.base + (first + i) * (bytes);                                   \
            for (int rank = 0; rank < row->ranks; rank++, to += row->output.stride) {              \
                type##_put(to, y);                                                                 \
            }                                                                                      \
        }                                                                                          \
        if (row->residual_out != NULL) {                                                           \
            type##_copy(row->residual_out + first * (bytes), x, count);                            \
        }                                                                                          \
    }

// x rounded to the type.
#define DEFINE_COPY(type, bytes)                                                                   \
    static void type##_copy(char *to, const float *x, size_t count)                                \
    {                                                                                              \
        size_t i = 0;                                                                              \
        for (; i + LANES <= count; i += LANES) {                                                   \
            type##_store(to + i * (bytes), load_floats(x + i));                                    \
        }                                                                                          \
        for (; i < count; i++) {                                                                   \
            type##_put(to + i * (bytes), x[i]);                                                    \
        }                                                                                          \
    }

#define DEFINE_TYPE(type, bytes, step, width)                                                      \
    DEFINE_PUT_LINE(type, bytes, step)                                                             \
    DEFINE_COPY(type, bytes)                                                                       \
    DEFINE_LOAD(type, bytes)                                                                       \
    DEFINE_STORE(type, bytes, step, width)

DEFINE_TYPE(float32, sizeof(float), FLOAT_STEP, FLOAT_WIDTH)
DEFINE_TYPE(float16, sizeof(uint16_t), SHORT_STEP, SHORT_WIDTH)
DEFINE_TYPE(bfloat16, sizeof(uint16_t), SHORT_STEP, SHORT_WIDTH)

// Four vectors hold LANES groups of four; element k of every group is picked into one vector, so
// lane j holds group j.
static void square(float *partial, const float *x, size_t count)
{
    size_t padded = (count + TT_NORM_PADDING - 1) / TT_NORM_PADDING * TT_NORM_PADDING;
    for (size_t i = 0; i < padded; i += 4 * (size_t)LANES) {
        vector_float a = load_floats(x + i), b = load_floats(x + i + LANES);
        vector_float c = load_floats(x + i + 2 * LANES), d = load_floats(x + i + 3 * LANES);
        a *= a;
        b *= b;
        c *= c;
        d *= d;
        vector_float even_low = PICK(a, b, EVEN), even_high = PICK(c, d, EVEN);
        vector_float odd_low = PICK(a, b, ODD), odd_high = PICK(c, d, ODD);
        float *lane = partial + i / TT_NORM_GROUP % TT_NORM_LANES;
        vector_float sum = load_floats(lane) + PICK(even_low, even_high, EVEN);
        sum += PICK(odd_low, odd_high, EVEN);
        sum += PICK(even_low, even_high, ODD);
        sum += PICK(odd_low, odd_high, ODD);
        store_floats(lane, sum);
    }
}

static float fold(float *partial)
{
    int distance = TT_NORM_LANES / 2;
    for (; distance >= LANES; distance /= 2) {
        for (int t = 0; t < distance; t += LANES) {
            store_floats(partial + t,
                         load_floats(partial + t) + load_floats(partial + t + distance));
        }
    }
    for (; distance >= 1; distance /= 2) {
        for (int t = 0; t < distance; t++) {
            partial[t] += partial[t + distance];
        }
    }
    return partial[0];
}

const struct tt_norm_variant VARIANT = {
    .name = VARIANT_NAME,
    .usable = vector_usable,
    .float32 = {sizeof(float), float32_load_row, float32_store_row},
    .float16 = {sizeof(uint16_t), float16_load_row, float16_store_row},
    .bfloat16 = {sizeof(uint16_t), bfloat16_load_row, bfloat16_store_row},
    .square = square,
    .fold = fold,
};
