// `__shared__` variables.
//
// In a function each becomes a reference into the running block's memory:
//   __shared__ float a[32], *b;  ->  typedef float vgpu_t1_a[32], *vgpu_t1_b; static char
//   vgpu_s1_a;
//       vgpu_t1_a &a = *static_cast<vgpu_t1_a *>(::vgpu_shared(&vgpu_s1_a, ...)); ...
// Outside of functions it becomes a function of that result, and later uses of the name call it.
// SPDX-License-Identifier: Apache-2.0
#include "rewrite_internal.h"

#include <stdlib.h>

struct shared {
    int begin, end;  // the declaration; end is the `;`
    int declarators; // after the specifiers
    int serial;
    bool is_extern;
    bool aligned; // alignas was written
    bool in_function;
};

// Reads and removes what a typedef cannot have.
static void strip_specifiers(struct rewriter *r, struct shared *shared, struct text *alignment)
{
    const struct source *source = &r->source;
    for (int i = shared->begin; i < shared->declarators;) {
        enum word word = token_word(source, i);
        int attribute = skip_attribute(source, i, shared->declarators);
        if (word == WORD_ALIGNAS) {
            append_flat(alignment, source, source->token[i].offset,
                        token_end(source, attribute - 1));
            text_add(alignment, " ");
            shared->aligned = true;
            edit_delete_tokens(&r->edits, source, i, attribute);
        } else if (token_is(source, i, "[") && attribute > i) {
            edit_delete_tokens(&r->edits, source, i, attribute);
        } else if (word == WORD_EXTERN || word == WORD_STATIC || word == WORD_INLINE) {
            shared->is_extern |= word == WORD_EXTERN;
            edit_delete_token(&r->edits, source, i);
        } else if (word == WORD_SHARED || word == WORD_DEVICE) {
            edit_delete_token(&r->edits, source, i);
        } else if (token_is(source, i, "{")) {
            attribute = skip_brackets(source, i, shared->declarators);
        }
        i = attribute > i ? attribute : i + 1;
    }
}

// The type, and where the object is: the text after `name =` or `return`.
static void add_object(struct text *text, const struct shared *shared, const char *name)
{
    int n = shared->serial;
    if (shared->is_extern) {
        text_printf(text, "*static_cast<vgpu_t%d_%s *>(::vgpu_dynamic_shared())", n, name);
        return;
    }
    text_printf(text,
                "*static_cast<vgpu_t%d_%s *>(::vgpu_shared(&vgpu_s%d_%s, sizeof(vgpu_t%d_%s), ", n,
                name, n, name, n, name);
    if (shared->aligned) {
        text_printf(text,
                    "alignof(vgpu_t%d_%s) > alignof(vgpu_a%d) ? alignof(vgpu_t%d_%s) : "
                    "alignof(vgpu_a%d)))",
                    n, name, n, n, name, n);
    } else {
        text_printf(text, "alignof(vgpu_t%d_%s)))", n, name);
    }
}

// In a function: a reference, and for lambdas inside, which must not capture it, the object itself.
static void add_reference(struct rewriter *r, struct text *text, const struct shared *shared,
                          int name_token)
{
    char *name = token_copy(&r->source, name_token);
    struct text object = {0};
    add_object(&object, shared, name);
    text_printf(text, " vgpu_t%d_%s &%s = %s;", shared->serial, name, name, object.data);
    char *access = format_string("(%s)", object.data);
    struct variable *variable = add_variable(r, name_token, access);
    free(access);
    variable->depth = r->depth;
    variable->lambdas = current_scope(r)->lambdas;
    variable->shadow_base = r->shadow_count;
    text_free(&object);
    free(name);
}

// Outside of functions: a function. A second `extern` declaration adds nothing.
static void add_function(struct rewriter *r, struct text *text, const struct shared *shared,
                         int name_token)
{
    const struct variable *before = find_variable(r, name_token);
    if (before && before->access && before->is_extern && shared->is_extern) {
        return;
    }
    char *name = token_copy(&r->source, name_token);
    text_printf(text,
                " static inline __attribute__((unused)) vgpu_t%d_%s &vgpu_shared_%s() { return ",
                shared->serial, name, name);
    add_object(text, shared, name);
    text_add(text, "; }");
    char *access = format_string("vgpu_shared_%s()", name);
    add_variable(r, name_token, access)->is_extern = shared->is_extern;
    free(access);
    free(name);
}

static void add_declaration(struct rewriter *r, struct text *text, const struct shared *shared,
                            int name_token)
{
    if (!shared->is_extern) {
        char *name = token_copy(&r->source, name_token);
        text_printf(text, " static char vgpu_s%d_%s;", shared->serial, name);
        free(name);
    }
    if (shared->in_function) {
        add_reference(r, text, shared, name_token);
    } else {
        add_function(r, text, shared, name_token);
    }
}

// One declarator in [begin, end): renames it for the typedef, and adds the object.
static void rewrite_declarator(struct rewriter *r, const struct shared *shared, int begin, int end,
                               struct text *text)
{
    const struct source *source = &r->source;
    struct declarator declarator = read_declarator(source, begin, end);
    if (declarator.name < 0 || declarator.qualified) {
        rewrite_error(r, begin < end ? begin : shared->begin,
                      "__shared__ must be followed by the declaration of a variable");
        return;
    }
    bool brace = false;
    for (int i = declarator.after; i < end; i++) {
        brace |= token_is(source, i, "{") && !token_is(source, i - 1, "[");
    }
    char *name = token_copy(source, declarator.name);
    if (find_outside(source, begin, end, '=') < end || brace) {
        rewrite_error(r, declarator.name, "__shared__ variable '%s' cannot have an initializer",
                      name);
    }
    if (shared->is_extern && !token_is(source, declarator.after, "[")) {
        rewrite_error(
            r, declarator.name,
            "'extern __shared__' declares the block's dynamic memory: '%s' must be an array", name);
    }
    char *renamed = format_string("vgpu_t%d_%s", shared->serial, name);
    edit_replace_token(&r->edits, source, declarator.name, renamed);
    free(renamed);
    free(name);
    add_declaration(r, text, shared, declarator.name);
}

int rewrite_shared(struct rewriter *r, int i)
{
    const struct source *source = &r->source;
    const struct scope *scope = current_scope(r);
    struct shared shared = {.begin = r->statement, .serial = r->serial + 1};
    shared.in_function = scope->kind == SCOPE_FUNCTION;
    if (scope->kind == SCOPE_CLASS || scope->kind == SCOPE_VALUE || scope->parens > 0 ||
        token_word(source, shared.begin) == WORD_TEMPLATE) {
        rewrite_error(r, i,
                      "__shared__ is supported for variables of functions and namespaces only");
        edit_delete_token(&r->edits, source, i);
        return i + 1;
    }
    if (r->handled == r->statement + 1) {
        return i + 1;
    }
    r->handled = r->statement + 1;
    r->serial++;
    shared.end = find_outside(source, shared.begin, source->count, ';');
    shared.declarators = skip_specifiers(source, shared.begin, shared.end);
    if (shared.end >= source->count || shared.declarators <= i) {
        rewrite_error(r, i, "__shared__ must be followed by the declaration of a variable");
        edit_delete_token(&r->edits, source, i);
        return i + 1;
    }
    struct text alignment = {0}, text = {0};
    text_add(&alignment, "");
    edit_before(&r->edits, source, shared.begin, "typedef ");
    strip_specifiers(r, &shared, &alignment);
    if (shared.aligned) {
        text_printf(&text, " struct %s vgpu_a%d { char c; };", alignment.data, shared.serial);
    }
    for (int begin = shared.declarators; begin < shared.end;) {
        int comma = find_outside(source, begin, shared.end, ',');
        rewrite_declarator(r, &shared, begin, comma, &text);
        begin = comma + 1;
    }
    if (text.data) {
        edit_after(&r->edits, source, shared.end, text.data);
    }
    text_free(&text);
    text_free(&alignment);
    // The specifiers may hold a structure's body, which is walked as usual; the words that were
    // removed are skipped.
    return i + 1;
}
