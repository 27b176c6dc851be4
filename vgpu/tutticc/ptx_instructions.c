// The table of PTX instructions: which template of vgpu/ptx.h does what each one does.
//
// Instructions that compute one result from registers are rows of SIMPLE; the others have handlers.
// SPDX-License-Identifier: Apache-2.0
#include "ptx_emit.h"

#include <stdlib.h>
#include <string.h>

enum {
    NO_RESULT = 1, // nothing is written
    NO_TYPE = 2,   // the name carries no type
    PLAIN = 4,     // the function takes no type argument
    IGNORED = 8,   // does nothing here
    ZERO = 16,     // the result is 0
    OWN_TYPE = 32, // 16-bit floats with their arithmetic, not as bits
};

struct simple {
    const char *opcode;
    const char *required; // parts that must be there, separated by spaces
    const char *optional; // parts that may be there and change nothing here
    const char *kinds;    // type kinds, see struct ptx_type
    const char *function; // in vgpu::ptx
    int sources;
    int flags;
};

static const struct simple SIMPLE[] = {
    {"add", "", "rn ftz", "usf", "add", 2, 0},
    {"sub", "", "rn ftz", "usf", "sub", 2, 0},
    {"mul", "lo", "", "us", "mul", 2, 0},
    {"mul", "hi", "", "us", "multiply_high", 2, 0},
    {"mul", "wide", "", "us", "multiply_wide", 2, 0},
    {"mul", "", "rn ftz", "f", "mul", 2, 0},
    {"mad", "lo", "", "us", "multiply_add", 3, 0},
    {"mad", "hi", "", "us", "multiply_high_add", 3, 0},
    {"mad", "wide", "", "us", "multiply_wide_add", 3, 0},
    {"mad", "", "rn ftz", "f", "fused_multiply_add", 3, 0},
    {"fma", "rn", "ftz", "f", "fused_multiply_add", 3, 0},
    {"add", "", "rn ftz", "h", "half_add", 2, OWN_TYPE},
    {"sub", "", "rn ftz", "h", "half_sub", 2, OWN_TYPE},
    {"mul", "", "rn ftz", "h", "half_mul", 2, OWN_TYPE},
    {"fma", "rn", "ftz", "h", "half_fma", 3, OWN_TYPE},
    {"min", "", "ftz", "h", "half_min", 2, OWN_TYPE},
    {"max", "", "ftz", "h", "half_max", 2, OWN_TYPE},
    {"neg", "", "ftz", "h", "half_neg", 1, OWN_TYPE},
    {"abs", "", "ftz", "h", "half_abs", 1, OWN_TYPE},
    {"div", "", "rn full approx ftz", "usf", "divide", 2, 0},
    {"rem", "", "", "us", "remainder", 2, 0},
    {"min", "", "ftz", "usf", "minimum", 2, 0},
    {"max", "", "ftz", "usf", "maximum", 2, 0},
    {"neg", "", "ftz", "sf", "negate", 1, 0},
    {"abs", "", "ftz", "sf", "absolute", 1, 0},
    {"and", "", "", "bp", "bit_and", 2, 0},
    {"or", "", "", "bp", "bit_or", 2, 0},
    {"xor", "", "", "bp", "bit_xor", 2, 0},
    {"not", "", "", "bp", "bit_not", 1, 0},
    {"shl", "", "", "b", "shift_left", 2, 0},
    {"shr", "", "", "bus", "shift_right", 2, 0},
    {"popc", "", "", "b", "count_ones", 1, 0},
    {"clz", "", "", "b", "count_leading_zeros", 1, 0},
    {"brev", "", "", "b", "reverse_bits", 1, 0},
    {"bfind", "", "", "us", "find_highest", 1, 0},
    {"bfe", "", "", "us", "extract_bits", 3, 0},
    {"bfi", "", "", "b", "insert_bits", 4, 0},
    {"prmt", "b32", "", "", "permute_bytes", 3, NO_TYPE},
    {"shf", "l wrap b32", "", "", "funnel_left_wrap", 3, NO_TYPE},
    {"shf", "l clamp b32", "", "", "funnel_left_clamp", 3, NO_TYPE},
    {"shf", "r wrap b32", "", "", "funnel_right_wrap", 3, NO_TYPE},
    {"shf", "r clamp b32", "", "", "funnel_right_clamp", 3, NO_TYPE},
    {"lop3", "b32", "", "", "logic3", 4, NO_TYPE},
    {"fns", "b32", "", "", "find_nth_set", 3, NO_TYPE},
    {"selp", "", "", "busfh", "select", 3, 0},
    {"sqrt", "", "rn approx ftz", "f", "square_root", 1, 0},
    {"rcp", "", "rn approx ftz", "f", "reciprocal", 1, 0},
    {"rsqrt", "approx", "ftz", "f", "reciprocal_root", 1, 0},
    {"ex2", "approx", "ftz", "f", "exponential2", 1, 0},
    {"lg2", "approx", "ftz", "f", "logarithm2", 1, 0},
    {"sin", "approx", "ftz", "f", "sine", 1, 0},
    {"cos", "approx", "ftz", "f", "cosine", 1, 0},
    {"tanh", "approx", "", "f", "hyperbolic_tangent", 1, 0},
    {"copysign", "", "", "f", "copy_sign", 2, 0},
    {"cvta", "", "to global shared shared::cta shared::cluster const local param", "u", "mov", 1,
     0},
    {"activemask", "b32", "", "", "active_mask", 0, NO_TYPE},
    {"match", "any sync", "", "b", "match_any", 2, 0},
    {"redux", "sync add", "", "us", "redux_add", 2, 0},
    {"redux", "sync min", "", "us", "redux_min", 2, 0},
    {"redux", "sync max", "", "us", "redux_max", 2, 0},
    {"redux", "sync and", "", "b", "redux_and", 2, 0},
    {"redux", "sync or", "", "b", "redux_or", 2, 0},
    {"redux", "sync xor", "", "b", "redux_xor", 2, 0},
    {"nanosleep", "u32", "", "", "nanosleep", 0, NO_TYPE | NO_RESULT | PLAIN},
    {"trap", "", "", "", "trap", 0, NO_TYPE | NO_RESULT},
    {"createpolicy", "fractional b64", "L2::*", "", "", 0, NO_TYPE | ZERO},
    {"createpolicy", "range b64", "L2::* global", "", "", 0, NO_TYPE | ZERO},
    {"brkpt", "", "", "", "", 0, NO_TYPE | NO_RESULT | IGNORED},
    {"prefetch", "", "global local L1 L2 L2::* tensormap const param", "", "", 0,
     NO_TYPE | NO_RESULT | IGNORED},
    {"discard", "global L2", "", "", "", 0, NO_TYPE | NO_RESULT | IGNORED},
    {"applypriority", "global", "L2::*", "", "", 0, NO_TYPE | NO_RESULT | IGNORED},
    {"prefetchu", "L1", "", "", "", 0, NO_TYPE | NO_RESULT | IGNORED},
    {"griddepcontrol", "", "wait launch_dependents", "", "", 0, NO_TYPE | NO_RESULT | IGNORED},
    {"setmaxnreg", "sync aligned u32", "inc dec", "", "", 0, NO_TYPE | NO_RESULT | IGNORED},
};

static const struct {
    const char *opcode;
    ptx_handler *handler;
} FAMILIES[] = {
    {"ld", ptx_emit_load},      {"ldu", ptx_emit_load},        {"st", ptx_emit_store},
    {"atom", ptx_emit_atomic},  {"red", ptx_emit_atomic},      {"fence", ptx_emit_fence},
    {"membar", ptx_emit_fence}, {"cp", ptx_emit_async_copy},   {"multimem", ptx_emit_multimem},
    {"mov", ptx_emit_move},     {"setp", ptx_emit_compare},    {"cvt", ptx_emit_convert},
    {"bar", ptx_emit_barrier},  {"barrier", ptx_emit_barrier}, {"vote", ptx_emit_vote},
    {"shfl", ptx_emit_shuffle}, {"elect", ptx_emit_shuffle},   {"mbarrier", ptx_emit_mbarrier},
    {"mapa", ptx_emit_map},     {"getctarank", ptx_emit_map},  {"isspacep", ptx_emit_is_space},
};

bool ptx_known_opcode(const char *part, size_t length)
{
    for (size_t i = 0; i < sizeof(FAMILIES) / sizeof(FAMILIES[0]); i++) {
        if (strlen(FAMILIES[i].opcode) == length && memcmp(FAMILIES[i].opcode, part, length) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof(SIMPLE) / sizeof(SIMPLE[0]); i++) {
        if (strlen(SIMPLE[i].opcode) == length && memcmp(SIMPLE[i].opcode, part, length) == 0) {
            return true;
        }
    }
    return false;
}

// Whether the instruction is this row's; *type is what it works on.
static bool is_row(const struct simple *row, const struct ptx_instruction *instruction,
                   const struct ptx_type **type)
{
    if (strcmp(instruction->part[0], row->opcode) != 0) {
        return false;
    }
    struct ptx_modifiers m;
    ptx_begin(&m, instruction, 1);
    for (const char *word = row->required; *word;) {
        char part[32];
        size_t length = strcspn(word, " ");
        memcpy(part, word, length);
        part[length] = '\0';
        if (!ptx_take(&m, part)) {
            return false;
        }
        word += length;
        word += *word == ' ';
    }
    *type = NULL;
    if (!(row->flags & NO_TYPE)) {
        *type = ptx_take_type(&m);
        if (!*type || !strchr(row->kinds, (*type)->kind)) {
            return false;
        }
    }
    ptx_take_all(&m, row->optional);
    return ptx_done(&m);
}

static char *emit_simple(const struct simple *row, const struct ptx_type *type,
                         const struct ptx_instruction *instruction, struct text *out)
{
    if (row->flags & IGNORED) {
        return NULL;
    }
    int results = row->flags & NO_RESULT ? 0 : 1;
    bool any_sources = (row->flags & (PLAIN | ZERO)) != 0;
    if (instruction->operand_count < results ||
        (!any_sources && instruction->operand_count != results + row->sources)) {
        return ptx_wrong_operands(instruction);
    }
    for (int i = 0; i < instruction->operand_count; i++) {
        const struct ptx_operand *operand = &instruction->operand[i];
        bool sink = operand->kind == PTX_SINK && i == 0 && results;
        if ((operand->kind != PTX_VALUE && !sink && !(row->flags & ZERO)) || operand->second) {
            return ptx_wrong_operands(instruction);
        }
    }
    if (results) {
        ptx_add_result(out, &instruction->operand[0]);
    }
    if (row->flags & ZERO) {
        text_add(out, "0ull);");
        return NULL;
    }
    text_printf(out, " ::vgpu::ptx::%s", row->function);
    if (type) {
        text_printf(out, "< ::vgpu::ptx::%s>",
                    type->kind == 'h' && !(row->flags & OWN_TYPE) ? type->storage : type->type);
    }
    text_add(out, "(");
    for (int i = 0; i < row->sources; i++) {
        text_printf(out, "%s%s", i ? ", " : "", instruction->operand[results + i].text);
    }
    text_add(out, results ? "));" : ");");
    return NULL;
}

char *ptx_emit(const struct ptx_instruction *instruction, const struct ptx_program *program,
               struct text *out)
{
    for (size_t i = 0; i < sizeof(FAMILIES) / sizeof(FAMILIES[0]); i++) {
        if (strcmp(FAMILIES[i].opcode, instruction->part[0]) == 0) {
            return FAMILIES[i].handler(instruction, program, out);
        }
    }
    for (size_t i = 0; i < sizeof(SIMPLE) / sizeof(SIMPLE[0]); i++) {
        const struct ptx_type *type;
        if (is_row(&SIMPLE[i], instruction, &type)) {
            return emit_simple(&SIMPLE[i], type, instruction, out);
        }
    }
    return ptx_unknown(instruction);
}
