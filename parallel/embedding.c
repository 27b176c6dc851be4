// See tutti_parallel/tensor.h: the vocabulary-parallel embedding.
// SPDX-License-Identifier: Apache-2.0
#include "tutti_parallel/tensor.h"

#include "elements.h"
#include "fail.h"
#include "part.h"

#include <stdbool.h>
#include <stdlib.h>

static ncclResult_t check(const char *call, const struct tuttiEmbedding *e, size_t tokens,
                          const int32_t *words, struct parallel_part *part)
{
    if (e == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: embedding is NULL", call);
    }
    if (e->vocabulary < 1 || e->vocabulary > INT32_MAX || e->width < 1) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: vocabulary is %zu and width %zu; they must be 1 to %d and at least 1",
                         call, e->vocabulary, e->width, INT32_MAX);
    }
    TRY(parallel_check_types(call, &e->types));
    TRY(parallel_check_elements(call, "vocabulary x width", e->vocabulary, e->width));
    TRY(parallel_check_elements(call, "tokens x width", tokens, e->width));
    TRY(parallel_check_pointer(call, "words", words, tokens));
    for (size_t t = 0; t < tokens; t++) {
        if (words[t] < 0 || (size_t)words[t] >= e->vocabulary) {
            return tuttiFail(ncclInvalidArgument, "%s: words[%zu] is %d, must be 0 to %zu", call, t,
                             (int)words[t], e->vocabulary - 1);
        }
    }
    return parallel_part(e->comm, e->vocabulary, part);
}

// Whether the rank has the word; *row: where in its part.
static bool is_own(const struct parallel_part *part, int32_t word, size_t *row)
{
    size_t w = (size_t)word;
    *row = w - part->first;
    return w >= part->first && w < part->first + part->count;
}

// scratch: [width], where the table's type is not that of y.
static void look_up(const struct tuttiEmbedding *e, const void *table, size_t row, void *y,
                    double *scratch)
{
    ncclDataType_t from = e->types.weights, to = e->types.activations;
    if (from == to) {
        memcpy(y, parallel_at(table, from, row * e->width), e->width * parallel_element_bytes(to));
        return;
    }
    parallel_load(table, from, row * e->width, e->width, scratch);
    parallel_store(y, to, 0, e->width, scratch);
}

PARALLEL_EXPORT ncclResult_t tuttiEmbeddingForward(const struct tuttiEmbedding *embedding,
                                                   int options, size_t tokens, const int32_t *words,
                                                   const void *table, void *y)
{
    static const char *const call = "tuttiEmbeddingForward";
    const struct tuttiEmbedding *e = embedding;
    struct parallel_part part = {0};
    if ((options & ~TUTTI_LEAVE_PARTIAL) != 0) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: options is %d, must be 0 or TUTTI_LEAVE_PARTIAL (%d)", call, options,
                         TUTTI_LEAVE_PARTIAL);
    }
    TRY(check(call, e, tokens, words, &part));
    TRY(parallel_check_pointer(call, "table", table, part.count * e->width));
    TRY(parallel_check_pointer(call, "y", y, tokens * e->width));
    double *scratch = malloc(e->width * sizeof *scratch);
    if (scratch == NULL) {
        return tuttiFail(ncclSystemError, "%s: rank %d: no memory for a row of %zu elements", call,
                         part.rank, e->width);
    }
    ncclResult_t result =
        parallel_cuda((int)cudaStreamSynchronize(e->stream), "cudaStreamSynchronize");
    const size_t row_bytes = e->width * parallel_element_bytes(e->types.activations);
    for (size_t t = 0; result == ncclSuccess && t < tokens; t++) {
        char *to = (char *)y + t * row_bytes;
        size_t row;
        if (is_own(&part, words[t], &row)) {
            look_up(e, table, row, to, scratch);
        } else {
            memset(to, 0, row_bytes);
        }
    }
    free(scratch);
    TRY(result);
    return (options & TUTTI_LEAVE_PARTIAL) != 0
               ? ncclSuccess
               : ncclAllReduce(y, y, tokens * e->width, e->types.activations, ncclSum, e->comm,
                               e->stream);
}

// One token's derivatives, added to its word's row; gradients are float or double.
static void add_row(const struct tuttiEmbedding *e, size_t row, const double *dy, void *dtable)
{
    if (parallel_weight_gradients(&e->types) == ncclFloat64) {
        double *to = (double *)dtable + row * e->width;
        for (size_t i = 0; i < e->width; i++) {
            to[i] += dy[i];
        }
    } else {
        float *to = (float *)dtable + row * e->width;
        for (size_t i = 0; i < e->width; i++) {
            to[i] += (float)dy[i];
        }
    }
}

PARALLEL_EXPORT ncclResult_t tuttiEmbeddingBackward(const struct tuttiEmbedding *embedding,
                                                    size_t tokens, const int32_t *words,
                                                    const void *dy, void *dtable)
{
    static const char *const call = "tuttiEmbeddingBackward";
    const struct tuttiEmbedding *e = embedding;
    struct parallel_part part = {0};
    TRY(check(call, e, tokens, words, &part));
    TRY(parallel_check_pointer(call, "dy", dy, tokens * e->width));
    TRY(parallel_check_pointer(call, "dtable", dtable, part.count * e->width));
    double *scratch = malloc(e->width * sizeof *scratch);
    if (scratch == NULL) {
        return tuttiFail(ncclSystemError, "%s: rank %d: no memory for a row of %zu elements", call,
                         part.rank, e->width);
    }
    ncclResult_t result =
        parallel_cuda((int)cudaStreamSynchronize(e->stream), "cudaStreamSynchronize");
    for (size_t t = 0; result == ncclSuccess && t < tokens; t++) {
        size_t row;
        if (is_own(&part, words[t], &row)) {
            parallel_load(dy, e->types.gradients, t * e->width, e->width, scratch);
            add_row(e, row, scratch, dtable);
        }
    }
    free(scratch);
    return result;
}
