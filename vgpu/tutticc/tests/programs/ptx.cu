// What the translated PTX computes.
// SPDX-License-Identifier: Apache-2.0
#include "check.cuh"

#include <cstdint>

#define EQUAL(a, b)                                                                                \
    do {                                                                                           \
        auto a_ = (a);                                                                             \
        decltype(a_) b_ = (b);                                                                     \
        if (!(a_ == b_)) {                                                                         \
            printf("%s:%d: %s is %g, not %g\n", __FILE__, __LINE__, #a, double(a_), double(b_));   \
            ++*bad;                                                                                \
        }                                                                                          \
    } while (0)

#define UNARY(constraint, type, instruction, a)                                                    \
    [](type x) {                                                                                   \
        type d;                                                                                    \
        asm volatile(instruction " %0, %1;" : "=" constraint(d) : constraint(x));                  \
        return d;                                                                                  \
    }(a)
#define BINARY(constraint, type, instruction, a, b)                                                \
    [](type x, type y) {                                                                           \
        type d;                                                                                    \
        asm(instruction " %0, %1, %2;" : "=" constraint(d) : constraint(x), constraint(y));        \
        return d;                                                                                  \
    }(a, b)
#define TERNARY(constraint, type, instruction, a, b, c)                                            \
    [](type x, type y, type z) {                                                                   \
        type d;                                                                                    \
        asm(instruction " %0, %1, %2, %3;"                                                         \
            : "=" constraint(d)                                                                    \
            : constraint(x), constraint(y), constraint(z));                                        \
        return d;                                                                                  \
    }(a, b, c)

__global__ void arithmetic(int *bad)
{
    EQUAL(BINARY("r", unsigned, "add.u32", 0xffffffffu, 2u), 1u);
    EQUAL(BINARY("r", int, "sub.s32", -0x7fffffff, 2), 0x7fffffff);
    EQUAL(BINARY("r", int, "mul.lo.s32", 1 << 20, 1 << 13), 0);
    EQUAL(BINARY("r", unsigned, "mul.hi.u32", 0x80000000u, 6u), 3u);
    EQUAL(BINARY("r", int, "mul.hi.s32", -1, 6), -1);
    EQUAL(BINARY("l", uint64_t, "mul.hi.u64", 1ull << 63, 6ull), 3ull);
    EQUAL(TERNARY("r", int, "mad.lo.s32", 3, 4, 5), 17);
    long long wide;
    asm("mul.wide.s32 %0, %1, %2;" : "=l"(wide) : "r"(-3), "r"(1 << 30));
    EQUAL(wide, -3ll * (1 << 30));
    asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(wide) : "r"(0xffffffffu), "r"(2), "l"(5ll));
    EQUAL(wide, 0x1fffffffell + 5);
    EQUAL(BINARY("r", int, "div.s32", -7, 2), -3);
    EQUAL(BINARY("r", int, "rem.s32", -7, 2), -1);
    EQUAL(BINARY("r", int, "min.s32", -7, 2), -7);
    EQUAL(BINARY("r", unsigned, "max.u32", 0xfffffff0u, 2u), 0xfffffff0u);
    EQUAL(UNARY("r", int, "neg.s32", 5), -5);
    EQUAL(UNARY("l", long long, "abs.s64", -5ll), 5ll);
    EQUAL(BINARY("f", float, "add.rn.f32", 1.5f, 2.25f), 3.75f);
    EQUAL(BINARY("f", float, "mul.f32", 1.5f, -2.f), -3.f);
    EQUAL(BINARY("f", float, "div.rn.f32", 1.f, 4.f), 0.25f);
    EQUAL(BINARY("f", float, "min.f32", __int_as_float(0x7fc00000), 4.f), 4.f);
    EQUAL(BINARY("d", double, "max.f64", -1.0, 4.0), 4.0);
    EQUAL(TERNARY("f", float, "fma.rn.f32", 1.f + 1.f / 4096, 1.f + 1.f / 4096, -1.f),
          2.f / 4096 + 1.f / 4096 / 4096);
    EQUAL(TERNARY("d", double, "fma.rn.f64", 2.0, 3.0, 4.0), 10.0);
    EQUAL(UNARY("f", float, "sqrt.rn.f32", 9.f), 3.f);
    EQUAL(UNARY("f", float, "rsqrt.approx.f32", 4.f), 0.5f);
    EQUAL(UNARY("f", float, "rcp.approx.ftz.f32", 4.f), 0.25f);
    EQUAL(UNARY("f", float, "ex2.approx.f32", -2.f), 0.25f);
    EQUAL(UNARY("f", float, "lg2.approx.f32", 8.f), 3.f);
    EQUAL(UNARY("f", float, "neg.f32", 8.f), -8.f);
    short h;
    asm("add.s16 %0, %1, %2;" : "=h"(h) : "h"((short)0x7fff), "h"((short)1));
    EQUAL(h, (short)-0x8000);
    float constant;
    asm("add.f32 %0, %1, 0f3F800000;" : "=f"(constant) : "f"(1.f));
    EQUAL(constant, 2.f);
    asm("mov.f32 %0, 2.5;" : "=f"(constant));
    EQUAL(constant, 2.5f);
}

__global__ void bits(int *bad)
{
    EQUAL(BINARY("r", unsigned, "and.b32", 0xff00ff00u, 0x0ff00ff0u), 0x0f000f00u);
    EQUAL(BINARY("l", uint64_t, "or.b64", 1ull << 40, 1ull), (1ull << 40) | 1);
    EQUAL(BINARY("r", unsigned, "xor.b32", 5u, 3u), 6u);
    EQUAL(UNARY("r", unsigned, "not.b32", 5u), ~5u);
    EQUAL(BINARY("r", unsigned, "shl.b32", 5u, 4u), 80u);
    EQUAL(BINARY("r", unsigned, "shl.b32", 5u, 32u), 0u);
    EQUAL(BINARY("r", int, "shr.s32", -16, 2), -4);
    EQUAL(BINARY("r", int, "shr.s32", -16, 99), -1);
    EQUAL(BINARY("r", unsigned, "shr.u32", 0x80000000u, 31u), 1u);
    EQUAL(UNARY("r", unsigned, "popc.b32", 0xf0f0u), 8u);
    EQUAL(UNARY("r", unsigned, "clz.b32", 0x00f00000u), 8u);
    EQUAL(UNARY("r", unsigned, "brev.b32", 1u), 0x80000000u);
    EQUAL(UNARY("r", unsigned, "bfind.u32", 0x00f00000u), 23u);
    EQUAL(TERNARY("r", unsigned, "bfe.u32", 0x12345678u, 8u, 8u), 0x56u);
    EQUAL(TERNARY("r", int, "bfe.s32", 0x0000f000, 12, 4), -1);
    EQUAL(TERNARY("r", unsigned, "prmt.b32", 0x33221100u, 0x77665544u, 0x7531u), 0x77553311u);
    unsigned d, e;
    asm("bfi.b32 %0, %1, %2, 8, 8;" : "=r"(d) : "r"(0xab), "r"(0x11111111));
    EQUAL(d, 0x1111ab11u);
    asm("shf.l.wrap.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(0x80000000u), "r"(1), "r"(1));
    EQUAL(d, 3u);
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(d) : "r"(1), "r"(3), "r"(7));
    EQUAL(d, 5u);
    unsigned long long both;
    asm("mov.b64 %0, {%1, %2};" : "=l"(both) : "r"(1), "r"(2));
    EQUAL(both, (2ull << 32) | 1);
    asm("mov.b64 {%0, %1}, %2;" : "=r"(d), "=r"(e) : "l"(both));
    EQUAL(d, 1u);
    EQUAL(e, 2u);
    asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; mov.b32 %0, {hi, lo}; }"
        : "=r"(d)
        : "r"(0x12345678));
    EQUAL(d, 0x56781234u);
    int signed_value;
    asm("cvt.s32.s8 %0, %1;" : "=r"(signed_value) : "r"(0x1ff));
    EQUAL(signed_value, -1);
    asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(signed_value) : "f"(-2.7f));
    EQUAL(signed_value, -2);
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(signed_value) : "f"(2.5f));
    EQUAL(signed_value, 2);
    float f;
    asm("cvt.rn.f32.u32 %0, %1;" : "=f"(f) : "r"(7));
    EQUAL(f, 7.f);
    asm("{ .reg .b16 h; cvt.rn.f16.f32 h, %1; cvt.f32.f16 %0, h; }"
        : "=f"(f)
        : "f"(1.0f + 1.f / 4096));
    EQUAL(f, 1.f);
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(1.f), "f"(2.f));
    EQUAL(d, 0x3f804000u);
}

__global__ void predicates(int *bad)
{
    int d;
    asm("{ .reg .pred p, q; setp.lt.s32 p|q, %1, %2; selp.b32 %0, 1, 2, p; @q add.s32 %0, %0, 10; "
        "@!q add.s32 %0, %0, 20; }"
        : "=r"(d)
        : "r"(-1), "r"(1));
    EQUAL(d, 21);
    asm("{\n\t.reg .pred %%p<3>;\n\tsetp.ne.u32 %%p1, %1, 0; setp.gt.and.u32 %%p2, %1, 3, %%p1;\n\t"
        "selp.u32 %0, 5, 6, %%p2;\n\t}"
        : "=r"(d)
        : "r"(4));
    EQUAL(d, 5);
    asm("{ .reg .pred p; setp.neu.f32 p, %1, %1; selp.s32 %0, 1, 0, p; }"
        : "=r"(d)
        : "f"(__int_as_float(0x7fc00000)));
    EQUAL(d, 1);
    asm("{ .reg .pred p; setp.eq.f32 p, %1, %1; not.pred p, p; selp.s32 %0, 1, 0, p; }"
        : "=r"(d)
        : "f"(1.f));
    EQUAL(d, 0);
    int in_out = 3;
    asm volatile("{ .reg .u32 t; mov.u32 t, %0; { .reg .u32 t; mov.u32 t, 9; } add.u32 %0, t, %1; }"
                 : "+r"(in_out)
                 : "n"(4));
    EQUAL(in_out, 7);
    asm("add.s32 %[to], %[from], 1;" : [to] "=r"(d) : [from] "r"(41));
    EQUAL(d, 42);
    if (d == 42)
        asm("mov.u32 %0, 1;" : "=r"(d));
    else
        asm("mov.u32 %0, 2;" : "=r"(d));
    EQUAL(d, 1);
}

__global__ void memory(int *bad, unsigned *m)
{
    asm volatile("st.global.u32 [%0], %1;" ::"l"(m), "r"(11) : "memory");
    asm volatile("st.release.sys.global.u32 [%0+4], %1;" ::"l"(m), "r"(12) : "memory");
    asm volatile("st.relaxed.gpu.b32 [%0 + 8], %1;" ::"l"(m), "r"(13));
    asm volatile("st.volatile.global.u32 [%0], %1;" ::"l"(m + 3), "r"(14));
    uint4 v;
    asm volatile("ld.relaxed.sys.v4.u32 {%0,%1,%2,%3},[%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(m)
                 : "memory");
    EQUAL(v.x + v.y + v.z + v.w, 50u);
    unsigned d;
    asm volatile("ld.acquire.gpu.u32 %0, [%1-4];" : "=r"(d) : "l"(m + 1));
    EQUAL(d, 11u);
    unsigned long long wide;
    asm volatile("ld.volatile.global.u64 %0, [%1];" : "=l"(wide) : "l"(m));
    EQUAL(wide, (12ull << 32) | 11);
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v2.s32 {%0, _}, [%1];"
                 : "=r"(d)
                 : "l"(m + 2));
    EQUAL(d, 13u);
    asm volatile("st.global.b8 [%0], %1;" ::"l"(m), "r"(0x1ff));
    EQUAL(m[0], 0xffu);
    int sign;
    asm volatile("ld.global.s8 %0, [%1];" : "=r"(sign) : "l"(m));
    EQUAL(sign, -1);
    asm volatile("st.global.wt.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(m), "r"(1), "r"(2), "r"(3),
                 "r"(4));
    EQUAL(m[3], 4u);
    asm volatile(
        "{ .reg .b128 x; mov.b128 x, {%1, %2}; st.relaxed.sys.global.b128 [%0], x; }" ::"l"(m),
        "l"(5ull), "l"(6ull));
    EQUAL(m[2], 6u);
    asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(m), "l"(7ull), "l"(8ull));
    EQUAL(m[2], 8u);
    asm volatile("st.relaxed.sys.v4.u32 [%0],{%1,%3,%2,%3};" ::"l"(m), "r"(1), "r"(2), "r"(9));
    EQUAL(m[1] * 100 + m[2] * 10 + m[3], 929u);
    // Shared memory, also by an address of 32 bits.
    __shared__ int s[4];
    unsigned address = (unsigned)__cvta_generic_to_shared(s);
    asm volatile("st.shared.s32 [%0+8], %1;" ::"r"(address), "r"(77));
    EQUAL(s[2], 77);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"l"(__cvta_generic_to_shared(s)),
                 "l"(m));
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;");
    EQUAL(s[1], 9);
    asm volatile(
        "fence.acq_rel.sys; fence.sc.gpu; membar.gl; fence.acq_rel.cta; fence.proxy.async;" ::
            : "memory");
}

__global__ void atomics(int *bad, unsigned *m)
{
    unsigned old;
    m[0] = 5;
    asm volatile("red.release.sys.global.add.u32 [%0], %1;" ::"l"(m), "r"(2) : "memory");
    EQUAL(m[0], 7u);
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(m), "r"(3));
    EQUAL(old * 100 + m[0], 710u);
    asm volatile("atom.add.release.sys.global.s32 %0, [%1], %2;" : "=r"(old) : "l"(m), "r"(-4));
    EQUAL(m[0], 6u);
    asm volatile("atom.cas.b32 %0, [%1], %2, %3;" : "=r"(old) : "l"(m), "r"(6), "r"(20));
    EQUAL(old * 100 + m[0], 620u);
    asm volatile("atom.acquire.cta.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(old)
                 : "l"(m), "r"(6), "r"(30));
    EQUAL(old * 100 + m[0], 2020u);
    asm volatile("atom.exch.b32 %0, [%1], %2;" : "=r"(old) : "l"(m), "r"(1));
    EQUAL(old * 100 + m[0], 2001u);
    asm volatile("atom.max.s32 _, [%0], %1;" ::"l"(m), "r"(9));
    EQUAL(m[0], 9u);
    asm volatile("atom.inc.u32 %0, [%1], 9;" : "=r"(old) : "l"(m));
    EQUAL(m[0], 0u);
    asm volatile("red.or.b32 [%0], 6; red.and.b32 [%0], 12; red.xor.b32 [%0], 1;" ::"l"(m));
    EQUAL(m[0], 5u);
    float *f = reinterpret_cast<float *>(m + 4);
    for (int i = 0; i < 4; i++)
        f[i] = i;
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(f), "f"(1.f), "f"(2.f),
                 "f"(3.f), "f"(4.f));
    EQUAL(f[0] + 10 * f[1] + 100 * f[2] + 1000 * f[3], 7531.f);
    asm volatile("red.relaxed.gpu.global.add.noftz.f16x2 [%0], %1;" ::"l"(m + 1),
                 "r"(0x3c004000u)); // 1, 2
    EQUAL(m[1], 0x3c004000u);
    asm volatile("red.global.add.u64 [%0], %1;" ::"l"(m + 2), "l"(1ull << 40));
    EQUAL(m[3], 1u << 8);
}

__global__ void special(int *bad)
{
    unsigned lane, mask, thread, block;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(mask));
    asm("mov.u32 %0, %%tid.x; mov.u32 %1, %%ctaid.x;" : "=r"(thread), "=r"(block));
    EQUAL(lane, threadIdx.x % 32);
    EQUAL(mask, (1u << lane) - 1);
    EQUAL(thread + 1000 * block, threadIdx.x + 1000 * blockIdx.x);
    unsigned long long t0, t1;
    asm volatile("mov.u64 %0, %%globaltimer; mov.u64 %1, %%clock64;" : "=l"(t0), "=l"(t1));
    EQUAL(t0 != 0 && t1 != 0, true);
}

__global__ void warps(int *bad)
{
    int lane = threadIdx.x;
    unsigned d, e;
    asm volatile("{ .reg .pred p; setp.lt.s32 p, %1, 5; vote.sync.ballot.b32 %0, p, 0xffffffff; }"
                 : "=r"(d)
                 : "r"(lane));
    EQUAL(d, 0x1fu);
    asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 0x1f, 0xffffffff;" : "=r"(d) : "r"(lane));
    EQUAL(d, unsigned(lane ^ 1));
    asm volatile(
        "{ .reg .pred p; shfl.sync.up.b32 %0|p, %2, 2, 0, 0xffffffff; selp.u32 %1, 1, 0, p; }"
        : "=r"(d), "=r"(e)
        : "r"(lane));
    EQUAL(d * 2 + e, lane < 2 ? unsigned(lane) * 2 : (unsigned(lane) - 2) * 2 + 1);
    asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(d) : "r"(lane));
    EQUAL(d, 31u * 16);
    asm volatile("{ .reg .pred p; elect.sync %0|p, 0xffffffff; selp.u32 %1, 1, 0, p; }"
                 : "=r"(d), "=r"(e));
    EQUAL(e, unsigned(lane == 0));
    asm volatile("match.any.sync.b32 %0, %1, 0xffffffff;" : "=r"(d) : "r"(lane / 16));
    EQUAL(d, lane < 16 ? 0xffffu : 0xffff0000u);
    asm volatile("activemask.b32 %0;" : "=r"(d));
    EQUAL(d, 0xffffffffu);
    asm volatile("bar.warp.sync 0xffffffff;");
    asm volatile("bar.sync 0;");
    asm volatile("barrier.sync %0, %1;" ::"r"(1), "r"(32) : "memory");
    asm volatile("nanosleep.u32 100;");
}

__global__ void traps()
{
    asm volatile("trap;");
}

int main()
{
    int *bad = make<int>(1);
    unsigned *m = make<unsigned>(64);
    arithmetic<<<1, 1>>>(bad);
    bits<<<1, 1>>>(bad);
    predicates<<<1, 1>>>(bad);
    memory<<<1, 1>>>(bad, m);
    CHECK_CUDA(cudaDeviceSynchronize());
    memset(m, 0, 64 * sizeof(unsigned));
    atomics<<<1, 1>>>(bad, m);
    special<<<2, 40>>>(bad);
    warps<<<1, 32>>>(bad);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(*bad == 0);
    int failed = report();
    traps<<<1, 1>>>();
    if (cudaDeviceSynchronize() != cudaErrorLaunchFailure) {
        printf("trap did not fail\n");
        return 1;
    }
    return failed;
}
