// PTX loads, stores, atomics, fences, multicast.
// SPDX-License-Identifier: Apache-2.0
#include "ptx_emit.h"

#include <stdlib.h>
#include <string.h>

static const char SPACES[] = PTX_SPACES;
static const char HINTS[] = PTX_HINTS;
static const char SCOPES[] = PTX_SCOPES;

// Ordering words, and what they become.
static const char ORDERS[] = "weak relaxed acquire release acq_rel volatile mmio sc";
static const char *const ORDER_NAMES[] = {"weak",    "relaxed", "acquire", "release",
                                          "acq_rel", "relaxed", "relaxed", "seq_cst"};

static int take_vector(struct ptx_modifiers *m)
{
    static const int SIZES[] = {2, 4, 8};
    int index = ptx_take_one(m, "v2 v4 v8");
    return index < 0 ? 1 : SIZES[index];
}

// Element i of a register or of a vector of `count`.
static const char *element(const struct ptx_operand *operand, int i)
{
    return operand->kind == PTX_VECTOR ? operand->element[i] : operand->text;
}

static bool holds(const struct ptx_operand *operand, int count)
{
    return count == 1 && operand->kind != PTX_VECTOR
               ? operand->kind == PTX_VALUE || operand->kind == PTX_SINK
               : operand->kind == PTX_VECTOR && operand->count == count;
}

static void add_values(struct text *out, const char *type, const struct ptx_operand *operand,
                       int count)
{
    text_printf(out, " const ::vgpu::ptx::%s vgpu_value[%d] = {", type, count);
    for (int i = 0; i < count; i++) {
        text_printf(out, "%s::vgpu::ptx::get< ::vgpu::ptx::%s>(%s)", i ? ", " : "", type,
                    element(operand, i));
    }
    text_add(out, "};");
}

static void add_stores(struct text *out, const struct ptx_operand *operand, int count)
{
    for (int i = 0; i < count; i++) {
        const char *to = element(operand, i);
        if (to) {
            text_printf(out, " ::vgpu::ptx::set(%s, vgpu_value[%d]);", to, i);
        }
    }
}

bool ptx_operand_count_fits(const struct ptx_instruction *instruction, int count)
{
    return instruction->operand_count == count ||
           (instruction->operand_count == count + 1 && strstr(instruction->name, "cache_hint"));
}

char *ptx_emit_load(const struct ptx_instruction *instruction, const struct ptx_program *program,
                    struct text *out)
{
    (void)program;
    struct ptx_modifiers m;
    ptx_begin(&m, instruction, 1);
    int order = ptx_take_one(&m, ORDERS);
    ptx_take_all(&m, SCOPES);
    ptx_take_all(&m, SPACES);
    ptx_take_all(&m, HINTS);
    int count = take_vector(&m);
    const struct ptx_type *type = ptx_take_type(&m);
    if (!type || type->bytes == 0 || type->kind == 'e' || !ptx_done(&m) ||
        type->bytes * count > 32 || order == 3 || order == 4) {
        return ptx_unknown(instruction);
    }
    if (!ptx_operand_count_fits(instruction, 2) || instruction->operand[1].kind != PTX_ADDRESS ||
        !holds(&instruction->operand[0], count)) {
        return ptx_wrong_operands(instruction);
    }
    text_printf(
        out,
        " ::vgpu::ptx::%s vgpu_value[%d]; ::vgpu::ptx::ld< ::vgpu::ptx::order::%s>(vgpu_value, ",
        type->storage, count, order < 0 ? "weak" : ORDER_NAMES[order]);
    ptx_add_address(out, &instruction->operand[1]);
    text_add(out, ");");
    add_stores(out, &instruction->operand[0], count);
    return NULL;
}

char *ptx_emit_store(const struct ptx_instruction *instruction, const struct ptx_program *program,
                     struct text *out)
{
    (void)program;
    struct ptx_modifiers m;
    ptx_begin(&m, instruction, 1);
    int order = ptx_take_one(&m, ORDERS);
    ptx_take(&m, "mmio");
    ptx_take_all(&m, SCOPES);
    ptx_take_all(&m, SPACES);
    ptx_take_all(&m, HINTS);
    int count = take_vector(&m);
    const struct ptx_type *type = ptx_take_type(&m);
    if (!type || type->bytes == 0 || type->kind == 'e' || !ptx_done(&m) ||
        type->bytes * count > 32 || order == 2 || order == 4) {
        return ptx_unknown(instruction);
    }
    if (!ptx_operand_count_fits(instruction, 2) || instruction->operand[0].kind != PTX_ADDRESS ||
        !holds(&instruction->operand[1], count) || instruction->operand[1].kind == PTX_SINK) {
        return ptx_wrong_operands(instruction);
    }
    for (int i = 0; i < count; i++) {
        if (!element(&instruction->operand[1], i)) {
            return ptx_wrong_operands(instruction);
        }
    }
    add_values(out, type->storage, &instruction->operand[1], count);
    text_printf(out, " ::vgpu::ptx::st< ::vgpu::ptx::order::%s>(",
                order < 0 ? "weak" : ORDER_NAMES[order]);
    ptx_add_address(out, &instruction->operand[0]);
    text_add(out, ", vgpu_value);");
    return NULL;
}

// ---- Atomics -----------------------------------------------------------------------------------

static const char OPERATIONS[] = "add min max inc dec and or xor exch cas";
static const char *const OPERATION_NAMES[] = {"add", "min", "max", "inc",  "dec",
                                              "and", "or",  "xor", "exch", "cas"};
static const char *const OPERATION_KINDS[] = {"usfh", "ush", "ush", "u", "u",
                                              "b",    "b",   "b",   "b", "b"};
enum { OPERATION_EXCH = 8, OPERATION_CAS = 9 };

static bool atomic_type_fits(int operation, const struct ptx_type *type)
{
    if (type && type->bytes == 16 && operation >= OPERATION_EXCH) {
        return true;
    }
    if (!type || !strchr(OPERATION_KINDS[operation], type->kind)) {
        return false;
    }
    return type->bytes >= 4 ? type->bytes <= 8
                            : type->kind == 'h' || (operation == OPERATION_CAS && type->bytes == 2);
}

// One element; `result` NULL: none wanted.
static void add_atomic(struct text *out, const struct ptx_instruction *instruction,
                       const char *template_arguments, const char *operation, int element_index)
{
    bool atom = strcmp(instruction->part[0], "atom") == 0;
    const struct ptx_operand *operand = &instruction->operand[atom];
    const char *comma = strchr(template_arguments, ',');
    text_printf(out, " ::vgpu::ptx::atom_%s<%s>(", operation, template_arguments);
    ptx_add_address(out, &operand[0]);
    text_printf(out, " + %d * sizeof(%.*s)", element_index, (int)(comma - template_arguments),
                template_arguments);
    bool cas = strcmp(operation, "cas") == 0;
    for (int i = 1; i <= (cas ? 2 : 1); i++) {
        text_printf(out, ", ::vgpu::ptx::get<%.*s>(%s)", (int)(comma - template_arguments),
                    template_arguments, element(&operand[i], element_index));
    }
    text_add(out, ")");
}

struct atomic {
    bool atom; // with a result
    int order;
    int operation;
    int count;
    const struct ptx_type *type;
};

// Whether the instruction exists.
static bool read_atomic(const struct ptx_instruction *instruction, struct atomic *a)
{
    struct ptx_modifiers m;
    ptx_begin(&m, instruction, 1);
    a->atom = strcmp(instruction->part[0], "atom") == 0;
    a->order = ptx_take_one(&m, ORDERS);
    ptx_take_all(&m, SCOPES);
    ptx_take_all(&m, SPACES);
    ptx_take_all(&m, HINTS);
    a->operation = ptx_take_one(&m, OPERATIONS);
    a->count = take_vector(&m);
    a->type = ptx_take_type(&m);
    if (a->operation < 0 || !atomic_type_fits(a->operation, a->type) || !ptx_done(&m) ||
        a->order == 0 || a->order > 4 || (!a->atom && a->operation >= OPERATION_EXCH)) {
        return false;
    }
    bool vectors = a->operation <= 2 && (a->type->kind == 'f' || a->type->kind == 'h') &&
                   a->type->bytes * a->count <= 16;
    return a->count == 1 || vectors;
}

static bool atomic_operands_fit(const struct ptx_instruction *instruction, const struct atomic *a)
{
    int sources = a->operation == OPERATION_CAS ? 3 : 2;
    const struct ptx_operand *operand = &instruction->operand[a->atom];
    if (!ptx_operand_count_fits(instruction, sources + a->atom) || operand[0].kind != PTX_ADDRESS ||
        !holds(&operand[1], a->count) || operand[1].kind == PTX_SINK ||
        (sources == 3 && operand[2].kind != PTX_VALUE)) {
        return false;
    }
    for (int i = 0; i < a->count; i++) {
        if (!element(&operand[1], i)) {
            return false;
        }
    }
    const struct ptx_operand *result = &instruction->operand[0];
    return !a->atom || result->kind == PTX_SINK || holds(result, a->count);
}

char *ptx_emit_atomic(const struct ptx_instruction *instruction, const struct ptx_program *program,
                      struct text *out)
{
    (void)program;
    struct atomic a;
    if (!read_atomic(instruction, &a)) {
        return ptx_unknown(instruction);
    }
    if (!atomic_operands_fit(instruction, &a)) {
        return ptx_wrong_operands(instruction);
    }
    char *arguments = format_string(" ::vgpu::ptx::%s, ::vgpu::ptx::order::%s", a.type->type,
                                    a.order < 0 ? "relaxed" : ORDER_NAMES[a.order]);
    bool wanted = a.atom && instruction->operand[0].kind != PTX_SINK;
    for (int i = 0; i < a.count; i++) {
        const char *to = wanted ? element(&instruction->operand[0], i) : NULL;
        text_add(out, to ? " ::vgpu::ptx::set(" : " (void)(");
        text_printf(out, "%s%s", to ? to : "", to ? "," : "");
        add_atomic(out, instruction, arguments, OPERATION_NAMES[a.operation], i);
        text_add(out, ");");
    }
    free(arguments);
    return NULL;
}

// ---- Fences ------------------------------------------------------------------------------------

char *ptx_emit_fence(const struct ptx_instruction *instruction, const struct ptx_program *program,
                     struct text *out)
{
    (void)program;
    struct ptx_modifiers m;
    ptx_begin(&m, instruction, 1);
    if (instruction->operand_count > 0) {
        return ptx_unknown(instruction);
    }
    if (strcmp(instruction->part[0], "membar") == 0) {
        int scope = ptx_take_one(&m, "cta gl sys");
        if (scope < 0 || !ptx_done(&m)) {
            return ptx_unknown(instruction);
        }
        text_printf(out, " ::vgpu::ptx::fence%s< ::vgpu::ptx::order::seq_cst>();",
                    scope == 0 ? "_block" : "");
        return NULL;
    }
    // Proxies and barrier set-up: all memory is reached in one way here, a full fence is more than
    // enough.
    if (ptx_take(&m, "proxy") || ptx_take(&m, "mbarrier_init")) {
        ptx_take_all(
            &m,
            "alias async async::* tensormap tensormap::* generic release acquire sync_restrict::*");
        ptx_take_all(&m, SCOPES);
        ptx_take_all(&m, SPACES);
        if (!ptx_done(&m)) {
            return ptx_unknown(instruction);
        }
        text_add(out, " ::vgpu::ptx::fence< ::vgpu::ptx::order::seq_cst>();");
        return NULL;
    }
    int order = ptx_take_one(&m, "sc acq_rel acquire release");
    int scope = ptx_take_one(&m, SCOPES);
    static const char *const NAMES[] = {"seq_cst", "acq_rel", "acquire", "release"};
    ptx_take_all(&m, "sync_restrict::*");
    if (scope < 0 || !ptx_done(&m)) {
        return ptx_unknown(instruction);
    }
    text_printf(out, " ::vgpu::ptx::fence%s< ::vgpu::ptx::order::%s>();",
                scope == 0 ? "_block" : "", order < 0 ? "acq_rel" : NAMES[order]);
    return NULL;
}

// ---- Multicast ---------------------------------------------------------------------------------

struct multimem {
    int form; // 0: ld_reduce, 1: st, 2: red
    int order;
    int operation; // of add min max and or xor; -1
    int count;
    bool wide; // .acc::f32 or ::f16
    const struct ptx_type *type;
};

static const char *const MULTIMEM_OPERATIONS[] = {"add",     "min",    "max",
                                                  "bit_and", "bit_or", "bit_xor"};

// Which operation takes which types, and how many of them.
static bool multimem_fits(const struct multimem *mm)
{
    const struct ptx_type *type = mm->type;
    char kind = type->kind;
    bool is_float = kind == 'f' || kind == 'h' || kind == 'e';
    if (mm->count > 1 && (!is_float || type->bytes * mm->count > 16 || type->bytes == 8)) {
        return false;
    }
    if (mm->form == 1) {
        return type->bytes >= 4 || kind == 'h' || (kind == 'e' && mm->count * type->bytes >= 4);
    }
    if (mm->form == 2 && kind == 'e') {
        return false;
    }
    bool whole = type->bytes == 4 || type->bytes == 8;
    switch (mm->operation) {
    case 0:
        return is_float || (whole && (kind == 'u' || kind == 's'));
    case 1:
    case 2:
        return kind == 'h' || kind == 'e' || (whole && (kind == 'u' || kind == 's'));
    default:
        return mm->operation > 2 && kind == 'b' && whole;
    }
}

// The hardware that has it, as a compute capability times ten.
static int multimem_arch(const struct multimem *mm)
{
    return mm->type->kind == 'e' ? 100 : 90;
}

static char *read_multimem(const struct ptx_instruction *instruction,
                           const struct ptx_program *program, struct multimem *mm)
{
    struct ptx_modifiers m;
    ptx_begin(&m, instruction, 1);
    mm->form = ptx_take_one(&m, "ld_reduce st red");
    mm->order = ptx_take_one(&m, ORDERS);
    ptx_take_all(&m, SCOPES);
    ptx_take_all(&m, "global");
    mm->operation = ptx_take_one(&m, "add min max and or xor");
    mm->wide = ptx_take_one(&m, "acc::f32 acc::f16") >= 0;
    mm->count = take_vector(&m);
    mm->type = ptx_take_type(&m);
    if (mm->form < 0 || !mm->type || !ptx_done(&m) || (mm->form == 1) != (mm->operation < 0) ||
        !multimem_fits(mm) || mm->order == 4 || mm->order > 4 ||
        (mm->order == 2 && mm->form != 0) || (mm->order == 3 && mm->form == 0)) {
        return ptx_unknown(instruction);
    }
    if (program->checks_arch && program->arch > 0 && program->arch < multimem_arch(mm)) {
        return format_string("the PTX instruction '%s' needs a target of sm_%d or later, not sm_%d",
                             instruction->name, multimem_arch(mm), program->arch);
    }
    return NULL;
}

// The type of vgpu::multimem that a load reduces.
static const char *multimem_kind(const struct ptx_type *type)
{
    if (type->kind == 'b') {
        return type->bytes == 4 ? "u32" : "u64";
    }
    return type->name;
}

char *ptx_emit_multimem(const struct ptx_instruction *instruction,
                        const struct ptx_program *program, struct text *out)
{
    struct multimem mm;
    char *error = read_multimem(instruction, program, &mm);
    if (error) {
        return error;
    }
    int value = mm.form == 0 ? 0 : 1;
    const struct ptx_operand *operand = instruction->operand;
    if (!ptx_operand_count_fits(instruction, 2) || operand[1 - value].kind != PTX_ADDRESS ||
        !holds(&operand[value], mm.count) || operand[value].kind == PTX_SINK) {
        return ptx_wrong_operands(instruction);
    }
    const char *order = mm.order < 0 ? (mm.form == 2 ? "relaxed" : "weak") : ORDER_NAMES[mm.order];
    if (mm.form == 0) {
        const char *kind = multimem_kind(mm.type);
        text_printf(out,
                    " ::vgpu::multimem::%s::storage vgpu_value[%d]; "
                    "::vgpu::ptx::multimem_ld_reduce< ::vgpu::ptx::order::%s, "
                    "::vgpu::multimem::%s, ::vgpu::multimem::operation::%s>(vgpu_value, ",
                    kind, mm.count, order, kind, MULTIMEM_OPERATIONS[mm.operation]);
        ptx_add_address(out, &operand[1]);
        text_add(out, ");");
        add_stores(out, &operand[0], mm.count);
        return NULL;
    }
    for (int i = 0; i < mm.count; i++) {
        if (!element(&operand[1], i)) {
            return ptx_wrong_operands(instruction);
        }
    }
    add_values(out, mm.form == 1 ? mm.type->storage : mm.type->type, &operand[1], mm.count);
    if (mm.form == 1) {
        text_printf(out, " ::vgpu::ptx::multimem_st< ::vgpu::ptx::order::%s>(", order);
    } else {
        text_printf(
            out,
            " ::vgpu::ptx::multimem_red< ::vgpu::ptx::order::%s, ::vgpu::multimem::operation::%s>(",
            order, MULTIMEM_OPERATIONS[mm.operation]);
    }
    ptx_add_address(out, &operand[0]);
    text_add(out, ", vgpu_value);");
    return NULL;
}
