// A libFuzzer target: any bytes as preprocessed text. The rewriter must neither crash nor read or
// write out of bounds, and what it accepts keeps its lines. Build and run: the CMake target
// tutticc_fuzz.
// SPDX-License-Identifier: Apache-2.0
#include "rewrite.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// The number of the last line as a compiler counts: a marker (# 9 "fuzz.cu") numbers the line after
// it.
static long last_line(const struct text *text)
{
    long line = 1;
    for (size_t i = 0; i < text->length; i++) {
        bool begins = i == 0 || text->data[i - 1] == '\n';
        if (begins && text->length - i > 2 && text->data[i] == '#') {
            line = strtol(text->data + i + 1, NULL, 10) - 1;
        }
        line += text->data[i] == '\n';
    }
    return line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *messages;
    if (!messages) {
        messages = fopen("/dev/null", "w");
    }
    struct text input = {0}, output = {0};
    text_append(&input, (const char *)data, size);
    struct rewrite_options options = {.file = "fuzz.cu", .arch = 90, .messages = messages};
    bool accepted = rewrite(&input, &options, &output) == 0;
    bool marked = size > 0 && memchr(data, '#', size) != NULL; // lines are numbered by the input
    if (accepted && !marked && last_line(&input) != last_line(&output)) {
        abort();
    }
    text_free(&input);
    text_free(&output);
    return 0;
}
