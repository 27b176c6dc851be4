// A strict reader of JSON (RFC 8259) for tests of what the project writes: nothing beyond the
// grammar is accepted, keys of an object are unique.
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_SUPPORT_JSON_H
#define TESTS_SUPPORT_JSON_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum json_kind { JSON_NULL, JSON_BOOLEAN, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_kind kind;
    double number;      // JSON_NUMBER; JSON_BOOLEAN: 0 or 1
    char *string;       // JSON_STRING; characters beyond ASCII as they are, \u escapes as UTF-8
    char *key;          // of a member of an object; else NULL
    struct json *first; // JSON_ARRAY, JSON_OBJECT
    struct json *next;  // sibling
};

// The whole text as one value; NULL where it is none: *error_out then says at which byte. To be
// freed.
struct json *json_parse(const char *text, size_t *error_out);
void json_free(struct json *value);

// A member of an object; NULL: there is none, or value is no object.
const struct json *json_get(const struct json *value, const char *key);
// The same as a number or a string; `otherwise` where there is none of that kind.
double json_number(const struct json *value, const char *key, double otherwise);
const char *json_string(const struct json *value, const char *key, const char *otherwise);

#ifdef __cplusplus
}
#endif
#endif
