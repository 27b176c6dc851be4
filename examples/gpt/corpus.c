// SPDX-License-Identifier: Apache-2.0
#include "corpus.h"

#include "random.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool fail(struct gpt_problem *problem, const char *path, const char *what)
{
    return gpt_fail(problem, GPT_USAGE, "corpus %s: %s: %s", path, what, strerrordesc_np(errno));
}

// FNV-1a of the text, of a long one of pieces at equal distances: all ranks read them before they
// begin.
static uint64_t mark_of(const unsigned char *text, size_t bytes)
{
    enum { PIECES = 256, PIECE = 4096 };
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < PIECES; i++) {
        size_t first = bytes / PIECES * i + bytes % PIECES * i / PIECES;
        size_t next = bytes / PIECES * (i + 1) + bytes % PIECES * (i + 1) / PIECES;
        for (size_t at = first; at < next && at < first + PIECE; at++) {
            hash = (hash ^ text[at]) * 0x100000001b3u;
        }
    }
    return hash;
}

static bool map(struct gpt_corpus *corpus, int fd, const char *path, struct gpt_problem *problem)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return fail(problem, path, "cannot be read");
    }
    if (!S_ISREG(status.st_mode)) {
        return gpt_fail(problem, GPT_USAGE, "corpus %s: is not a file", path);
    }
    corpus->bytes = (size_t)status.st_size;
    corpus->training = corpus->bytes - corpus->bytes / 10;
    size_t needed = ((size_t)corpus->context + 1) * 10;
    if (corpus->bytes < needed) {
        return gpt_fail(problem, GPT_USAGE,
                        "corpus %s: has %zu byte%s, must have at least %zu: a tenth is for "
                        "validation, and a sequence has %d + 1",
                        path, corpus->bytes, corpus->bytes == 1 ? "" : "s", needed,
                        corpus->context);
    }
    void *text = mmap(NULL, corpus->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (text == MAP_FAILED) {
        return fail(problem, path, "cannot be mapped");
    }
    corpus->text = text;
    corpus->mark = mark_of(text, corpus->bytes);
    return true;
}

bool gpt_corpus_open(struct gpt_corpus *corpus, const char *path, int context,
                     struct gpt_problem *problem)
{
    memset(corpus, 0, sizeof *corpus);
    corpus->context = context;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); // a pipe must not be waited for
    if (fd < 0) {
        return fail(problem, path, "cannot be opened");
    }
    bool right = map(corpus, fd, path, problem);
    close(fd);
    return right;
}

void gpt_corpus_close(struct gpt_corpus *corpus)
{
    if (corpus->text != NULL) {
        (void)munmap((void *)corpus->text, corpus->bytes);
    }
    memset(corpus, 0, sizeof *corpus);
}

static void copy(const struct gpt_corpus *corpus, size_t first, int32_t *tokens, int32_t *targets)
{
    const unsigned char *text = corpus->text + first;
    for (int i = 0; i < corpus->context; i++) {
        tokens[i] = text[i];
        targets[i] = text[i + 1];
    }
}

void gpt_corpus_sequence(const struct gpt_corpus *corpus, uint64_t seed, uint64_t step,
                         uint64_t sequence, int32_t *tokens, int32_t *targets)
{
    const uint32_t counter[4] = {(uint32_t)sequence, (uint32_t)(sequence >> 32), (uint32_t)step,
                                 (uint32_t)(step >> 32)};
    uint32_t bits[4];
    gpt_philox(counter, seed ^ gpt_hash("batch"), bits);
    uint64_t number = (uint64_t)bits[1] << 32 | bits[0];
    copy(corpus, number % (corpus->training - (size_t)corpus->context), tokens, targets);
}

void gpt_corpus_validation(const struct gpt_corpus *corpus, size_t sequence, size_t count,
                           int32_t *tokens, int32_t *targets)
{
    size_t places = corpus->bytes - corpus->training - (size_t)corpus->context;
    copy(corpus, corpus->training + sequence * places / count, tokens, targets);
}
