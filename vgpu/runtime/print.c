// printf in kernels: the text goes to the host's standard output at once, so that what a kernel
// said before it hung or failed is seen; each call's text stays together.
// SPDX-License-Identifier: Apache-2.0
#include "block.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// How many arguments a format takes.
static int count_arguments(const char *format)
{
    int count = 0;
    while ((format = strchr(format, '%')) != NULL) {
        format++;
        if (*format == '%') {
            format++;
            continue;
        }
        size_t modifiers = strspn(format, "-+ #0123456789.*hlLqjzt");
        for (size_t i = 0; i < modifiers; i++) {
            count += format[i] == '*';
        }
        format += modifiers;
        count += *format != '\0';
    }
    return count;
}

int vgpu_printf(const char *format, ...)
{
    if (!format) {
        return -1;
    }
    va_list arguments;
    va_start(arguments, format);
    int written = vprintf(format, arguments);
    va_end(arguments);
    if (!vgpu_in_kernel()) {
        return written;
    }
    (void)fflush(stdout);
    return written < 0 ? -2 : count_arguments(format);
}
