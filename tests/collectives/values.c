// See values.h. SPDX-License-Identifier: Apache-2.0
#include "values.h"

#include "reduce/fp8.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
    bool is_float, is_signed;
} types[ncclNumTypes] = {
    {"int8", 1, false, true},    {"uint8", 1, false, false},    {"int32", 4, false, true},
    {"uint32", 4, false, false}, {"int64", 8, false, true},     {"uint64", 8, false, false},
    {"float16", 2, true, true},  {"float32", 4, true, true},    {"float64", 8, true, true},
    {"bfloat16", 2, true, true}, {"float8e4m3", 1, true, true}, {"float8e5m2", 1, true, true},
};

size_t bytes_of_type(ncclDataType_t type)
{
    return types[type].bytes;
}

bool is_float_type(ncclDataType_t type)
{
    return types[type].is_float;
}

const char *name_of_type(ncclDataType_t type)
{
    return types[type].name;
}

// ---- Integers: 64 bits that stand for the element, sign extended where the type has one
// ----------

static uint64_t get_integer(const void *element, ncclDataType_t type)
{
    uint64_t bits = 0;
    size_t bytes = types[type].bytes;
    memcpy(&bits, element, bytes);
    unsigned unused = 64 - 8 * (unsigned)bytes;
    bits <<= unused;
    return types[type].is_signed ? (uint64_t)((int64_t)bits >> unused) : bits >> unused;
}

static uint64_t wrap(uint64_t value, ncclDataType_t type)
{
    return get_integer(&value, type);
}

static uint64_t divide(uint64_t sum, ncclDataType_t type, int n)
{
    if (types[type].is_signed) {
        return (uint64_t)((int64_t)sum / n);
    }
    return sum / (uint64_t)n;
}

static uint64_t combine_integers(uint64_t a, uint64_t b, ncclDataType_t type, int op)
{
    bool a_is_less = types[type].is_signed ? (int64_t)a < (int64_t)b : a < b;
    switch (op) {
    case ncclProd:
        return a * b;
    case ncclMax:
        return a_is_less ? b : a;
    case ncclMin:
        return a_is_less ? a : b;
    default:
        return a + b;
    }
}

static void reduce_integers(void *out, const struct reference *ref, const char *in, size_t stride,
                            int n)
{
    size_t bytes = types[ref->type].bytes;
    uint64_t total = 0;
    for (int r = 0; r < n; r++) {
        uint64_t value = get_integer(in + (size_t)r * stride, ref->type);
        if (ref->factors != NULL) {
            value *= get_integer((const char *)ref->factors + (size_t)r * bytes, ref->type);
        }
        total = r == 0 ? value : combine_integers(total, value, ref->type, ref->op);
        total = wrap(total, ref->type);
    }
    if (ref->op == ncclAvg) {
        total = divide(total, ref->type, n);
    }
    memcpy(out, &total, bytes);
}

// ---- Floats: double stands for itself, float for all smaller ones
// --------------------------------

static float get_float(const void *element, ncclDataType_t type)
{
    uint16_t half;
    float value;
    switch (type) {
    case ncclFloat16:
        memcpy(&half, element, 2);
        return tt_float_from_half(half);
    case ncclBfloat16:
        memcpy(&half, element, 2);
        return tt_float_from_bfloat16(half);
    case ncclFloat8e4m3:
        return tt_float_from_e4m3(*(const uint8_t *)element);
    case ncclFloat8e5m2:
        return tt_float_from_e5m2(*(const uint8_t *)element);
    default:
        memcpy(&value, element, 4);
        return value;
    }
}

static void put_float(void *element, ncclDataType_t type, float value)
{
    uint16_t half;
    switch (type) {
    case ncclFloat16:
        half = tt_half_from_float(value);
        memcpy(element, &half, 2);
        break;
    case ncclBfloat16:
        half = tt_bfloat16_from_float(value);
        memcpy(element, &half, 2);
        break;
    case ncclFloat8e4m3:
        *(uint8_t *)element = tt_e4m3_from_float(value);
        break;
    case ncclFloat8e5m2:
        *(uint8_t *)element = tt_e5m2_from_float(value);
        break;
    default:
        memcpy(element, &value, 4);
        break;
    }
}

// The number of a number and a NaN; -0 is below +0.
static bool is_below(double a, double b)
{
    return a < b || (a == b && signbit(a) && !signbit(b));
}

static double pick(double a, double b, int op)
{
    if (isnan(a) || isnan(b)) {
        return isnan(a) ? b : a;
    }
    return is_below(a, b) == (op == ncclMin) ? a : b;
}

static float combine_floats(float a, float b, int op)
{
    switch (op) {
    case ncclProd:
        return a * b;
    case ncclMax:
    case ncclMin:
        return (float)pick((double)a, (double)b, op);
    default:
        return a + b;
    }
}

static void reduce_floats(void *out, const struct reference *ref, const char *in, size_t stride,
                          int n)
{
    size_t bytes = types[ref->type].bytes;
    float total = 0;
    for (int r = 0; r < n; r++) {
        float value = get_float(in + (size_t)r * stride, ref->type);
        if (ref->factors != NULL) {
            value *= get_float((const char *)ref->factors + (size_t)r * bytes, ref->type);
        }
        total = r == 0 ? value : combine_floats(total, value, ref->op);
    }
    if (ref->op == ncclAvg) {
        total /= (float)n;
    }
    put_float(out, ref->type, total);
}

static void reduce_doubles(void *out, const struct reference *ref, const char *in, size_t stride,
                           int n)
{
    double total = 0, value, factor;
    for (int r = 0; r < n; r++) {
        memcpy(&value, in + (size_t)r * stride, 8);
        if (ref->factors != NULL) {
            memcpy(&factor, (const char *)ref->factors + (size_t)r * 8, 8);
            value *= factor;
        }
        if (r == 0) {
            total = value;
        } else if (ref->op == ncclMax || ref->op == ncclMin) {
            total = pick(total, value, ref->op);
        } else {
            total = ref->op == ncclProd ? total * value : total + value;
        }
    }
    if (ref->op == ncclAvg) {
        total /= n;
    }
    memcpy(out, &total, 8);
}

void put_reduction(void *out, const struct reference *reference, const void *in, size_t stride,
                   int n)
{
    if (!types[reference->type].is_float) {
        reduce_integers(out, reference, in, stride, n);
    } else if (reference->type == ncclFloat64) {
        reduce_doubles(out, reference, in, stride, n);
    } else {
        reduce_floats(out, reference, in, stride, n);
    }
}

// ---- Elements
// ------------------------------------------------------------------------------------

void put_number(void *element, ncclDataType_t type, double number)
{
    if (type == ncclFloat64) {
        memcpy(element, &number, 8);
    } else if (types[type].is_float) {
        put_float(element, type, (float)number);
    } else {
        uint64_t bits = number < 0 ? (uint64_t)(int64_t)number : (uint64_t)number;
        memcpy(element, &bits, types[type].bytes);
    }
}

double get_number(const void *element, ncclDataType_t type)
{
    double number;
    if (type == ncclFloat64) {
        memcpy(&number, element, 8);
        return number;
    }
    if (types[type].is_float) {
        return (double)get_float(element, type);
    }
    uint64_t bits = get_integer(element, type);
    return types[type].is_signed ? (double)(int64_t)bits : (double)bits;
}

uint64_t mix_bits(uint64_t value)
{
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

void put_input(void *element, ncclDataType_t type, int rank, size_t index, unsigned seed)
{
    uint64_t bits = mix_bits(index ^ (uint64_t)rank << 40 ^ (uint64_t)seed << 52);
    if (!types[type].is_float) {
        memcpy(element, &bits, types[type].bytes);
        return;
    }
    double size = 1 + (double)(bits >> 40) * 0x1p-24;
    put_number(element, type, ldexp((bits & 1) != 0 ? -size : size, (int)(bits >> 1) % 4 - 1));
}

bool same_element(const void *a, const void *b, ncclDataType_t type)
{
    return memcmp(a, b, types[type].bytes) == 0 ||
           (types[type].is_float && isnan(get_number(a, type)) && isnan(get_number(b, type)));
}

uint64_t hash_of(const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ byte[i]) * 1099511628211u;
    }
    return hash;
}
