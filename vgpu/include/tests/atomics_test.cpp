// Atomic functions and libcu++'s atomics: their values, under many threads, and where they let
// others run.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/atomic"
#include "cuda/std/atomic"
#include "cuda/std/type_traits"
#include "cuda_bf16.h"
#include "cuda_runtime.h"
#include "expect.h"
#include "fake_runtime.h"

#include <thread>
#include <vector>

namespace
{

void values(void)
{
    int i = 5;
    EXPECT_EQ(atomicAdd(&i, 3), 5);
    EXPECT_EQ(atomicSub_system(&i, 1), 8);
    EXPECT_EQ(atomicExch(&i, -4), 7);
    EXPECT_EQ(atomicMin(&i, -9), -4);
    EXPECT_EQ(atomicMax_block(&i, 2), -9);
    EXPECT_EQ(atomicCAS(&i, 2, 6), 2);
    EXPECT_EQ(atomicCAS(&i, 2, 7), 6);
    EXPECT_EQ(atomicAnd(&i, 3), 6);
    EXPECT_EQ(atomicOr(&i, 8), 2);
    EXPECT_EQ(atomicXor(&i, 15), 10);
    EXPECT_EQ(i, 5);
    unsigned u = 2;
    EXPECT_EQ(atomicInc(&u, 2), 2);
    EXPECT_EQ(u, 0);
    EXPECT_EQ(atomicDec(&u, 9), 0);
    EXPECT_EQ(u, 9);
    unsigned long long l = ~0ull;
    EXPECT_EQ(atomicMin(&l, 4ull), ~0ull);
    EXPECT_EQ(atomicAdd(&l, ~0ull), 4);
    EXPECT_EQ(l, 3);
    float f = 1.5f;
    EXPECT(atomicAdd(&f, 2.0f) == 1.5f && f == 3.5f && atomicExch(&f, 1.0f) == 3.5f);
    double d = 1;
    EXPECT(atomicAdd_system(&d, 0.25) == 1 && d == 1.25);
    unsigned short s = 3;
    EXPECT_EQ(atomicCAS(&s, (unsigned short)3, (unsigned short)4), 3);
    __half2 h = __floats2half2_rn(1, 2);
    atomicAdd(&h, __floats2half2_rn(10, 20));
    EXPECT(__low2float(h) == 11.0f && __high2float(h) == 22.0f);
    __nv_bfloat16 b[2] = {__float2bfloat16(1), __float2bfloat16(2)};
    atomicAdd(&b[1], __float2bfloat16(4));
    EXPECT(__bfloat162float(b[0]) == 1.0f && __bfloat162float(b[1]) == 6.0f);
}

struct alignas(16) sixteen {
    long low, high;
};

void wide_values(void)
{
    sixteen x = {1, 2};
    sixteen old = atomicCAS(&x, sixteen{1, 3}, sixteen{5, 6});
    EXPECT(old.low == 1 && old.high == 2 && x.low == 1);
    old = atomicCAS_system(&x, sixteen{1, 2}, sixteen{5, 6});
    EXPECT(old.high == 2 && x.low == 5 && x.high == 6);
    old = atomicExch_block(&x, sixteen{7, 8});
    EXPECT(old.low == 5 && x.high == 8);
    float2 pair = make_float2(1, 2);
    EXPECT(atomicAdd_system(&pair, make_float2(3, 4)).y == 2 && pair.x == 4 && pair.y == 6);
    float4 four = make_float4(1, 2, 3, 4);
    atomicAdd_block(&four, four);
    EXPECT(four.x == 2 && four.w == 8);
    long long bits = 12;
    EXPECT(atomicAnd(&bits, 10ll) == 12 && atomicOr_block(&bits, 3ll) == 8 && bits == 11);
    EXPECT(atomicXor_system(&bits, ~0ll) == 11 && bits == -12);

    cuda::atomic_ref<sixteen> reference(x);
    EXPECT(reference.is_lock_free() && reference.load().high == 8);
    reference.store(sixteen{1, 1}, cuda::memory_order_release);
    EXPECT(reference.exchange(sixteen{2, 2}).low == 1);
    sixteen expected = {9, 9};
    EXPECT(!reference.compare_exchange_strong(expected, sixteen{3, 3}) && expected.low == 2);
    EXPECT(reference.compare_exchange_weak(expected, sixteen{3, 3}) && x.high == 3);
}

template <class T> void every_operation(void)
{
    cuda::atomic<T, cuda::thread_scope_device> a(10);
    EXPECT(a.is_lock_free() && a.is_always_lock_free && a == T(10));
    EXPECT(a.fetch_add(5) == T(10) && a.fetch_sub(3) == T(15) && a.fetch_and(6) == T(12));
    EXPECT(a.fetch_or(3) == T(4) && a.fetch_xor(1) == T(7) && a.fetch_min(2) == T(6));
    EXPECT(a.fetch_max(9) == T(2) && a++ == T(9) && ++a == T(11) && a-- == T(11) && --a == T(9));
    EXPECT((a += 1) == T(10) && (a -= 4) == T(6) && (a &= 3) == T(2) && (a |= 1) == T(3));
    EXPECT((a ^= 2) == T(1) && (a = 7) == T(7));
    T highest = static_cast<T>(~T(0) < T(0) ? T(1) << (8 * sizeof(T) - 2) : ~T(0));
    a.store(highest, cuda::memory_order_relaxed);
    EXPECT(a.fetch_add(highest) == highest); // wraps, and is no undefined behaviour
    a.wait(highest);
    a.notify_all();
}

void all_sizes(void)
{
    every_operation<signed char>();
    every_operation<unsigned char>();
    every_operation<short>();
    every_operation<unsigned>();
    every_operation<int>();
    every_operation<long long>();
    every_operation<unsigned long>();
    int cells[4] = {};
    cuda::atomic<int *, cuda::thread_scope_block> p(cells);
    EXPECT(p.fetch_add(2) == cells && p++ == cells + 2 && --p == cells + 2 &&
           (p -= 1) == cells + 1);
    cuda::atomic<double> d(1.5);
    EXPECT(d.fetch_add(1) == 1.5 && d.fetch_max(9) == 2.5 && (d -= 2) == 7.0);
    cuda::std::atomic_flag flag;
    EXPECT(!flag.test_and_set() && flag.test_and_set() && flag.test());
    flag.clear();
    EXPECT(!flag.test());
    cuda::atomic<bool> truth(false);
    EXPECT(!truth.exchange(true) && truth);
}

// What a spin loop would call lets other threads run; what makes progress does not.
void yields(void)
{
    auto count = [](auto call) {
        int before = fake_yields;
        call();
        return fake_yields - before;
    };
    int i = 1;
    EXPECT_EQ(count([&] { atomicCAS(&i, 0, 1); }), 1);
    EXPECT_EQ(count([&] { atomicCAS(&i, 1, 1); }), 1);
    EXPECT_EQ(count([&] { atomicCAS(&i, 1, 0); }), 0);
    EXPECT_EQ(count([&] { atomicExch(&i, 0); }), 1);
    EXPECT_EQ(count([&] { atomicExch(&i, 1); }), 0);
    EXPECT_EQ(count([&] { atomicAdd(&i, 0); }), 1);
    EXPECT_EQ(count([&] { atomicAdd(&i, 1); }), 0);
    EXPECT_EQ(count([&] { atomicOr(&i, 0); }), 1);
    EXPECT_EQ(count([&] { atomicMax(&i, 0); }), 1);
    cuda::atomic_ref<int> ref(i);
    EXPECT_EQ(count([&] { ref.load(cuda::memory_order_acquire); }), 1);
    EXPECT_EQ(count([&] { ref.store(4, cuda::memory_order_release); }), 0);
    EXPECT_EQ(count([&] { ref.fetch_add(1); }), 0);
    int expected = 9;
    EXPECT_EQ(count([&] { ref.compare_exchange_strong(expected, 1); }), 1);
    EXPECT_EQ(expected, 5);
}

void references(void)
{
    uint64_t word = 7;
    cuda::atomic_ref<uint64_t, cuda::thread_scope_device> ref{word};
    EXPECT_EQ(ref.load(cuda::memory_order_relaxed), 7);
    ref.store(9, cuda::std::memory_order_relaxed);
    EXPECT_EQ(ref.fetch_max(20), 9);
    EXPECT_EQ(++ref, 21);
    EXPECT_EQ(ref.exchange(1, cuda::memory_order_acq_rel), 21);
    EXPECT_EQ(ref -= 1, 0);
    EXPECT_EQ(ref = 3, 3);
    EXPECT_EQ(static_cast<uint64_t>(ref), 3);
    float f = 1;
    cuda::atomic_ref<float, cuda::thread_scope_block> rf(f);
    EXPECT(rf.fetch_add(2.0f, cuda::memory_order_relaxed) == 1.0f && f == 3.0f);
    int array[4] = {};
    int *p = array;
    cuda::std::atomic_ref<int *> rp(p);
    EXPECT(rp.fetch_add(2) == array && p == array + 2);
    cuda::atomic<unsigned, cuda::thread_scope_system> a(5);
    EXPECT(a == 5u && (a |= 2) == 7u && a.is_lock_free());
    struct pair {
        int x, y;
    } q = {1, 2};
    cuda::atomic_ref<pair> rq(q);
    pair old = rq.exchange({3, 4});
    EXPECT(old.y == 2 && q.x == 3);
    cuda::memory_order order = cuda::memory_order_seq_cst;
    cuda::atomic_thread_fence(order, cuda::thread_scope_system);
    cuda::atomic_thread_fence(cuda::memory_order_acquire, cuda::thread_scope_block);
    static_assert(cuda::std::is_same<cuda::std::remove_reference_t<int &>, int>::value,
                  "type traits");
}

// Four threads: no update is lost, and release/acquire carries data.
void threads(void)
{
    static int sum, largest, lock;
    static float total;
    static long guarded, failures;
    static double message;
    static unsigned flag;
    std::vector<std::thread> all;
    for (int t = 0; t < 4; t++)
        all.emplace_back([t] {
            for (int i = 0; i < 5000; i++) {
                atomicAdd(&sum, 1);
                atomicAdd(&total, 1.0f);
                atomicMax(&largest, t * 10000 + i);
                while (atomicCAS(&lock, 0, 1) != 0)
                    std::this_thread::yield();
                __threadfence();
                guarded++;
                __threadfence();
                atomicExch(&lock, 0);
            }
            cuda::atomic_ref<unsigned, cuda::thread_scope_system> ref(flag);
            if (t == 0) {
                message = 42;
                ref.store(1, cuda::memory_order_release);
            } else {
                while (ref.load(cuda::memory_order_acquire) == 0)
                    std::this_thread::yield();
                if (message != 42)
                    __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
            }
        });
    for (auto &t : all)
        t.join();
    EXPECT_EQ(sum, 20000);
    EXPECT(total == 20000.0f);
    EXPECT_EQ(largest, 34999);
    EXPECT_EQ(guarded, 20000);
    EXPECT_EQ(failures, 0);
}

} // namespace

int main(void)
{
    RUN(values);
    RUN(wide_values);
    RUN(all_sizes);
    RUN(yields);
    RUN(references);
    RUN(threads);
    return expect_result();
}
