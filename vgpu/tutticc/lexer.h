// Preprocessed C++ as tokens. Only what rewriting needs is told apart: words, literals, brackets
// and their partners.
//
// Comments and lines that begin with # (line markers, pragmas) are no tokens; the latter are listed
// apart. `<` and `>` are always tokens of their own, so that template brackets can be matched. Any
// bytes are accepted.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTICC_LEXER_H
#define TUTTICC_LEXER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum token_kind {
    TOKEN_END, // one after the last
    TOKEN_WORD,
    TOKEN_NUMBER,
    TOKEN_STRING,
    TOKEN_CHARACTER,
    TOKEN_PUNCTUATION,
};

// Words that mean something to the rewriter; WORD_OTHER is any other.
enum word {
    WORD_OTHER,
    WORD_GLOBAL,
    WORD_DEVICE,
    WORD_SHARED,
    WORD_CONSTANT,
    WORD_MANAGED,
    WORD_LAUNCH_BOUNDS,
    WORD_NOINLINE,
    WORD_ASSERT_FAIL,
    WORD_ASM,
    WORD_ATTRIBUTE,
    WORD_ALIGNAS,
    WORD_DECLTYPE,
    WORD_TEMPLATE,
    WORD_TYPENAME,
    WORD_CLASS, // class, struct, union
    WORD_ENUM,
    WORD_NAMESPACE,
    WORD_USING,
    WORD_EXTERN,
    WORD_STATIC,
    WORD_INLINE,
    WORD_CONSTEXPR,
    WORD_CONST,
    WORD_VOLATILE,
    WORD_RESTRICT,
    WORD_SPECIFIER, // other words of a declaration that name no type: virtual, explicit, mutable,
                    // ...
    WORD_AUTO,
    WORD_VOID,
    WORD_BUILTIN_TYPE, // int, unsigned, float, ...
    WORD_OPERATOR,
    WORD_LOOP, // while, for
    WORD_DO,
    WORD_ACCESS,    // public, private, protected
    WORD_STATEMENT, // words that begin or continue a statement or an expression: return, else, new,
                    // ...
};

struct token {
    uint32_t offset;
    uint32_t length;
    int32_t partner; // for ( [ { and ) ] }: index of the other one; -1 if it has none
    uint8_t kind;    // enum token_kind
    uint8_t word;    // enum word
};

struct directive {
    size_t offset; // of the #
    size_t end;    // of the newline, or of the text
    bool is_marker;
};

struct source {
    const char *text; // not owned
    size_t length;
    struct token *token; // [count + 1]; the last is TOKEN_END
    int count;
    struct directive *directive;
    int directive_count;
};

// A place in the user's files.
struct place {
    char *file; // the caller frees
    int line;
    bool system; // in a header that the compiler treats as the system's
};

// Lexes `text`, which must outlive the result. False if it is too long (1 GiB).
bool lex(struct source *source, const char *text, size_t length);
void lex_free(struct source *source);

// Where `offset` lies, by the line markers before it. `fallback` names the file where there is no
// marker.
struct place source_place(const struct source *source, size_t offset, const char *fallback);

// Whether token i is exactly this punctuation or word.
bool token_is(const struct source *source, int i, const char *spelling);
bool token_equal(const struct source *source, int i, int j);
enum word token_word(const struct source *source,
                     int i); // WORD_OTHER also for tokens that are no words, and out of range
char *token_copy(const struct source *source, int i);
size_t token_end(const struct source *source, int i);
// Whether tokens i, i+1, i+2 are the character c three times without space.
bool token_triple(const struct source *source, int i, char c);

// i is a `<` that may open a template argument list: the index after its `>`, or -1 where there is
// no such list before `limit`.
int skip_angles(const struct source *source, int i, int limit);
// i is the `>` at the end of a template argument list: the token before its `<`, or -1.
int token_before_angles(const struct source *source, int i);
// i is any opening bracket: the index after its partner; limit where it has none.
int skip_brackets(const struct source *source, int i, int limit);

#endif
