// The walk over the tokens: keeps track of scopes and hands each construct to the file that knows
// it.
// SPDX-License-Identifier: Apache-2.0
#include "rewrite_internal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ERRORS = 20 };

void rewrite_error(struct rewriter *r, int token, const char *format, ...)
{
    r->errors++;
    if (r->errors > MAX_ERRORS) {
        return;
    }
    struct place place = source_place(&r->source, r->source.token[token].offset, r->options->file);
    fprintf(r->options->messages, "%s:%d: error: ", place.file, place.line);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(r->options->messages, format, arguments);
    va_end(arguments);
    fputc('\n', r->options->messages);
    free(place.file);
}

int declaration_end(const struct source *source, int begin)
{
    for (int i = begin; i < source->count;) {
        if (token_is(source, i, ";") || token_is(source, i, "{") || token_is(source, i, "}")) {
            return i;
        }
        if (token_is(source, i, "=")) { // an initialiser may hold braces
            i = find_outside(source, i, source->count, ';');
            return i;
        }
        bool bracket = token_is(source, i, "(") || token_is(source, i, "[");
        i = bracket ? skip_brackets(source, i, source->count) : i + 1;
    }
    return source->count;
}

int current_space(const struct rewriter *r)
{
    for (int i = r->depth - 1; i >= 0; i--) {
        if (r->scope[i].kind == SCOPE_FILE && r->scope[i].name >= 0) {
            return r->scope[i].name;
        }
    }
    return -1;
}

// ---- Scopes ------------------------------------------------------------------------------------

// What the tokens of a declaration say about the `{` at the end of it.
struct heading {
    bool is_namespace, is_class, is_enum, is_linkage;
    bool has_parens, has_assign, has_colon; // colon: after the parameters
    bool device;
    int name;
};

// Goes over what says nothing about the heading: attributes, the symbol of an operator, parameters,
// template arguments.
static int skip_in_heading(const struct source *source, int i, int end, struct heading *heading)
{
    int attribute = skip_attribute(source, i, end);
    if (attribute > i) {
        return attribute;
    }
    if (token_word(source, i) == WORD_OPERATOR) {
        i++;
        while (i < end && !token_is(source, i, "(")) {
            i++;
        }
        bool call = token_is(source, i + 1, ")") && token_is(source, i + 2, "(");
        return call ? i + 2 : i;
    }
    if (token_is(source, i, "(")) {
        heading->has_parens = true;
        return skip_brackets(source, i, end);
    }
    if (token_is(source, i, "<") && i > 0 && source->token[i - 1].kind == TOKEN_WORD) {
        int after = skip_angles(source, i, end);
        return after > i ? after : i;
    }
    return i;
}

static void read_heading_word(const struct source *source, int i, int end, struct heading *heading)
{
    enum word word = token_word(source, i);
    bool type = (word == WORD_CLASS || word == WORD_ENUM) && !heading->has_parens;
    if (word == WORD_NAMESPACE || type) {
        heading->is_namespace |= word == WORD_NAMESPACE;
        heading->is_class |= word == WORD_CLASS && !heading->is_enum;
        heading->is_enum |= word == WORD_ENUM;
    } else if (word == WORD_DEVICE || word == WORD_GLOBAL) {
        heading->device = true;
    } else if (word == WORD_EXTERN) {
        heading->is_linkage |= i + 2 == end && source->token[i + 1].kind == TOKEN_STRING;
    } else if (word == WORD_OTHER && source->token[i].kind == TOKEN_WORD && heading->name < 0 &&
               (heading->is_namespace || heading->is_class)) {
        heading->name = i;
    }
}

static struct heading read_heading(const struct source *source, int begin, int end)
{
    struct heading heading = {.name = -1};
    int i = skip_template_headers(source, begin, end);
    while (i < end) {
        int after = skip_in_heading(source, i, end, &heading);
        if (after > i) {
            i = after;
            continue;
        }
        heading.has_assign |= token_is(source, i, "=");
        heading.has_colon |= token_is(source, i, ":") && heading.has_parens;
        read_heading_word(source, i, end, &heading);
        i++;
    }
    // `namespace a::b`: the innermost name counts.
    while (heading.is_namespace && heading.name >= 0 && token_is(source, heading.name + 1, "::") &&
           heading.name + 2 < end) {
        heading.name += 2;
    }
    return heading;
}

// Whether the `{` at i begins the body of a lambda; *device is set where that is marked __device__.
static bool opens_lambda(const struct source *source, int i, int limit, bool *device)
{
    int at = i - 1;
    while (at > limit && source->token[at].kind == TOKEN_WORD) {
        *device |= token_word(source, at) == WORD_DEVICE;
        at--;
    }
    if (at > limit && token_is(source, at, ")") && source->token[at].partner > limit) {
        at = source->token[at].partner - 1;
        while (at > limit && source->token[at].kind == TOKEN_WORD) {
            *device |= token_word(source, at) == WORD_DEVICE;
            at--;
        }
    }
    return at > limit && token_is(source, at, "]");
}

static enum scope_kind classify(struct rewriter *r, int i, const struct heading *heading,
                                bool lambda)
{
    const struct source *source = &r->source;
    const struct scope *scope = current_scope(r);
    if (lambda) {
        return SCOPE_FUNCTION;
    }
    if (scope->parens > 0 || scope->kind == SCOPE_VALUE) {
        return scope->kind == SCOPE_FUNCTION && token_is(source, i - 1, "(") ? SCOPE_FUNCTION
                                                                             : SCOPE_VALUE;
    }
    if (scope->kind != SCOPE_FUNCTION && (heading->is_namespace || heading->is_linkage)) {
        return SCOPE_FILE;
    }
    if (heading->has_assign || (heading->is_enum && !heading->has_parens)) {
        return SCOPE_VALUE;
    }
    if (heading->is_class && !heading->has_parens) {
        return SCOPE_CLASS;
    }
    bool after_name =
        i > 0 && (token_is(source, i - 1, ">") || (source->token[i - 1].kind == TOKEN_WORD &&
                                                   token_word(source, i - 1) != WORD_STATEMENT));
    if (scope->kind == SCOPE_FUNCTION) {
        bool begins = i == r->statement || !after_name;
        return begins ? SCOPE_FUNCTION : SCOPE_VALUE;
    }
    if (!heading->has_parens || (heading->has_colon && after_name)) {
        return SCOPE_VALUE;
    }
    return SCOPE_FUNCTION;
}

static void open_scope(struct rewriter *r, int i)
{
    const struct scope *outer = current_scope(r);
    // Inside a longer expression the statement says nothing about this brace (and may be very
    // long).
    bool inside = outer->kind == SCOPE_VALUE || outer->parens > 0;
    struct heading heading =
        inside ? (struct heading){.name = -1} : read_heading(&r->source, r->statement, i);
    bool lambda_device = false;
    bool lambda = opens_lambda(&r->source, i, r->statement - 1, &lambda_device);
    struct scope scope = {.kind = classify(r, i, &heading, lambda),
                          .statement = r->statement,
                          .name = heading.name,
                          .shadow_count = r->shadow_count};
    scope.device =
        outer->device || (scope.kind == SCOPE_FUNCTION && (heading.device || lambda_device));
    if (scope.kind == SCOPE_CLASS) {
        scope.device = false;
    }
    scope.lambdas = outer->lambdas + lambda;
    if (r->pending >= 0 && scope.kind == SCOPE_FUNCTION) {
        scope.shadow_count = r->pending;
    }
    r->pending = -1;
    if (r->depth == r->scope_capacity) {
        r->scope_capacity *= 2;
        r->scope = reallocate(r->scope, (size_t)r->scope_capacity * sizeof(*r->scope));
    }
    r->scope[r->depth++] = scope;
    if (scope.kind == SCOPE_CLASS && r->variable_count > 0) {
        shadow_members(r, i);
    }
    r->statement = i + 1;
}

static void free_variable(struct variable *variable)
{
    free(variable->name);
    free(variable->space);
    free(variable->access);
}

static void close_scope(struct rewriter *r, int i)
{
    if (r->depth == 1) {
        r->statement = i + 1;
        return;
    }
    while (r->variable_count > 0 && r->variable[r->variable_count - 1].depth == r->depth) {
        free_variable(&r->variable[--r->variable_count]);
    }
    struct scope scope = r->scope[--r->depth];
    if (scope.shadow_count < r->shadow_count) {
        r->shadow_count = scope.shadow_count;
    }
    while (r->shadow_count > 0 && r->shadow[r->shadow_count - 1] >= r->variable_count) {
        r->shadow_count--;
    }
    // An initialiser, a class or a lambda is part of a longer declaration or statement.
    bool inner = scope.kind == SCOPE_VALUE || current_scope(r)->parens > 0;
    r->statement = inner ? scope.statement : i + 1;
}

static void walk_punctuation(struct rewriter *r, int i)
{
    const struct source *source = &r->source;
    struct scope *scope = current_scope(r);
    if (source->token[i].length != 1) {
        return;
    }
    switch (source->text[source->token[i].offset]) {
    case '(':
        scope->parens++;
        if (r->pending < 0) {
            r->pending = r->shadow_count;
        }
        break;
    case ')':
        scope->parens -= scope->parens > 0;
        break;
    case '{':
        open_scope(r, i);
        break;
    case '}':
        close_scope(r, i);
        break;
    case ';':
        if (scope->parens == 0) {
            int first = r->statement;
            r->statement = i + 1;
            // What parameters and loop variables hid ends here; local variables live on.
            if (r->pending >= 0 &&
                (scope->kind != SCOPE_FUNCTION || token_is(source, first, "for"))) {
                r->shadow_count = r->pending < r->shadow_count ? r->pending : r->shadow_count;
            }
            r->pending = -1;
        }
        break;
    case ':':
        if (scope->kind == SCOPE_CLASS && token_word(source, i - 1) == WORD_ACCESS) {
            r->statement = i + 1;
        }
        break;
    default:
        break;
    }
}

// ---- Words -------------------------------------------------------------------------------------

static int walk_noinline(struct rewriter *r, int i)
{
    // Inside __attribute__((...)) the word is gcc's own.
    if (!token_is(&r->source, i - 1, "(") && !token_is(&r->source, i - 1, ",")) {
        edit_replace_token(&r->edits, &r->source, i, "__attribute__((noinline))");
    }
    return i + 1;
}

static int walk_launch_bounds(struct rewriter *r, int i)
{
    int end = token_is(&r->source, i + 1, "(") ? skip_brackets(&r->source, i + 1, r->source.count)
                                               : i + 1;
    edit_delete_tokens(&r->edits, &r->source, i, end);
    return end;
}

static int walk_assert(struct rewriter *r, int i)
{
    // Its declaration in assert.h stays.
    if (current_scope(r)->kind == SCOPE_FUNCTION || current_scope(r)->kind == SCOPE_VALUE) {
        bool global = token_is(&r->source, i - 1, "::");
        edit_replace_token(&r->edits, &r->source, i,
                           global ? "vgpu_assert_fail" : "::vgpu_assert_fail");
    }
    return i + 1;
}

// Functions of the C library that a device has of its own. At a word of device code.
static void walk_library_call(struct rewriter *r, int i)
{
    const struct source *source = &r->source;
    const char *own = token_is(source, i, "printf")  ? "vgpu_printf"
                      : token_is(source, i, "clock") ? "vgpu_device_clock"
                                                     : NULL;
    if (!own || !token_is(source, i + 1, "(") || current_scope(r)->kind == SCOPE_CLASS) {
        return;
    }
    int begin = i;
    if (token_is(source, i - 1, "::")) {
        begin = token_is(source, i - 2, "std") ? i - 2 : i - 1;
        begin -= begin == i - 2 && token_is(source, begin - 1, "::");
        bool longer = begin > 0 && token_is(source, begin, "::") &&
                      source->token[begin - 1].kind == TOKEN_WORD &&
                      token_word(source, begin - 1) == WORD_OTHER;
        if (longer) {
            return; // another namespace's
        }
    } else if (token_is(source, i - 1, ".") || token_is(source, i - 1, "->") ||
               (source->token[i - 1].kind == TOKEN_WORD &&
                token_word(source, i - 1) != WORD_STATEMENT)) {
        return; // a member, or a declaration
    }
    if (begin < i) {
        edit_delete_tokens(&r->edits, source, begin, i);
    }
    char *text = format_string("::%s", own);
    edit_replace_token(&r->edits, source, i, text);
    free(text);
}

static int walk_word(struct rewriter *r, int i)
{
    switch (token_word(&r->source, i)) {
    case WORD_GLOBAL:
        return rewrite_kernel(r, i);
    case WORD_DEVICE:
    case WORD_CONSTANT:
    case WORD_MANAGED:
        return rewrite_variable(r, i);
    case WORD_SHARED:
        return rewrite_shared(r, i);
    case WORD_LAUNCH_BOUNDS:
        return walk_launch_bounds(r, i);
    case WORD_NOINLINE:
        return walk_noinline(r, i);
    case WORD_ASSERT_FAIL:
        return walk_assert(r, i);
    case WORD_ASM:
        return rewrite_asm(r, i);
    case WORD_LOOP:
    case WORD_DO:
        return rewrite_loop(r, i);
    case WORD_OTHER:
        if (r->variable_count > 0) {
            rewrite_use(r, i);
        }
        if (current_scope(r)->device && i > 0) {
            walk_library_call(r, i);
        }
        return i + 1;
    default:
        return i + 1;
    }
}

// Pragmas that only nvcc knows would be warned about.
static void drop_pragmas(struct rewriter *r)
{
    static const char *const KNOWN[] = {"unroll", "nounroll", "nv_", "hd_warning_disable", "diag_"};
    for (int i = 0; i < r->source.directive_count; i++) {
        const struct directive *directive = &r->source.directive[i];
        char line[64] = "";
        size_t length = directive->end - directive->offset;
        memcpy(line, r->source.text + directive->offset, length < 63 ? length : 63);
        char word[32];
        if (directive->is_marker || sscanf(line, "# pragma %31s", word) != 1) {
            continue;
        }
        for (size_t k = 0; k < sizeof(KNOWN) / sizeof(KNOWN[0]); k++) {
            if (strncmp(word, KNOWN[k], strlen(KNOWN[k])) == 0) {
                edit_delete(&r->edits, directive->offset, directive->end);
                break;
            }
        }
    }
}

static void free_rewriter(struct rewriter *r)
{
    for (int i = 0; i < r->variable_count; i++) {
        free_variable(&r->variable[i]);
    }
    free(r->variable);
    free(r->shadow);
    free(r->scope);
    edit_free(&r->edits);
    lex_free(&r->source);
}

int rewrite(const struct text *input, const struct rewrite_options *options, struct text *output)
{
    struct rewriter r = {
        .options = options, .scope_capacity = 64, .handled = -1, .do_while = -1, .pending = -1};
    if (!lex(&r.source, input->data ? input->data : "", input->length)) {
        fprintf(options->messages, "%s:1: error: the preprocessed text is longer than 1 GiB\n",
                options->file);
        return 1;
    }
    r.scope = allocate((size_t)r.scope_capacity * sizeof(*r.scope));
    r.scope[0] = (struct scope){.kind = SCOPE_FILE, .name = -1};
    r.depth = 1;
    for (int i = 0; i < r.source.count;) {
        if (r.source.token[i].kind == TOKEN_WORD) {
            i = walk_word(&r, i);
        } else if (token_triple(&r.source, i, '<')) {
            i = rewrite_launch(&r, i);
        } else {
            if (r.source.token[i].kind == TOKEN_PUNCTUATION) {
                walk_punctuation(&r, i);
            }
            i++;
        }
    }
    if (r.errors > MAX_ERRORS) {
        fprintf(options->messages, "%s: error: %d more errors\n", options->file,
                r.errors - MAX_ERRORS);
    }
    drop_pragmas(&r);
    if (r.errors == 0) {
        edit_apply(&r.edits, &r.source, options->file, output);
    }
    int errors = r.errors;
    free_rewriter(&r);
    return errors;
}
