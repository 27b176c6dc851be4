// A libFuzzer target: any bytes as preprocessed text. The rewriter must neither crash nor read or
// write out of bounds, and what it accepts keeps its lines. Build and run: the CMake target
// tutticc_fuzz.
// SPDX-License-Identifier: Apache-2.0
#include "rewrite.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t count_lines(const struct text *text)
{
    size_t lines = 0;
    for (size_t i = 0; i < text->length; i++) {
        lines += text->data[i] == '\n';
    }
    return lines;
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
    if (rewrite(&input, &options, &output) == 0 && count_lines(&input) != count_lines(&output)) {
        abort();
    }
    text_free(&input);
    text_free(&output);
    return 0;
}
