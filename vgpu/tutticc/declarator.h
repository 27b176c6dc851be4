// Reading declarations: where the type ends, what is declared, lists of parameters.
//
// Works on token ranges of syntactically sane C++; on anything else it returns something, never
// reads outside the range.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTICC_DECLARATOR_H
#define TUTTICC_DECLARATOR_H

#include "lexer.h"

struct declarator {
    int name;       // token of the declared name; -1 for an abstract declarator
    int name_place; // before this token a name could be written (where name is -1)
    int after;      // the token after the name, or after name_place's side
    bool pack;      // declares a parameter pack
    bool pointer;   // a pointer or reference stands before the name
    bool qualified; // the name is written with ::
};

// The index after the type and the other specifiers that begin at `begin`.
int skip_specifiers(const struct source *source, int begin, int end);
// Reads the declarator that begins at `begin` (after the specifiers).
struct declarator read_declarator(const struct source *source, int begin, int end);
// The next token in [begin, end) that is this single character outside all brackets and template
// argument lists; end if there is none.
int find_outside(const struct source *source, int begin, int end, char wanted);
// The index after what may be an attribute at i (__attribute__((..)), alignas(..), [[..]],
// __launch_bounds__(..)); i if there is none.
int skip_attribute(const struct source *source, int i, int end);
// The index after the template headers that begin at i; i if there are none.
int skip_template_headers(const struct source *source, int i, int end);

// One parameter of a function or of a template.
struct parameter {
    int begin, end; // without the default argument and the comma
    int name;       // -1: unnamed
    int name_place;
    bool pack;
};
struct parameters {
    struct parameter *item;
    int count;
};
// Reads the parameters between the tokens begin and end (brackets excluded). `(void)` has none.
// is_template: of a template.
void read_parameters(struct parameters *list, const struct source *source, int begin, int end,
                     bool is_template);
void free_parameters(struct parameters *list);

#endif
