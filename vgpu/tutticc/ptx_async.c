// PTX's asynchronous copies, barrier objects, and addresses of other blocks' shared memory.
//
// A copy is done at once; the barrier object that it names counts its bytes. Groups of copies are
// always complete.
// SPDX-License-Identifier: Apache-2.0
#include "ptx_emit.h"

#include <stdlib.h>
#include <string.h>

// ---- Barrier objects ---------------------------------------------------------------------------

static void add_barrier(struct text *out, const struct ptx_operand *operand)
{
    text_add(out, "::vgpu::ptx::barrier_at(");
    ptx_add_address(out, operand);
    text_add(out, ")");
}

// mbarrier.init, .inval, .expect_tx, .complete_tx: [address]{, number}
static char *emit_barrier_change(const struct ptx_instruction *instruction, const char *function,
                                 int operands, struct text *out)
{
    if (instruction->operand_count != operands || instruction->operand[0].kind != PTX_ADDRESS ||
        !ptx_all_values(instruction, 1)) {
        return ptx_wrong_operands(instruction);
    }
    text_printf(out, " ::vgpu::ptx::%s(", function);
    add_barrier(out, &instruction->operand[0]);
    if (operands == 2) {
        text_printf(out, ", %s", instruction->operand[1].text);
    }
    text_add(out, ");");
    return NULL;
}

// mbarrier.arrive{_drop}{.expect_tx}: {state,} [address]{, number}
static char *emit_arrive(const struct ptx_instruction *instruction, bool drop, bool bytes,
                         struct text *out)
{
    const struct ptx_operand *operand = instruction->operand;
    int first = instruction->operand_count > 0 && operand[0].kind != PTX_ADDRESS;
    int count = instruction->operand_count - first;
    bool fits = count >= 1 && count <= 2 && (count == 2 || !bytes) &&
                operand[first].kind == PTX_ADDRESS && ptx_all_values(instruction, first + 1) &&
                (!first || operand[0].kind == PTX_VALUE || operand[0].kind == PTX_SINK);
    if (!fits) {
        return ptx_wrong_operands(instruction);
    }
    static const struct ptx_operand NOWHERE = {.kind = PTX_SINK};
    ptx_add_result(out, first ? &operand[0] : &NOWHERE);
    text_printf(out, "::vgpu::ptx::arrive%s%s(", drop ? "_drop" : "", bytes ? "_expect" : "");
    add_barrier(out, &operand[first]);
    text_printf(out, ", %s));", count == 2 ? operand[first + 1].text : "1ull");
    return NULL;
}

// mbarrier.test_wait, .try_wait: predicate, [address], state or parity{, time}
static char *emit_wait(const struct ptx_instruction *instruction, bool timed, bool parity,
                       struct text *out)
{
    const struct ptx_operand *operand = instruction->operand;
    int count = instruction->operand_count;
    if (count < 3 || count > 3 + timed || operand[0].kind != PTX_VALUE ||
        operand[1].kind != PTX_ADDRESS || !ptx_all_values(instruction, 2)) {
        return ptx_wrong_operands(instruction);
    }
    text_printf(out, " %s = ::vgpu::ptx::is_over%s(", operand[0].text, parity ? "_parity" : "");
    add_barrier(out, &operand[1]);
    text_printf(out, ", %s);", operand[2].text);
    return NULL;
}

static char *emit_pending_count(const struct ptx_instruction *instruction, struct text *out)
{
    if (instruction->operand_count != 2 || !ptx_all_values(instruction, 0)) {
        return ptx_wrong_operands(instruction);
    }
    ptx_add_result(out, &instruction->operand[0]);
    text_printf(out, "::vgpu::ptx::pending_count(%s));", instruction->operand[1].text);
    return NULL;
}

char *ptx_emit_mbarrier(const struct ptx_instruction *instruction,
                        const struct ptx_program *program, struct text *out)
{
    (void)program;
    struct ptx_modifiers m;
    ptx_begin(&m, instruction, 1);
    int operation = ptx_take_one(
        &m, "init inval arrive arrive_drop test_wait try_wait expect_tx complete_tx pending_count");
    bool bytes = operation == 2 || operation == 3 ? ptx_take(&m, "expect_tx") : false;
    if (operation == 2 || operation == 3) {
        ptx_take(&m, "noComplete");
    }
    bool parity = operation == 4 || operation == 5 ? ptx_take(&m, "parity") : false;
    ptx_take_one(&m, "relaxed acquire release");
    ptx_take_all(&m, PTX_SCOPES);
    ptx_take_one(&m, "shared shared::cta shared::cluster");
    if (operation < 0 || !ptx_take(&m, "b64") || !ptx_done(&m)) {
        return ptx_unknown(instruction);
    }
    switch (operation) {
    case 0:
        return emit_barrier_change(instruction, "barrier_init", 2, out);
    case 1:
        return emit_barrier_change(instruction, "barrier_end", 1, out);
    case 2:
    case 3:
        return emit_arrive(instruction, operation == 3, bytes, out);
    case 4:
    case 5:
        return emit_wait(instruction, operation == 5, parity, out);
    case 6:
        return emit_barrier_change(instruction, "barrier_expect", 2, out);
    case 7:
        return emit_barrier_change(instruction, "barrier_complete", 2, out);
    default:
        return emit_pending_count(instruction, out);
    }
}

// ---- Copies ------------------------------------------------------------------------------------

// cp.async.mbarrier.arrive{.noinc} [address]: when the thread's copies are done, that is now.
// Without .noinc the arrival is one that the barrier did not expect.
static char *emit_copy_arrival(const struct ptx_instruction *instruction, struct ptx_modifiers *m,
                               struct text *out)
{
    bool arrive = ptx_take(m, "arrive"), expected = ptx_take(m, "noinc");
    ptx_take_one(m, "shared shared::cta");
    if (!arrive || !ptx_take(m, "b64") || !ptx_done(m)) {
        return ptx_unknown(instruction);
    }
    if (instruction->operand_count != 1 || instruction->operand[0].kind != PTX_ADDRESS) {
        return ptx_wrong_operands(instruction);
    }
    if (expected) {
        text_add(out, " (void)::vgpu::ptx::arrive(");
        add_barrier(out, &instruction->operand[0]);
        text_add(out, ", 1ull);");
    }
    return NULL;
}

// function([to], [from], bytes): bulk copies; then the barrier, if there is one.
static char *emit_bulk(const struct ptx_instruction *instruction, const char *function,
                       bool barrier, struct text *out)
{
    const struct ptx_operand *operand = instruction->operand;
    int count = 3 + barrier;
    if (!ptx_operand_count_fits(instruction, count) || operand[0].kind != PTX_ADDRESS ||
        operand[1].kind != PTX_ADDRESS || operand[2].kind != PTX_VALUE ||
        (barrier && operand[3].kind != PTX_ADDRESS)) {
        return ptx_wrong_operands(instruction);
    }
    text_printf(out, " ::vgpu::ptx::%s(", function);
    ptx_add_address(out, &operand[0]);
    text_add(out, ", ");
    ptx_add_address(out, &operand[1]);
    text_printf(out, ", %s);", operand[2].text);
    if (barrier) {
        text_add(out, " ::vgpu::ptx::barrier_complete(");
        add_barrier(out, &operand[3]);
        text_printf(out, ", %s);", operand[2].text);
    }
    return NULL;
}

// cp.reduce.async.bulk: each element of the destination is combined with one of the source.
static char *emit_bulk_reduction(const struct ptx_instruction *instruction, struct ptx_modifiers *m,
                                 struct text *out)
{
    static const char *const NAMES[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};
    static const char *const KINDS[] = {"usfh", "ush", "ush", "u", "u", "b", "b", "b"};
    bool bulk = ptx_take(m, "async") && ptx_take(m, "bulk");
    bool barrier = ptx_take(m, "mbarrier::complete_tx::bytes");
    bool group = ptx_take(m, "bulk_group");
    ptx_take_all(m, PTX_SPACES);
    ptx_take_all(m, PTX_HINTS);
    int operation = ptx_take_one(m, "add min max inc dec and or xor");
    const struct ptx_type *type = ptx_take_type(m);
    if (!bulk || barrier == group || operation < 0 || !type || !ptx_done(m) || type->bytes > 8 ||
        !strchr(KINDS[operation], type->kind) || (type->bytes < 4 && type->kind != 'h')) {
        return ptx_unknown(instruction);
    }
    // `and` and its relatives are words of C++.
    char *function = format_string("reduce_copy< ::vgpu::ptx::%s, ::vgpu::ptx::reducing::%s%s>",
                                   type->type, operation >= 5 ? "bit_" : "", NAMES[operation]);
    char *error = emit_bulk(instruction, function, barrier, out);
    free(function);
    return error;
}

// cp.async with 4, 8 or 16 bytes: [to], [from], bytes{, how many of them the source has}{, policy}
static char *emit_small_copy(const struct ptx_instruction *instruction, struct text *out)
{
    const struct ptx_operand *operand = instruction->operand;
    int count = instruction->operand_count;
    if (count < 3 || count > 5 || operand[0].kind != PTX_ADDRESS ||
        operand[1].kind != PTX_ADDRESS || operand[2].kind != PTX_VALUE) {
        return ptx_wrong_operands(instruction);
    }
    bool hint = strstr(instruction->name, "cache_hint") != NULL;
    bool fill = count - hint == 4;
    if (fill && operand[3].kind != PTX_VALUE) {
        return ptx_wrong_operands(instruction);
    }
    text_printf(out, " ::vgpu::ptx::copy%s(", fill ? "_and_fill" : "");
    ptx_add_address(out, &operand[0]);
    text_add(out, ", ");
    ptx_add_address(out, &operand[1]);
    text_printf(out, ", %s", operand[2].text);
    if (fill) {
        text_printf(out, ", %s", operand[3].text);
    }
    text_add(out, ");");
    return NULL;
}

char *ptx_emit_async_copy(const struct ptx_instruction *instruction,
                          const struct ptx_program *program, struct text *out)
{
    (void)program;
    struct ptx_modifiers m;
    ptx_begin(&m, instruction, 1);
    if (ptx_take(&m, "reduce")) {
        return emit_bulk_reduction(instruction, &m, out);
    }
    if (!ptx_take(&m, "async")) {
        return ptx_unknown(instruction);
    }
    if (ptx_take(&m, "mbarrier")) {
        return emit_copy_arrival(instruction, &m, out);
    }
    bool bulk = ptx_take(&m, "bulk");
    if (ptx_take_one(&m, "commit_group wait_group wait_all") >= 0) {
        ptx_take(&m, "read");
        return ptx_done(&m) ? NULL : ptx_unknown(instruction);
    }
    bool prefetch = bulk && ptx_take(&m, "prefetch") && ptx_take(&m, "L2");
    bool barrier = bulk && ptx_take(&m, "mbarrier::complete_tx::bytes");
    bool group = bulk && ptx_take(&m, "bulk_group");
    ptx_take_all(&m, PTX_SPACES);
    ptx_take_all(&m, PTX_HINTS);
    if ((bulk && prefetch + barrier + group != 1) || !ptx_done(&m)) {
        return ptx_unknown(instruction);
    }
    if (prefetch) {
        return NULL;
    }
    return bulk ? emit_bulk(instruction, "copy", barrier, out) : emit_small_copy(instruction, out);
}

// ---- Addresses ---------------------------------------------------------------------------------

// mapa{.shared::cluster}.type d, a, rank; getctarank.type d, a
char *ptx_emit_map(const struct ptx_instruction *instruction, const struct ptx_program *program,
                   struct text *out)
{
    (void)program;
    struct ptx_modifiers m;
    ptx_begin(&m, instruction, 1);
    bool map = strcmp(instruction->part[0], "mapa") == 0;
    ptx_take(&m, "shared::cluster");
    if (ptx_take_one(&m, "u32 u64") < 0 || !ptx_done(&m)) {
        return ptx_unknown(instruction);
    }
    if (instruction->operand_count != 2 + map || !ptx_all_values(instruction, 0)) {
        return ptx_wrong_operands(instruction);
    }
    ptx_add_result(out, &instruction->operand[0]);
    if (map) {
        text_printf(out, "::vgpu::ptx::map_shared(%s, %s));", instruction->operand[1].text,
                    instruction->operand[2].text);
    } else {
        text_add(out, "0u);");
    }
    return NULL;
}

// isspacep.space p, a
char *ptx_emit_is_space(const struct ptx_instruction *instruction,
                        const struct ptx_program *program, struct text *out)
{
    (void)program;
    static const char *const SPACES[] = {"GLOBAL", "SHARED", "SHARED",
                                         "SHARED", "LOCAL",  "CONSTANT"};
    struct ptx_modifiers m;
    ptx_begin(&m, instruction, 1);
    int space = ptx_take_one(&m, "global shared shared::cta shared::cluster local const");
    if (space < 0 || !ptx_done(&m)) {
        return ptx_unknown(instruction);
    }
    if (instruction->operand_count != 2 || !ptx_all_values(instruction, 0)) {
        return ptx_wrong_operands(instruction);
    }
    text_printf(out, " %s = ::vgpu::ptx::is_space(VGPU_SPACE_%s, %s);",
                instruction->operand[0].text, SPACES[space], instruction->operand[1].text);
    return NULL;
}
