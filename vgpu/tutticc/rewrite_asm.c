// asm statements that hold PTX become blocks of C++; labels of declarations and the host's own
// assembly stay.
//
//   asm volatile("add.s32 %0, %1, 1;" : "=r"(a) : "r"(b));
//   -> do { auto &vgpu_o1_0 = (a); unsigned int vgpu_r1_0 = 0; unsigned int vgpu_r1_1 =
//   ::vgpu::ptx::in<unsigned int>(b);
//        { ::vgpu::ptx::set(vgpu_r1_0, ::vgpu::ptx::add<int>(vgpu_r1_1, 1)); }
//        ::vgpu::ptx::out(vgpu_o1_0, vgpu_r1_0); }
//      while (0);
// SPDX-License-Identifier: Apache-2.0
#include "ptx.h"
#include "rewrite_internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ASM_OPERANDS = 64 };

struct asm_operand {
    int begin;      // first token: [ or the constraint
    int constraint; // the first string
    int open, close;
    bool output, reads; // reads: an input, or "+"
};

struct asm_statement {
    int keyword, open, close;
    int text_end; // the token after the template strings
    struct asm_operand operand[MAX_ASM_OPERANDS];
    struct ptx_asm_operand ptx[MAX_ASM_OPERANDS];
    int count;
    bool has_colons;
    int number;
};

// ---- Strings -----------------------------------------------------------------------------------

static size_t read_escape(const char *at, size_t left, struct text *out)
{
    static const char NAMES[] = "ntrabfv", VALUES[] = "\n\t\r\a\b\f\v";
    const char *name = memchr(NAMES, at[0], sizeof(NAMES) - 1);
    if (name) {
        text_append(out, VALUES + (name - NAMES), 1);
        return 1;
    }
    if (at[0] == 'x' || (at[0] >= '0' && at[0] <= '7')) {
        size_t used = at[0] == 'x';
        int base = at[0] == 'x' ? 16 : 8;
        int value = 0;
        for (size_t digits = 0;
             used < left && digits < (base == 8 ? 3u : 2u) && isxdigit((unsigned char)at[used]);
             digits++) {
            char digit[2] = {at[used++], '\0'};
            value = value * base + (int)strtol(digit, NULL, 16);
        }
        char c = (char)value;
        if (c) {
            text_append(out, &c, 1);
        }
        return used;
    }
    text_append(out, at, 1);
    return 1;
}

// Appends the value of a string token.
static void append_string(struct text *out, const struct source *source, int i)
{
    const char *at = source->text + source->token[i].offset;
    size_t length = source->token[i].length;
    const char *quote = memchr(at, '"', length);
    if (!quote) {
        return;
    }
    bool raw = quote > at && quote[-1] == 'R';
    const char *end = at + length;
    if (end > quote + 1 && end[-1] == '"') {
        end--;
    }
    at = quote + 1;
    if (raw) {
        const char *open = memchr(at, '(', (size_t)(end - at));
        if (open && end - (open - at) - 1 > open) {
            text_append(out, open + 1, (size_t)(end - (open - at) - 1 - (open + 1)));
        }
        return;
    }
    while (at < end) {
        if (*at == '\\' && at + 1 < end) {
            at += 1 + read_escape(at + 1, (size_t)(end - at - 1), out);
        } else {
            text_append(out, at++, 1);
        }
    }
}

// ---- Reading -----------------------------------------------------------------------------------

// Whether the asm at i is a statement, not the label of a declaration.
static bool is_statement(struct rewriter *r, int i)
{
    const struct source *source = &r->source;
    if (current_scope(r)->kind != SCOPE_FUNCTION || current_scope(r)->parens > 0) {
        return false;
    }
    if (i == r->statement || token_is(source, i - 1, "else") ||
        token_word(source, i - 1) == WORD_DO || token_is(source, i - 1, ":")) {
        return true;
    }
    static const char *const HEADS[] = {"if", "for", "while", "switch", "else"};
    for (size_t k = 0; k < sizeof(HEADS) / sizeof(HEADS[0]); k++) {
        if (token_is(source, r->statement, HEADS[k])) {
            return token_is(source, i - 1, ")");
        }
    }
    return false;
}

// One operand at i; returns the token after it, or -1.
static int read_operand(const struct source *source, struct asm_statement *s, int i, bool output)
{
    if (s->count == MAX_ASM_OPERANDS) {
        return -1;
    }
    struct asm_operand *operand = &s->operand[s->count];
    struct ptx_asm_operand *ptx = &s->ptx[s->count];
    *operand = (struct asm_operand){.begin = i, .output = output, .reads = !output};
    *ptx = (struct ptx_asm_operand){0};
    if (token_is(source, i, "[") && i + 2 < s->close) {
        ptx->name = token_copy(source, i + 1);
        i += 3;
    }
    s->count++;
    operand->constraint = i;
    struct text constraint = {0};
    text_add(&constraint, "");
    for (; i < s->close && source->token[i].kind == TOKEN_STRING; i++) {
        append_string(&constraint, source, i);
    }
    operand->open = i;
    operand->close = source->token[i].partner;
    if (i == operand->constraint || !token_is(source, i, "(") || operand->close < 0) {
        text_free(&constraint);
        return -1;
    }
    for (size_t k = 0; k < constraint.length; k++) {
        char c = constraint.data[k];
        operand->reads |= c == '+';
        if (isalpha((unsigned char)c) && !ptx->constraint) {
            ptx->constraint = c;
        }
    }
    text_free(&constraint);
    return operand->close + 1;
}

// The operand lists. False where they are not as they should be.
static bool read_sections(const struct source *source, struct asm_statement *s)
{
    int section = 0; // 1: outputs, 2: inputs, 3: clobbers
    int i = s->text_end;
    while (i < s->close) {
        if (token_is(source, i, ":") || token_is(source, i, "::")) {
            section += token_is(source, i, "::") ? 2 : 1;
            s->has_colons = true;
            i++;
        } else if (section == 1 || section == 2) {
            i = token_is(source, i, ",") ? i + 1 : read_operand(source, s, i, section == 1);
            if (i < 0) {
                return false;
            }
        } else if (section >= 3 &&
                   (source->token[i].kind == TOKEN_STRING || token_is(source, i, ","))) {
            i++;
        } else {
            return false;
        }
    }
    return true;
}

// ---- Writing -----------------------------------------------------------------------------------

static const char *register_of(char constraint)
{
    switch (constraint) {
    case 'h':
        return "unsigned short";
    case 'r':
    case 'f':
        return "unsigned int";
    case 'l':
    case 'd':
    case 'n':
        return "unsigned long long";
    case 'q':
        return "unsigned __int128";
    default:
        return NULL;
    }
}

static const char *suffix_of(char constraint)
{
    return constraint == 'f' ? "_float" : constraint == 'd' ? "_double" : "";
}

static void add_in(struct text *text, char constraint)
{
    if (constraint == 'f' || constraint == 'd') {
        text_printf(text, "::vgpu::ptx::in%s", suffix_of(constraint));
    } else {
        text_printf(text, "::vgpu::ptx::in<%s>", register_of(constraint));
    }
}

static void edit_operand(struct rewriter *r, const struct asm_statement *s, int k)
{
    const struct asm_operand *operand = &s->operand[k];
    char constraint = s->ptx[k].constraint;
    struct text before = {0}, after = {0};
    const char *type = register_of(constraint);
    if (operand->output) {
        text_printf(&before, " auto &vgpu_o%d_%d = ", s->number, k);
        text_printf(&after, "; %s " PTX_REGISTER " = ", type, s->number, k);
        if (operand->reads) {
            add_in(&after, constraint);
            text_printf(&after, "(vgpu_o%d_%d);", s->number, k);
        } else {
            text_add(&after, "0;");
        }
    } else {
        text_printf(&before, " %s " PTX_REGISTER " = ", type, s->number, k);
        add_in(&before, constraint);
        text_add(&after, ";");
    }
    text_printf(&after, " (void)" PTX_REGISTER ";", s->number, k);
    edit_delete_tokens(&r->edits, &r->source, operand->begin, operand->open);
    edit_before(&r->edits, &r->source, operand->open, before.data);
    edit_after(&r->edits, &r->source, operand->close, after.data);
    text_free(&before);
    text_free(&after);
}

static void edit_statement(struct rewriter *r, const struct asm_statement *s, struct text *body)
{
    const struct source *source = &r->source;
    edit_before(&r->edits, source, s->keyword, "do {");
    edit_delete_tokens(&r->edits, source, s->keyword, s->text_end);
    int k = 0;
    for (int i = s->text_end; i < s->close;) {
        if (k < s->count && i == s->operand[k].begin) {
            edit_operand(r, s, k);
            i = s->operand[k++].close + 1;
        } else {
            edit_delete_token(&r->edits, source, i++);
        }
    }
    for (k = 0; k < s->count; k++) {
        if (s->operand[k].output) {
            text_printf(body, " ::vgpu::ptx::out%s(vgpu_o%d_%d, " PTX_REGISTER ");",
                        suffix_of(s->ptx[k].constraint), s->number, k, s->number, k);
        }
    }
    text_add(body, " } while (0)");
    edit_replace_token(&r->edits, source, s->close, body->data);
}

// What is wrong with the operands; NULL where nothing is.
static char *check_operands(const struct asm_statement *s)
{
    for (int k = 0; k < s->count; k++) {
        if (!register_of(s->ptx[k].constraint)) {
            return format_string("operand %%%d of inline PTX has a constraint that is none of "
                                 "\"h\", \"r\", \"l\", \"f\", "
                                 "\"d\", \"q\", \"n\"",
                                 k);
        }
    }
    return NULL;
}

// In a library's header, which may hold what is never called: only code that is generated
// complains.
static void refuse_call(struct rewriter *r, const struct asm_statement *s, const char *error)
{
    struct text body = {0};
    text_printf(&body, "do { extern void vgpu_refused%d() __attribute__((error(", s->number);
    text_add_literal(&body, error, strlen(error));
    text_printf(&body, "))); vgpu_refused%d(); } while (0)", s->number);
    edit_before(&r->edits, &r->source, s->keyword, body.data);
    edit_delete_tokens(&r->edits, &r->source, s->keyword, s->close + 1);
    text_free(&body);
}

// `%=` stands for a number that no other asm statement has.
static char *number_names(const char *ptx, int number)
{
    struct text text = {0};
    text_add(&text, "");
    for (const char *c = ptx; *c; c++) {
        if (c[0] == '%' && c[1] == '=') {
            text_printf(&text, "%d", number);
            c++;
        } else {
            text_append(&text, c, 1);
            if (c[0] == '%' && c[1] == '%') {
                text_append(&text, c++, 1);
            }
        }
    }
    return text.data;
}

static void translate(struct rewriter *r, struct asm_statement *s, const char *ptx)
{
    struct place place =
        source_place(&r->source, r->source.token[s->keyword].offset, r->options->file);
    struct ptx_program program = {.operand = s->ptx,
                                  .operand_count = s->count,
                                  .has_colons = s->has_colons,
                                  .arch = r->options->arch,
                                  .checks_arch = !place.system,
                                  .serial = s->number};
    bool library = place.system;
    free(place.file);
    struct text body = {0};
    text_add(&body, "");
    char *error = check_operands(s);
    if (!error) {
        char *numbered = number_names(ptx, s->number);
        error = ptx_translate(numbered, &program, &body);
        free(numbered);
    }
    if (error && library) {
        refuse_call(r, s, error);
        free(error);
    } else if (error) {
        rewrite_error(r, s->keyword, "%s", error);
        free(error);
    } else {
        edit_statement(r, s, &body);
    }
    text_free(&body);
}

int rewrite_asm(struct rewriter *r, int i)
{
    const struct source *source = &r->source;
    if (!is_statement(r, i)) {
        return i + 1;
    }
    struct asm_statement s = {.keyword = i, .open = i + 1, .number = ++r->serial};
    while (token_word(source, s.open) == WORD_VOLATILE ||
           token_word(source, s.open) == WORD_INLINE || token_is(source, s.open, "goto")) {
        s.open++;
    }
    if (!token_is(source, s.open, "(") || source->token[s.open].partner < 0) {
        return i + 1;
    }
    s.close = source->token[s.open].partner;
    struct text ptx = {0};
    text_add(&ptx, "");
    for (s.text_end = s.open + 1;
         s.text_end < s.close && source->token[s.text_end].kind == TOKEN_STRING; s.text_end++) {
        append_string(&ptx, source, s.text_end);
    }
    if (ptx_looks_like(ptx.data, current_scope(r)->device)) {
        if (read_sections(source, &s)) {
            translate(r, &s, ptx.data);
        } else {
            rewrite_error(r, i,
                          "the operands of this asm statement are not written as "
                          "\"constraint\"(expression), ...");
        }
    }
    for (int k = 0; k < s.count; k++) {
        free(s.ptx[k].name);
    }
    text_free(&ptx);
    return s.open; // the operands' expressions are walked as usual
}
