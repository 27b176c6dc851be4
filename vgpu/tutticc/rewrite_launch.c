// Launches: f<<<grid, block, shared, stream>>>(arguments)
//        -> (::vgpu::push_launch(grid, block, shared, stream), f(arguments))
// SPDX-License-Identifier: Apache-2.0
#include "rewrite_internal.h"

// Whether the token at i can be the name of a function or of a namespace.
static bool is_name(const struct source *source, int i)
{
    return i >= 0 && source->token[i].kind == TOKEN_WORD && token_word(source, i) == WORD_OTHER;
}

// i is the closing bracket of a call, an index or of parentheses. Returns the token before the
// opening one where the expression goes on there (*more is set), else the opening one; -1 where
// there is none.
static int before_bracket(const struct source *source, int i, bool *more)
{
    bool index = token_is(source, i, "]");
    int open = source->token[i].partner;
    bool called = open > 0 && (is_name(source, open - 1) || token_is(source, open - 1, ")") ||
                               token_is(source, open - 1, "]") || token_is(source, open - 1, ">"));
    *more = open > 0 && (index || called);
    return *more ? open - 1 : open;
}

// i begins a name: goes over what qualifies it on the left. Returns the token before a `.`, `->` or
// `::` where the expression goes on there (*more is set), else the first token.
static int before_name(const struct source *source, int i, bool *more)
{
    if (token_word(source, i - 1) == WORD_TEMPLATE) {
        i--;
    }
    bool member = token_is(source, i - 1, ".") || token_is(source, i - 1, "->");
    bool scoped = token_is(source, i - 1, "::");
    bool global = scoped && !is_name(source, i - 2) && !token_is(source, i - 2, ">");
    *more = (member || scoped) && !global && i >= 2;
    return *more ? i - 2 : global ? i - 1 : i;
}

// From the token `last` back to the first token of the postfix expression that ends there; -1 if
// there is none.
static int expression_begin(const struct source *source, int last)
{
    int i = last;
    bool more = true;
    while (more && i >= 0) {
        if (token_is(source, i, ")") || token_is(source, i, "]")) {
            i = before_bracket(source, i, &more);
            continue;
        }
        if (token_is(source, i, ">")) {
            i = token_before_angles(source, i);
        }
        if (!is_name(source, i)) {
            return -1;
        }
        i = before_name(source, i, &more);
    }
    return i;
}

// The first > of the >>> that ends the configuration after `begin`; -1 if there is none.
static int configuration_end(const struct source *source, int begin)
{
    int angles = 0; // template argument lists that may be open
    for (int i = begin; i < source->count;) {
        if (token_triple(source, i, '>') && angles < 3) {
            return i;
        }
        if (token_is(source, i, "(") || token_is(source, i, "[") || token_is(source, i, "{")) {
            i = skip_brackets(source, i, source->count);
            continue;
        }
        if (token_is(source, i, ";") || token_is(source, i, ")") || token_is(source, i, "}")) {
            return -1;
        }
        if (token_is(source, i, "<") && source->token[i - 1].kind == TOKEN_WORD) {
            angles++;
        } else if (token_is(source, i, ">") && angles > 0) {
            angles--;
        }
        i++;
    }
    return -1;
}

int rewrite_launch(struct rewriter *r, int i)
{
    const struct source *source = &r->source;
    if (i == 0 || token_word(source, i - 1) == WORD_OPERATOR) {
        return i + 1; // operator<<<T>
    }
    int begin = expression_begin(source, i - 1);
    if (begin < 0) {
        rewrite_error(r, i, "expected a kernel before '<<<'");
        return i + 3;
    }
    int end = configuration_end(source, i + 3);
    if (end < 0) {
        rewrite_error(r, i, "'<<<' without '>>>'");
        return i + 3;
    }
    if (end == i + 3) {
        rewrite_error(r, i, "a launch needs at least '<<<grid, block>>>'");
        return end + 3;
    }
    int commas = 0;
    for (int k = find_outside(source, i + 3, end, ','); k < end;
         k = find_outside(source, k + 1, end, ',')) {
        commas++;
    }
    if (commas == 0 || commas > 3) {
        rewrite_error(r, i,
                      "a launch takes '<<<grid, block, shared bytes, stream>>>', of which grid "
                      "and block are needed; here are %d",
                      commas + 1);
        return end + 3;
    }
    int open = end + 3;
    if (!token_is(source, open, "(") || source->token[open].partner < 0) {
        rewrite_error(r, end, "expected '(' and the kernel's arguments after '>>>'");
        return open;
    }
    edit_before(&r->edits, source, begin, "(::vgpu::push_launch(");
    edit_delete_tokens(&r->edits, source, i, i + 3);
    edit_delete_tokens(&r->edits, source, end, end + 3);
    edit_before(&r->edits, source, end, "), ");
    edit_move(&r->edits, source->token[begin].offset, token_end(source, i - 1),
              source->token[end].offset);
    edit_after(&r->edits, source, source->token[open].partner, ")");
    return i + 3;
}
