// Loops that poll memory: threads of a block share one thread of the machine, so a loop that waits
// for another thread must let it run. Atomics and ordered PTX accesses do that by themselves; plain
// volatile accesses cannot. So in device code loops without a body, and loops whose text reads
// something volatile, call the scheduler each time around:
//   while (*(volatile int *)flag == 0);  ->  while (*(volatile int *)flag == 0) ::vgpu_yield();
// SPDX-License-Identifier: Apache-2.0
#include "rewrite_internal.h"

static bool holds_volatile(const struct source *source, int begin, int end)
{
    for (int i = begin; i < end; i++) {
        if (token_word(source, i) == WORD_VOLATILE && token_word(source, i - 1) != WORD_ASM) {
            return true;
        }
    }
    return false;
}

// The body in braces at `open`, of a loop whose text begins at `begin` and ends before `end`.
static void rewrite_body(struct rewriter *r, int open, int begin, int end)
{
    bool empty = r->source.token[open].partner == open + 1;
    if (empty || holds_volatile(&r->source, begin, end)) {
        edit_after(&r->edits, &r->source, open, " ::vgpu_yield();");
    }
}

static void rewrite_do(struct rewriter *r, int i)
{
    const struct source *source = &r->source;
    if (!token_is(source, i + 1, "{")) { // do statement; while (...);
        int end = find_outside(source, i + 1, source->count, ';');
        r->do_while = end + 1 < source->count ? end + 1 : -1;
        return;
    }
    int loop = source->token[i + 1].partner + 1; // the `while`
    if (loop <= 0 || token_word(source, loop) != WORD_LOOP || !token_is(source, loop + 1, "(")) {
        return;
    }
    r->do_while = loop;
    rewrite_body(r, i + 1, i, skip_brackets(source, loop + 1, source->count));
}

// Whether the `while` at i ends a do statement.
static bool ends_do(const struct rewriter *r, int i)
{
    if (i == r->do_while) {
        return true;
    }
    int open = token_is(&r->source, i - 1, "}") ? r->source.token[i - 1].partner : -1;
    return open > 0 && token_word(&r->source, open - 1) == WORD_DO;
}

int rewrite_loop(struct rewriter *r, int i)
{
    const struct source *source = &r->source;
    if (current_scope(r)->kind != SCOPE_FUNCTION || !current_scope(r)->device) {
        return i + 1;
    }
    if (token_word(source, i) == WORD_DO) {
        rewrite_do(r, i);
        return i + 1;
    }
    if (!token_is(source, i + 1, "(") || source->token[i + 1].partner < 0 || ends_do(r, i)) {
        return i + 1;
    }
    int body = source->token[i + 1].partner + 1;
    if (token_is(source, body, ";")) {
        edit_before(&r->edits, source, body, " ::vgpu_yield()");
    } else if (token_is(source, body, "{") && source->token[body].partner > body) {
        rewrite_body(r, body, i, source->token[body].partner);
    } else if (token_is(source, body, "continue") || holds_volatile(source, i, body)) {
        // An expression is a statement of its own; with the call before it, it still is one.
        bool expression = source->token[body].kind == TOKEN_WORD &&
                          (token_word(source, body) == WORD_OTHER) &&
                          !token_is(source, body, "if") && !token_is(source, body, "switch");
        int end = find_outside(source, body, source->count, ';');
        if (expression && end < source->count) {
            edit_before(&r->edits, source, body, "{ ::vgpu_yield(); ");
            edit_after(&r->edits, source, end, " }");
        }
    }
    return i + 1;
}
