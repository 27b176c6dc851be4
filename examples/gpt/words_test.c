// Words and numbers of text files: what is taken, what is refused, and where reading goes on.
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "words.h"

#include <string.h>

static void refuse_number(const char *text, uint64_t most)
{
    const char *at = text;
    uint64_t number = 7;
    EXPECT(!gpt_read_number(&at, most, &number));
    EXPECT(at == text && number == 7);
}

static void numbers(void)
{
    const char *at = "18446744073709551615 0012x";
    uint64_t number;
    EXPECT(gpt_read_number(&at, UINT64_MAX, &number) && number == UINT64_MAX);
    EXPECT(gpt_read_text(&at, " "));
    EXPECT(gpt_read_number(&at, 12, &number) && number == 12);
    EXPECT(strcmp(at, "x") == 0);
    refuse_number("18446744073709551616", UINT64_MAX);
    refuse_number("13", 12);
    refuse_number("-1", UINT64_MAX);
    refuse_number("+1", UINT64_MAX);
    refuse_number(" 1", UINT64_MAX);
    refuse_number("", UINT64_MAX);
    refuse_number("x", UINT64_MAX);
}

static void words(void)
{
    const char *at = "piece abc\n";
    char word[6] = "", longer[3] = "";
    EXPECT(!gpt_read_text(&at, "pieces"));
    EXPECT(gpt_read_word(&at, word, sizeof word) && strcmp(word, "piece") == 0);
    EXPECT(!gpt_read_word(&at, word, sizeof word)); // at the space
    EXPECT(gpt_read_text(&at, " "));
    EXPECT(!gpt_read_word(&at, longer, sizeof longer));
    EXPECT(gpt_read_word(&at, word, sizeof word) && strcmp(word, "abc") == 0);
    EXPECT(!gpt_read_word(&at, word, sizeof word)); // at the line's end
    EXPECT(strcmp(at, "\n") == 0);
}

int main(void)
{
    RUN(numbers);
    RUN(words);
    return expect_result();
}
