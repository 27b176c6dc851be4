// Changes to a text.
// SPDX-License-Identifier: Apache-2.0
#include "edit.h"

#include <stdlib.h>
#include <string.h>

static struct edit *add(struct edits *edits, size_t begin, size_t end, const char *text)
{
    if (edits->count == edits->capacity) {
        edits->capacity = edits->capacity ? edits->capacity * 2 : 256;
        edits->item = reallocate(edits->item, (size_t)edits->capacity * sizeof(*edits->item));
    }
    struct edit *edit = &edits->item[edits->count];
    *edit = (struct edit){.begin = begin,
                          .end = end,
                          .insert = text ? copy_string(text, strlen(text)) : NULL,
                          .order = edits->count};
    edits->count++;
    return edit;
}

void edit_insert(struct edits *edits, size_t at, const char *text)
{
    add(edits, at, at, text);
}

void edit_delete(struct edits *edits, size_t begin, size_t end)
{
    add(edits, begin, end, NULL);
}

void edit_replace(struct edits *edits, size_t begin, size_t end, const char *text)
{
    add(edits, begin, end, text);
}

void edit_move(struct edits *edits, size_t begin, size_t end, size_t to)
{
    add(edits, begin, end, NULL)->moves = true;
    struct edit *edit = add(edits, to, to, NULL);
    edit->moved_begin = begin;
    edit->moved_end = end;
}

void edit_before(struct edits *edits, const struct source *source, int token, const char *text)
{
    edit_insert(edits, source->token[token].offset, text);
}

void edit_after(struct edits *edits, const struct source *source, int token, const char *text)
{
    edit_insert(edits, token_end(source, token), text);
}

void edit_delete_token(struct edits *edits, const struct source *source, int token)
{
    edit_delete(edits, source->token[token].offset, token_end(source, token));
}

void edit_delete_tokens(struct edits *edits, const struct source *source, int begin, int end)
{
    for (int i = begin; i < end; i++) {
        edit_delete_token(edits, source, i);
    }
}

void edit_replace_token(struct edits *edits, const struct source *source, int token,
                        const char *text)
{
    edit_replace(edits, source->token[token].offset, token_end(source, token), text);
}

// The first directive that ends after `at`.
static int first_directive(const struct source *source, size_t at)
{
    int low = 0, high = source->directive_count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (source->directive[middle].end <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void append_flat(struct text *out, const struct source *source, size_t begin, size_t end)
{
    int d = first_directive(source, begin);
    for (size_t i = begin; i < end;) {
        if (d < source->directive_count && i >= source->directive[d].offset) {
            i = source->directive[d++].end;
            continue;
        }
        char c = source->text[i++];
        text_append(out, c == '\n' ? " " : &c, 1);
    }
}

// What a deleted range leaves behind: what is after it keeps its place. *drift is how far to the
// right the text has come by what was inserted; blanks for deleted text take it back.
static void append_lines(struct text *out, const struct source *source, size_t begin, size_t end,
                         size_t *drift)
{
    int d = first_directive(source, begin);
    for (size_t i = begin; i < end;) {
        if (d < source->directive_count && i == source->directive[d].offset) {
            size_t stop = source->directive[d].end < end ? source->directive[d].end : end;
            text_append(out, source->text + i, source->directive[d].is_marker ? stop - i : 0);
            i = source->directive[d++].end;
            continue;
        }
        if (source->text[i] == '\n') {
            text_add(out, "\n");
            *drift = 0;
        } else if (*drift > 0) {
            --*drift;
        } else {
            text_add(out, " ");
        }
        i++;
    }
}

// By place; at one place insertions come before the range that begins there, each in order of
// arrival.
static int compare(const void *left, const void *right)
{
    const struct edit *a = left, *b = right;
    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    bool a_empty = a->begin == a->end, b_empty = b->begin == b->end;
    if (a_empty != b_empty) {
        return a_empty ? -1 : 1;
    }
    if (a->moves != b->moves) {
        return a->moves ? -1 : 1; // a moved range holds the changes inside it
    }
    return a->order < b->order ? -1 : a->order > b->order;
}

static int first_edit(const struct edits *edits, size_t at)
{
    int low = 0, high = edits->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (edits->item[middle].begin < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// [begin, end) with its changes, as one line; for moved ranges, which hold no moves.
static void render_flat(const struct edits *edits, const struct source *source, size_t begin,
                        size_t end, struct text *out)
{
    size_t at = begin;
    for (int i = first_edit(edits, begin); i < edits->count && edits->item[i].begin < end; i++) {
        const struct edit *edit = &edits->item[i];
        bool outside = edit->begin == edit->end && edit->begin == begin;
        if (edit->moves || edit->begin < at || outside) {
            continue;
        }
        append_flat(out, source, at, edit->begin);
        if (edit->insert) {
            text_add(out, edit->insert);
        }
        at = edit->end;
    }
    if (at < end) {
        append_flat(out, source, at, end);
    }
}

static bool is_blank_line(const struct source *source, size_t at)
{
    while (at < source->length && (source->text[at] == ' ' || source->text[at] == '\t')) {
        at++;
    }
    return at == source->length || source->text[at] == '\n';
}

// Where the last text was put back: places are looked for in order.
struct cursor {
    const char *fallback; // the file where no marker names one
    struct place place;
    size_t at;
    bool known;
};

static void move_cursor(struct cursor *cursor, const struct source *source, size_t at)
{
    int d = first_directive(source, cursor->at);
    bool directives = d < source->directive_count && source->directive[d].offset < at;
    if (!cursor->known || directives) {
        free(cursor->place.file);
        cursor->place = source_place(source, at, cursor->fallback);
        cursor->known = true;
    } else {
        for (size_t i = cursor->at; i < at; i++) {
            cursor->place.line += source->text[i] == '\n';
        }
    }
    cursor->at = at;
}

// Lets what stands at `at` follow at its column, which inserted text has moved, so that the
// compiler's messages point at it. Very long lines are nobody's: they stay as they are.
static void resume_place(struct text *out, const struct source *source, size_t at,
                         struct cursor *cursor)
{
    enum { LONGEST = 2000 };
    size_t column = 0;
    while (column < LONGEST && column < at && source->text[at - column - 1] != '\n') {
        column++;
    }
    if (column == LONGEST) {
        return;
    }
    move_cursor(cursor, source, at);
    if (!cursor->place.system) {
        text_printf(out, "\n# %d ", cursor->place.line);
        text_add_literal(out, cursor->place.file, strlen(cursor->place.file));
        text_printf(out, "\n%*s", (int)column, "");
    }
}

// One change; *drift as for append_lines.
static void apply_one(const struct edits *edits, const struct edit *edit,
                      const struct source *source, struct text *out, size_t *drift)
{
    size_t before = out->length;
    if (edit->insert) {
        text_add(out, edit->insert);
    }
    if (edit->moved_begin < edit->moved_end) {
        render_flat(edits, source, edit->moved_begin, edit->moved_end, out);
    }
    *drift += out->length - before;
    append_lines(out, source, edit->begin, edit->end, drift);
}

void edit_apply(struct edits *edits, const struct source *source, const char *file,
                struct text *out)
{
    if (edits->count > 0) {
        qsort(edits->item, (size_t)edits->count, sizeof(*edits->item), compare);
    }
    size_t at = 0, drift = 0;
    struct cursor cursor = {.fallback = file};
    for (int i = 0; i <= edits->count; i++) {
        size_t next = i < edits->count ? edits->item[i].begin : source->length;
        if (next < at) {
            continue; // inside a deleted or moved range
        }
        if (at < next && drift > 0) {
            if (!is_blank_line(source, at)) {
                resume_place(out, source, at, &cursor);
            }
            drift = 0;
        }
        text_append(out, source->text + at, next - at);
        at = next;
        if (i < edits->count) {
            apply_one(edits, &edits->item[i], source, out, &drift);
            at = edits->item[i].end;
        }
    }
    free(cursor.place.file);
}

void edit_free(struct edits *edits)
{
    for (int i = 0; i < edits->count; i++) {
        free(edits->item[i].insert);
    }
    free(edits->item);
    *edits = (struct edits){0};
}
