// Tests of the PTX translator: which instructions it knows, and what it says about the others. What
// they compute is tested by tests/programs/ptx.cu.
// SPDX-License-Identifier: Apache-2.0
#include "ptx.h"

#include "expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ptx_asm_operand OPERANDS[] = {
    {NULL, 'r'}, {NULL, 'r'}, {NULL, 'r'}, {"named", 'l'}, {NULL, 'l'},
    {NULL, 'f'}, {NULL, 'f'}, {NULL, 'f'}, {NULL, 'd'},    {NULL, 'h'}};

static char *translated(const char *ptx, int arch, char **error)
{
    struct ptx_program program = {.operand = OPERANDS,
                                  .operand_count = sizeof(OPERANDS) / sizeof(OPERANDS[0]),
                                  .has_colons = true,
                                  .arch = arch,
                                  .checks_arch = true,
                                  .serial = 1};
    struct text out = {0};
    text_add(&out, "");
    *error = ptx_translate(ptx, &program, &out);
    return out.data;
}

static void expect_known(const char *ptx, const char *part)
{
    char *error, *text = translated(ptx, 100, &error);
    if (!EXPECT_STR(error, NULL) || !EXPECT_CONTAINS(text, part)) {
        printf("  in %s\n", ptx);
    }
    free(error);
    free(text);
}

static void expect_refused(const char *ptx, const char *message)
{
    char *error, *text = translated(ptx, 90, &error);
    if (!EXPECT_STR(error ? error : "nothing", message)) {
        printf("  in %s\n", ptx);
    }
    free(error);
    free(text);
}

static void loads_and_stores(void)
{
    expect_known("ld.global.u32 %0, [%4];",
                 "ld< ::vgpu::ptx::order::weak>(vgpu_value, ::vgpu::ptx::address(vgpu_r1_4))");
    expect_known("ld.relaxed.gpu.global.L1::no_allocate.b64 %4, [%3];", "order::relaxed");
    expect_known("ld.acquire.sys.b32 %0, [%[named]];",
                 "order::acquire>(vgpu_value, ::vgpu::ptx::address(vgpu_r1_3))");
    expect_known("ld.volatile.v4.u32 {%0, %1, %2, _}, [%4 + 16];",
                 "address((vgpu_r1_4 + 0x10ull))");
    expect_known("ld.shared.f32 %5, [%0];", "address_of_shared(vgpu_r1_0)");
    expect_known("ld.global.nc.L2::128B.f64 %8, [%4];", "f64 vgpu_value[1]");
    expect_known("st.release.cta.u32 [%4], %0;", "st< ::vgpu::ptx::order::release>");
    expect_known("st.global.wt.v4.u32 [%4], {%0, 1, 0x2, -1};", "0xffffffffffffffffull");
    expect_known("st.relaxed.sys.global.v2.b64 [%4], {%3, %4};", "u64 vgpu_value[2]");
    expect_refused("ld.global.u32 %0, %4;",
                   "the PTX instruction 'ld.global.u32' does not take these operands");
    expect_refused("ld.global.v2.u32 %0, [%4];",
                   "the PTX instruction 'ld.global.v2.u32' does not take these operands");
    expect_refused("ld.release.gpu.u32 %0, [%4];",
                   "tutticc does not translate the PTX instruction 'ld.release.gpu.u32'");
    expect_refused("st.acquire.gpu.u32 [%4], %0;",
                   "tutticc does not translate the PTX instruction 'st.acquire.gpu.u32'");
    expect_refused("ld.global.v8.u64 {%0,%0,%0,%0,%0,%0,%0,%0}, [%4];",
                   "tutticc does not translate the PTX instruction 'ld.global.v8.u64'");
    expect_refused("ld.global %0, [%4];",
                   "tutticc does not translate the PTX instruction 'ld.global'");
    expect_refused("ld.globl.u32 %0, [%4];",
                   "tutticc does not translate the PTX instruction 'ld.globl.u32'");
    expect_refused(
        "st.async.weak.shared::cluster.u32 [%4], %0;",
        "tutticc does not translate the PTX instruction 'st.async.weak.shared::cluster.u32'");
}

static void atomics(void)
{
    expect_known("red.relaxed.cta.add.u64 [%4], 1;",
                 "atom_add< ::vgpu::ptx::u64, ::vgpu::ptx::order::relaxed>");
    expect_known("atom.acquire.cta.shared::cta.cas.b32 %0, [%4], %1, %2;",
                 "atom_cas< ::vgpu::ptx::u32, ::vgpu::ptx::order::acquire>");
    expect_known("atom.global.add.noftz.bf16x2 %0, [%4], %1;", "::vgpu::ptx::bf16x2");
    expect_refused("red.exch.b32 [%4], 1;",
                   "tutticc does not translate the PTX instruction 'red.exch.b32'");
    expect_refused("atom.and.u32 %0, [%4], 1;",
                   "tutticc does not translate the PTX instruction 'atom.and.u32'");
    expect_refused("atom.add.u8 %0, [%4], 1;",
                   "tutticc does not translate the PTX instruction 'atom.add.u8'");
    expect_refused("red.add.u32 %0, 1;",
                   "the PTX instruction 'red.add.u32' does not take these operands");
}

static void multicast(void)
{
    static const char *const KNOWN[][2] = {
        {"multimem.ld_reduce.global.add.f32 %5, [%4];",
         "::vgpu::multimem::f32, ::vgpu::multimem::operation::add"},
        {"multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%5, %6, %7, %5}, [%4];",
         "order::relaxed"},
        {"multimem.ld_reduce.global.add.f64 %8, [%4];", "f64::storage vgpu_value[1]"},
        {"multimem.ld_reduce.global.add.acc::f32.v4.bf16x2 {%0, %1, %2, %0}, [%4];",
         "::vgpu::multimem::bf16x2"},
        {"multimem.ld_reduce.global.max.f16x2 %0, [%4];", "operation::max"},
        {"multimem.ld_reduce.global.add.acc::f16.v4.e4m3x4 {%0, %1, %2, %0}, [%4];", "e4m3x4"},
        {"multimem.ld_reduce.global.min.s64 %4, [%3];", "::vgpu::multimem::s64"},
        {"multimem.ld_reduce.global.xor.b64 %4, [%3];",
         "::vgpu::multimem::u64, ::vgpu::multimem::operation::bit_xor"},
        {"multimem.st.global.b64 [%4], %3;", "multimem_st< ::vgpu::ptx::order::weak>"},
        {"multimem.st.release.sys.global.u32 [%4], %0;", "order::release"},
        {"multimem.st.global.v4.f32 [%4], {%0, %1, %5, %6};", "f32 vgpu_value[4]"},
        {"multimem.red.release.sys.global.add.u32 [%4], %0;",
         "multimem_red< ::vgpu::ptx::order::release, ::vgpu::multimem::operation::add>"},
        {"multimem.red.relaxed.sys.add.v2.f32 [%4], {%5, %6};", "f32 vgpu_value[2]"},
    };
    for (size_t i = 0; i < sizeof(KNOWN) / sizeof(KNOWN[0]); i++) {
        expect_known(KNOWN[i][0], KNOWN[i][1]);
    }
    static const char *const UNKNOWN[] = {"multimem.ld_reduce.global.min.f32",
                                          "multimem.ld_reduce.global.add.b32",
                                          "multimem.ld_reduce.global.add.v2.u32",
                                          "multimem.ld_reduce.global.add.v2.f64",
                                          "multimem.ld_reduce.global.add.v8.f32",
                                          "multimem.ld_reduce.global.and.u32",
                                          "multimem.ld_reduce.release.sys.global.add.f32",
                                          "multimem.ld_reduce.global.f32",
                                          "multimem.ld.global.add.f32"};
    for (size_t i = 0; i < sizeof(UNKNOWN) / sizeof(UNKNOWN[0]); i++) {
        char *ptx = format_string("%s %%0, [%%4];", UNKNOWN[i]);
        char *message =
            format_string("tutticc does not translate the PTX instruction '%s'", UNKNOWN[i]);
        expect_refused(ptx, message);
        free(ptx);
        free(message);
    }
    expect_refused("multimem.ld_reduce.global.add.acc::f16.e4m3x4 %0, [%4];",
                   "the PTX instruction 'multimem.ld_reduce.global.add.acc::f16.e4m3x4' needs a "
                   "target of sm_100 or later, not sm_90");
}

static void the_rest(void)
{
    expect_known("fence.acq_rel.gpu; fence.sc.sys; membar.cta; fence.proxy.async.shared::cta; "
                 "fence.mbarrier_init.release.cluster;",
                 "fence_block<");
    expect_known("mov.u32 %0, %%lanemask_lt;", "special_lanemask_lt()");
    expect_known("mov.u32 %0, %%ctaid.y;", "special_ctaid_y()");
    expect_known("cvta.to.global.u64 %4, %3;", "mov< ::vgpu::ptx::u64>");
    expect_known("cp.async.bulk.global.shared::cta.bulk_group [%3], [%4], %0; // and so on\n "
                 "cp.async.bulk.wait_group 0;",
                 "::vgpu::ptx::copy(");
    expect_known("/* nothing */ ; ;", "");
    expect_known("{ .reg .pred p, q; setp.ge.f32 p|q, %5, 0f00000000; @!q mov.b32 %0, 1; }",
                 "if (!vgpu_v1_2_0)");
    expect_known("{ .reg .b32 %%t<4>; mov.b32 %%t3, 1; }", "vgpu_v1_1_3");
    expect_known(
        "setmaxnreg.inc.sync.aligned.u32 %0; griddepcontrol.wait; prefetch.global.L2 [%4];", "{");
}

static void branches_and_barriers(void)
{
    expect_known("again: add.s32 %0, %1, %2; bra again;",
                 "vgpu_l1_again: __attribute__((unused));");
    expect_known("again: add.s32 %0, %1, %2; bra.uni again;",
                 "{ ::vgpu_yield(); goto vgpu_l1_again; }");
    expect_known("{ .reg .pred p; setp.eq.s32 p, %0, 0; @!p bra $L_1; trap; $L_1: }",
                 "if (!vgpu_v1_1_0) { goto vgpu_l1_$L_1; }");
    expect_known("mbarrier.init.shared::cta.b64 [%0], 4;",
                 "barrier_init(::vgpu::ptx::barrier_at(::vgpu::ptx::address_of_shared(vgpu_r1_0)), "
                 "0x4ull);");
    expect_known("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %3, [%4], %0;",
                 "set(vgpu_r1_3, ::vgpu::ptx::arrive_expect(");
    expect_known("mbarrier.arrive.noComplete.shared.b64 _, [%4], 2;",
                 "(void)(::vgpu::ptx::arrive(");
    expect_known("mbarrier.arrive_drop.shared.b64 _, [%4];", "arrive_drop(");
    expect_known("{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [%4], %3; }", "is_over(");
    expect_known("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%4], 1, "
                 "%0; }",
                 "is_over_parity(");
    expect_known("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%3], [%4], %0, "
                 "[%1];",
                 "barrier_complete(");
    expect_known("cp.reduce.async.bulk.global.shared::cta.bulk_group.and.b32 [%3], [%4], 64;",
                 "reducing::bit_and>(");
    expect_known("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%4];", "arrive(");
    expect_known("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait;",
                 "__cluster_barrier_wait()");
    expect_known("mapa.shared::cluster.u32 %0, %1, 0;", "map_shared(vgpu_r1_1, 0x0ull)");
    expect_known("mov.u32 %0, %%cluster_ctaid.x;", "special_cluster_ctaid_x()");
    expect_known("fma.rn.f16x2 %0, %0, %1, %2;", "half_fma< ::vgpu::ptx::f16x2>");
    expect_known("cvt.rn.satfinite.e5m2x2.f32 %9, %5, %6;", "floats_to_e5m2s(");
}

static void mistakes(void)
{
    expect_refused("bra loop;", "inline PTX branches to 'loop', which is no label of this asm "
                                "statement");
    expect_refused("loop: bra other;", "inline PTX branches to 'other', which is no label of this "
                                       "asm statement");
    expect_refused("a: bra a; a: bra a;", "inline PTX defines the label 'a' twice");
    expect_refused("bra ;", "expected a label in inline PTX at ';'");
    expect_refused("bra a b; a:", "expected ';' in inline PTX at 'b; a:'");
    expect_refused("a.b: bra a;", "'a.b' is no label of inline PTX");
    expect_refused("mbarrier.init.shared.b64 %3, %0;",
                   "the PTX instruction 'mbarrier.init.shared.b64' does not take these operands");
    expect_refused("mbarrier.arrive.expect_tx.shared.b64 _, [%3];",
                   "the PTX instruction 'mbarrier.arrive.expect_tx.shared.b64' does not take these "
                   "operands");
    expect_refused("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes "
                   "[%3], [%4], %0;",
                   "tutticc does not translate the PTX instruction 'cp.async.bulk.tensor.1d."
                   "shared::cluster.global.mbarrier::complete_tx::bytes'");
    expect_refused("wgmma.fence.sync.aligned;",
                   "tutticc does not translate the PTX instruction 'wgmma.fence.sync.aligned'");
    expect_refused("ret;", "tutticc does not translate the PTX instruction 'ret'");
    expect_refused(".shared .b32 x;", "tutticc does not translate the PTX directive '.shared'");
    expect_refused("{ .reg .b3 x; }", "tutticc does not know the PTX register type '.b3'");
    expect_refused("{ mov.u32 %0, 1;", "'{' without '}' in inline PTX");
    expect_refused("mov.u32 %0, 1; }", "'}' without '{' in inline PTX");
    expect_refused("mov.u32 %0, 1 mov.u32 %0, 2;",
                   "expected ';' in inline PTX at 'mov.u32 %0, 2;'");
    expect_refused("mov.u32 %0, %%nothing;", "tutticc does not know the PTX register '%nothing'");
    expect_refused("mov.u32 %0, %[other];",
                   "inline PTX names an operand [other] that the statement does not have");
    expect_refused("mov.u32 %99, 1;", "inline PTX names operand %99, but there are 10 operands");
    expect_refused("mov.u32 %0, 12abc;", "'12abc' is no number that inline PTX knows");
    expect_refused("{ .reg .b32 x; } mov.b32 x, 1;",
                   "inline PTX names 'x', which it does not declare");
    expect_refused("add.s32 %0, %1;", "the PTX instruction 'add.s32' does not take these operands");
    expect_refused(
        "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r %0;",
        "tutticc does not translate the PTX instruction 'a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r'");
    expect_refused("%0;", "expected a PTX instruction at '%0;'");
}

static void ptx_is_told_from_other_assembly(void)
{
    EXPECT(ptx_looks_like("ld.global.u32 %0, [%1];", false));
    EXPECT(ptx_looks_like("  // why\n{ .reg .u32 x; }", false));
    EXPECT(ptx_looks_like("nonsense", true));
    EXPECT(!ptx_looks_like("mov %%rsp, %0", false));
    EXPECT(!ptx_looks_like("pause", false));
    EXPECT(!ptx_looks_like("lock; addl $0, (%%rsp)", false));
    EXPECT(!ptx_looks_like("", true));
    EXPECT(!ptx_looks_like(" \n", true));
}

int main(void)
{
    RUN(loads_and_stores);
    RUN(atomics);
    RUN(multicast);
    RUN(the_rest);
    RUN(branches_and_barriers);
    RUN(mistakes);
    RUN(ptx_is_told_from_other_assembly);
    return expect_result();
}
