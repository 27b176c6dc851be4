// Tests of the lexer: tokens, literals, brackets, template brackets, places.
// SPDX-License-Identifier: Apache-2.0
#include "lexer.h"

#include "expect.h"

#include <stdlib.h>
#include <string.h>

static struct source lexed(const char *text)
{
    struct source source;
    EXPECT(lex(&source, text, strlen(text)));
    return source;
}

static void tells_kinds_apart(void)
{
    struct source s = lexed(
        "int a_1 = 0x1.8p-3f + 1'000 / 2; \"s\\\"t\" 'c' '\\'' u8\"x\" L'y' R\"z(\")\" q)z\" x.5"
        " n\\U000000e9l \\u00fc");
    static const struct {
        const char *spelling;
        enum token_kind kind;
    } EXPECTED[] = {{"int", TOKEN_WORD},
                    {"a_1", TOKEN_WORD},
                    {"=", TOKEN_PUNCTUATION},
                    {"0x1.8p-3f", TOKEN_NUMBER},
                    {"+", TOKEN_PUNCTUATION},
                    {"1'000", TOKEN_NUMBER},
                    {"/", TOKEN_PUNCTUATION},
                    {"2", TOKEN_NUMBER},
                    {";", TOKEN_PUNCTUATION},
                    {"\"s\\\"t\"", TOKEN_STRING},
                    {"'c'", TOKEN_CHARACTER},
                    {"'\\''", TOKEN_CHARACTER},
                    {"u8\"x\"", TOKEN_STRING},
                    {"L'y'", TOKEN_CHARACTER},
                    {"R\"z(\")\" q)z\"", TOKEN_STRING},
                    {"x", TOKEN_WORD},
                    {".5", TOKEN_NUMBER},
                    {"n\\U000000e9l", TOKEN_WORD},
                    {"\\u00fc", TOKEN_WORD}};
    EXPECT_EQ(s.count, sizeof(EXPECTED) / sizeof(EXPECTED[0]));
    for (int i = 0; i < s.count; i++) {
        char *spelling = token_copy(&s, i);
        EXPECT_STR(spelling, EXPECTED[i].spelling);
        EXPECT_EQ(s.token[i].kind, EXPECTED[i].kind);
        free(spelling);
    }
    lex_free(&s);
}

static void comments_and_directives_are_no_tokens(void)
{
    struct source s = lexed("# 7 \"a.cu\"\na // b \"\n/* c\n*/ d\n#pragma x\n  # pragma y\ne # f");
    EXPECT_EQ(s.count, 5); // a d e # f
    EXPECT_EQ(s.directive_count, 3);
    EXPECT(s.directive[0].is_marker && !s.directive[1].is_marker);
    EXPECT(token_is(&s, 3, "#"));
    lex_free(&s);
}

static void brackets_know_their_partners(void)
{
    struct source s = lexed("( [ { } ] ) ) { ( } ]");
    EXPECT_EQ(s.token[0].partner, 5);
    EXPECT_EQ(s.token[1].partner, 4);
    EXPECT_EQ(s.token[3].partner, 2);
    EXPECT_EQ(s.token[6].partner, -1); // one too many
    EXPECT_EQ(s.token[7].partner, 9);  // the brace closes over what is open
    EXPECT_EQ(s.token[8].partner, -1);
    EXPECT_EQ(s.token[10].partner, -1);
    EXPECT_EQ(skip_brackets(&s, 0, s.count), 6);
    EXPECT_EQ(skip_brackets(&s, 8, s.count), s.count);
    lex_free(&s);
}

static void template_brackets_are_matched(void)
{
    struct source s = lexed("A<B<(1 > 2)>, C<D<E>>> x; a < b; y");
    EXPECT_EQ(skip_angles(&s, 1, s.count), 19);
    int less = 0;
    for (int i = 19; i < s.count; i++) {
        less = token_is(&s, i, "<") ? i : less;
    }
    EXPECT_EQ(skip_angles(&s, less, s.count), -1);
    lex_free(&s);
    s = lexed("k<<<1, 2>>>() a >> > b -> c");
    EXPECT(token_triple(&s, 1, '<'));
    EXPECT(token_triple(&s, 7, '>'));
    EXPECT(!token_triple(&s, 13, '>')); // with a space between
    EXPECT(token_is(&s, s.count - 2, "->"));
    lex_free(&s);
}

static void expect_place(const char *text, const char *at, const char *file, int line, bool system)
{
    struct source s = lexed(text);
    struct place place = source_place(&s, (size_t)(strstr(text, at) - text), "fallback.cu");
    EXPECT_STR(place.file, file);
    EXPECT_EQ(place.line, line);
    EXPECT_EQ(place.system, system);
    free(place.file);
    lex_free(&s);
}

static void markers_give_places(void)
{
    static const char TEXT[] = "zero\n# 10 \"a \\\"b\\\\.cu\"\nten\neleven\n# 3 "
                               "\"/usr/include/h.h\" 1 3 4\nthree\n# 12 \"a.cu\" 2\ntwelve";
    expect_place(TEXT, "zero", "fallback.cu", 1, false);
    expect_place(TEXT, "ten", "a \"b\\.cu", 10, false);
    expect_place(TEXT, "eleven", "a \"b\\.cu", 11, false);
    expect_place(TEXT, "three", "/usr/include/h.h", 3, true);
    expect_place(TEXT, "twelve", "a.cu", 12, false);
}

static void unfinished_literals_end_somewhere(void)
{
    static const char *const TEXTS[] = {"\"abc\nd",
                                        "'",
                                        "\"\\",
                                        "R\"",
                                        "R\"(",
                                        "R\"x(abc)y\"",
                                        "/*",
                                        "//",
                                        "#",
                                        "u8",
                                        "1e+",
                                        "\\",
                                        "R\"0123456789012345678(\""};
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        struct source s = lexed(TEXTS[i]);
        for (int k = 0; k < s.count; k++) {
            EXPECT(token_end(&s, k) <= strlen(TEXTS[i]));
        }
        lex_free(&s);
    }
    struct source s;
    EXPECT(lex(&s, "a\0b", 3));
    EXPECT_EQ(s.count, 2);
    lex_free(&s);
    EXPECT(!lex(&s, "", ((size_t)1 << 30) + 1));
}

int main(void)
{
    RUN(tells_kinds_apart);
    RUN(comments_and_directives_are_no_tokens);
    RUN(brackets_know_their_partners);
    RUN(template_brackets_are_matched);
    RUN(markers_give_places);
    RUN(unfinished_literals_end_somewhere);
    return expect_result();
}
