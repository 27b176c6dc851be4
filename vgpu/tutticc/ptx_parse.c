// The text of inline PTX: statements, scopes, predicates, operands.
// SPDX-License-Identifier: Apache-2.0
#include "ptx_parse.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ptx_fail(struct parser *p, const char *format, ...)
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

void ptx_skip_space(struct parser *p)
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

bool ptx_take_character(struct parser *p, char c)
{
    ptx_skip_space(p);
    if (*p->at != c) {
        return false;
    }
    p->at++;
    return true;
}

bool ptx_is_name_part(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

// ---- Operands ----------------------------------------------------------------------------------

// 0f3f800000, 0d...: the bits of a float or double.
static char *read_float_bits(struct parser *p, bool negative)
{
    bool is_double = p->at[1] == 'd' || p->at[1] == 'D';
    char *end;
    unsigned long long bits = strtoull(p->at + 2, &end, 16);
    p->at = end;
    bits ^= negative ? (is_double ? 1ull << 63 : 1ull << 31) : 0;
    return format_string("0x%llx%s", bits, is_double ? "ull" : "u");
}

static size_t number_length(const char *begin)
{
    size_t length = 0;
    for (;;) {
        const char *at = begin + length;
        bool sign = (at[1] == '-' || at[1] == '+') && (*at == 'e' || *at == 'E') && begin[0] != '0';
        if (!isalnum((unsigned char)*at) && *at != '.') {
            return length;
        }
        length += sign ? 2 : 1;
    }
}

// 12, -3, 0x1f, 1.5 and bits of floats.
static char *read_number(struct parser *p)
{
    bool negative = false;
    while (*p->at == '-' || *p->at == '+') {
        negative ^= *p->at++ == '-';
    }
    const char *begin = p->at;
    if (begin[0] == '0' && begin[1] && strchr("fFdD", begin[1]) &&
        isxdigit((unsigned char)begin[2])) {
        return read_float_bits(p, negative);
    }
    size_t length = number_length(begin);
    p->at += length;
    if (length == 0 || length > 40) {
        ptx_fail(p, "expected an operand in inline PTX at '%.20s'", begin);
        return NULL;
    }
    if (memchr(begin, '.', length)) {
        return format_string("::vgpu::ptx::number{%s%.*s}", negative ? "-" : "", (int)length,
                             begin);
    }
    char *end;
    unsigned long long value = strtoull(begin, &end, 0);
    end += *end == 'U' && end + 1 == p->at;
    if (end != p->at) {
        ptx_fail(p, "'%.*s' is no number that inline PTX knows", (int)length, begin);
        return NULL;
    }
    return format_string("0x%llxull", negative ? 0 - value : value);
}

// A register or number as a C++ expression; NULL with an error.
static char *read_value(struct parser *p, int *bytes)
{
    *bytes = 0;
    ptx_skip_space(p);
    if (*p->at == '!') {
        p->at++;
        char *inner = read_value(p, bytes);
        char *text = inner ? format_string("!%s", inner) : NULL;
        free(inner);
        return text;
    }
    bool doubled = p->at[0] == '%' && p->at[1] == '%' && p->program->has_colons;
    if (*p->at == '%' && !doubled) {
        char *operand = ptx_read_asm_operand(p, bytes);
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
    while (ptx_is_name_part(name[length])) {
        length++;
    }
    char *declared = ptx_find_declared(p, name, length, bytes);
    if (declared) {
        p->at = name + length;
        return declared;
    }
    if (marked) {
        p->at = name;
        return ptx_read_special(p);
    }
    if (length == 0) {
        ptx_fail(p, "expected an operand in inline PTX at '%.20s'", p->at);
    } else {
        ptx_fail(p, "inline PTX names '%.*s', which it does not declare", (int)length, name);
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
    ptx_skip_space(p);
    if (*p->at == '+' || *p->at == '-') {
        bool plus = *p->at == '+';
        p->at += plus;
        ptx_skip_space(p);
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
    return ptx_take_character(p, ']') ||
           ptx_fail(p, "expected ']' in inline PTX at '%.20s'", p->at);
}

static bool read_operand(struct parser *p, struct ptx_operand *operand)
{
    ptx_skip_space(p);
    if (ptx_take_character(p, '[')) {
        return read_address(p, operand);
    }
    if (ptx_take_character(p, '{')) {
        operand->kind = PTX_VECTOR;
        do {
            if (operand->count == PTX_MAX_ELEMENTS) {
                return ptx_fail(p, "a vector in inline PTX has at most %d elements",
                                PTX_MAX_ELEMENTS);
            }
            ptx_skip_space(p);
            bool sink = *p->at == '_' && !ptx_is_name_part(p->at[1]);
            p->at += sink;
            char *value = sink ? NULL : read_value(p, &operand->bytes);
            if (!value && !sink) {
                return false;
            }
            operand->element[operand->count++] = value;
        } while (ptx_take_character(p, ','));
        return ptx_take_character(p, '}') ||
               ptx_fail(p, "expected '}' in inline PTX at '%.20s'", p->at);
    }
    if (*p->at == '_' && !ptx_is_name_part(p->at[1])) {
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
    ptx_skip_space(p);
    const char *begin = p->at;
    while (ptx_is_name_part(*p->at) || *p->at == '.' || (p->at[0] == ':' && p->at[1] == ':') ||
           (p->at[0] == ':' && p->at > begin && p->at[-1] == ':')) {
        p->at++;
    }
    instruction->name = copy_string(begin, (size_t)(p->at - begin));
    if (p->at == begin) {
        return ptx_fail(p, "expected a PTX instruction at '%.20s'", begin);
    }
    for (const char *part = begin; part < p->at;) {
        const char *end = memchr(part, '.', (size_t)(p->at - part));
        end = end ? end : p->at;
        if (instruction->part_count == PTX_MAX_PARTS) {
            return ptx_fail(p, "tutticc does not translate the PTX instruction '%s'",
                            instruction->name);
        }
        instruction->part[instruction->part_count++] = copy_string(part, (size_t)(end - part));
        part = end + 1;
    }
    return true;
}

static bool read_operands(struct parser *p, struct ptx_instruction *instruction)
{
    ptx_skip_space(p);
    if (*p->at == ';' || *p->at == '\0' || *p->at == '}') {
        return true;
    }
    bool second = false;
    for (;;) {
        if (instruction->operand_count == PTX_MAX_OPERANDS) {
            return ptx_fail(p, "the PTX instruction '%s' has too many operands", instruction->name);
        }
        struct ptx_operand *operand = &instruction->operand[instruction->operand_count++];
        operand->second = second;
        if (!read_operand(p, operand)) {
            return false;
        }
        second = ptx_take_character(p, '|');
        if (!second && !ptx_take_character(p, ',')) {
            return true;
        }
    }
}

static bool read_instruction(struct parser *p)
{
    struct ptx_instruction instruction = {0};
    bool good = true;
    if (ptx_take_character(p, '@')) {
        int bytes;
        instruction.guard = read_value(p, &bytes);
        good = instruction.guard != NULL;
    }
    good = good && read_name(p, &instruction);
    if (good && !instruction.guard && ptx_take_character(p, ':')) {
        good = ptx_define_label(p, instruction.name);
        free_instruction(&instruction);
        return good;
    }
    bool branch = good && strcmp(instruction.part[0], "bra") == 0 &&
                  (instruction.part_count == 1 ||
                   (instruction.part_count == 2 && strcmp(instruction.part[1], "uni") == 0));
    good =
        good && (branch ? ptx_read_branch(p, instruction.guard) : read_operands(p, &instruction));
    if (good) {
        ptx_skip_space(p);
        if (*p->at != ';' && *p->at != '\0' && *p->at != '}') {
            good = ptx_fail(p, "expected ';' in inline PTX at '%.20s'", p->at);
        }
    }
    if (good && !branch) {
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
    if (ptx_take_character(p, ';')) {
        return true;
    }
    if (ptx_take_character(p, '{')) {
        p->depth++;
        text_add(p->out, " {");
        return true;
    }
    if (*p->at == '}') {
        p->at++;
        if (p->depth == 0) {
            return ptx_fail(p, "'}' without '{' in inline PTX");
        }
        close_block(p);
        return true;
    }
    if (strncmp(p->at, ".reg", 4) == 0 && !ptx_is_name_part(p->at[4])) {
        p->at += 4;
        return ptx_read_declaration(p);
    }
    if (*p->at == '.') {
        size_t length = 1;
        while (ptx_is_name_part(p->at[length])) {
            length++;
        }
        return ptx_fail(p, "tutticc does not translate the PTX directive '%.*s'", (int)length,
                        p->at);
    }
    return read_instruction(p);
}

char *ptx_translate(const char *ptx, const struct ptx_program *program, struct text *out)
{
    struct parser parser = {.at = ptx, .program = program, .out = out};
    for (;;) {
        ptx_skip_space(&parser);
        if (*parser.at == '\0' || !read_statement(&parser)) {
            break;
        }
    }
    if (!parser.error && parser.depth > 0) {
        ptx_fail(&parser, "'{' without '}' in inline PTX");
    }
    ptx_end_labels(&parser);
    for (int i = 0; i < parser.declared_count; i++) {
        free(parser.declared[i].name);
    }
    free(parser.declared);
    return parser.error;
}

bool ptx_looks_like(const char *ptx, bool in_device_code)
{
    struct parser parser = {.at = ptx};
    ptx_skip_space(&parser);
    if (*parser.at == '\0') {
        return false; // a barrier for the compiler
    }
    if (in_device_code || *parser.at == '@' || *parser.at == '{' ||
        strncmp(parser.at, ".reg", 4) == 0) {
        return true;
    }
    size_t length = 0;
    while (ptx_is_name_part(parser.at[length])) {
        length++;
    }
    return parser.at[length] == '.' && ptx_known_opcode(parser.at, length);
}
