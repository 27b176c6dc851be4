// How much of a text that a user gave a message quotes: what would be right must still fit.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BASE_QUOTE_H
#define TT_BASE_QUOTE_H

#include <stddef.h>
#include <string.h>

enum { TT_QUOTED_BYTES = 80, TT_QUOTED_PATH_BYTES = 256 };

struct tt_quote {
    char text[TT_QUOTED_BYTES + sizeof "..."];
};
struct tt_quoted_path {
    char text[TT_QUOTED_PATH_BYTES + sizeof "..."];
};

// The first `length` bytes of a text, control characters as \xNN, so that they do nothing to a
// terminal; where that is more than `most`, the beginning, in whole characters, and "...".
static inline void tt_quote_into(char *out, size_t most, const char *text, size_t length)
{
    static const char digits[] = "0123456789abcdef";
    size_t used = 0, read = 0;
    while (read < length) {
        unsigned char c = (unsigned char)text[read];
        size_t wanted = c < 0x20 || c == 0x7f ? 4 : 1;
        if (used + wanted > most) {
            break;
        }
        if (wanted == 4) {
            const char escape[4] = {'\\', 'x', digits[c >> 4], digits[c & 15]};
            memcpy(out + used, escape, sizeof escape);
        } else {
            out[used] = (char)c;
        }
        used += wanted;
        read++;
    }
    if (read < length) {
        while (read > 0 && ((unsigned char)text[read] & 0xc0) == 0x80) { // in a character of UTF-8
            read--;
            used--;
        }
        memcpy(out + used, "...", sizeof "...");
    } else {
        out[used] = 0;
    }
}

// To be used as arguments: tt_quote(text).text lives until the call returns.
static inline struct tt_quote tt_quote_part(const char *text, size_t length)
{
    struct tt_quote quote;
    tt_quote_into(quote.text, TT_QUOTED_BYTES, text, length);
    return quote;
}

static inline struct tt_quote tt_quote(const char *text)
{
    return tt_quote_part(text, strlen(text));
}

// Of a path more is needed to find it.
static inline struct tt_quoted_path tt_quote_path(const char *path)
{
    struct tt_quoted_path quote;
    tt_quote_into(quote.text, TT_QUOTED_PATH_BYTES, path, strlen(path));
    return quote;
}

#endif
