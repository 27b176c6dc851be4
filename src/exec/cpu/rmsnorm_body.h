// The row kernels' source, compiled once per instruction set: the including file sets
// TT_VECTOR_BYTES and VARIANT, and includes rmsnorm_vectors.h before. Vectors are the compiler's
// own vector types, so the operations and their order are those of the portable variant by
// construction.
// SPDX-License-Identifier: Apache-2.0

#include <stdint.h>
#include <string.h>

enum {
    LANES = TT_VECTOR_BYTES / 4, // floats in a vector
    BLOCK = 4 * LANES,           // floats that are summed and squared at a time
    THIRD = 2 * LANES,           // where its third and fourth vector begin
    FOURTH = 3 * LANES,
    LINE = 64,                     // bytes that are stored at a time
    PIECE = 256,                   // elements stored to one rank before the next rank's turn
    FLOAT_STEP = LINE / 4 / LANES, // vectors that make a line, float
    SHORT_STEP = LINE / 2 / LANES, // and 16-bit types
    FLOAT_WIDTH = FLOAT_STEP * LANES,
    SHORT_WIDTH = SHORT_STEP * LANES,
};

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

INLINE vector_short load_shorts(const void *from)
{
    vector_short value;
    memcpy(&value, from, sizeof value);
    return value;
}

INLINE void store_shorts(void *to, vector_short value)
{
    memcpy(to, &value, sizeof value);
}

#define float32_load(from)         load_floats(from)
#define float32_store(to, value)   store_floats(to, value)
#define float32_stream(to, value)  stream_floats(to, value)
#define float16_load(from)         half_widen(load_shorts(from))
#define float16_store(to, value)   store_shorts(to, half_narrow(value))
#define float16_stream(to, value)  stream_shorts(to, half_narrow(value))
#define bfloat16_load(from)        bfloat16_widen(load_shorts(from))
#define bfloat16_store(to, value)  store_shorts(to, bfloat16_narrow(value))
#define bfloat16_stream(to, value) stream_shorts(to, bfloat16_narrow(value))

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

// A line's worth of vectors to one address, past the caches where `stream` (it is aligned then).
#define DEFINE_PUT_LINE(type, bytes, step)                                                         \
    INLINE void type##_put_line(char *to, const vector_float *value, bool stream)                  \
    {                                                                                              \
        _Pragma("GCC unroll 8") for (size_t v = 0; v < (step); v++)                                \
        {                                                                                          \
            if (stream) {                                                                          \
                type##_stream(to + v * LANES * (bytes), value[v]);                                 \
            } else {                                                                               \
                type##_store(to + v * LANES * (bytes), value[v]);                                  \
            }                                                                                      \
        }                                                                                          \
    }

// Adds the squares of 4 * LANES elements to LANES partial sums. The four vectors hold LANES groups
// of four; element k of every group is picked into one vector, so lane j holds group j.
INLINE void add_squares(float *lane, vector_float a, vector_float b, vector_float c, vector_float d)
{
    a *= a;
    b *= b;
    c *= c;
    d *= d;
    vector_float even_low = PICK(a, b, EVEN), even_high = PICK(c, d, EVEN);
    vector_float odd_low = PICK(a, b, ODD), odd_high = PICK(c, d, ODD);
    vector_float sum = load_floats(lane) + PICK(even_low, even_high, EVEN);
    sum += PICK(odd_low, odd_high, EVEN);
    sum += PICK(even_low, even_high, ODD);
    sum += PICK(odd_low, odd_high, ODD);
    store_floats(lane, sum);
}

// x = sum over ranks in rank order (+ residual); its squares go to `partial`. Elements behind the
// last are zeros, which change no sum of squares.
#define DEFINE_LOAD(type, bytes)                                                                   \
    INLINE void type##_sum_block(vector_float *sum, const struct tt_norm_row *row, size_t offset)  \
    {                                                                                              \
        const char *from = row->input.base + offset;                                               \
        _Pragma("GCC unroll 4") for (size_t v = 0; v < 4; v++)                                     \
        {                                                                                          \
            sum[v] = type##_load(from + v * LANES * (bytes));                                      \
        }                                                                                          \
        for (int rank = 1; rank < row->ranks; rank++) {                                            \
            from += row->input.stride;                                                             \
            _Pragma("GCC unroll 4") for (size_t v = 0; v < 4; v++)                                 \
            {                                                                                      \
                sum[v] += type##_load(from + v * LANES * (bytes));                                 \
            }                                                                                      \
        }                                                                                          \
        if (row->residual != NULL) {                                                               \
            _Pragma("GCC unroll 4") for (size_t v = 0; v < 4; v++)                                 \
            {                                                                                      \
                sum[v] += type##_load(row->residual + offset + v * LANES * (bytes));               \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    INLINE float type##_sum_one(const struct tt_norm_row *row, size_t offset)                      \
    {                                                                                              \
        const char *from = row->input.base + offset;                                               \
        float sum = type##_get(from);                                                              \
        for (int rank = 1; rank < row->ranks; rank++) {                                            \
            from += row->input.stride;                                                             \
            sum += type##_get(from);                                                               \
        }                                                                                          \
        return row->residual == NULL ? sum : sum + type##_get(row->residual + offset);             \
    }                                                                                              \
    static void type##_load_row(float *x, float *partial, const struct tt_norm_row *row,           \
                                size_t first, size_t count)                                        \
    {                                                                                              \
        vector_float sum[4];                                                                       \
        size_t i = 0;                                                                              \
        for (; i + BLOCK <= count; i += BLOCK) {                                                   \
            type##_sum_block(sum, row, (first + i) * (bytes));                                     \
            _Pragma("GCC unroll 4") for (size_t v = 0; v < 4; v++)                                 \
            {                                                                                      \
                store_floats(x + i + v * LANES, sum[v]);                                           \
            }                                                                                      \
            add_squares(partial + i / TT_NORM_GROUP % TT_NORM_LANES, sum[0], sum[1], sum[2],       \
                        sum[3]);                                                                   \
        }                                                                                          \
        if (i == count) {                                                                          \
            return;                                                                                \
        }                                                                                          \
        float end[BLOCK] = {0};                                                                    \
        for (size_t k = 0; i + k < count; k++) {                                                   \
            x[i + k] = end[k] = type##_sum_one(row, (first + i + k) * (bytes));                    \
        }                                                                                          \
        add_squares(partial + i / TT_NORM_GROUP % TT_NORM_LANES, load_floats(end),                 \
                    load_floats(&end[LANES]), load_floats(&end[THIRD]),                            \
                    load_floats(&end[FOURTH]));                                                    \
    }

// out = round(x * scale (* gamma)) to all ranks.
#define DEFINE_STORE(type, bytes, step, width)                                                     \
    /* Elements begin .. end to one rank. */                                                       \
    INLINE void type##_store_piece(const struct tt_norm_row *row, const float *x, float scale,     \
                                   size_t first, size_t begin, size_t end, char *to)               \
    {                                                                                              \
        const char *gamma = row->gamma == NULL ? NULL : row->gamma + first * (bytes);              \
        bool stream = row->stream;                                                                 \
        for (size_t i = begin; i < end; i += (width)) {                                            \
            vector_float y[step];                                                                  \
            _Pragma("GCC unroll 8") for (size_t v = 0; v < (step); v++)                            \
            {                                                                                      \
                y[v] = load_floats(x + i + v * LANES) * scale;                                     \
                if (gamma != NULL) {                                                               \
                    y[v] *= type##_load(gamma + (i + v * LANES) * (bytes));                        \
                }                                                                                  \
            }                                                                                      \
            type##_put_line(to + i * (bytes), y, stream);                                          \
        }                                                                                          \
    }                                                                                              \
    INLINE void type##_prefetch(const char *next, size_t begin, size_t end)                        \
    {                                                                                              \
        for (size_t i = begin; i < end; i += (width)) {                                            \
            __builtin_prefetch(next + i * (bytes), 0, 2);                                          \
        }                                                                                          \
    }                                                                                              \
    INLINE void type##_store_lines(const struct tt_norm_row *row, const float *x, float scale,     \
                                   size_t first, size_t count)                                     \
    {                                                                                              \
        size_t whole = count - count % (width);                                                    \
        for (size_t begin = 0; begin < whole; begin += PIECE) {                                    \
            size_t end = whole - begin < PIECE ? whole : begin + PIECE;                            \
            char *to = row->output.base + first * (bytes);                                         \
            const char *next = row->input.base + row->ahead + first * (bytes);                     \
            for (int rank = 0; rank < row->ranks; rank++) {                                        \
                type##_prefetch(next, begin, end);                                                 \
                type##_store_piece(row, x, scale, first, begin, end, to);                          \
                to += row->output.stride;                                                          \
                next += row->input.stride;                                                         \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void type##_store_row(const struct tt_norm_row *row, const float *x, float scale,       \
                                 size_t first, size_t count)                                       \
    {                                                                                              \
        type##_store_lines(row, x, scale, first, count);                                           \
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
    .fold = fold,
};
