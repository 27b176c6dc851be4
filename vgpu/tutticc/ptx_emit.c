// Types, modifiers and pieces of text that all PTX instructions share.
// SPDX-License-Identifier: Apache-2.0
#include "ptx_emit.h"

#include <stdlib.h>
#include <string.h>

static const struct ptx_type TYPES[] = {
    {"b8", "u8", "u8", 1, 'b'},        {"u8", "u8", "u8", 1, 'u'},
    {"s8", "s8", "s8", 1, 's'},        {"b16", "u16", "u16", 2, 'b'},
    {"u16", "u16", "u16", 2, 'u'},     {"s16", "s16", "s16", 2, 's'},
    {"f16", "f16", "u16", 2, 'h'},     {"bf16", "bf16", "u16", 2, 'h'},
    {"b32", "u32", "u32", 4, 'b'},     {"u32", "u32", "u32", 4, 'u'},
    {"s32", "s32", "s32", 4, 's'},     {"f32", "f32", "f32", 4, 'f'},
    {"f16x2", "f16x2", "u32", 4, 'h'}, {"bf16x2", "bf16x2", "u32", 4, 'h'},
    {"b64", "u64", "u64", 8, 'b'},     {"u64", "u64", "u64", 8, 'u'},
    {"s64", "s64", "s64", 8, 's'},     {"f64", "f64", "f64", 8, 'f'},
    {"b128", "b128", "b128", 16, 'b'}, {"pred", "pred", "pred", 0, 'p'},
    {"e4m3", "u8", "u8", 1, 'e'},      {"e5m2", "u8", "u8", 1, 'e'},
    {"e4m3x2", "u16", "u16", 2, 'e'},  {"e5m2x2", "u16", "u16", 2, 'e'},
    {"e4m3x4", "u32", "u32", 4, 'e'},  {"e5m2x4", "u32", "u32", 4, 'e'},
};

const struct ptx_type *ptx_find_type(const char *name)
{
    for (size_t i = 0; i < sizeof(TYPES) / sizeof(TYPES[0]); i++) {
        if (strcmp(TYPES[i].name, name) == 0) {
            return &TYPES[i];
        }
    }
    return NULL;
}

void ptx_begin(struct ptx_modifiers *m, const struct ptx_instruction *instruction, int opcode_parts)
{
    *m = (struct ptx_modifiers){.instruction = instruction};
    for (int i = 0; i < opcode_parts; i++) {
        m->taken[i] = true;
    }
}

// Whether part i matches a word of `length` characters, which may end in *.
static bool matches(const char *part, const char *word, size_t length)
{
    if (length > 0 && word[length - 1] == '*') {
        return strncmp(part, word, length - 1) == 0;
    }
    return strlen(part) == length && memcmp(part, word, length) == 0;
}

static bool take_word(struct ptx_modifiers *m, const char *word, size_t length)
{
    for (int i = 0; i < m->instruction->part_count; i++) {
        if (!m->taken[i] && matches(m->instruction->part[i], word, length)) {
            m->taken[i] = true;
            return true;
        }
    }
    return false;
}

bool ptx_take(struct ptx_modifiers *m, const char *part)
{
    return take_word(m, part, strlen(part));
}

int ptx_take_one(struct ptx_modifiers *m, const char *words)
{
    int index = 0;
    for (const char *word = words; *word; index++) {
        size_t length = strcspn(word, " ");
        if (take_word(m, word, length)) {
            return index;
        }
        word += length;
        word += *word == ' ';
    }
    return -1;
}

void ptx_take_all(struct ptx_modifiers *m, const char *words)
{
    while (ptx_take_one(m, words) >= 0) {
    }
}

const struct ptx_type *ptx_take_type(struct ptx_modifiers *m)
{
    for (int i = m->instruction->part_count - 1; i >= 0; i--) {
        const struct ptx_type *type = m->taken[i] ? NULL : ptx_find_type(m->instruction->part[i]);
        if (type) {
            m->taken[i] = true;
            return type;
        }
    }
    return NULL;
}

bool ptx_done(const struct ptx_modifiers *m)
{
    for (int i = 0; i < m->instruction->part_count; i++) {
        if (!m->taken[i]) {
            return false;
        }
    }
    return true;
}

char *ptx_unknown(const struct ptx_instruction *instruction)
{
    return format_string("tutticc does not translate the PTX instruction '%s'", instruction->name);
}

char *ptx_wrong_operands(const struct ptx_instruction *instruction)
{
    return format_string("the PTX instruction '%s' does not take these operands",
                         instruction->name);
}

void ptx_add_address(struct text *out, const struct ptx_operand *operand)
{
    text_printf(out, "::vgpu::ptx::address%s(%s)", operand->bytes == 4 ? "_of_shared" : "",
                operand->text);
}

void ptx_add_result(struct text *out, const struct ptx_operand *operand)
{
    if (operand->kind == PTX_SINK) {
        text_add(out, " (void)(");
    } else {
        text_printf(out, " ::vgpu::ptx::set(%s, ", operand->text);
    }
}
