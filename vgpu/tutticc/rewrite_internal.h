// What the parts of the rewriter share: the walk over the tokens and its state.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTICC_REWRITE_INTERNAL_H
#define TUTTICC_REWRITE_INTERNAL_H

#include "declarator.h"
#include "edit.h"
#include "rewrite.h"

enum scope_kind {
    SCOPE_FILE, // a namespace or the whole text
    SCOPE_CLASS,
    SCOPE_FUNCTION, // a function's body, a block in it, a lambda
    SCOPE_VALUE,    // an initialiser, an enumeration
};

struct scope {
    enum scope_kind kind;
    int statement;    // token at which the enclosing declaration or statement began
    int parens;       // open parentheses inside this scope
    bool device;      // in a function marked __device__ or __global__
    int lambdas;      // around this scope, itself included
    int name;         // of the namespace or class; -1
    int shadow_count; // of rewriter.shadow, when the scope began
};

// A variable whose later uses are rewritten.
struct variable {
    char *name;
    char *space;  // innermost namespace, "" outside of all
    char *access; // written instead of the name; NULL: wrap in ::vgpu::device_variable(...)
    bool is_extern;
    int declared_at; // token of its name
    int depth;       // of the scope that it is local to; 0: none
    int lambdas;     // around its declaration: only lambdas inside see the rewritten name
    int shadow_base; // shadows before it do not hide it
};

struct rewriter {
    struct source source;
    struct edits edits;
    const struct rewrite_options *options;
    int errors;
    int serial; // makes generated names differ

    struct scope *scope;
    int depth; // scopes in use
    int scope_capacity;
    int statement; // token at which the current declaration or statement began
    int handled;   // the declaration whose variables were handled last; -1

    struct variable *variable;
    int variable_count;
    int variable_capacity;
    int *shadow; // indices of variables that a nearer declaration hides
    int shadow_count;
    int shadow_capacity;
    int do_while; // the `while` at the end of a do statement without braces; -1
    int pending;  // shadow_count before the parameters of a function whose body may follow; -1
};

// Prints FILE:LINE: error: ... for the place of a token.
void rewrite_error(struct rewriter *r, int token, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline struct scope *current_scope(struct rewriter *r)
{
    return &r->scope[r->depth - 1];
}

// Each handles the token at i and returns the index of the next token to look at.
int rewrite_kernel(struct rewriter *r, int i);   // at __global__
int rewrite_launch(struct rewriter *r, int i);   // at the first < of <<<
int rewrite_shared(struct rewriter *r, int i);   // at __shared__
int rewrite_variable(struct rewriter *r, int i); // at __device__, __constant__, __managed__
int rewrite_asm(struct rewriter *r, int i);      // at asm
int rewrite_loop(struct rewriter *r, int i);     // at while, for, do
void rewrite_use(struct rewriter *r, int i);     // at any word, where there are variables

// The end (index of the `;`, or of the `{` of a body) of the declaration that begins at `begin`.
int declaration_end(const struct source *source, int begin);
// Remembers a variable whose name is token `name`. It is permanent until the caller says otherwise.
struct variable *add_variable(struct rewriter *r, int name, const char *access);
const struct variable *find_variable(const struct rewriter *r, int token);
// Name of the innermost namespace, as a token; -1 outside of all.
int current_space(const struct rewriter *r);
// Hides what members of the class body after `open` are called; and of the class `name` in
// functions outside it.
void shadow_members(struct rewriter *r, int open);

#endif
