// Multimem operations on a made-up range of four members: sums in member order, stores and atomics
// that reach every member, faults, the cache, and counts.
// SPDX-License-Identifier: Apache-2.0
#include "cuda_fp8.h"
#include "expect.h"
#include "fake_runtime.h"
#include "vgpu/multimem.h"

#include <cstring>

namespace
{

using namespace vgpu::multimem;

enum { members = 4, bytes = 256 };
alignas(64) unsigned char memory[members][bytes];
char *table[members];
char *const alias = reinterpret_cast<char *>(uintptr_t(0x700000000000));

void set_up()
{
    for (int i = 0; i < members; i++)
        table[i] = reinterpret_cast<char *>(memory[i]);
    fake_range.base = reinterpret_cast<uintptr_t>(alias);
    fake_range.bytes = bytes;
    fake_range.member_count = members;
    fake_range.member = table;
    vgpu_multimem_cache.bytes = 0;
}

template <class T> void put(int member, int offset, T value)
{
    memcpy(memory[member] + offset, &value, sizeof(value));
}
template <class T> T get(int member, int offset)
{
    T value;
    memcpy(&value, memory[member] + offset, sizeof(value));
    return value;
}

void floats(void)
{
    set_up();
    // An order that shows: 1e8 + 1 loses the 1, so that only the sum in member order gives 2.
    const float columns[4][members] = {
        {1, 2, 3, 4}, {1e8f, 1, -1e8f, 2}, {1, 1e8f, -1e8f, 2}, {-0.0f, -0.0f, -0.0f, -0.0f}};
    for (int c = 0; c < 4; c++)
        for (int m = 0; m < members; m++)
            put(m, 16 + 4 * c, columns[c][m]);
    float out[4];
    load_reduce<f32, 4, operation::add>(out, alias + 16);
    EXPECT(out[0] == 10.0f && out[1] == 2.0f && out[2] == 2.0f && out[3] == 0.0f &&
           std::signbit(out[3]));
    float one[1];
    load_reduce<f32, 1, operation::add>(one, alias + 20);
    EXPECT(one[0] == out[1]);
    double sum[2];
    for (int m = 0; m < members; m++) {
        put(m, 32, 0.1 * m);
        put(m, 40, 1.0 * m);
    }
    load_reduce<f64, 2, operation::add>(sum, alias + 32);
    EXPECT(sum[0] == ((0.0 + 0.1) + 0.1 * 2) + 0.1 * 3 && sum[1] == 6.0);
}

void integers(void)
{
    set_up();
    const int32_t values[members] = {INT32_MAX, 1, -5, 7};
    for (int m = 0; m < members; m++) {
        put(m, 0, values[m]);
        put(m, 8, static_cast<int64_t>(values[m]) * (INT64_C(1) << 32));
    }
    int32_t s[1];
    uint32_t u[1];
    int64_t l[1];
    load_reduce<s32, 1, operation::add>(s, alias);
    EXPECT_EQ(s[0], INT32_MIN + 2);
    load_reduce<s32, 1, operation::min>(s, alias);
    EXPECT_EQ(s[0], -5);
    load_reduce<u32, 1, operation::max>(u, alias);
    EXPECT_EQ(u[0], 0xfffffffbu);
    load_reduce<u32, 1, operation::bit_xor>(u, alias);
    EXPECT_EQ(u[0], static_cast<uint32_t>(INT32_MAX ^ 1 ^ -5 ^ 7));
    load_reduce<s64, 1, operation::max>(l, alias + 8);
    EXPECT_EQ(l[0], static_cast<int64_t>(INT32_MAX) << 32);
    load_reduce<s64, 1, operation::bit_and>(l, alias + 8);
    EXPECT_EQ(l[0], static_cast<int64_t>(INT32_MAX & 1 & -5 & 7) << 32);
}

void small_floats(void)
{
    set_up();
    // One half alone cannot hold 2048 + 1 + 1; the float accumulator can, and rounds once.
    const float column[members] = {2048, 1, 1, -3};
    for (int m = 0; m < members; m++)
        for (int i = 0; i < 8; i++) {
            put(m, 2 * i, __float2half(column[m] * (i + 1)));
            put(m, 32 + 2 * i, __float2bfloat16(column[m] / 8 * (i + 1)));
            put(m, 64 + i, __nv_fp8_e4m3(m == 0 ? 16.0f : 1.0f * i).__x);
            put(m, 72 + i, __nv_fp8_e5m2(m == 1 ? 50000.0f : 20000.0f).__x);
        }
    uint32_t h[4], b[4], f[2];
    load_reduce<f16x2, 4, operation::add>(h, alias);
    load_reduce<bf16x2, 4, operation::add>(b, alias + 32);
    for (int i = 0; i < 8; i++) {
        float want_h = 0, want_b = 0;
        for (int m = 0; m < members; m++) {
            want_h += __half2float(__float2half(column[m] * (i + 1)));
            want_b += __bfloat162float(__float2bfloat16(column[m] / 8 * (i + 1)));
        }
        EXPECT_EQ(static_cast<uint16_t>(h[i / 2] >> 16 * (i % 2)), __float2half(want_h).__x);
        EXPECT_EQ(static_cast<uint16_t>(b[i / 2] >> 16 * (i % 2)), __float2bfloat16(want_b).__x);
    }
    uint16_t lone[1];
    load_reduce<f16, 1, operation::min>(lone, alias);
    EXPECT_EQ(lone[0], __float2half(-3.0f).__x);
    put(2, 0, static_cast<uint16_t>(0x7e00));
    load_reduce<f16, 1, operation::max>(lone, alias);
    EXPECT_EQ(lone[0], __float2half(2048.0f).__x);
    load_reduce<e4m3x4, 2, operation::add>(f, alias + 64);
    for (int i = 0; i < 8; i++)
        EXPECT_EQ(f[i / 4] >> 8 * (i % 4) & 255u, __nv_fp8_e4m3(16.0f + 3 * i).__x);
    load_reduce<e5m2x4, 2, operation::add>(f, alias + 72);
    EXPECT_EQ(f[0] & 255u, 0x7b); // 20480 + 49152 + ... overflows the half and saturates
}

void stores(void)
{
    set_up();
    memset(memory, 0, sizeof(memory));
    store(alias + 48, make_float4(1, 2, 3, 4));
    store(alias + 8, static_cast<uint16_t>(0xabcd));
    store_atomic(alias + 16, static_cast<uint64_t>(77), __ATOMIC_RELEASE);
    for (int m = 0; m < members; m++) {
        EXPECT(get<float>(m, 48) == 1 && get<float>(m, 60) == 4);
        EXPECT_EQ(get<uint16_t>(m, 8), 0xabcd);
        EXPECT_EQ(get<uint64_t>(m, 10 + 6), 77);
        EXPECT_EQ(get<uint32_t>(m, 44), 0);
        EXPECT_EQ(get<uint32_t>(m, 64), 0);
        put(m, 0, 10 + m);
        put(m, 4, static_cast<uint32_t>(m));
        put(m, 24, static_cast<int64_t>(-m));
        put(m, 32, 0.5f * m);
    }
    reduce<operation::add>(alias, 5, __ATOMIC_RELAXED);
    reduce<operation::bit_or>(alias + 4, 8u, __ATOMIC_RELEASE);
    reduce<operation::min>(alias + 24, static_cast<int64_t>(-2), __ATOMIC_RELAXED);
    const float add = 0.25f;
    reduce_with(alias + 32, 1, &add, [](float a, float b) { return a + b; });
    for (int m = 0; m < members; m++) {
        EXPECT_EQ(get<int>(m, 0), 15 + m);
        EXPECT_EQ(get<uint32_t>(m, 4), m | 8);
        EXPECT_EQ(get<int64_t>(m, 24), m > 2 ? -m : -2);
        EXPECT(get<float>(m, 32) == 0.5f * m + 0.25f);
    }
}

void faults(void)
{
    set_up();
    auto load = [](void *address) {
        float out[4];
        load_reduce<f32, 4, operation::add>(out, address);
    };
    EXPECT_EQ(fake_catch(load, alias + 4), cudaErrorMisalignedAddress);
    EXPECT_EQ(fake_catch(load, alias + bytes), cudaErrorIllegalAddress);
    EXPECT_EQ(fake_catch(load, alias - 16), cudaErrorIllegalAddress);
    EXPECT_EQ(fake_catch(load, memory), cudaErrorIllegalAddress);
    EXPECT_EQ(fake_catch(load, alias + bytes - 16), cudaSuccess);
}

void cache_and_counts(void)
{
    set_up();
    fake_finds = fake_loads = fake_stores = 0;
    fake_counted_bytes = 0;
    float out[4];
    for (int i = 0; i < 5; i++)
        load_reduce<f32, 4, operation::add>(out, alias + 16 * i);
    EXPECT_EQ(fake_finds, 1);
    EXPECT_EQ(fake_loads, 0);
    vgpu_counting = true;
    load_reduce<f32, 4, operation::add>(out, alias);
    store(alias, 1.0f);
    reduce<operation::add>(alias, 1u, __ATOMIC_RELAXED);
    vgpu_counting = false;
    EXPECT_EQ(fake_loads, 1);
    EXPECT_EQ(fake_stores, 2);
    EXPECT_EQ(fake_counted_bytes, 16 + 4 + 4);
}

} // namespace

int main(void)
{
    RUN(floats);
    RUN(integers);
    RUN(small_floats);
    RUN(stores);
    RUN(faults);
    RUN(cache_and_counts);
    return expect_result();
}
