// What the parts of the PTX parser share: ptx_parse.c (statements, operands), ptx_registers.c
// (names of registers), ptx_labels.c (labels and branches).
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTICC_PTX_PARSE_H
#define TUTTICC_PTX_PARSE_H

#include "ptx.h"

// A register that the text declares with .reg.
struct declared {
    char *name;
    int count; // of name<count>; 0: a single one
    int bytes; // 0: a predicate
    int depth;
    int serial;
};

// A label, defined or only branched to so far.
struct label {
    char *name;
    bool defined;
};

struct parser {
    const char *at;
    const struct ptx_program *program;
    struct text *out;
    struct declared *declared;
    int declared_count;
    int declared_capacity;
    struct label *label;
    int label_count;
    int depth;
    int serial;
    char *error;
};

// Notes what is wrong, unless something was before; false.
bool ptx_fail(struct parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Goes over white space and comments.
void ptx_skip_space(struct parser *p);
// Goes over this character, if it is next.
bool ptx_take_character(struct parser *p, char c);
bool ptx_is_name_part(char c);

// After `.reg`: .type name, name<count>
bool ptx_read_declaration(struct parser *p);
// A declared register's C++ name, and its size; NULL where there is none of that name. The caller
// frees.
char *ptx_find_declared(const struct parser *p, const char *name, size_t length, int *bytes);
// %0, %[name]: an operand of the asm statement. NULL where there is none, perhaps with an error.
char *ptx_read_asm_operand(struct parser *p, int *bytes);
// laneid, tid.x, ...: a call of the function of that name; NULL with an error.
char *ptx_read_special(struct parser *p);

// At `name:`, after the name: defines the label.
bool ptx_define_label(struct parser *p, const char *name);
// After `bra`: the target. guard: the C++ condition; NULL: always.
bool ptx_read_branch(struct parser *p, const char *guard);
// At the end of the text: an error where a branch has no target. Frees the labels.
void ptx_end_labels(struct parser *p);

#endif
