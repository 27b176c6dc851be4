// Reading declarations.
// SPDX-License-Identifier: Apache-2.0
#include "declarator.h"

#include "text.h"

#include <stdlib.h>

int skip_attribute(const struct source *source, int i, int end)
{
    if (i >= end) {
        return i;
    }
    enum word word = token_word(source, i);
    if (word == WORD_ATTRIBUTE || word == WORD_ALIGNAS || word == WORD_LAUNCH_BOUNDS) {
        return token_is(source, i + 1, "(") && i + 1 < end ? skip_brackets(source, i + 1, end)
                                                           : i + 1;
    }
    if (token_is(source, i, "[") && token_is(source, i + 1, "[") && i + 1 < end) {
        return skip_brackets(source, i, end);
    }
    return i;
}

int skip_template_headers(const struct source *source, int i, int end)
{
    while (i + 1 < end && token_word(source, i) == WORD_TEMPLATE && token_is(source, i + 1, "<")) {
        int after = skip_angles(source, i + 1, end);
        if (after < 0) {
            break;
        }
        i = after;
    }
    return i;
}

int find_outside(const struct source *source, int begin, int end, char wanted)
{
    for (int i = begin; i < end;) {
        const struct token *token = &source->token[i];
        char c = token->kind == TOKEN_PUNCTUATION && token->length == 1
                     ? source->text[token->offset]
                     : '\0';
        if (c == wanted) {
            return i;
        }
        if (c == '(' || c == '[' || c == '{') {
            i = skip_brackets(source, i, end);
            continue;
        }
        if (c == '<' && i > begin && source->token[i - 1].kind == TOKEN_WORD) {
            int after = skip_angles(source, i, end);
            if (after > 0) {
                i = after;
                continue;
            }
        }
        i++;
    }
    return end;
}

// The index after a possibly qualified name with template arguments.
static int skip_qualified(const struct source *source, int i, int end)
{
    if (token_is(source, i, "::")) {
        i++;
    }
    while (i < end && source->token[i].kind == TOKEN_WORD) {
        i++;
        if (i < end && token_is(source, i, "<")) {
            int after = skip_angles(source, i, end);
            if (after < 0) {
                return i;
            }
            i = after;
        }
        if (i >= end || !token_is(source, i, "::")) {
            return i;
        }
        i++;
        if (token_word(source, i) == WORD_TEMPLATE) {
            i++;
        }
    }
    return i < end ? i : end;
}

// At struct, class, union or enum: the index after the name and, where there is one, the body.
static int skip_class(const struct source *source, int i, int end)
{
    i++;
    if (token_word(source, i) == WORD_CLASS && i < end) {
        i++; // enum class
    }
    int attribute;
    while ((attribute = skip_attribute(source, i, end)) > i) {
        i = attribute;
    }
    i = skip_qualified(source, i, end);
    int body = i;
    if (body < end && token_is(source, body, ":")) {
        while (body < end && !token_is(source, body, "{") && !token_is(source, body, ";")) {
            body++;
        }
    }
    if (body < end && token_is(source, body, "{")) {
        return skip_brackets(source, body, end);
    }
    return i;
}

int skip_specifiers(const struct source *source, int begin, int end)
{
    bool have_type = false;
    int i = begin;
    while (i < end) {
        int attribute = skip_attribute(source, i, end);
        if (attribute > i) {
            i = attribute;
            continue;
        }
        switch (token_word(source, i)) {
        case WORD_GLOBAL:
        case WORD_DEVICE:
        case WORD_SHARED:
        case WORD_CONSTANT:
        case WORD_MANAGED:
        case WORD_NOINLINE:
        case WORD_STATIC:
        case WORD_INLINE:
        case WORD_CONSTEXPR:
        case WORD_CONST:
        case WORD_VOLATILE:
        case WORD_RESTRICT:
        case WORD_SPECIFIER:
        case WORD_USING:
        case WORD_TYPENAME:
            i++;
            continue;
        case WORD_EXTERN:
            i += i + 1 < end && source->token[i + 1].kind == TOKEN_STRING ? 2 : 1;
            continue;
        case WORD_AUTO:
        case WORD_VOID:
        case WORD_BUILTIN_TYPE:
            have_type = true;
            i++;
            continue;
        case WORD_CLASS:
        case WORD_ENUM:
            have_type = true;
            i = skip_class(source, i, end);
            continue;
        case WORD_DECLTYPE:
            have_type = true;
            i = token_is(source, i + 1, "(") ? skip_brackets(source, i + 1, end) : i + 1;
            if (i < end && token_is(source, i, "::")) {
                i = skip_qualified(source, i, end);
            }
            continue;
        default:
            break;
        }
        bool name = source->token[i].kind == TOKEN_WORD || token_is(source, i, "::");
        if (have_type || !name || token_word(source, i) == WORD_OPERATOR) {
            return i;
        }
        have_type = true;
        int after = skip_qualified(source, i, end);
        i = after > i ? after : i + 1;
    }
    return i;
}

struct declarator read_declarator(const struct source *source, int begin, int end)
{
    struct declarator result = {.name = -1, .name_place = begin, .after = begin};
    int i = begin;
    while (i < end) {
        enum word word = token_word(source, i);
        int attribute = skip_attribute(source, i, end);
        if (attribute > i) {
            i = attribute;
        } else if (token_is(source, i, "*") || token_is(source, i, "&") ||
                   token_is(source, i, "&&")) {
            result.pointer = true;
            i++;
        } else if (word == WORD_CONST || word == WORD_VOLATILE || word == WORD_RESTRICT) {
            i++;
        } else if (token_is(source, i, "...")) {
            result.pack = true;
            i++;
        } else {
            break;
        }
    }
    result.name_place = i;
    result.after = i;
    if (i < end && (source->token[i].kind == TOKEN_WORD || token_is(source, i, "::"))) {
        int after = skip_qualified(source, i, end);
        int name = after - 1;
        if (token_is(source, name, ">")) { // a template-id: its name stands before the arguments
            for (name = i; name + 1 < after && !token_is(source, name + 1, "<"); name++) {
            }
        }
        result.qualified = name > i;
        result.name = source->token[name].kind == TOKEN_WORD ? name : -1;
        result.after = after;
        return result;
    }
    bool nested = i + 1 < end && token_is(source, i, "(") &&
                  (token_is(source, i + 1, "*") || token_is(source, i + 1, "&") ||
                   token_is(source, i + 1, "&&") || token_is(source, i + 1, "("));
    if (nested) {
        int close = skip_brackets(source, i, end) - 1;
        struct declarator inner = read_declarator(source, i + 1, close);
        inner.pointer = true;
        return inner;
    }
    return result;
}

// ---- Parameters --------------------------------------------------------------------------------

// A parameter of a template that is a type or a template: its name follows the key word.
static bool read_type_parameter(struct parameter *parameter, const struct source *source)
{
    int i = skip_template_headers(source, parameter->begin, parameter->end);
    enum word word = token_word(source, i);
    if (word != WORD_TYPENAME && !token_is(source, i, "class")) {
        return false;
    }
    i++;
    if (i < parameter->end && token_is(source, i, "...")) {
        parameter->pack = true;
        i++;
    }
    if (i < parameter->end && source->token[i].kind == TOKEN_WORD) {
        if (i + 1 < parameter->end) {
            return false; // `typename T::type n`: a value
        }
        parameter->name = i;
    } else {
        parameter->name = -1;
    }
    parameter->name_place = i;
    return true;
}

static void read_parameter(struct parameter *parameter, const struct source *source,
                           bool is_template)
{
    if (is_template && read_type_parameter(parameter, source)) {
        return;
    }
    int after = skip_specifiers(source, parameter->begin, parameter->end);
    struct declarator declarator = read_declarator(source, after, parameter->end);
    parameter->name = declarator.name;
    parameter->name_place = declarator.name_place;
    parameter->pack = declarator.pack;
}

void read_parameters(struct parameters *list, const struct source *source, int begin, int end,
                     bool is_template)
{
    *list = (struct parameters){0};
    bool only_void = end == begin + 1 && token_word(source, begin) == WORD_VOID;
    if (begin >= end || only_void) {
        return;
    }
    int capacity = 0;
    for (int i = begin; i < end;) {
        int comma = find_outside(source, i, end, ',');
        if (list->count == capacity) {
            capacity = capacity ? capacity * 2 : 8;
            list->item = reallocate(list->item, (size_t)capacity * sizeof(*list->item));
        }
        struct parameter *parameter = &list->item[list->count++];
        *parameter = (struct parameter){.begin = i, .end = find_outside(source, i, comma, '=')};
        read_parameter(parameter, source, is_template);
        i = comma + 1;
    }
}

void free_parameters(struct parameters *list)
{
    free(list->item);
    *list = (struct parameters){0};
}
