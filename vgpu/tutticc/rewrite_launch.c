// Launches: f<<<grid, block, shared, stream>>>(arguments)
//        -> (::vgpu::push_launch(grid, block, shared, stream), f(arguments))
// SPDX-License-Identifier: Apache-2.0
#include "rewrite_internal.h"

// From the token `last` back to the first token of the postfix expression that ends there; -1 if
// there is none.
static int expression_begin(const struct source *source, int last)
{
    int i = last;
    for (;;) {
        if (token_is(source, i, ">")) {
            int depth = 0;
            for (; i >= 0 && !token_is(source, i, ";"); i--) {
                if (token_is(source, i, ")") || token_is(source, i, "]") ||
                    token_is(source, i, "}")) {
                    i = source->token[i].partner;
                    if (i < 0) {
                        return -1;
                    }
                    continue;
                }
                depth += token_is(source, i, ">");
                depth -= token_is(source, i, "<");
                if (depth == 0) {
                    break;
                }
            }
            i--;
            if (i < 0 || source->token[i].kind != TOKEN_WORD) {
                return -1;
            }
        } else if (token_is(source, i, ")") || token_is(source, i, "]")) {
            bool index = token_is(source, i, "]");
            i = source->token[i].partner;
            bool called = i > 0 && ((source->token[i - 1].kind == TOKEN_WORD &&
                                     token_word(source, i - 1) == WORD_OTHER) ||
                                    token_is(source, i - 1, ")") || token_is(source, i - 1, "]") ||
                                    token_is(source, i - 1, ">"));
            if (i > 0 && (index || called)) {
                i--;
                continue;
            }
            return i;
        } else if (i < 0 || source->token[i].kind != TOKEN_WORD ||
                   token_word(source, i) != WORD_OTHER) {
            return -1;
        }
        if (i > 0 && token_word(source, i - 1) == WORD_TEMPLATE) {
            i--;
        }
        bool member = i > 1 && (token_is(source, i - 1, ".") || token_is(source, i - 1, "->"));
        bool scoped = i > 0 && token_is(source, i - 1, "::");
        if (scoped && (i < 2 || !(token_is(source, i - 2, ">") ||
                                  (source->token[i - 2].kind == TOKEN_WORD &&
                                   token_word(source, i - 2) == WORD_OTHER)))) {
            return i - 1; // ::name
        }
        if (!member && !scoped) {
            return i;
        }
        i -= 2;
    }
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
