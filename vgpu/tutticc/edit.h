// Changes to a text: what to insert, delete and move, collected in any order and applied at the
// end.
//
// Places are kept: a deleted or moved range leaves its newlines and line markers behind, and
// in the user's own files what follows inserted text is put back at its line and column.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTICC_EDIT_H
#define TUTTICC_EDIT_H

#include "lexer.h"
#include "text.h"

struct edit {
    size_t begin, end;             // replaced range; empty for an insertion
    char *insert;                  // owned; may be NULL
    size_t moved_begin, moved_end; // what is put here from elsewhere; empty for none
    bool moves;                    // the range is shown elsewhere instead
    int order;                     // of arrival: insertions at one place keep it
};

struct edits {
    struct edit *item;
    int count;
    int capacity;
};

void edit_insert(struct edits *edits, size_t at, const char *text);
void edit_delete(struct edits *edits, size_t begin, size_t end);
void edit_replace(struct edits *edits, size_t begin, size_t end, const char *text);
// Takes [begin, end), with the other changes inside it, to `to`; ranges of several moves must not
// overlap.
void edit_move(struct edits *edits, size_t begin, size_t end, size_t to);

// The same by token.
void edit_before(struct edits *edits, const struct source *source, int token, const char *text);
void edit_after(struct edits *edits, const struct source *source, int token, const char *text);
void edit_delete_token(struct edits *edits, const struct source *source, int token);
void edit_delete_tokens(struct edits *edits, const struct source *source, int begin, int end);
void edit_replace_token(struct edits *edits, const struct source *source, int token,
                        const char *text);

// Appends the changed text to `out`. `file` names the source where no line marker does.
void edit_apply(struct edits *edits, const struct source *source, const char *file,
                struct text *out);
void edit_free(struct edits *edits);

// Appends [begin, end) without # lines and with spaces for newlines.
void append_flat(struct text *out, const struct source *source, size_t begin, size_t end);

#endif
