// SPDX-License-Identifier: Apache-2.0
#include "words.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool gpt_read_text(const char **at, const char *text)
{
    size_t length = strlen(text);
    if (strncmp(*at, text, length) != 0) {
        return false;
    }
    *at += length;
    return true;
}

bool gpt_read_number(const char **at, uint64_t most, uint64_t *number)
{
    char *end;
    if (**at < '0' || **at > '9') {
        return false;
    }
    errno = 0;
    unsigned long long value = strtoull(*at, &end, 10);
    if (errno != 0 || value > most) {
        return false;
    }
    *number = value;
    *at = end;
    return true;
}

bool gpt_read_word(const char **at, char *word, size_t room)
{
    size_t length = strcspn(*at, " \n");
    if (length == 0 || length >= room) {
        return false;
    }
    *(char *)mempcpy(word, *at, length) = 0;
    *at += length;
    return true;
}
