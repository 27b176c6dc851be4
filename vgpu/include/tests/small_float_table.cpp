// Prints one line per function on half, bfloat16 and 8-bit floats: its name and a hash of its
// results over many arguments. Compiled with our headers and with CUDA's (whose host functions
// compute on the CPU), the output must be the same.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <vector_functions.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>

static uint64_t hash;

template <class T> static void mix(const T &value)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(value));
    hash = (hash ^ bits) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 29;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}
template <class T> static T value_of(uint32_t bits)
{
    uint16_t short_bits = static_cast<uint16_t>(bits);
    T x;
    memcpy(static_cast<void *>(&x), &short_bits, sizeof(x));
    return x;
}

// Calls f for floats spread over all bit patterns, including NaNs, and around the boundaries of the
// short formats.
template <class F> static void over_floats(const char *name, F f)
{
    hash = 1;
    for (uint64_t bits = 0; bits < (1ull << 32); bits += 4093)
        f(float_of(static_cast<uint32_t>(bits)));
    for (uint32_t high = 0; high < 0x10000; high++)
        for (uint32_t low : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u,
                             0xf000u, 0xffffu})
            f(float_of(high << 16 | low));
    printf("%-32s %016llx\n", name, static_cast<unsigned long long>(hash));
}
template <class T, class F> static void over_values(const char *name, F f)
{
    hash = 1;
    for (uint32_t bits = 0; bits < 0x10000; bits++)
        f(value_of<T>(bits));
    printf("%-32s %016llx\n", name, static_cast<unsigned long long>(hash));
}
template <class T, class F> static void over_pairs(const char *name, F f)
{
    hash = 1;
    uint64_t state = 88172645463325252ull;
    for (int i = 0; i < 400000; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f(value_of<T>(static_cast<uint32_t>(state)),
          value_of<T>(static_cast<uint32_t>(state >> 16)),
          value_of<T>(static_cast<uint32_t>(state >> 32)));
    }
    printf("%-32s %016llx\n", name, static_cast<unsigned long long>(hash));
}

#define FLOATS(function) over_floats(#function, [](float x) { mix(function(x)); })
#define VALUES(type, function)                                                                     \
    over_values<type>(#type " " #function, [](type h) { mix(function(h)); })
#define PAIRS(type, function)                                                                      \
    over_pairs<type>(#type " " #function, [](type a, type b, type) { mix(function(a, b)); })

template <class T> static void arithmetic(const char *type)
{
    puts(type);
    PAIRS(T, __hadd);
    PAIRS(T, __hsub);
    PAIRS(T, __hmul);
    PAIRS(T, __hdiv);
    PAIRS(T, __heq);
    PAIRS(T, __hne);
    PAIRS(T, __hlt);
    PAIRS(T, __hle);
    PAIRS(T, __hgt);
    PAIRS(T, __hgtu);
    PAIRS(T, __hequ);
    PAIRS(T, __hneu);
    PAIRS(T, __hmax);
    PAIRS(T, __hmin);
    PAIRS(T, __hadd_sat);
    VALUES(T, __hneg);
    VALUES(T, __habs);
    VALUES(T, __hisnan);
    VALUES(T, __hisinf);
}

template <class F8, __nv_fp8_interpretation_t kind> static void eight_bits(const char *type)
{
    puts(type);
    over_floats("float, saturated",
                [](float x) { mix(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, kind)); });
    over_floats("float", [](float x) { mix(__nv_cvt_float_to_fp8(x, __NV_NOSAT, kind)); });
    // Of a NaN in double CUDA keeps some bits, which ones depends on its low half: ours is always
    // the format's one NaN.
    over_floats("double", [](float x) {
        if (x == x)
            mix(__nv_cvt_double_to_fp8(x * (1 + 0x1p-40), __NV_NOSAT, kind));
    });
    over_values<__half>("half",
                        [](__half h) { mix(__nv_cvt_halfraw_to_fp8(h, __NV_NOSAT, kind)); });
    over_values<__nv_bfloat16>("bfloat16", [](__nv_bfloat16 h) {
        mix(__nv_cvt_bfloat16raw_to_fp8(h, __NV_SATFINITE, kind));
    });
    hash = 1;
    for (unsigned bits = 0; bits < 256; bits++) {
        mix(__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(bits), kind));
        F8 x;
        x.__x = static_cast<__nv_fp8_storage_t>(bits);
        mix(static_cast<float>(x));
        mix(static_cast<double>(x));
        mix(static_cast<int>(x));
        mix(static_cast<unsigned char>(x));
        mix(static_cast<long long>(x));
        mix(static_cast<bool>(x));
        mix(static_cast<__nv_bfloat16>(x));
    }
    printf("%-32s %016llx\n", "out", static_cast<unsigned long long>(hash));
    hash = 1;
    for (int i = -70000; i < 70000; i++) {
        mix(F8(i));
        mix(F8(static_cast<unsigned>(i)));
        mix(F8(static_cast<long long>(i) * (1 << 20)));
    }
    printf("%-32s %016llx\n", "integers", static_cast<unsigned long long>(hash));
}

int main()
{
    FLOATS(__float2half);
    FLOATS(__float2half_rz);
    FLOATS(__float2half_ru);
    FLOATS(__float2half_rd);
    FLOATS(__double2half);
    over_floats("__double2half, more bits", [](float x) { mix(__double2half(x * (1 + 0x1p-40))); });
    FLOATS(__float2bfloat16);
    FLOATS(__float2bfloat16_rz);
    FLOATS(__float2bfloat16_ru);
    FLOATS(__float2bfloat16_rd);
    FLOATS(__double2bfloat16);
    over_floats("__double2bfloat16, more bits",
                [](float x) { mix(__double2bfloat16(x * (1 + 0x1p-40))); });
    VALUES(__half, __half2float);
    VALUES(__half, __half2int_rz);
    VALUES(__half, __half2uint_rz);
    VALUES(__half, __half2short_rz);
    VALUES(__half, __half2ushort_rz);
    VALUES(__half, __half2ll_rz);
    VALUES(__half, __half2ull_rz);
    VALUES(__half, __half2char_rz);
    VALUES(__half, __half2uchar_rz);
    VALUES(__nv_bfloat16, __bfloat162float);
    VALUES(__nv_bfloat16, __bfloat162int_rz);
    VALUES(__nv_bfloat16, __bfloat162uint_rz);
    VALUES(__nv_bfloat16, __bfloat162ll_rz);
    VALUES(__nv_bfloat16, __bfloat162ull_rz);
    VALUES(__nv_bfloat16, __bfloat162char_rz);
    over_values<__half>("integers to half and bfloat16", [](__half h) {
        uint16_t n;
        memcpy(&n, &h, sizeof(n));
        int i = static_cast<short>(n);
        mix(__int2half_rn(i * 3));
        mix(__uint2half_rn(n));
        mix(__ll2half_rn(i * 7ll));
        mix(__short2half_rn(static_cast<short>(i)));
        mix(__ushort2half_rn(n));
        mix(__int2bfloat16_rn(static_cast<int>(static_cast<unsigned>(i) * 65537u)));
        mix(__uint2bfloat16_rn(n * 65521u));
        mix(__ll2bfloat16_rn(static_cast<long long>(i) * (1ll << 40) | n));
        mix(__ull2bfloat16_rn(static_cast<unsigned long long>(n) << 48 | n));
    });
    arithmetic<__half>("half");
    arithmetic<__nv_bfloat16>("bfloat16");
    over_floats("scales", [](float x) {
        for (__nv_saturation_t saturate : {__NV_NOSAT, __NV_SATFINITE})
            for (cudaRoundMode rounding : {cudaRoundZero, cudaRoundPosInf}) {
                mix(__nv_cvt_float_to_e8m0(x, saturate, rounding));
                mix(__nv_cvt_double_to_e8m0(x * (1 + 0x1p-40), saturate, rounding));
                mix(__nv_cvt_float2_to_e8m0x2(make_float2(x, 3 * x), saturate, rounding));
            }
        mix(__nv_fp8_e8m0(x));
    });
    over_values<__nv_bfloat16>("scales and bfloat16", [](__nv_bfloat16 x) {
        __nv_bfloat16_raw raw = x;
        mix(__nv_cvt_bfloat16raw_to_e8m0(raw, __NV_SATFINITE, cudaRoundPosInf));
        mix(__nv_cvt_bfloat16raw_to_e8m0(raw, __NV_NOSAT, cudaRoundZero));
        mix(__nv_cvt_e8m0x2_to_bf162raw(raw.x));
        __nv_fp8_e8m0 scale;
        scale.__x = static_cast<__nv_fp8_storage_t>(raw.x);
        mix(static_cast<float>(scale));
    });
    eight_bits<__nv_fp8_e4m3, __NV_E4M3>("e4m3");
    eight_bits<__nv_fp8_e5m2, __NV_E5M2>("e5m2");
    return 0;
}
