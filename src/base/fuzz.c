// A libFuzzer target for the settings of messages: the first byte says which, the rest is the text.
// Nothing may crash or be read or written out of bounds, and a word that is refused lies inside the
// text. Build and run: the CMake target log_fuzz.
// SPDX-License-Identifier: Apache-2.0
#include "base/log_settings.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_log_unknown unknown = {"", 0};
    struct timespec now = {.tv_sec = 1700000000, .tv_nsec = 123456789};
    char *text = size > 0 ? malloc(size) : NULL;
    if (text == NULL) {
        return 0;
    }
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    if (data[0] % 4 == 0) {
        (void)tt_log_level_of(text, &unknown);
    } else if (data[0] % 4 == 1) {
        (void)tt_log_subsystems_of(text, &unknown);
    } else if (data[0] % 4 == 2) {
        (void)tt_log_stamped_of(text, &unknown);
    } else {
        char out[40];
        now.tv_sec += (time_t)size << 40;
        tt_log_stamp(text, &now, out, sizeof out);
        if (strlen(out) >= sizeof out) {
            abort();
        }
    }
    if (unknown.length > 0 &&
        (unknown.word < text || unknown.word + unknown.length > text + size)) {
        abort();
    }
    free(text);
    return 0;
}
