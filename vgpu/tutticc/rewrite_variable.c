// `__device__`, `__constant__` and `__managed__`: the words go; variables become one copy per
// device.
//
// The variable itself stays as the host image, is registered, and later uses of its name are
// wrapped:
//   __device__ int n = 3;  ->  static int n = 3; static const ::vgpu::symbol vgpu_symbol1(n, "n",
//   false); n++                    ->  ::vgpu::device_variable(n)++
// Constants need no copies. SPDX-License-Identifier: Apache-2.0
#include "rewrite_internal.h"

#include <stdlib.h>
#include <string.h>

struct variable *add_variable(struct rewriter *r, int name, const char *access)
{
    if (r->variable_count == r->variable_capacity) {
        r->variable_capacity = r->variable_capacity ? r->variable_capacity * 2 : 16;
        r->variable = reallocate(r->variable, (size_t)r->variable_capacity * sizeof(*r->variable));
    }
    int space = current_space(r);
    struct variable *variable = &r->variable[r->variable_count++];
    *variable =
        (struct variable){.name = token_copy(&r->source, name),
                          .space = space >= 0 ? token_copy(&r->source, space) : copy_string("", 0),
                          .access = access ? copy_string(access, strlen(access)) : NULL,
                          .declared_at = name};
    return variable;
}

const struct variable *find_variable(const struct rewriter *r, int token)
{
    for (int i = r->variable_count - 1; i >= 0; i--) {
        if (token_is(&r->source, token, r->variable[i].name)) {
            return &r->variable[i];
        }
    }
    return NULL;
}

// ---- Declarations ------------------------------------------------------------------------------

struct declaration {
    int begin, end; // end is the `;`
    int declarators;
    bool constant_space, managed, device;
    bool is_const, is_constexpr, is_extern, is_static, is_inline, is_shared;
};

static void read_words(const struct source *source, struct declaration *d)
{
    for (int i = d->begin; i < d->declarators; i++) {
        if (token_is(source, i, "{") || token_is(source, i, "(") || token_is(source, i, "[")) {
            i = skip_brackets(source, i, d->declarators) - 1;
            continue;
        }
        if (token_is(source, i, "<")) {
            int after = skip_angles(source, i, d->declarators);
            i = after > i ? after - 1 : i;
            continue;
        }
        enum word word = token_word(source, i);
        d->device |= word == WORD_DEVICE;
        d->constant_space |= word == WORD_CONSTANT;
        d->managed |= word == WORD_MANAGED;
        d->is_shared |= word == WORD_SHARED;
        d->is_const |= word == WORD_CONST;
        d->is_constexpr |= word == WORD_CONSTEXPR;
        d->is_extern |= word == WORD_EXTERN;
        d->is_static |= word == WORD_STATIC;
        d->is_inline |= word == WORD_INLINE;
    }
}

// Whether what the declaration declares is a variable, not a function, type or alias.
static bool declares_variable(const struct source *source, const struct declaration *d)
{
    for (int i = d->begin; i < d->end; i++) {
        enum word word = token_word(source, i);
        if (word == WORD_OPERATOR || word == WORD_USING) {
            return false;
        }
    }
    if (d->declarators >= d->end || token_is(source, d->declarators, "~")) {
        return false;
    }
    struct declarator declarator = read_declarator(source, d->declarators, d->end);
    if (declarator.name < 0) {
        return false; // a constructor, a class
    }
    int next = declarator.after;
    if (next >= d->end || token_is(source, next, "=") || token_is(source, next, "[") ||
        token_is(source, next, ",") || token_is(source, next, "{") || token_is(source, next, ")")) {
        return true;
    }
    if (skip_attribute(source, next, d->end) > next) {
        int after = skip_attribute(source, next, d->end);
        return !token_is(source, after, "(");
    }
    // x(5) is a variable, x(int) a function.
    int kind = next + 1 < d->end ? source->token[next + 1].kind : TOKEN_END;
    return token_is(source, next, "(") &&
           (kind == TOKEN_NUMBER || kind == TOKEN_STRING || kind == TOKEN_CHARACTER);
}

static bool known_extern(const struct rewriter *r, int name)
{
    const struct variable *variable = find_variable(r, name);
    return variable && variable->is_extern;
}

static void rewrite_one(struct rewriter *r, const struct declaration *d, int begin, int end,
                        struct text *text)
{
    const struct source *source = &r->source;
    struct declarator declarator = read_declarator(source, begin, end);
    if (declarator.name < 0) {
        return;
    }
    bool constant = d->is_constexpr || (d->is_const && !declarator.pointer);
    bool has_value =
        find_outside(source, begin, end, '=') < end || find_outside(source, begin, end, '{') < end;
    bool only_declared = d->is_extern && !has_value;
    char *name = token_copy(source, declarator.name);
    if (!constant && !d->managed && !declarator.qualified) {
        add_variable(r, declarator.name, NULL)->is_extern = only_declared;
    }
    if (!only_declared && !d->managed && !d->is_constexpr) {
        text_printf(text,
                    " __attribute__((unused)) static const ::vgpu::symbol vgpu_symbol%d_%s(%s, "
                    "\"%s\", %s);",
                    ++r->serial, name, name, name, d->constant_space ? "true" : "false");
    }
    free(name);
}

// A static variable of a function: the host image under another name, registered when control first
// passes it, and a reference to the device's copy.
static void rewrite_local(struct rewriter *r, const struct declaration *d, int begin, int end,
                          struct text *text)
{
    struct declarator declarator = read_declarator(&r->source, begin, end);
    if (declarator.name < 0) {
        return;
    }
    char *name = token_copy(&r->source, declarator.name);
    int n = ++r->serial;
    char *image = format_string("vgpu_image%d_%s", n, name);
    edit_replace_token(&r->edits, &r->source, declarator.name, image);
    text_printf(text,
                " static const ::vgpu::symbol vgpu_symbol%d_%s(%s, \"%s\", %s);"
                " auto &%s = ::vgpu::device_variable(%s);",
                n, name, image, name, d->constant_space ? "true" : "false", name, image);
    char *access = format_string("::vgpu::device_variable(%s)", image);
    struct variable *variable = add_variable(r, declarator.name, access);
    free(access);
    variable->depth = r->depth;
    variable->lambdas = current_scope(r)->lambdas;
    variable->shadow_base = r->shadow_count;
    free(image);
    free(name);
}

// Whether variables of this kind can stand where they stand; says so where they cannot.
static bool check_place(struct rewriter *r, const struct declaration *d, int word)
{
    enum scope_kind kind = current_scope(r)->kind;
    bool constant = d->is_constexpr || d->is_const || d->managed;
    bool is_template = token_word(&r->source, d->begin) == WORD_TEMPLATE;
    char *spelling = token_copy(&r->source, word);
    if (kind == SCOPE_FUNCTION && !d->is_static && !constant) {
        rewrite_error(r, word, "%s variables inside a function must be static", spelling);
    } else if (kind == SCOPE_CLASS && !constant) {
        rewrite_error(r, word, "%s is not supported for members of classes", spelling);
    } else if (is_template && !constant) {
        rewrite_error(r, word, "%s is not supported for variable templates", spelling);
    }
    free(spelling);
    return !is_template &&
           (kind == SCOPE_FILE || (kind == SCOPE_FUNCTION && d->is_static && !constant));
}

static void rewrite_declaration(struct rewriter *r, struct declaration *d, int word)
{
    const struct source *source = &r->source;
    if (!check_place(r, d, word)) {
        return;
    }
    bool local = current_scope(r)->kind == SCOPE_FUNCTION;
    // nvcc's whole-program mode gives each translation unit its own.
    struct declarator first = read_declarator(source, d->declarators, d->end);
    bool own = !r->options->separate_variables && !d->is_extern && !d->is_static && !d->is_inline &&
               !d->is_constexpr && !first.qualified && !known_extern(r, first.name);
    if (own) {
        int place = d->begin; // standard attributes come first
        for (int after; (after = skip_attribute(source, place, d->declarators)) > place;) {
            place = after;
        }
        edit_before(&r->edits, source, place, "static __attribute__((unused)) ");
    }
    struct text text = {0};
    for (int begin = d->declarators; begin < d->end;) {
        int comma = find_outside(source, begin, d->end, ',');
        if (local) {
            rewrite_local(r, d, begin, comma, &text);
        } else {
            rewrite_one(r, d, begin, comma, &text);
        }
        begin = comma + 1;
    }
    if (text.data) {
        edit_after(&r->edits, source, d->end, text.data);
    }
    text_free(&text);
}

int rewrite_variable(struct rewriter *r, int i)
{
    const struct source *source = &r->source;
    edit_delete_token(&r->edits, source, i);
    if (current_scope(r)->parens > 0 || current_scope(r)->kind == SCOPE_VALUE ||
        r->handled == r->statement + 1) {
        return i + 1; // a lambda, or the second word of one declaration
    }
    struct declaration d = {.begin = r->statement};
    int specifiers = skip_template_headers(source, d.begin, source->count);
    int limit = declaration_end(source, specifiers);
    d.end = limit;
    d.declarators = skip_specifiers(source, specifiers, d.end);
    bool whole = d.declarators < limit && !declares_variable(source, &d);
    if (token_is(source, limit, "{") && !whole) { // a brace initialiser, or a structure's members
        d.end = find_outside(source, specifiers, source->count, ';');
        d.declarators = skip_specifiers(source, specifiers, d.end);
    }
    if (d.declarators <= i || d.end >= source->count || !declares_variable(source, &d)) {
        return i + 1;
    }
    read_words(source, &d);
    if (d.is_shared) {
        return i + 1;
    }
    r->handled = r->statement + 1;
    rewrite_declaration(r, &d, i);
    return i + 1;
}

// ---- Uses --------------------------------------------------------------------------------------

static void hide(struct rewriter *r, int variable)
{
    if (r->shadow_count == r->shadow_capacity) {
        r->shadow_capacity = r->shadow_capacity ? r->shadow_capacity * 2 : 32;
        r->shadow = reallocate(r->shadow, (size_t)r->shadow_capacity * sizeof(*r->shadow));
    }
    r->shadow[r->shadow_count++] = variable;
}

static bool is_hidden(const struct rewriter *r, int variable)
{
    for (int i = r->variable[variable].shadow_base; i < r->shadow_count; i++) {
        if (r->shadow[i] < r->variable_count &&
            strcmp(r->variable[r->shadow[i]].name, r->variable[variable].name) == 0) {
            return true;
        }
    }
    return false;
}

static bool begins_statement(const struct source *source, int before)
{
    return before < 0 || token_is(source, before, ";") || token_is(source, before, "{") ||
           token_is(source, before, "}") || token_word(source, before) == WORD_CONST ||
           token_word(source, before) == WORD_STATIC || token_word(source, before) == WORD_VOLATILE;
}

// The token before the * and & that stand before token i.
static int before_pointers(const struct source *source, int i, bool *pointer)
{
    int at = i - 1;
    *pointer = false;
    while (token_is(source, at, "*") || token_is(source, at, "&") || token_is(source, at, "&&") ||
           (*pointer && token_word(source, at) == WORD_CONST) ||
           token_word(source, at) == WORD_RESTRICT) {
        *pointer = true;
        at--;
    }
    return at;
}

// The token before a possibly qualified name that ends at i.
static int before_qualified(const struct source *source, int i)
{
    while (i >= 2 && token_is(source, i - 1, "::")) {
        i -= 2;
    }
    return i - 1;
}

// Whether the name at i is being declared there: a type stands before it.
static bool is_declared_here(const struct rewriter *r, int i)
{
    const struct source *source = &r->source;
    bool pointer;
    int at = before_pointers(source, i, &pointer);
    switch (token_word(source, at)) {
    case WORD_BUILTIN_TYPE:
    case WORD_AUTO:
    case WORD_CONST:
    case WORD_VOLATILE:
    case WORD_CLASS:
    case WORD_ENUM:
    case WORD_VOID:
        return true;
    case WORD_OTHER:
        break;
    default:
        return false;
    }
    const struct scope *scope = &r->scope[r->depth - 1];
    bool parameter = scope->kind != SCOPE_FUNCTION && scope->parens > 0;
    if (at >= 0 && source->token[at].kind == TOKEN_WORD) {
        return !pointer || parameter || begins_statement(source, before_qualified(source, at));
    }
    if (token_is(source, at, ">")) {
        at = token_before_angles(source, at);
        return at >= 0 && source->token[at].kind == TOKEN_WORD &&
               (parameter || begins_statement(source, before_qualified(source, at)));
    }
    return false;
}

void shadow_members(struct rewriter *r, int open)
{
    const struct source *source = &r->source;
    int close = skip_brackets(source, open, source->count);
    for (int i = open + 1; i < close; i++) {
        if (token_is(source, i, "{") || token_is(source, i, "(")) {
            i = skip_brackets(source, i, close) - 1;
            continue;
        }
        const struct variable *variable =
            source->token[i].kind == TOKEN_WORD ? find_variable(r, i) : NULL;
        bool declared = variable && (is_declared_here(r, i) || token_is(source, i - 1, "*") ||
                                     token_is(source, i - 1, ","));
        if (declared) {
            hide(r, (int)(variable - r->variable));
        }
    }
}

// `space::name`: whether the qualifier names the variable's namespace.
static bool qualifier_fits(const struct source *source, int i, const struct variable *variable)
{
    bool named = i >= 2 && source->token[i - 2].kind == TOKEN_WORD &&
                 token_word(source, i - 2) == WORD_OTHER;
    return named ? token_is(source, i - 2, variable->space) : variable->space[0] == '\0';
}

void rewrite_use(struct rewriter *r, int i)
{
    const struct source *source = &r->source;
    const struct variable *variable = find_variable(r, i);
    if (!variable || current_scope(r)->kind == SCOPE_CLASS || variable->declared_at == i) {
        return;
    }
    if (token_is(source, i - 1, ".") || token_is(source, i - 1, "->") ||
        token_is(source, i + 1, "::")) {
        return;
    }
    if (current_scope(r)->kind == SCOPE_FILE && r->handled == r->statement + 1) {
        return; // its own declaration
    }
    int begin = i;
    if (token_is(source, i - 1, "::")) {
        while (begin >= 1 && token_is(source, begin - 1, "::")) {
            begin--;
            if (begin >= 1 && source->token[begin - 1].kind == TOKEN_WORD &&
                token_word(source, begin - 1) == WORD_OTHER) {
                begin--;
            }
        }
        if (!qualifier_fits(source, i, variable)) {
            return;
        }
    } else if (is_declared_here(r, i)) {
        hide(r, (int)(variable - r->variable));
        return;
    } else if (is_hidden(r, (int)(variable - r->variable))) {
        return;
    }
    if (variable->depth > 0 && current_scope(r)->lambdas == variable->lambdas) {
        return; // the reference itself
    }
    if (variable->access) {
        edit_replace_token(&r->edits, source, i, variable->access);
    } else {
        edit_before(&r->edits, source, begin, "::vgpu::device_variable(");
        edit_after(&r->edits, source, i, ")");
    }
}
