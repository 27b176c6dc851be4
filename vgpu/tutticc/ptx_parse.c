// The text of inline PTX: statements, scopes, register declarations, predicates, operands.
// SPDX-License-Identifier: Apache-2.0
#include "ptx.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A register that the text declares with .reg.
struct declared {
    char *name;
    int count; // of name<count>; 0: a single one
    int bytes; // 0: a predicate
    int depth;
    int serial;
};

struct parser {
    const char *at;
    const struct ptx_program *program;
    struct text *out;
    struct declared *declared;
    int declared_count;
    int declared_capacity;
    int depth;
    int serial;
    char *error;
};

__attribute__((format(printf, 2, 3))) static bool fail(struct parser *p, const char *format, ...)
{
    if (!p->error) {
        va_list arguments;
        va_start(arguments, format);
        char line[512];
        vsnprintf(line, sizeof(line), format, arguments);
        va_end(arguments);
        p->error = format_string("%s", line);
    }
    return false;
}

static void skip_space(struct parser *p)
{
    for (;;) {
        while (isspace((unsigned char)*p->at)) {
            p->at++;
        }
        if (p->at[0] == '/' && p->at[1] == '/') {
            p->at += strcspn(p->at, "\n");
        } else if (p->at[0] == '/' && p->at[1] == '*') {
            const char *end = strstr(p->at + 2, "*/");
            p->at = end ? end + 2 : p->at + strlen(p->at);
        } else {
            return;
        }
    }
}

static bool take(struct parser *p, char c)
{
    skip_space(p);
    if (*p->at != c) {
        return false;
    }
    p->at++;
    return true;
}

static bool is_name_part(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

// ---- Registers ---------------------------------------------------------------------------------

static int type_bytes(const char *type, size_t length)
{
    static const struct {
        const char *name;
        int bytes;
    } TYPES[] = {{"pred", 0}, {"b8", 1},  {"u8", 1},  {"s8", 1},    {"b16", 2},
                 {"u16", 2},  {"s16", 2}, {"f16", 2}, {"bf16", 2},  {"b32", 4},
                 {"u32", 4},  {"s32", 4}, {"f32", 4}, {"f16x2", 4}, {"bf16x2", 4},
                 {"b64", 8},  {"u64", 8}, {"s64", 8}, {"f64", 8},   {"b128", 16}};
    for (size_t i = 0; i < sizeof(TYPES) / sizeof(TYPES[0]); i++) {
        if (strlen(TYPES[i].name) == length && memcmp(TYPES[i].name, type, length) == 0) {
            return TYPES[i].bytes;
        }
    }
    return -1;
}

static const char *register_type(int bytes)
{
    switch (bytes) {
    case 0:
        return "bool";
    case 1:
        return "unsigned char";
    case 2:
        return "unsigned short";
    case 4:
        return "unsigned int";
    case 8:
        return "unsigned long long";
    default:
        return "unsigned __int128";
    }
}

static void declare(struct parser *p, const char *name, size_t length, int count, int bytes)
{
    if (p->declared_count == p->declared_capacity) {
        p->declared_capacity = p->declared_capacity ? p->declared_capacity * 2 : 8;
        p->declared = reallocate(p->declared, (size_t)p->declared_capacity * sizeof(*p->declared));
    }
    struct declared *d = &p->declared[p->declared_count++];
    *d = (struct declared){.name = copy_string(name, length),
                           .count = count,
                           .bytes = bytes,
                           .depth = p->depth,
                           .serial = ++p->serial};
    int first = 0, last = count ? count : 1;
    for (int i = first; i < last; i++) {
        text_printf(p->out, " %s vgpu_v%d_%d_%d = 0; (void)vgpu_v%d_%d_%d;", register_type(bytes),
                    p->program->serial, d->serial, i, p->program->serial, d->serial, i);
    }
}

// .reg .type name, name<count>;
static bool read_declaration(struct parser *p)
{
    skip_space(p);
    if (!take(p, '.')) {
        return fail(p, "expected a type after .reg in inline PTX");
    }
    size_t length = 0;
    while (is_name_part(p->at[length])) {
        length++;
    }
    int bytes = type_bytes(p->at, length);
    if (bytes < 0) {
        return fail(p, "tutticc does not know the PTX register type '.%.*s'", (int)length, p->at);
    }
    p->at += length;
    do {
        skip_space(p);
        p->at += strspn(p->at, "%");
        const char *name = p->at;
        while (is_name_part(*p->at)) {
            p->at++;
        }
        size_t name_length = (size_t)(p->at - name);
        if (name_length == 0) {
            return fail(p, "expected a name in a .reg declaration of inline PTX");
        }
        int count = 0;
        if (take(p, '<')) {
            char *end;
            long value = strtol(p->at, &end, 10);
            if (end == p->at || value < 1 || value > 256) {
                return fail(p, "a .reg declaration of inline PTX needs a count of 1 to 256");
            }
            p->at = end;
            count = (int)value;
            if (!take(p, '>')) {
                return fail(p, "expected '>' in a .reg declaration of inline PTX");
            }
        }
        declare(p, name, name_length, count, bytes);
    } while (take(p, ','));
    return true;
}

// A declared register's C++ name, and its size; NULL if there is none of that name.
static char *find_declared(const struct parser *p, const char *name, size_t length, int *bytes)
{
    for (int i = p->declared_count - 1; i >= 0; i--) {
        const struct declared *d = &p->declared[i];
        size_t own = strlen(d->name);
        if (d->count == 0 && own == length && memcmp(d->name, name, length) == 0) {
            *bytes = d->bytes;
            return format_string("vgpu_v%d_%d_0", p->program->serial, d->serial);
        }
        if (d->count > 0 && own < length && memcmp(d->name, name, own) == 0) {
            int number = 0;
            size_t k = own;
            while (k < length && isdigit((unsigned char)name[k]) && number < 1000) {
                number = number * 10 + (name[k++] - '0');
            }
            if (k == length && number < d->count) {
                *bytes = d->bytes;
                return format_string("vgpu_v%d_%d_%d", p->program->serial, d->serial, number);
            }
        }
    }
    return NULL;
}

static int constraint_bytes(char constraint)
{
    switch (constraint) {
    case 'h':
        return 2;
    case 'r':
    case 'f':
        return 4;
    case 'l':
    case 'd':
        return 8;
    case 'q':
        return 16;
    default:
        return 0;
    }
}

// %0, %[name]: an operand of the asm statement. Leaves p->at where it was and returns NULL if it is
// none.
static char *read_asm_operand(struct parser *p, int *bytes)
{
    const struct ptx_program *program = p->program;
    int found = -1;
    const char *end = p->at + 1;
    if (isdigit((unsigned char)*end)) {
        long number = strtol(end, (char **)&end, 10);
        if (number >= program->operand_count) {
            fail(p, "inline PTX names operand %%%ld, but there are %d operands", number,
                 program->operand_count);
            return NULL;
        }
        found = (int)number;
    } else if (*end == '[') {
        const char *name = ++end;
        end += strcspn(end, "]");
        for (int i = 0; i < program->operand_count; i++) {
            const char *own = program->operand[i].name;
            if (own && strlen(own) == (size_t)(end - name) && memcmp(own, name, strlen(own)) == 0) {
                found = i;
            }
        }
        if (found < 0 || *end != ']') {
            fail(p, "inline PTX names an operand [%.*s] that the statement does not have",
                 (int)(end - name), name);
            return NULL;
        }
        end++;
    }
    if (found < 0) {
        return NULL;
    }
    p->at = end;
    *bytes = constraint_bytes(program->operand[found].constraint);
    return format_string(PTX_REGISTER, program->serial, found);
}

// %laneid, %tid.x, ...: a call of the function of that name.
static char *read_special(struct parser *p)
{
    static const char *const SPECIAL[] = {
        "tid.x",          "tid.y",       "tid.z",          "ntid.x",         "ntid.y",
        "ntid.z",         "ctaid.x",     "ctaid.y",        "ctaid.z",        "nctaid.x",
        "nctaid.y",       "nctaid.z",    "laneid",         "warpid",         "nwarpid",
        "smid",           "nsmid",       "gridid",         "lanemask_eq",    "lanemask_lt",
        "lanemask_le",    "lanemask_gt", "lanemask_ge",    "clock",          "clock_hi",
        "clock64",        "globaltimer", "globaltimer_lo", "globaltimer_hi", "dynamic_smem_size",
        "total_smem_size"};
    const char *name = p->at;
    size_t length = 0;
    while (is_name_part(name[length]) ||
           (name[length] == '.' && isalpha((unsigned char)name[length + 1]))) {
        length++;
    }
    for (size_t i = 0; i < sizeof(SPECIAL) / sizeof(SPECIAL[0]); i++) {
        if (strlen(SPECIAL[i]) == length && memcmp(SPECIAL[i], name, length) == 0) {
            p->at += length;
            char *text = format_string("::vgpu::ptx::special_%s()", SPECIAL[i]);
            for (char *c = text; *c; c++) {
                *c = *c == '.' ? '_' : *c;
            }
            return text;
        }
    }
    fail(p, "tutticc does not know the PTX register '%%%.*s'", (int)length, name);
    return NULL;
}

// ---- Operands ----------------------------------------------------------------------------------

// 12, -3, 0x1f, 0f3f800000 (bits of a float), 0d..., 1.5
static char *read_number(struct parser *p)
{
    bool negative = false;
    while (*p->at == '-' || *p->at == '+') {
        negative ^= *p->at++ == '-';
    }
    const char *begin = p->at;
    if (begin[0] == '0' && strchr("fFdD", begin[1]) && begin[1] &&
        isxdigit((unsigned char)begin[2])) {
        bool is_double = begin[1] == 'd' || begin[1] == 'D';
        char *end;
        unsigned long long bits = strtoull(begin + 2, &end, 16);
        p->at = end;
        bits ^= negative ? (is_double ? 1ull << 63 : 1ull << 31) : 0;
        return format_string("0x%llx%s", bits, is_double ? "ull" : "u");
    }
    while (isalnum((unsigned char)*p->at) || *p->at == '.') {
        bool exponent = (*p->at == 'e' || *p->at == 'E') && begin[0] != '0' &&
                        (p->at[1] == '-' || p->at[1] == '+');
        p->at += exponent ? 2 : 1;
    }
    size_t length = (size_t)(p->at - begin);
    if (length == 0 || length > 40) {
        fail(p, "expected an operand in inline PTX at '%.20s'", begin);
        return NULL;
    }
    if (memchr(begin, '.', length)) {
        return format_string("::vgpu::ptx::number{%s%.*s}", negative ? "-" : "", (int)length,
                             begin);
    }
    char *end;
    unsigned long long value = strtoull(begin, &end, 0);
    if (*end == 'U' && end + 1 == p->at) {
        end++;
    }
    if (end != p->at) {
        fail(p, "'%.*s' is no number that inline PTX knows", (int)length, begin);
        return NULL;
    }
    return format_string("0x%llxull", negative ? 0 - value : value);
}

// A register or number as a C++ expression; NULL with an error.
static char *read_value(struct parser *p, int *bytes)
{
    *bytes = 0;
    skip_space(p);
    if (*p->at == '!') {
        p->at++;
        char *inner = read_value(p, bytes);
        char *text = inner ? format_string("!%s", inner) : NULL;
        free(inner);
        return text;
    }
    bool doubled = p->at[0] == '%' && p->at[1] == '%' && p->program->has_colons;
    if (*p->at == '%' && !doubled) {
        char *operand = read_asm_operand(p, bytes);
        if (operand || p->error) {
            return operand;
        }
    }
    bool marked = *p->at == '%';
    const char *name = p->at + (doubled ? 2 : marked ? 1 : 0);
    size_t length = 0;
    if (!marked && (isdigit((unsigned char)name[0]) || name[0] == '-' || name[0] == '+')) {
        return read_number(p);
    }
    while (is_name_part(name[length])) {
        length++;
    }
    char *declared = find_declared(p, name, length, bytes);
    if (declared) {
        p->at = name + length;
        return declared;
    }
    if (marked) {
        p->at = name;
        return read_special(p);
    }
    if (length == 0) {
        fail(p, "expected an operand in inline PTX at '%.20s'", p->at);
    } else {
        fail(p, "inline PTX names '%.*s', which it does not declare", (int)length, name);
    }
    return NULL;
}

static bool read_address(struct parser *p, struct ptx_operand *operand)
{
    operand->kind = PTX_ADDRESS;
    char *base = read_value(p, &operand->bytes);
    if (!base) {
        return false;
    }
    skip_space(p);
    if (*p->at == '+' || *p->at == '-') {
        bool plus = *p->at == '+';
        p->at += plus;
        skip_space(p);
        char *offset = read_number(p);
        operand->text = offset ? format_string("(%s + %s)", base, offset) : NULL;
        free(offset);
        free(base);
        if (!operand->text) {
            return false;
        }
    } else {
        operand->text = base;
    }
    return take(p, ']') || fail(p, "expected ']' in inline PTX at '%.20s'", p->at);
}

static bool read_operand(struct parser *p, struct ptx_operand *operand)
{
    skip_space(p);
    if (take(p, '[')) {
        return read_address(p, operand);
    }
    if (take(p, '{')) {
        operand->kind = PTX_VECTOR;
        do {
            if (operand->count == PTX_MAX_ELEMENTS) {
                return fail(p, "a vector in inline PTX has at most %d elements", PTX_MAX_ELEMENTS);
            }
            skip_space(p);
            bool sink = *p->at == '_' && !is_name_part(p->at[1]);
            p->at += sink;
            char *value = sink ? NULL : read_value(p, &operand->bytes);
            if (!value && !sink) {
                return false;
            }
            operand->element[operand->count++] = value;
        } while (take(p, ','));
        return take(p, '}') || fail(p, "expected '}' in inline PTX at '%.20s'", p->at);
    }
    if (*p->at == '_' && !is_name_part(p->at[1])) {
        p->at++;
        operand->kind = PTX_SINK;
        return true;
    }
    operand->kind = PTX_VALUE;
    operand->text = read_value(p, &operand->bytes);
    return operand->text != NULL;
}

// ---- Statements --------------------------------------------------------------------------------

static void free_instruction(struct ptx_instruction *instruction)
{
    free(instruction->name);
    free(instruction->guard);
    for (int i = 0; i < instruction->part_count; i++) {
        free(instruction->part[i]);
    }
    for (int i = 0; i < instruction->operand_count; i++) {
        free(instruction->operand[i].text);
        for (int k = 0; k < instruction->operand[i].count; k++) {
            free(instruction->operand[i].element[k]);
        }
    }
}

static bool read_name(struct parser *p, struct ptx_instruction *instruction)
{
    skip_space(p);
    const char *begin = p->at;
    while (is_name_part(*p->at) || *p->at == '.' || (p->at[0] == ':' && p->at[1] == ':') ||
           (p->at[0] == ':' && p->at > begin && p->at[-1] == ':')) {
        p->at++;
    }
    instruction->name = copy_string(begin, (size_t)(p->at - begin));
    if (p->at == begin) {
        return fail(p, "expected a PTX instruction at '%.20s'", begin);
    }
    for (const char *part = begin; part < p->at;) {
        const char *end = memchr(part, '.', (size_t)(p->at - part));
        end = end ? end : p->at;
        if (instruction->part_count == PTX_MAX_PARTS) {
            return fail(p, "tutticc does not translate the PTX instruction '%s'",
                        instruction->name);
        }
        instruction->part[instruction->part_count++] = copy_string(part, (size_t)(end - part));
        part = end + 1;
    }
    return true;
}

static bool read_operands(struct parser *p, struct ptx_instruction *instruction)
{
    skip_space(p);
    if (*p->at == ';' || *p->at == '\0' || *p->at == '}') {
        return true;
    }
    bool second = false;
    for (;;) {
        if (instruction->operand_count == PTX_MAX_OPERANDS) {
            return fail(p, "the PTX instruction '%s' has too many operands", instruction->name);
        }
        struct ptx_operand *operand = &instruction->operand[instruction->operand_count++];
        operand->second = second;
        if (!read_operand(p, operand)) {
            return false;
        }
        second = take(p, '|');
        if (!second && !take(p, ',')) {
            return true;
        }
    }
}

static bool read_instruction(struct parser *p)
{
    struct ptx_instruction instruction = {0};
    bool good = true;
    if (take(p, '@')) {
        int bytes;
        instruction.guard = read_value(p, &bytes);
        good = instruction.guard != NULL;
    }
    good = good && read_name(p, &instruction);
    if (good && take(p, ':')) {
        good = fail(p, "tutticc does not translate labels in inline PTX ('%s')", instruction.name);
    }
    good = good && read_operands(p, &instruction);
    if (good) {
        skip_space(p);
        if (*p->at != ';' && *p->at != '\0' && *p->at != '}') {
            good = fail(p, "expected ';' in inline PTX at '%.20s'", p->at);
        }
    }
    if (good) {
        if (instruction.guard) {
            text_printf(p->out, " if (%s)", instruction.guard);
        }
        text_add(p->out, " {");
        p->error = ptx_emit(&instruction, p->program, p->out);
        text_add(p->out, " }");
        good = !p->error;
    }
    free_instruction(&instruction);
    return good;
}

static void close_block(struct parser *p)
{
    text_add(p->out, " }");
    while (p->declared_count > 0 && p->declared[p->declared_count - 1].depth == p->depth) {
        free(p->declared[--p->declared_count].name);
    }
    p->depth--;
}

static bool read_statement(struct parser *p)
{
    if (take(p, ';')) {
        return true;
    }
    if (take(p, '{')) {
        p->depth++;
        text_add(p->out, " {");
        return true;
    }
    if (*p->at == '}') {
        p->at++;
        if (p->depth == 0) {
            return fail(p, "'}' without '{' in inline PTX");
        }
        close_block(p);
        return true;
    }
    if (strncmp(p->at, ".reg", 4) == 0 && !is_name_part(p->at[4])) {
        p->at += 4;
        return read_declaration(p);
    }
    if (*p->at == '.') {
        size_t length = 1;
        while (is_name_part(p->at[length])) {
            length++;
        }
        return fail(p, "tutticc does not translate the PTX directive '%.*s'", (int)length, p->at);
    }
    return read_instruction(p);
}

char *ptx_translate(const char *ptx, const struct ptx_program *program, struct text *out)
{
    struct parser parser = {.at = ptx, .program = program, .out = out};
    for (;;) {
        skip_space(&parser);
        if (*parser.at == '\0' || !read_statement(&parser)) {
            break;
        }
    }
    if (!parser.error && parser.depth > 0) {
        fail(&parser, "'{' without '}' in inline PTX");
    }
    for (int i = 0; i < parser.declared_count; i++) {
        free(parser.declared[i].name);
    }
    free(parser.declared);
    return parser.error;
}

bool ptx_looks_like(const char *ptx, bool in_device_code)
{
    struct parser parser = {.at = ptx};
    skip_space(&parser);
    if (*parser.at == '\0') {
        return false; // a barrier for the compiler
    }
    if (in_device_code || *parser.at == '@' || *parser.at == '{' ||
        strncmp(parser.at, ".reg", 4) == 0) {
        return true;
    }
    size_t length = 0;
    while (is_name_part(parser.at[length])) {
        length++;
    }
    return parser.at[length] == '.' && ptx_known_opcode(parser.at, length);
}
