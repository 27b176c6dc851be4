// By recursive descent, at most 64 levels deep. See json.h. SPDX-License-Identifier: Apache-2.0
#include "json.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 64 };

struct reader {
    const char *text, *at;
    int depth;
};

static struct json *read_value(struct reader *reader);

static void skip_space(struct reader *reader)
{
    reader->at += strspn(reader->at, " \t\r\n");
}

static bool take(struct reader *reader, const char *word)
{
    size_t length = strlen(word);
    bool found = strncmp(reader->at, word, length) == 0;
    reader->at += found ? length : 0;
    return found;
}

static struct json *make(enum json_kind kind)
{
    struct json *value = calloc(1, sizeof *value);
    value->kind = kind;
    return value;
}

void json_free(struct json *value)
{
    while (value != NULL) {
        struct json *next = value->next;
        json_free(value->first);
        free(value->string);
        free(value->key);
        free(value);
        value = next;
    }
}

// Four hexadecimal digits; -1: they are not.
static long read_hex(struct reader *reader)
{
    char digits[5] = "";
    for (int i = 0; i < 4; i++) {
        if (!isxdigit((unsigned char)reader->at[i])) {
            return -1;
        }
        digits[i] = reader->at[i];
    }
    reader->at += 4;
    return strtol(digits, NULL, 16);
}

static char *put_utf8(char *to, unsigned long code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3f));
    } else {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    return to;
}

// What follows a backslash; false where it may not.
static bool read_escape(struct reader *reader, char **to)
{
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char c = *reader->at++;
    if (c == 'u') {
        long code = read_hex(reader);
        *to = code > 0 ? put_utf8(*to, (unsigned long)code) : *to;
        return code > 0;
    }
    const char *found = c != 0 ? strchr(names, c) : NULL;
    if (found != NULL) {
        *(*to)++ = meanings[found - names];
    }
    return found != NULL;
}

// NULL where there is no string.
static char *read_string(struct reader *reader)
{
    if (!take(reader, "\"")) {
        return NULL;
    }
    char *string = malloc(strlen(reader->at) + 1), *to = string;
    while (*reader->at != '"') {
        unsigned char c = (unsigned char)*reader->at;
        bool good = c >= 0x20;
        if (good && c == '\\') {
            reader->at++;
            good = read_escape(reader, &to);
        } else if (good) {
            *to++ = *reader->at++;
        }
        if (!good) {
            free(string);
            return NULL;
        }
    }
    reader->at++;
    *to = 0;
    return string;
}

static size_t skip_digits(struct reader *reader)
{
    size_t digits = strspn(reader->at, "0123456789");
    reader->at += digits;
    return digits;
}

static struct json *read_number(struct reader *reader)
{
    const char *start = reader->at;
    (void)take(reader, "-");
    bool zero = *reader->at == '0';
    size_t digits = skip_digits(reader);
    bool good = digits == 1 || (digits > 1 && !zero);
    if (take(reader, ".")) {
        good = skip_digits(reader) > 0 && good;
    }
    if (take(reader, "e") || take(reader, "E")) {
        (void)(take(reader, "+") || take(reader, "-"));
        good = skip_digits(reader) > 0 && good;
    }
    if (!good) {
        return NULL;
    }
    struct json *value = make(JSON_NUMBER);
    value->number = strtod(start, NULL);
    return value;
}

// One more member; false where it is none.
static bool read_member(struct reader *reader, struct json *parent, struct json **last)
{
    char *key = NULL;
    skip_space(reader);
    if (parent->kind == JSON_OBJECT) {
        key = read_string(reader);
        skip_space(reader);
        if (key == NULL || json_get(parent, key) != NULL || !take(reader, ":")) {
            free(key);
            return false;
        }
    }
    struct json *member = read_value(reader);
    if (member == NULL) {
        free(key);
        return false;
    }
    member->key = key;
    *(*last == NULL ? &parent->first : &(*last)->next) = member;
    *last = member;
    skip_space(reader);
    return true;
}

static struct json *read_members(struct reader *reader, enum json_kind kind, const char *end)
{
    struct json *value = make(kind), *last = NULL;
    skip_space(reader);
    if (take(reader, end)) {
        return value;
    }
    bool good;
    do {
        good = read_member(reader, value, &last);
    } while (good && take(reader, ","));
    if (!good || !take(reader, end)) {
        json_free(value);
        return NULL;
    }
    return value;
}

static struct json *read_plain(struct reader *reader)
{
    struct json *value = NULL;
    if (*reader->at == '"') {
        char *string = read_string(reader);
        value = string != NULL ? make(JSON_STRING) : NULL;
        if (value != NULL) {
            value->string = string;
        }
        return value;
    }
    if (take(reader, "null")) {
        return make(JSON_NULL);
    }
    bool yes = take(reader, "true");
    if (yes || take(reader, "false")) {
        value = make(JSON_BOOLEAN);
        value->number = yes;
        return value;
    }
    return read_number(reader);
}

static struct json *read_value(struct reader *reader)
{
    struct json *value = NULL;
    skip_space(reader);
    if (reader->depth++ < MOST_DEPTH) {
        value = take(reader, "{")   ? read_members(reader, JSON_OBJECT, "}")
                : take(reader, "[") ? read_members(reader, JSON_ARRAY, "]")
                                    : read_plain(reader);
    }
    reader->depth--;
    return value;
}

struct json *json_parse(const char *text, size_t *error_out)
{
    struct reader reader = {text, text, 0};
    struct json *value = read_value(&reader);
    skip_space(&reader);
    *error_out = (size_t)(reader.at - text);
    if (value != NULL && *reader.at != 0) {
        json_free(value);
        value = NULL;
    }
    return value;
}

const struct json *json_get(const struct json *value, const char *key)
{
    const struct json *member = value != NULL && value->kind == JSON_OBJECT ? value->first : NULL;
    while (member != NULL && strcmp(member->key, key) != 0) {
        member = member->next;
    }
    return member;
}

double json_number(const struct json *value, const char *key, double otherwise)
{
    const struct json *member = json_get(value, key);
    return member != NULL && member->kind == JSON_NUMBER ? member->number : otherwise;
}

const char *json_string(const struct json *value, const char *key, const char *otherwise)
{
    const struct json *member = json_get(value, key);
    return member != NULL && member->kind == JSON_STRING ? member->string : otherwise;
}
