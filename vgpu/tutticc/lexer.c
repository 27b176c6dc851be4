// The lexer, and questions about tokens.
// SPDX-License-Identifier: Apache-2.0
#include "lexer.h"

#include "text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *spelling;
    enum word word;
} WORDS[] = {
    {"__global__", WORD_GLOBAL},
    {"__device__", WORD_DEVICE},
    {"__shared__", WORD_SHARED},
    {"__constant__", WORD_CONSTANT},
    {"__managed__", WORD_MANAGED},
    {"__launch_bounds__", WORD_LAUNCH_BOUNDS},
    {"__noinline__", WORD_NOINLINE},
    {"__assert_fail", WORD_ASSERT_FAIL},
    {"asm", WORD_ASM},
    {"__asm__", WORD_ASM},
    {"__asm", WORD_ASM},
    {"__attribute__", WORD_ATTRIBUTE},
    {"__attribute", WORD_ATTRIBUTE},
    {"alignas", WORD_ALIGNAS},
    {"_Alignas", WORD_ALIGNAS},
    {"decltype", WORD_DECLTYPE},
    {"__decltype", WORD_DECLTYPE},
    {"typeof", WORD_DECLTYPE},
    {"__typeof__", WORD_DECLTYPE},
    {"__typeof", WORD_DECLTYPE},
    {"template", WORD_TEMPLATE},
    {"typename", WORD_TYPENAME},
    {"class", WORD_CLASS},
    {"struct", WORD_CLASS},
    {"union", WORD_CLASS},
    {"enum", WORD_ENUM},
    {"namespace", WORD_NAMESPACE},
    {"using", WORD_USING},
    {"typedef", WORD_USING},
    {"extern", WORD_EXTERN},
    {"static", WORD_STATIC},
    {"inline", WORD_INLINE},
    {"__inline__", WORD_INLINE},
    {"__inline", WORD_INLINE},
    {"constexpr", WORD_CONSTEXPR},
    {"const", WORD_CONST},
    {"__const", WORD_CONST},
    {"volatile", WORD_VOLATILE},
    {"__volatile__", WORD_VOLATILE},
    {"__volatile", WORD_VOLATILE},
    {"restrict", WORD_RESTRICT},
    {"__restrict", WORD_RESTRICT},
    {"__restrict__", WORD_RESTRICT},
    {"virtual", WORD_SPECIFIER},
    {"explicit", WORD_SPECIFIER},
    {"friend", WORD_SPECIFIER},
    {"mutable", WORD_SPECIFIER},
    {"thread_local", WORD_SPECIFIER},
    {"__thread", WORD_SPECIFIER},
    {"register", WORD_SPECIFIER},
    {"constinit", WORD_SPECIFIER},
    {"consteval", WORD_SPECIFIER},
    {"__extension__", WORD_SPECIFIER},
    {"auto", WORD_AUTO},
    {"void", WORD_VOID},
    {"int", WORD_BUILTIN_TYPE},
    {"unsigned", WORD_BUILTIN_TYPE},
    {"signed", WORD_BUILTIN_TYPE},
    {"__signed__", WORD_BUILTIN_TYPE},
    {"char", WORD_BUILTIN_TYPE},
    {"short", WORD_BUILTIN_TYPE},
    {"long", WORD_BUILTIN_TYPE},
    {"float", WORD_BUILTIN_TYPE},
    {"double", WORD_BUILTIN_TYPE},
    {"bool", WORD_BUILTIN_TYPE},
    {"wchar_t", WORD_BUILTIN_TYPE},
    {"char8_t", WORD_BUILTIN_TYPE},
    {"char16_t", WORD_BUILTIN_TYPE},
    {"char32_t", WORD_BUILTIN_TYPE},
    {"__int128", WORD_BUILTIN_TYPE},
    {"operator", WORD_OPERATOR},
    {"public", WORD_ACCESS},
    {"private", WORD_ACCESS},
    {"protected", WORD_ACCESS},
    {"return", WORD_STATEMENT},
    {"else", WORD_STATEMENT},
    {"do", WORD_DO},
    {"while", WORD_LOOP},
    {"for", WORD_LOOP},
    {"try", WORD_STATEMENT},
    {"case", WORD_STATEMENT},
    {"goto", WORD_STATEMENT},
    {"throw", WORD_STATEMENT},
    {"new", WORD_STATEMENT},
    {"delete", WORD_STATEMENT},
    {"sizeof", WORD_STATEMENT},
    {"alignof", WORD_STATEMENT},
    {"co_return", WORD_STATEMENT},
    {"co_yield", WORD_STATEMENT},
    {"co_await", WORD_STATEMENT},
    {"not", WORD_STATEMENT},
    {"and", WORD_STATEMENT},
    {"or", WORD_STATEMENT},
};
enum { WORD_COUNT = sizeof(WORDS) / sizeof(WORDS[0]) };
enum { TABLE_SIZE = 512 }; // a power of two, several times WORD_COUNT

static uint32_t hash_word(const char *text, size_t length)
{
    uint32_t hash = (uint32_t)length;
    for (size_t i = 0; i < length; i++) {
        hash = hash * 31 + (unsigned char)text[i];
    }
    return hash & (TABLE_SIZE - 1);
}

// Open addressing; entries are indices into WORDS plus one.
struct word_table {
    uint8_t slot[TABLE_SIZE];
};

static void fill_table(struct word_table *table)
{
    memset(table, 0, sizeof(*table));
    for (int i = 0; i < WORD_COUNT; i++) {
        uint32_t at = hash_word(WORDS[i].spelling, strlen(WORDS[i].spelling));
        while (table->slot[at]) {
            at = (at + 1) & (TABLE_SIZE - 1);
        }
        table->slot[at] = (uint8_t)(i + 1);
    }
}

static enum word find_word(const struct word_table *table, const char *text, size_t length)
{
    for (uint32_t at = hash_word(text, length); table->slot[at]; at = (at + 1) & (TABLE_SIZE - 1)) {
        const char *spelling = WORDS[table->slot[at] - 1].spelling;
        if (strncmp(spelling, text, length) == 0 && spelling[length] == '\0') {
            return WORDS[table->slot[at] - 1].word;
        }
    }
    return WORD_OTHER;
}

struct lexer {
    struct source *source;
    struct word_table words;
    int token_capacity;
    int directive_capacity;
    size_t at;
    bool line_start; // only white space so far in this line
};

static bool is_word_start(char c)
{
    return isalpha((unsigned char)c) || c == '_' || c == '$' || (unsigned char)c >= 128;
}
static bool is_word_part(char c)
{
    return is_word_start(c) || isdigit((unsigned char)c);
}

static char look(const struct lexer *lexer, size_t ahead)
{
    size_t at = lexer->at + ahead;
    return at < lexer->source->length ? lexer->source->text[at] : '\0';
}

// The bytes of a letter beyond ASCII as gcc -E writes it: \u and 4 or \U and 8 digits. 0: none.
static size_t character_name(const struct lexer *lexer)
{
    if (look(lexer, 0) != '\\' || (look(lexer, 1) != 'u' && look(lexer, 1) != 'U')) {
        return 0;
    }
    size_t bytes = look(lexer, 1) == 'u' ? 6 : 10, i = 2;
    while (i < bytes && isxdigit((unsigned char)look(lexer, i))) {
        i++;
    }
    return i == bytes ? bytes : 0;
}

static void push_token(struct lexer *lexer, enum token_kind kind, size_t begin, enum word word)
{
    struct source *source = lexer->source;
    if (source->count + 1 >= lexer->token_capacity) {
        lexer->token_capacity = lexer->token_capacity ? lexer->token_capacity * 2 : 1024;
        source->token =
            reallocate(source->token, (size_t)lexer->token_capacity * sizeof(*source->token));
    }
    source->token[source->count++] = (struct token){.offset = (uint32_t)begin,
                                                    .length = (uint32_t)(lexer->at - begin),
                                                    .partner = -1,
                                                    .kind = (uint8_t)kind,
                                                    .word = (uint8_t)word};
}

static void lex_directive(struct lexer *lexer)
{
    struct source *source = lexer->source;
    size_t begin = lexer->at;
    const char *newline = memchr(source->text + begin, '\n', source->length - begin);
    lexer->at = newline ? (size_t)(newline - source->text) : source->length;
    size_t digit = begin + 1;
    while (digit < lexer->at && (source->text[digit] == ' ' || source->text[digit] == '\t')) {
        digit++;
    }
    if (source->directive_count == lexer->directive_capacity) {
        lexer->directive_capacity = lexer->directive_capacity ? lexer->directive_capacity * 2 : 256;
        source->directive = reallocate(source->directive, (size_t)lexer->directive_capacity *
                                                              sizeof(*source->directive));
    }
    source->directive[source->directive_count++] = (struct directive){
        .offset = begin,
        .end = lexer->at,
        .is_marker = digit < lexer->at && isdigit((unsigned char)source->text[digit])};
}

static void lex_comment(struct lexer *lexer)
{
    const struct source *source = lexer->source;
    if (look(lexer, 1) == '/') {
        while (lexer->at < source->length && source->text[lexer->at] != '\n') {
            lexer->at++;
        }
        return;
    }
    lexer->at += 2;
    while (lexer->at < source->length && !(look(lexer, 0) == '*' && look(lexer, 1) == '/')) {
        lexer->at++;
    }
    lexer->at = lexer->at + 2 < source->length ? lexer->at + 2 : source->length;
}

// At the opening quote of a plain literal: goes past its end. One without an end stops before the
// newline.
static void lex_quoted(struct lexer *lexer, char quote)
{
    const struct source *source = lexer->source;
    lexer->at++;
    while (lexer->at < source->length && source->text[lexer->at] != '\n') {
        char c = source->text[lexer->at++];
        if (c == quote) {
            return;
        }
        if (c == '\\' && lexer->at < source->length) {
            lexer->at++;
        }
    }
}

// At the quote of R"delimiter( ... )delimiter".
static void lex_raw(struct lexer *lexer)
{
    const struct source *source = lexer->source;
    size_t begin = lexer->at + 1;
    size_t open = begin;
    while (open < source->length && open - begin < 17 && source->text[open] != '(') {
        open++;
    }
    if (open >= source->length || source->text[open] != '(') {
        lex_quoted(lexer, '"');
        return;
    }
    size_t delimiter = open - begin;
    for (size_t i = open + 1; i + delimiter + 1 < source->length; i++) {
        if (source->text[i] == ')' && source->text[i + 1 + delimiter] == '"' &&
            memcmp(source->text + i + 1, source->text + begin, delimiter) == 0) {
            lexer->at = i + delimiter + 2;
            return;
        }
    }
    lexer->at = source->length;
}

// A word, or a literal with a prefix.
static void lex_word(struct lexer *lexer)
{
    const char *text = lexer->source->text;
    size_t begin = lexer->at;
    for (size_t bytes = 1; bytes > 0; lexer->at += bytes) {
        bytes = character_name(lexer);
        if (bytes == 0 && lexer->at < lexer->source->length && is_word_part(text[lexer->at])) {
            bytes = 1;
        }
    }
    size_t length = lexer->at - begin;
    char next = look(lexer, 0);
    bool raw = text[lexer->at - 1] == 'R';
    size_t prefix = raw ? length - 1 : length;
    bool known = prefix == 0 || (prefix == 1 && strchr("uUL", text[begin])) ||
                 (prefix == 2 && text[begin] == 'u' && text[begin + 1] == '8');
    if (next == '"' && known && (raw || prefix > 0)) {
        if (raw) {
            lex_raw(lexer);
        } else {
            lex_quoted(lexer, '"');
        }
        push_token(lexer, TOKEN_STRING, begin, WORD_OTHER);
    } else if (next == '\'' && known && !raw) {
        lex_quoted(lexer, '\'');
        push_token(lexer, TOKEN_CHARACTER, begin, WORD_OTHER);
    } else {
        push_token(lexer, TOKEN_WORD, begin, find_word(&lexer->words, text + begin, length));
    }
}

static void lex_number(struct lexer *lexer)
{
    size_t begin = lexer->at;
    const char *text = lexer->source->text;
    while (lexer->at < lexer->source->length) {
        char c = text[lexer->at];
        char next = look(lexer, 1);
        bool exponent = (c == '+' || c == '-') && strchr("eEpP", text[lexer->at - 1]);
        bool separator = c == '\'' && is_word_part(next);
        if (!exponent && !separator && !is_word_part(c) && c != '.') {
            break;
        }
        lexer->at += separator ? 2 : 1;
    }
    push_token(lexer, TOKEN_NUMBER, begin, WORD_OTHER);
}

static void lex_punctuation(struct lexer *lexer)
{
    static const char *const LONG[] = {"...", "::", "->", "&&", "||", "<=", ">=", "=="};
    const struct source *source = lexer->source;
    size_t begin = lexer->at;
    size_t length = 1;
    for (size_t i = 0; i < sizeof(LONG) / sizeof(LONG[0]); i++) {
        size_t n = strlen(LONG[i]);
        if (source->length - begin >= n && memcmp(source->text + begin, LONG[i], n) == 0) {
            length = n;
            break;
        }
    }
    lexer->at += length;
    push_token(lexer, TOKEN_PUNCTUATION, begin, WORD_OTHER);
}

static void lex_one(struct lexer *lexer)
{
    char c = look(lexer, 0);
    if (c == '\n') {
        lexer->line_start = true;
        lexer->at++;
        return;
    }
    if (isspace((unsigned char)c) || c == '\0') {
        lexer->at++;
        return;
    }
    if (c == '#' && lexer->line_start) {
        lex_directive(lexer);
        return;
    }
    lexer->line_start = false;
    size_t begin = lexer->at;
    if (c == '/' && (look(lexer, 1) == '/' || look(lexer, 1) == '*')) {
        lex_comment(lexer);
    } else if (is_word_start(c) || character_name(lexer) > 0) {
        lex_word(lexer);
    } else if (isdigit((unsigned char)c) || (c == '.' && isdigit((unsigned char)look(lexer, 1)))) {
        lex_number(lexer);
    } else if (c == '"') {
        lex_quoted(lexer, '"');
        push_token(lexer, TOKEN_STRING, begin, WORD_OTHER);
    } else if (c == '\'') {
        lex_quoted(lexer, '\'');
        push_token(lexer, TOKEN_CHARACTER, begin, WORD_OTHER);
    } else {
        lex_punctuation(lexer);
    }
}

// Pairs brackets. A closing one pairs with the nearest open one of its kind; those between have no
// partner.
static void pair_brackets(struct source *source)
{
    int *open = allocate(((size_t)source->count + 1) * sizeof(*open));
    int depth = 0;
    for (int i = 0; i < source->count; i++) {
        const struct token *token = &source->token[i];
        char c = token->kind == TOKEN_PUNCTUATION && token->length == 1
                     ? source->text[token->offset]
                     : '\0';
        if (c == '(' || c == '[' || c == '{') {
            open[depth++] = i;
        }
        if (c != ')' && c != ']' && c != '}') {
            continue;
        }
        char wanted = c == ')' ? '(' : c == ']' ? '[' : '{';
        // A brace may end what was left open inside it; a parenthesis does not reach across one.
        int at = depth - 1;
        while (at >= 0 && source->text[source->token[open[at]].offset] != wanted &&
               (c == '}' || source->text[source->token[open[at]].offset] != '{')) {
            at--;
        }
        if (at >= 0 && source->text[source->token[open[at]].offset] == wanted) {
            source->token[i].partner = open[at];
            source->token[open[at]].partner = i;
            depth = at;
        }
    }
    free(open);
}

bool lex(struct source *source, const char *text, size_t length)
{
    *source = (struct source){.text = text, .length = length};
    if (length > (size_t)1 << 30) {
        return false;
    }
    struct lexer lexer = {.source = source, .line_start = true};
    fill_table(&lexer.words);
    while (lexer.at < length) {
        lex_one(&lexer);
    }
    push_token(&lexer, TOKEN_END, length, WORD_OTHER);
    source->count--;
    pair_brackets(source);
    return true;
}

void lex_free(struct source *source)
{
    free(source->token);
    free(source->directive);
    *source = (struct source){0};
}

// ---- Places ------------------------------------------------------------------------------------

// Reads `# 12 "file" 1 3`: returns the line of the next line of text.
static int read_marker(const char *begin, const char *end, struct place *place)
{
    int line = 0;
    const char *at = begin + 1;
    while (at < end && !isdigit((unsigned char)*at)) {
        at++;
    }
    for (; at < end && isdigit((unsigned char)*at); at++) {
        line = line < 100000000 ? line * 10 + (*at - '0') : line;
    }
    while (at < end && *at != '"') {
        at++;
    }
    struct text name = {0};
    text_add(&name, "");
    for (at++; at < end && *at != '"'; at++) {
        if (*at == '\\' && at + 1 < end) {
            at++;
        }
        text_append(&name, at, 1);
    }
    for (at++; at < end; at++) {
        if (*at == '3') {
            place->system = true;
        }
    }
    place->file = name.data;
    return line;
}

struct place source_place(const struct source *source, size_t offset, const char *fallback)
{
    struct place place = {.line = 1};
    size_t from = 0;
    int low = 0, high = source->directive_count;
    while (low < high) { // the first directive beyond offset
        int middle = (low + high) / 2;
        if (source->directive[middle].offset <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (int i = low - 1; i >= 0; i--) {
        const struct directive *directive = &source->directive[i];
        if (directive->is_marker) {
            place.line = read_marker(source->text + directive->offset,
                                     source->text + directive->end, &place);
            from = directive->end + 1;
            break;
        }
    }
    for (size_t i = from; i < offset && i < source->length; i++) {
        place.line += source->text[i] == '\n';
    }
    if (!place.file) {
        place.file = copy_string(fallback, strlen(fallback));
    }
    return place;
}

// ---- Questions ---------------------------------------------------------------------------------

bool token_is(const struct source *source, int i, const char *spelling)
{
    if (i < 0 || i >= source->count) {
        return false;
    }
    const struct token *token = &source->token[i];
    return token->length == strlen(spelling) &&
           memcmp(source->text + token->offset, spelling, token->length) == 0;
}

bool token_equal(const struct source *source, int i, int j)
{
    const struct token *a = &source->token[i], *b = &source->token[j];
    return a->length == b->length &&
           memcmp(source->text + a->offset, source->text + b->offset, a->length) == 0;
}

enum word token_word(const struct source *source, int i)
{
    return i < 0 || i >= source->count ? WORD_OTHER : (enum word)source->token[i].word;
}

char *token_copy(const struct source *source, int i)
{
    return copy_string(source->text + source->token[i].offset, source->token[i].length);
}

size_t token_end(const struct source *source, int i)
{
    return (size_t)source->token[i].offset + source->token[i].length;
}

bool token_triple(const struct source *source, int i, char c)
{
    if (i < 0 || i + 2 >= source->count) {
        return false;
    }
    const struct token *token = &source->token[i];
    for (int k = 0; k < 3; k++) {
        if (token[k].length != 1 || source->text[token[k].offset] != c ||
            token[k].offset != token[0].offset + (uint32_t)k) {
            return false;
        }
    }
    return true;
}

int skip_brackets(const struct source *source, int i, int limit)
{
    int partner = source->token[i].partner;
    return partner < i || partner >= limit ? limit : partner + 1;
}

int skip_angles(const struct source *source, int i, int limit)
{
    int depth = 0;
    while (i < limit) {
        const struct token *token = &source->token[i];
        char c = token->kind == TOKEN_PUNCTUATION && token->length == 1
                     ? source->text[token->offset]
                     : '\0';
        if (c == '(' || c == '[' || c == '{') {
            i = skip_brackets(source, i, limit);
            continue;
        }
        if (c == ';' || c == ')' || c == ']' || c == '}') {
            return -1;
        }
        depth += c == '<';
        depth -= c == '>';
        i++;
        if (depth == 0) {
            return i;
        }
    }
    return -1;
}

int token_before_angles(const struct source *source, int i)
{
    int depth = 0;
    for (; i >= 0 && !token_is(source, i, ";"); i--) {
        bool closes =
            token_is(source, i, ")") || token_is(source, i, "]") || token_is(source, i, "}");
        if (closes) {
            i = source->token[i].partner;
        }
        if (i < 0) {
            return -1;
        }
        depth += token_is(source, i, ">");
        depth -= token_is(source, i, "<");
        if (depth == 0) {
            return i - 1;
        }
    }
    return -1;
}
