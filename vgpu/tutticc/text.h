// Growable text, and whole files as text. Running out of memory ends the program with a message.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTICC_TEXT_H
#define TUTTICC_TEXT_H

#include <stdbool.h>
#include <stddef.h>

// data[0 .. length-1], always followed by a NUL; {0} is an empty text.
struct text {
    char *data;
    size_t length;
    size_t capacity;
};

void *allocate(size_t bytes); // zeroed; never NULL
void *reallocate(void *old, size_t bytes);
char *copy_string(const char *begin, size_t length); // NUL-terminated; the caller frees

void text_append(struct text *text, const char *data, size_t length);
void text_add(struct text *text, const char *string);
void text_printf(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Appends a C string literal, quotes included, whose value is data[0 .. length-1].
void text_add_literal(struct text *text, const char *data, size_t length);
void text_free(struct text *text);

// A new string made by a format; the caller frees.
char *format_string(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Reads a file into an empty text; false with errno set where that fails.
bool text_read_file(struct text *text, const char *path);
bool text_write_file(const struct text *text, const char *path);

// A list of strings that it owns, kept NULL-terminated so that it serves as argv. {0} is empty.
struct strings {
    char **item;
    int count;
    int capacity;
};
void strings_add(struct strings *list, const char *string);
void strings_add_format(struct strings *list, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void strings_add_all(struct strings *list, const struct strings *more);
void strings_free(struct strings *list);

#endif
