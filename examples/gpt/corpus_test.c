// Batches of a text that is made here, so that every token's place is known.
// SPDX-License-Identifier: Apache-2.0
#include "corpus.h"

#include "expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES = 4000, CONTEXT = 16, PLACES = 3600 - CONTEXT };

static char path[] = "/tmp/gpt_corpus_test.XXXXXX";
static unsigned char text[BYTES];

// Any 4 bytes in a row are found at one place alone.
static void make_text(size_t bytes)
{
    FILE *file = fopen(path, "we");
    uint32_t state = 1;
    for (size_t i = 0; i < bytes; i++) {
        state = state * 1664525u + 1013904223u;
        text[i] = (unsigned char)(state >> 24);
    }
    if (EXPECT(file != NULL)) {
        EXPECT_EQ(fwrite(text, 1, bytes, file), bytes);
        EXPECT_EQ(fclose(file), 0);
    }
}

// Where in the text a sequence is; -1: nowhere, or its targets do not follow.
static int find(const int32_t *tokens, const int32_t *targets)
{
    for (int first = 0; first + CONTEXT < BYTES; first++) {
        bool same = true;
        for (int i = 0; same && i < CONTEXT; i++) {
            same = tokens[i] == text[first + i] && targets[i] == text[first + i + 1];
        }
        if (same) {
            return first;
        }
    }
    return -1;
}

static void batches(void)
{
    struct gpt_corpus corpus;
    struct gpt_problem problem = {0};
    int tenths[10] = {0}, same = 0, last = -1;
    make_text(BYTES);
    if (!EXPECT(gpt_corpus_open(&corpus, path, CONTEXT, &problem))) {
        return;
    }
    EXPECT_EQ(corpus.training, 3600);
    for (int i = 0; i < 1000; i++) {
        int32_t tokens[CONTEXT], targets[CONTEXT], again[CONTEXT];
        gpt_corpus_sequence(&corpus, 7, (uint64_t)(i / 10), (uint64_t)(i % 10), tokens, targets);
        int first = find(tokens, targets);
        EXPECT(first >= 0 && first < PLACES);
        tenths[first < 0 ? 0 : first * 10 / PLACES]++;
        same += first == last ? 1 : 0;
        last = first;
        gpt_corpus_sequence(&corpus, 8, (uint64_t)(i / 10), (uint64_t)(i % 10), again, targets);
        same += memcmp(tokens, again, sizeof again) == 0 ? 1 : 0;
        gpt_corpus_sequence(&corpus, 7, (uint64_t)(i / 10), (uint64_t)(i % 10), again, targets);
        EXPECT_EQ(memcmp(tokens, again, sizeof again), 0);
    }
    EXPECT(same < 20); // other seeds, steps and numbers: other places
    for (int i = 0; i < 10; i++) {
        EXPECT_NEAR(tenths[i], 100, 50); // 5 deviations
    }
    gpt_corpus_close(&corpus);
}

static void validation(void)
{
    struct gpt_corpus corpus;
    struct gpt_problem problem = {0};
    int last = 3599;
    make_text(BYTES);
    if (!EXPECT(gpt_corpus_open(&corpus, path, CONTEXT, &problem))) {
        return;
    }
    for (size_t i = 0; i < 24; i++) {
        int32_t tokens[CONTEXT], targets[CONTEXT];
        gpt_corpus_validation(&corpus, i, 24, tokens, targets);
        int first = find(tokens, targets);
        EXPECT_EQ(first, 3600 + (int)(i * 384 / 24));
        EXPECT(first > last);
        last = first;
    }
    gpt_corpus_close(&corpus);
}

static uint64_t mark_with(size_t bytes, size_t place, unsigned char added)
{
    struct gpt_corpus corpus;
    struct gpt_problem problem = {0};
    make_text(bytes);
    FILE *file = fopen(path, "r+");
    if (EXPECT(file != NULL)) {
        EXPECT_EQ(fseek(file, (long)place, SEEK_SET), 0);
        EXPECT(fputc((unsigned char)(text[place] + added), file) != EOF);
        EXPECT_EQ(fclose(file), 0);
    }
    EXPECT(gpt_corpus_open(&corpus, path, CONTEXT, &problem));
    uint64_t mark = corpus.mark;
    gpt_corpus_close(&corpus);
    return mark;
}

// Of a text of few bytes each counts, the first and the last too.
static void marks(void)
{
    uint64_t mark = mark_with(BYTES - 1, 0, 0);
    EXPECT(mark_with(BYTES - 1, BYTES - 2, 0) == mark);
    for (size_t place = 0; place < BYTES - 1; place += place < BYTES - 14 ? 13 : 1) {
        EXPECT(mark_with(BYTES - 1, place, 1) != mark);
    }
}

// The shortest that is possible, and one byte less.
static void short_texts(void)
{
    for (size_t bytes = 0; bytes <= 170; bytes += bytes == 0 ? 169 : 1) {
        struct gpt_corpus corpus;
        struct gpt_problem problem = {0};
        int32_t tokens[CONTEXT], targets[CONTEXT];
        make_text(bytes);
        EXPECT_EQ(gpt_corpus_open(&corpus, path, CONTEXT, &problem), bytes == 170);
        if (bytes < 170) {
            EXPECT_CONTAINS(problem.text, "must have at least 170");
            EXPECT_EQ(problem.status, GPT_USAGE);
            continue;
        }
        gpt_corpus_sequence(&corpus, 1, 1, 1, tokens, targets);
        gpt_corpus_validation(&corpus, 2, 3, tokens, targets);
        EXPECT_EQ(targets[CONTEXT - 1], text[153 + CONTEXT]);
        gpt_corpus_close(&corpus);
    }
}

static void no_texts(void)
{
    struct gpt_corpus corpus;
    struct gpt_problem problem = {0}, other = {0};
    EXPECT(!gpt_corpus_open(&corpus, "/tmp", CONTEXT, &problem));
    EXPECT_STR(problem.text, "corpus /tmp: is not a file");
    EXPECT(!gpt_corpus_open(&corpus, "/tmp/gpt_corpus_test/none", CONTEXT, &other));
    EXPECT_CONTAINS(other.text, "corpus /tmp/gpt_corpus_test/none: cannot be opened");
    struct gpt_problem pipe = {0}; // that nobody writes to
    EXPECT_EQ(unlink(path), 0);
    EXPECT_EQ(mkfifo(path, 0600), 0);
    EXPECT(!gpt_corpus_open(&corpus, path, CONTEXT, &pipe));
    EXPECT_CONTAINS(pipe.text, ": is not a file");
}

int main(void)
{
    int fd = mkstemp(path);
    if (!EXPECT(fd >= 0)) {
        return expect_result();
    }
    close(fd);
    RUN(batches);
    RUN(validation);
    RUN(marks);
    RUN(short_texts);
    RUN(no_texts);
    (void)unlink(path);
    return expect_result();
}
