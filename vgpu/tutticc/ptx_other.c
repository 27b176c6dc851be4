// PTX moves, comparisons, conversions, barriers and warp instructions.
// SPDX-License-Identifier: Apache-2.0
#include "ptx_emit.h"

#include <stdlib.h>
#include <string.h>

// {lo, hi} is a register's parts from the lowest.
static char *emit_pack(const struct ptx_instruction *instruction, const struct ptx_type *type,
                       const char *part, int bytes, struct text *out)
{
    const struct ptx_operand *from = &instruction->operand[1];
    ptx_add_result(out, &instruction->operand[0]);
    for (int i = 0; i < from->count; i++) {
        if (!from->element[i]) {
            return ptx_wrong_operands(instruction);
        }
        text_printf(
            out,
            "%sstatic_cast< ::vgpu::ptx::%s>(static_cast< ::vgpu::ptx::%s>(::vgpu::ptx::get< "
            "::vgpu::ptx::%s>(%s))) << %d",
            i ? " | " : "", type->storage, type->storage, part, from->element[i], 8 * bytes * i);
    }
    text_add(out, ");");
    return NULL;
}

static void emit_unpack(const struct ptx_instruction *instruction, const struct ptx_type *type,
                        const char *part, int bytes, struct text *out)
{
    const struct ptx_operand *to = &instruction->operand[0];
    for (int i = 0; i < to->count; i++) {
        if (to->element[i]) {
            text_printf(out,
                        " ::vgpu::ptx::set(%s, static_cast< ::vgpu::ptx::%s>(::vgpu::ptx::get< "
                        "::vgpu::ptx::%s>(%s) >> %d));",
                        to->element[i], part, type->storage, instruction->operand[1].text,
                        8 * bytes * i);
        }
    }
}

// mov, also between one register and a vector of narrower ones.
char *ptx_emit_move(const struct ptx_instruction *instruction, const struct ptx_program *program,
                    struct text *out)
{
    (void)program;
    struct ptx_modifiers m;
    ptx_begin(&m, instruction, 1);
    const struct ptx_type *type = ptx_take_type(&m);
    if (!type || !ptx_done(&m) || type->kind == 'e') {
        return ptx_unknown(instruction);
    }
    const struct ptx_operand *to = &instruction->operand[0], *from = &instruction->operand[1];
    bool packs = from->kind == PTX_VECTOR, unpacks = to->kind == PTX_VECTOR;
    if (instruction->operand_count != 2 || to->kind == PTX_ADDRESS || from->kind == PTX_ADDRESS ||
        from->kind == PTX_SINK || to->second || from->second || (packs && unpacks)) {
        return ptx_wrong_operands(instruction);
    }
    if (!packs && !unpacks) {
        ptx_add_result(out, to);
        text_printf(out, " ::vgpu::ptx::mov< ::vgpu::ptx::%s>(%s));", type->storage, from->text);
        return NULL;
    }
    int count = packs ? from->count : to->count;
    int bytes = count == 2 || count == 4 ? type->bytes / count : 0;
    if (type->kind != 'b' || bytes < 1 || to->kind == PTX_SINK) {
        return ptx_wrong_operands(instruction);
    }
    const char *part = bytes == 1 ? "u8" : bytes == 2 ? "u16" : bytes == 4 ? "u32" : "u64";
    if (packs) {
        return emit_pack(instruction, type, part, bytes, out);
    }
    emit_unpack(instruction, type, part, bytes, out);
    return NULL;
}

// setp.op{.bool}.type p{|q}, a, b{, c}
char *ptx_emit_compare(const struct ptx_instruction *instruction, const struct ptx_program *program,
                       struct text *out)
{
    (void)program;
    static const char *const NAMES[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",
                                        "lt",  "le",  "gt",  "ge",  "equ", "neu",
                                        "ltu", "leu", "gtu", "geu", "num", "nan"};
    struct ptx_modifiers m;
    ptx_begin(&m, instruction, 1);
    int operation =
        ptx_take_one(&m, "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan");
    int combine = ptx_take_one(&m, "and or xor");
    ptx_take(&m, "ftz");
    const struct ptx_type *type = ptx_take_type(&m);
    bool known = operation >= 0 && type && ptx_done(&m) && strchr("busf", type->kind) &&
                 type->bytes <= 8 && (operation < 10 || type->kind == 'f') &&
                 (type->kind != 'b' || operation < 2);
    if (!known) {
        return ptx_unknown(instruction);
    }
    const struct ptx_operand *operand = instruction->operand;
    bool two = instruction->operand_count > 1 && operand[1].second;
    int first = two ? 2 : 1;
    if (instruction->operand_count != first + 2 + (combine >= 0)) {
        return ptx_wrong_operands(instruction);
    }
    for (int i = 0; i < instruction->operand_count; i++) {
        if (operand[i].kind != PTX_VALUE && !(operand[i].kind == PTX_SINK && i < first)) {
            return ptx_wrong_operands(instruction);
        }
    }
    static const char *const COMBINE[] = {"&", "|", "^"};
    text_printf(out, " const bool vgpu_result = ::vgpu::ptx::compare_%s< ::vgpu::ptx::%s>(%s, %s);",
                NAMES[operation], type->type, operand[first].text, operand[first + 1].text);
    for (int i = 0; i < first; i++) {
        if (operand[i].kind == PTX_SINK) {
            continue;
        }
        text_printf(out, " %s = %svgpu_result", operand[i].text, i ? "!" : "");
        if (combine >= 0) {
            text_printf(out, " %s %s", COMBINE[combine], operand[first + 2].text);
        }
        text_add(out, ";");
    }
    return NULL;
}

// ---- Conversions -------------------------------------------------------------------------------

static char *emit_half_conversion(const struct ptx_instruction *instruction,
                                  const struct ptx_type *to, const struct ptx_type *from,
                                  struct text *out)
{
    static const struct {
        const char *to, *from, *function;
        int sources;
    } ROWS[] = {
        {"f32", "f16", "half_to_float", 1},        {"f32", "bf16", "bfloat16_to_float", 1},
        {"f16", "f32", "float_to_half", 1},        {"bf16", "f32", "float_to_bfloat16", 1},
        {"f16x2", "f32", "floats_to_halves", 2},   {"bf16x2", "f32", "floats_to_bfloat16s", 2},
        {"e4m3x2", "f32", "floats_to_e4m3s", 2},   {"e5m2x2", "f32", "floats_to_e5m2s", 2},
        {"e4m3x2", "f16x2", "halves_to_e4m3s", 1}, {"e5m2x2", "f16x2", "halves_to_e5m2s", 1},
        {"f16x2", "e4m3x2", "e4m3s_to_halves", 1}, {"f16x2", "e5m2x2", "e5m2s_to_halves", 1}};
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        if (strcmp(to->name, ROWS[i].to) != 0 || strcmp(from->name, ROWS[i].from) != 0) {
            continue;
        }
        if (instruction->operand_count != 1 + ROWS[i].sources) {
            return ptx_wrong_operands(instruction);
        }
        ptx_add_result(out, &instruction->operand[0]);
        text_printf(out, "::vgpu::ptx::%s(%s", ROWS[i].function, instruction->operand[1].text);
        if (ROWS[i].sources == 2) {
            text_printf(out, ", %s", instruction->operand[2].text);
        }
        text_add(out, "));");
        return NULL;
    }
    return ptx_unknown(instruction);
}

// cvt{.rounding}.to.from
char *ptx_emit_convert(const struct ptx_instruction *instruction, const struct ptx_program *program,
                       struct text *out)
{
    (void)program;
    static const char *const MODES[] = {"nearest", "zero", "down", "up"};
    struct ptx_modifiers m;
    ptx_begin(&m, instruction, 1);
    int whole = ptx_take_one(&m, "rni rzi rmi rpi");
    bool nearest = ptx_take(&m, "rn");
    ptx_take(&m, "ftz");
    bool saturates = ptx_take(&m, "satfinite");
    const struct ptx_type *from = ptx_take_type(&m);
    const struct ptx_type *to = ptx_take_type(&m);
    if (!from || !to || !ptx_done(&m) || strchr("bp", from->kind) || strchr("bp", to->kind) ||
        saturates != (to->kind == 'e')) {
        return ptx_unknown(instruction);
    }
    for (int i = 0; i < instruction->operand_count; i++) {
        if (instruction->operand[i].kind != PTX_VALUE) {
            return ptx_wrong_operands(instruction);
        }
    }
    if (strchr("he", from->kind) || strchr("he", to->kind)) {
        return whole >= 0 ? ptx_unknown(instruction)
                          : emit_half_conversion(instruction, to, from, out);
    }
    if (instruction->operand_count != 2) {
        return ptx_wrong_operands(instruction);
    }
    bool to_integer = from->kind == 'f' && to->kind != 'f';
    bool same = from->kind == 'f' && to == from;
    if ((to_integer && whole < 0) || (!to_integer && !same && whole >= 0) ||
        (same && whole < 0 && nearest)) {
        return ptx_unknown(instruction);
    }
    ptx_add_result(out, &instruction->operand[0]);
    const char *source = instruction->operand[1].text;
    if (to_integer) {
        text_printf(out,
                    "::vgpu::ptx::convert_to_integer< ::vgpu::ptx::%s, ::vgpu::ptx::%s, "
                    "::vgpu::ptx::rounding::%s>(%s));",
                    to->type, from->type, MODES[whole], source);
    } else if (same && whole >= 0) {
        text_printf(
            out, "::vgpu::ptx::round_to_integer< ::vgpu::ptx::%s, ::vgpu::ptx::rounding::%s>(%s));",
            from->type, MODES[whole], source);
    } else {
        text_printf(out, "::vgpu::ptx::convert< ::vgpu::ptx::%s, ::vgpu::ptx::%s>(%s));", to->type,
                    from->type, source);
    }
    return NULL;
}

// ---- Barriers and warps ------------------------------------------------------------------------

bool ptx_all_values(const struct ptx_instruction *instruction, int first)
{
    for (int i = first; i < instruction->operand_count; i++) {
        if (instruction->operand[i].kind != PTX_VALUE) {
            return false;
        }
    }
    return true;
}

// barrier.cluster.arrive and .wait: the cluster is the block.
static char *emit_cluster_barrier(const struct ptx_instruction *instruction,
                                  struct ptx_modifiers *m, struct text *out)
{
    int half = ptx_take_one(m, "arrive wait");
    ptx_take_one(m, "release relaxed acquire");
    ptx_take(m, "aligned");
    if (half < 0 || !ptx_done(m)) {
        return ptx_unknown(instruction);
    }
    if (instruction->operand_count > 0) {
        return ptx_wrong_operands(instruction);
    }
    text_add(out, half == 0 ? " ::__cluster_barrier_arrive();" : " ::__cluster_barrier_wait();");
    return NULL;
}

// bar.red.operation: d, barrier{, threads}, predicate
static char *emit_barrier_reduction(const struct ptx_instruction *instruction,
                                    struct ptx_modifiers *m, struct text *out)
{
    static const char *const NAMES[] = {"popc", "and", "or"};
    int operation = ptx_take_one(m, "popc and or");
    ptx_take(m, "aligned");
    if (operation < 0 || !ptx_take(m, operation == 0 ? "u32" : "pred") || !ptx_done(m)) {
        return ptx_unknown(instruction);
    }
    const struct ptx_operand *operand = instruction->operand;
    int count = instruction->operand_count;
    if (count < 3 || count > 4 || !ptx_all_values(instruction, 0)) {
        return ptx_wrong_operands(instruction);
    }
    text_printf(out, " %s = ::vgpu::ptx::barrier_%s(%s, %s, %s);", operand[0].text,
                NAMES[operation], operand[count - 1].text, operand[1].text,
                count == 4 ? operand[2].text : "0u");
    return NULL;
}

// bar.sync, barrier.sync, bar.arrive: a barrier's number and, if not all threads take part, how
// many do. bar.warp.sync: a mask.
char *ptx_emit_barrier(const struct ptx_instruction *instruction, const struct ptx_program *program,
                       struct text *out)
{
    (void)program;
    struct ptx_modifiers m;
    ptx_begin(&m, instruction, 1);
    if (ptx_take(&m, "cluster")) {
        return emit_cluster_barrier(instruction, &m, out);
    }
    bool warp = ptx_take(&m, "warp");
    if (!warp) {
        ptx_take(&m, "cta");
    }
    if (!warp && ptx_take(&m, "red")) {
        return emit_barrier_reduction(instruction, &m, out);
    }
    bool arrive = !warp && ptx_take(&m, "arrive");
    bool sync = !arrive && ptx_take(&m, "sync");
    ptx_take(&m, "aligned");
    if ((!sync && !arrive) || !ptx_done(&m)) {
        return ptx_unknown(instruction);
    }
    int count = instruction->operand_count;
    if (count < (arrive ? 2 : 1) || count > (warp ? 1 : 2) || !ptx_all_values(instruction, 0)) {
        return ptx_wrong_operands(instruction);
    }
    // The runtime's functions themselves, so that the call is on the line of the instruction.
    static const char NUMBER[] = "::vgpu::ptx::get< ::vgpu::ptx::u32>(";
    const struct ptx_operand *operand = instruction->operand;
    if (warp) {
        text_printf(out, " ::vgpu_syncwarp(%s%s));", NUMBER, operand[0].text);
        return NULL;
    }
    text_printf(out, " ::vgpu_barrier_%s(static_cast<int>(%s%s)), ", arrive ? "arrive" : "sync",
                NUMBER, operand[0].text);
    if (count == 2) {
        text_printf(out, "%s%s));", NUMBER, operand[1].text);
    } else {
        text_add(out, "0);");
    }
    return NULL;
}

// vote.sync.mode.type d, p, mask
char *ptx_emit_vote(const struct ptx_instruction *instruction, const struct ptx_program *program,
                    struct text *out)
{
    (void)program;
    static const char *const MODES[] = {"ballot", "any", "all", "uni"};
    struct ptx_modifiers m;
    ptx_begin(&m, instruction, 1);
    bool sync = ptx_take(&m, "sync");
    int mode = ptx_take_one(&m, "ballot any all uni");
    if (!sync || mode < 0 || !ptx_take(&m, mode == 0 ? "b32" : "pred") || !ptx_done(&m)) {
        return ptx_unknown(instruction);
    }
    if (instruction->operand_count != 3 || !ptx_all_values(instruction, 0)) {
        return ptx_wrong_operands(instruction);
    }
    text_printf(out, " %s = ::vgpu::ptx::vote_%s(%s, %s);", instruction->operand[0].text,
                MODES[mode], instruction->operand[1].text, instruction->operand[2].text);
    return NULL;
}

// shfl.sync.mode.b32 d{|p}, a, b, c, mask; elect.sync d|p, mask
char *ptx_emit_shuffle(const struct ptx_instruction *instruction, const struct ptx_program *program,
                       struct text *out)
{
    (void)program;
    static const char *const MODES[] = {"idx", "up", "down", "bfly"};
    struct ptx_modifiers m;
    ptx_begin(&m, instruction, 1);
    bool elect = strcmp(instruction->part[0], "elect") == 0;
    bool sync = ptx_take(&m, "sync");
    int mode = elect ? 0 : ptx_take_one(&m, "idx up down bfly");
    if (!sync || mode < 0 || (!elect && !ptx_take(&m, "b32")) || !ptx_done(&m)) {
        return ptx_unknown(instruction);
    }
    const struct ptx_operand *operand = instruction->operand;
    bool two = instruction->operand_count > 1 && operand[1].second;
    int first = two ? 2 : 1;
    if (instruction->operand_count != first + (elect ? 1 : 4) || (elect && !two)) {
        return ptx_wrong_operands(instruction);
    }
    for (int i = 0; i < instruction->operand_count; i++) {
        if (operand[i].kind != PTX_VALUE && !(operand[i].kind == PTX_SINK && i < first)) {
            return ptx_wrong_operands(instruction);
        }
    }
    text_add(out, " bool vgpu_inside;");
    ptx_add_result(out, &operand[0]);
    if (elect) {
        text_printf(out, "::vgpu::ptx::elect_sync(%s, &vgpu_inside));", operand[first].text);
    } else {
        text_printf(out,
                    "::vgpu::ptx::shuffle_sync< ::vgpu::ptx::shuffle_mode::%s>(%s, %s, %s, %s, "
                    "&vgpu_inside));",
                    MODES[mode], operand[first].text, operand[first + 1].text,
                    operand[first + 2].text, operand[first + 3].text);
    }
    if (two && operand[1].kind == PTX_VALUE) {
        text_printf(out, " %s = vgpu_inside;", operand[1].text);
    } else {
        text_add(out, " (void)vgpu_inside;");
    }
    return NULL;
}
