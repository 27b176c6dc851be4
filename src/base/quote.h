// How much of a text that a user gave a message quotes: what would be right must still fit.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BASE_QUOTE_H
#define TT_BASE_QUOTE_H

#include <stddef.h>
#include <string.h>

enum { TT_QUOTED_BYTES = 80 };

struct tt_quote {
    char text[TT_QUOTED_BYTES + sizeof "..."];
};

// The first `length` bytes of a text; of a long one the beginning, in whole characters, and "...".
// To be used as an argument: tt_quote(text).text lives until the call returns.
static inline struct tt_quote tt_quote_part(const char *text, size_t length)
{
    struct tt_quote quote = {""};
    size_t kept = length;
    if (length > TT_QUOTED_BYTES) {
        kept = TT_QUOTED_BYTES;
        while (kept > 0 && ((unsigned char)text[kept] & 0xc0) == 0x80) { // in a character of UTF-8
            kept--;
        }
        memcpy(quote.text + kept, "...", sizeof "...");
    }
    memcpy(quote.text, text, kept);
    return quote;
}

static inline struct tt_quote tt_quote(const char *text)
{
    return tt_quote_part(text, strlen(text));
}

#endif
