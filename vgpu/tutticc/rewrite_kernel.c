// `__global__` functions: the word goes, and each body begins with a stub that takes a pushed
// launch.
//
//   __global__ void k(int n) { body }   ->   void k(int n) { struct info {...};
//       if (::vgpu::kernel_stub<void (*)(int n), &k, info>::launch(n)) return; body }
//
// The stub's static member registers the kernel as soon as the function is named anywhere.
// SPDX-License-Identifier: Apache-2.0
#include "rewrite_internal.h"

#include <stdlib.h>
#include <string.h>

struct kernel {
    int begin;       // of the declaration, template headers included
    int specifiers;  // after the template headers
    int declarator;  // where the declared name begins
    int name;        // the declared name
    int open, close; // parentheses of the parameters
    int body;        // the `{`; -1: only a declaration
    int bounds;      // __launch_bounds__; -1
    struct parameters parameters;
    struct parameters template_parameters;
    bool is_specialization; // template <>
};

// The parentheses of the parameters: the first ones outside attributes and template arguments that
// follow a name.
static bool find_parameters(struct rewriter *r, struct kernel *kernel, int limit)
{
    const struct source *source = &r->source;
    int i = kernel->specifiers;
    while (i < limit) {
        int attribute = skip_attribute(source, i, limit);
        if (attribute > i) {
            if (token_word(source, i) == WORD_LAUNCH_BOUNDS) {
                kernel->bounds = i;
            }
            i = attribute;
            continue;
        }
        enum word word = token_word(source, i);
        if (word == WORD_DECLTYPE) {
            i = token_is(source, i + 1, "(") ? skip_brackets(source, i + 1, limit) : i + 1;
        } else if (token_is(source, i, "<") && source->token[i - 1].kind == TOKEN_WORD) {
            int after = skip_angles(source, i, limit);
            i = after > i ? after : i + 1;
        } else if (token_is(source, i, "(")) {
            kernel->open = i;
            kernel->close = source->token[i].partner;
            return kernel->close > i && i > kernel->specifiers;
        } else {
            i++;
        }
    }
    return false;
}

// Goes back from the parameters over a possibly qualified name with template arguments.
static bool find_name(const struct source *source, struct kernel *kernel)
{
    int i = kernel->open - 1;
    if (token_is(source, i, ">")) {
        int depth = 0;
        while (i > kernel->specifiers) {
            depth += token_is(source, i, ">");
            depth -= token_is(source, i, "<");
            if (depth == 0) {
                break;
            }
            i--;
        }
        i--;
    }
    if (i <= kernel->specifiers || source->token[i].kind != TOKEN_WORD ||
        token_word(source, i) != WORD_OTHER) {
        return false;
    }
    kernel->name = i;
    while (i - 1 > kernel->specifiers && token_is(source, i - 1, "::")) {
        i -= source->token[i - 2].kind == TOKEN_WORD && token_word(source, i - 2) == WORD_OTHER ? 2
                                                                                                : 1;
    }
    kernel->declarator = i;
    return true;
}

static void read_template(struct rewriter *r, struct kernel *kernel)
{
    const struct source *source = &r->source;
    // Of several headers the last is the function's own.
    int i = kernel->begin, last = -1;
    while (i < kernel->specifiers) {
        last = i;
        int after = skip_angles(source, i + 1, kernel->specifiers);
        i = after > i ? after : kernel->specifiers;
    }
    if (last < 0) {
        return;
    }
    int open = last + 1;
    kernel->is_specialization = open + 2 == kernel->specifiers;
    read_parameters(&kernel->template_parameters, source, open + 1, kernel->specifiers - 1, true);
}

// A kernel returns nothing. Only what is plainly something else is refused here; the stub's
// template sees the rest.
static void check_result(struct rewriter *r, const struct kernel *kernel)
{
    const struct source *source = &r->source;
    bool is_void = false, is_other = false;
    for (int i = kernel->specifiers; i < kernel->declarator; i++) {
        enum word word = token_word(source, i);
        int attribute = skip_attribute(source, i, kernel->declarator);
        if (attribute > i) {
            i = attribute - 1;
            continue;
        }
        if (token_is(source, i, "<")) {
            int after = skip_angles(source, i, kernel->declarator);
            i = after > i ? after - 1 : i;
        }
        is_void |= word == WORD_VOID;
        is_other |=
            word == WORD_BUILTIN_TYPE || token_is(source, i, "*") || token_is(source, i, "&");
    }
    if (is_other || (is_void && is_other)) {
        char *name = token_copy(source, kernel->name);
        rewrite_error(r, kernel->name, "__global__ function '%s' must return void", name);
        free(name);
    }
}

// The name that a parameter has or is given.
static char *parameter_name(const struct source *source, const struct parameter *parameter,
                            int number)
{
    return parameter->name >= 0 ? token_copy(source, parameter->name)
                                : format_string("vgpu_parameter%d", number);
}

static void name_parameters(struct rewriter *r, const struct parameters *list, int first_number)
{
    for (int i = 0; i < list->count; i++) {
        if (list->item[i].name < 0) {
            char *text = format_string(" vgpu_parameter%d ", first_number + i);
            edit_before(&r->edits, &r->source, list->item[i].name_place, text);
            free(text);
        }
    }
}

// &NAME or &NAME<ARGUMENTS>
static void add_address(struct text *text, const struct source *source, const struct kernel *kernel)
{
    text_add(text, "&");
    append_flat(text, source, source->token[kernel->declarator].offset,
                token_end(source, kernel->open - 1));
    const struct parameters *list = &kernel->template_parameters;
    if (list->count == 0) {
        return;
    }
    text_add(text, "<");
    for (int i = 0; i < list->count; i++) {
        char *name = parameter_name(source, &list->item[i], 1000 + i);
        text_printf(text, "%s%s%s", i ? ", " : "", name, list->item[i].pack ? "..." : "");
        free(name);
    }
    text_add(text, ">");
}

// The local structure that describes the kernel to its stub.
static void add_information(struct text *text, struct rewriter *r, const struct kernel *kernel)
{
    const struct source *source = &r->source;
    struct place place = source_place(source, source->token[kernel->name].offset, r->options->file);
    text_add(text, " struct vgpu_kernel_information { static const char *name() { return ");
    text_add_literal(text, source->text + source->token[kernel->name].offset,
                     source->token[kernel->name].length);
    text_add(text, "; } static const char *signature() { return __PRETTY_FUNCTION__; } "
                   "static const char *file() { return ");
    text_add_literal(text, place.file, strlen(place.file));
    text_add(text, "; } static int threads() { return ");
    if (kernel->bounds >= 0 && token_is(source, kernel->bounds + 1, "(")) {
        int open = kernel->bounds + 1;
        int close = source->token[open].partner;
        int comma = close > open ? find_outside(source, open + 1, close, ',') : open + 1;
        text_add(text, "static_cast<int>(");
        append_flat(text, source, token_end(source, open), source->token[comma].offset);
        text_add(text, ")");
    } else {
        text_add(text, "0");
    }
    text_printf(text, "; } enum { line = %d, template_parameters = %d }; };", place.line,
                kernel->template_parameters.count);
    free(place.file);
}

static void add_stub(struct rewriter *r, const struct kernel *kernel)
{
    const struct source *source = &r->source;
    struct text text = {0};
    add_information(&text, r, kernel);
    text_add(&text, " if (::vgpu::kernel_stub<void (*)(");
    const struct parameters *list = &kernel->parameters;
    for (int i = 0; i < list->count; i++) {
        text_add(&text, i ? ", " : "");
        append_flat(&text, source, source->token[list->item[i].begin].offset,
                    token_end(source, list->item[i].end - 1));
    }
    text_add(&text, "), ");
    add_address(&text, source, kernel);
    text_add(&text, ", vgpu_kernel_information>::launch(");
    for (int i = 0; i < list->count; i++) {
        char *name = parameter_name(source, &list->item[i], i);
        text_printf(&text, "%s%s%s", i ? ", " : "", name, list->item[i].pack ? "..." : "");
        free(name);
    }
    text_add(&text, ")) return;");
    edit_after(&r->edits, source, kernel->body, text.data);
    text_free(&text);
    name_parameters(r, &kernel->parameters, 0);
    name_parameters(r, &kernel->template_parameters, 1000);
}

int rewrite_kernel(struct rewriter *r, int i)
{
    const struct source *source = &r->source;
    edit_delete_token(&r->edits, source, i);
    if (r->handled == r->statement + 1) {
        return i + 1; // written twice
    }
    if (current_scope(r)->kind == SCOPE_FUNCTION || current_scope(r)->kind == SCOPE_VALUE) {
        rewrite_error(r, i, "__global__ cannot be used inside a function");
        return i + 1;
    }
    struct kernel kernel = {.begin = r->statement, .body = -1, .bounds = -1};
    kernel.specifiers = skip_template_headers(source, kernel.begin, source->count);
    int limit = declaration_end(source, kernel.specifiers);
    if (!find_parameters(r, &kernel, limit) || !find_name(source, &kernel)) {
        rewrite_error(r, i, "__global__ must be followed by the declaration of a function");
        return i + 1;
    }
    r->handled = r->statement + 1;
    check_result(r, &kernel);
    if (token_is(source, limit, "{")) {
        kernel.body = limit;
        read_template(r, &kernel);
        read_parameters(&kernel.parameters, source, kernel.open + 1, kernel.close, false);
        for (int k = 0; k < kernel.parameters.count; k++) {
            if (token_is(source, kernel.parameters.item[k].begin, "...")) {
                rewrite_error(r, kernel.open,
                              "a __global__ function cannot have a variable argument list");
            }
        }
        add_stub(r, &kernel);
        free_parameters(&kernel.parameters);
        free_parameters(&kernel.template_parameters);
    }
    return i + 1;
}
