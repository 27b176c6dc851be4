// Growable text and lists of strings.
// SPDX-License-Identifier: Apache-2.0
#include "text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void out_of_memory(void)
{
    fputs("tutticc: error: out of memory\n", stderr);
    exit(1);
}

void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory) {
        out_of_memory();
    }
    return memory;
}

void *reallocate(void *old, size_t bytes)
{
    void *memory = realloc(old, bytes ? bytes : 1);
    if (!memory) {
        out_of_memory();
    }
    return memory;
}

char *copy_string(const char *begin, size_t length)
{
    char *copy = allocate(length + 1);
    if (length > 0) {
        memcpy(copy, begin, length);
    }
    return copy;
}

// Makes room for `more` characters and the NUL.
static void text_reserve(struct text *text, size_t more)
{
    if (text->data && text->capacity - text->length > more) {
        return;
    }
    size_t wanted = text->length + more + 1;
    size_t doubled = text->capacity * 2;
    text->capacity = wanted > doubled ? wanted : doubled;
    text->data = reallocate(text->data, text->capacity);
}

void text_append(struct text *text, const char *data, size_t length)
{
    text_reserve(text, length);
    if (length > 0) {
        memcpy(text->data + text->length, data, length);
    }
    text->length += length;
    text->data[text->length] = '\0';
}

void text_add(struct text *text, const char *string)
{
    text_append(text, string, strlen(string));
}

static void append_formatted(struct text *text, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0) {
        return;
    }
    text_reserve(text, (size_t)length);
    vsnprintf(text->data + text->length, (size_t)length + 1, format, arguments);
    text->length += (size_t)length;
}

void text_printf(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    append_formatted(text, format, arguments);
    va_end(arguments);
}

void text_add_literal(struct text *text, const char *data, size_t length)
{
    text_add(text, "\"");
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)data[i];
        if (c == '"' || c == '\\') {
            text_printf(text, "\\%c", c);
        } else if (c < 32 || c == '?' || c == 127) {
            text_printf(text, "\\%03o", c);
        } else {
            text_append(text, data + i, 1);
        }
    }
    text_add(text, "\"");
}

void text_free(struct text *text)
{
    free(text->data);
    *text = (struct text){0};
}

char *format_string(const char *format, ...)
{
    struct text text = {0};
    va_list arguments;
    va_start(arguments, format);
    append_formatted(&text, format, arguments);
    va_end(arguments);
    return text.data ? text.data : copy_string("", 0);
}

bool text_read_file(struct text *text, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        return false;
    }
    char block[65536];
    size_t got;
    while ((got = fread(block, 1, sizeof(block), file)) > 0) {
        text_append(text, block, got);
    }
    bool good = !ferror(file);
    int error = errno;
    fclose(file);
    errno = error;
    if (good && !text->data) {
        text_append(text, "", 0);
    }
    return good;
}

bool text_write_file(const struct text *text, const char *path)
{
    FILE *file = fopen(path, "wb");
    if (!file) {
        return false;
    }
    bool good = fwrite(text->data, 1, text->length, file) == text->length;
    return fclose(file) == 0 && good;
}

static void strings_take(struct strings *list, char *string)
{
    if (list->count + 2 > list->capacity) {
        list->capacity = list->capacity ? list->capacity * 2 : 16;
        list->item = reallocate(list->item, (size_t)list->capacity * sizeof(*list->item));
    }
    list->item[list->count++] = string;
    list->item[list->count] = NULL;
}

void strings_add(struct strings *list, const char *string)
{
    strings_take(list, copy_string(string, strlen(string)));
}

void strings_add_format(struct strings *list, const char *format, ...)
{
    struct text text = {0};
    va_list arguments;
    va_start(arguments, format);
    append_formatted(&text, format, arguments);
    va_end(arguments);
    strings_take(list, text.data ? text.data : copy_string("", 0));
}

void strings_add_all(struct strings *list, const struct strings *more)
{
    for (int i = 0; i < more->count; i++) {
        strings_add(list, more->item[i]);
    }
}

void strings_free(struct strings *list)
{
    for (int i = 0; i < list->count; i++) {
        free(list->item[i]);
    }
    free(list->item);
    *list = (struct strings){0};
}
