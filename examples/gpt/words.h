// Lines of text files, read word by word: what does not fit is refused, not cut or wrapped.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_WORDS_H
#define GPT_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Each moves *at behind what it has read; false, and *at stays, where something else is there.

// Exactly this text.
bool gpt_read_text(const char **at, const char *text);
// A whole number of decimal digits, at most `most`, without a sign or space before it.
bool gpt_read_number(const char **at, uint64_t most, uint64_t *number);
// What is before the next space or line's end: at least 1 byte, less than `room`. word: [room].
bool gpt_read_word(const char **at, char *word, size_t room);

#endif
