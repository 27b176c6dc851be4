// What a test's program writes to stdout or stderr between two places, as a text.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_CAPTURED_OUTPUT_H
#define VGPU_RUNTIME_CAPTURED_OUTPUT_H

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
    FILE *stream;
    int saved, file;
} captured_output;

// stream: stdout or stderr. One at a time.
static inline void begin_capture(FILE *stream)
{
    captured_output.stream = stream;
    (void)fflush(stream);
    captured_output.saved = dup(fileno(stream));
    captured_output.file = memfd_create("captured", MFD_CLOEXEC);
    (void)dup2(captured_output.file, fileno(stream));
}

// Valid until the next call.
static inline const char *end_capture(void)
{
    static char text[8192];
    (void)fflush(captured_output.stream);
    (void)dup2(captured_output.saved, fileno(captured_output.stream));
    (void)close(captured_output.saved);
    ssize_t length = pread(captured_output.file, text, sizeof(text) - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    (void)close(captured_output.file);
    return text;
}

#endif
