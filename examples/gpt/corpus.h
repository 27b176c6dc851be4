// The text that is learned: a file, a byte of it a token. The last tenth is for validation. Which
// sequences a step has is a function of seed, step and the sequence's number in the global batch,
// so that all meshes see the same batches.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_CORPUS_H
#define GPT_CORPUS_H

#include "problem.h"

#include <stddef.h>
#include <stdint.h>

struct gpt_corpus {
    const unsigned char *text; // [bytes], the whole file, mapped
    size_t bytes;
    size_t training; // bytes of the part that is learned, the first
    uint64_t mark;   // of the content: other texts have another
    int context;     // tokens of a sequence
};

// Maps the file. Errors: it cannot be read; it is too short for a sequence of `context` tokens and
// the one that follows, in either part.
bool gpt_corpus_open(struct gpt_corpus *corpus, const char *path, int context,
                     struct gpt_problem *problem);
void gpt_corpus_close(struct gpt_corpus *corpus);

// Sequence number `sequence` of the batch of step `step`. tokens, targets: [context]; a target is
// the token that follows.
void gpt_corpus_sequence(const struct gpt_corpus *corpus, uint64_t seed, uint64_t step,
                         uint64_t sequence, int32_t *tokens, int32_t *targets);

// Sequence number `sequence` of `count` for validation: they lie at equal distances.
void gpt_corpus_validation(const struct gpt_corpus *corpus, size_t sequence, size_t count,
                           int32_t *tokens, int32_t *targets);

#endif
