// printf in kernels: the text goes to the host's standard output at once, so that what a kernel
// said before it hung or failed is seen; each call's text stays together.
//
// Texts are made before the stream is touched: a thread that faults at an argument is left for good
// and would keep the stream's lock. SPDX-License-Identifier: Apache-2.0
#include "block.h"
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A conversion of a format: from its '%' to its last character, which is '\0' where it breaks off.
struct conversion {
    size_t flags; // characters after the '%' that belong to "1$", flags, width and precision
    size_t modifiers;
    int arguments;
    char kind;
};

// `format` points behind a '%'.
static struct conversion read_conversion(const char *format)
{
    struct conversion found = {.flags = strspn(format, "-+ #'I0123456789.*$")};
    found.modifiers = strspn(format + found.flags, "hlLqjzt");
    found.kind = format[found.flags + found.modifiers];
    for (size_t i = 0; i < found.flags; i++) {
        found.arguments += format[i] == '*';
    }
    found.arguments += found.kind != '%' && found.kind != '\0';
    return found;
}

// How many arguments a format takes; *writes_out: whether it has a %n.
static int count_arguments(const char *format, bool *writes_out)
{
    int count = 0;
    *writes_out = false;
    while ((format = strchr(format, '%')) != NULL) {
        struct conversion next = read_conversion(++format);
        format += next.flags + next.modifiers + (next.kind != '\0');
        count += next.arguments;
        *writes_out |= next.kind == 'n';
    }
    return count;
}

// The format with each %n, which CUDA does not have, made one that takes its pointer and writes
// nothing at all. To be freed; NULL: no memory.
static char *without_writes(const char *format)
{
    char *made = malloc(4 * strlen(format) + 1); // "%n" becomes "%.0s"
    char *out = made;
    while (made && *format) {
        *out++ = *format;
        if (*format++ != '%') {
            continue;
        }
        struct conversion next = read_conversion(format);
        if (next.kind == 'n') {
            size_t position = strspn(format, "0123456789");
            position = format[position] == '$' ? position + 1 : 0;
            memcpy(out, format, position);
            memcpy(out + position, ".0s", 3);
            out += position + 3;
        } else {
            memcpy(out, format, next.flags + next.modifiers);
            out += next.flags + next.modifiers;
            *out = next.kind;
            out += next.kind != '\0';
        }
        format += next.flags + next.modifiers + (next.kind != '\0');
    }
    if (made) {
        *out = '\0';
    }
    return made;
}

// Makes the text, then writes it. Returns what vprintf does.
static int print(const char *format, va_list arguments)
{
    char brief[512];
    va_list again;
    va_copy(again, arguments);
    char *text = brief;
    int length = vsnprintf(brief, sizeof(brief), format, arguments);
    if (length >= (int)sizeof(brief)) {
        text = malloc((size_t)length + 1);
        length = text ? vsnprintf(text, (size_t)length + 1, format, again) : -1;
    }
    va_end(again);
    if (length >= 0) {
        size_t written = fwrite(text, 1, (size_t)length, stdout);
        length = written == (size_t)length && fflush(stdout) == 0 ? length : -1;
    }
    if (text != brief) {
        free(text);
    }
    return length;
}

// The thread sanitizer does not know that a block's name is its own threads' to read.
__attribute__((no_sanitize_thread)) static void say_that_nothing_is_written(void)
{
    static atomic_bool said;
    if (!atomic_exchange(&said, true)) {
        vgpu_say("printf in kernel %s: %%n writes nothing on GPUs",
                 vgpu_current_thread->block->name);
    }
}

int vgpu_printf(const char *format, ...)
{
    if (!format) {
        return -1;
    }
    va_list arguments;
    va_start(arguments, format);
    int result = -1;
    bool writes = false;
    if (!vgpu_in_kernel()) {
        result = vprintf(format, arguments);
    } else {
        int count = count_arguments(format, &writes);
        char *tame = writes ? without_writes(format) : NULL;
        if (writes) {
            say_that_nothing_is_written();
        }
        result = writes && !tame ? -1 : print(tame ? tame : format, arguments);
        free(tame);
        result = result < 0 ? -2 : count;
    }
    va_end(arguments);
    return result;
}
