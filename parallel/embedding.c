// See tutti_parallel/tensor.h: the vocabulary-parallel embedding.
// SPDX-License-Identifier: Apache-2.0
#include "tutti_parallel/tensor.h"

#include "elements.h"
#include "fail.h"
#include "part.h"

#include <stdbool.h>
#include <stdlib.h>

static ncclResult_t begin(const char *function, const struct tuttiEmbedding *e, size_t tokens,
                          const int32_t *words, struct parallel_call *call_out)
{
    if (e == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: embedding is NULL", function);
    }
    TRY(parallel_begin(function, e->comm, e->vocabulary, call_out));
    const char *call = call_out->name;
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
    return ncclSuccess;
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
    const struct tuttiEmbedding *e = embedding;
    struct parallel_call call = {{0}, {0}};
    double *scratch = NULL;
    TRY(begin("tuttiEmbeddingForward", e, tokens, words, &call));
    if ((options & ~TUTTI_LEAVE_PARTIAL) != 0) {
        return tuttiFail(ncclInvalidArgument,
                         "%s: options is %d, must be 0 or TUTTI_LEAVE_PARTIAL (%d)", call.name,
                         options, TUTTI_LEAVE_PARTIAL);
    }
    TRY(parallel_check_pointer(call.name, "table", table, call.part.count * e->width));
    TRY(parallel_check_pointer(call.name, "y", y, tokens * e->width));
    TRY(parallel_row(call.name, e->width, &scratch));
    ncclResult_t result = parallel_wait(call.name, e->comm, e->stream);
    const size_t row_bytes = e->width * parallel_element_bytes(e->types.activations);
    for (size_t t = 0; result == ncclSuccess && t < tokens; t++) {
        char *to = (char *)y + t * row_bytes;
        size_t row;
        if (is_own(&call.part, words[t], &row)) {
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
    const struct tuttiEmbedding *e = embedding;
    struct parallel_call call = {{0}, {0}};
    double *scratch = NULL;
    TRY(begin("tuttiEmbeddingBackward", e, tokens, words, &call));
    TRY(parallel_check_pointer(call.name, "dy", dy, tokens * e->width));
    TRY(parallel_check_pointer(call.name, "dtable", dtable, call.part.count * e->width));
    TRY(parallel_row(call.name, e->width, &scratch));
    ncclResult_t result = parallel_wait(call.name, e->comm, e->stream);
    for (size_t t = 0; result == ncclSuccess && t < tokens; t++) {
        size_t row;
        if (is_own(&call.part, words[t], &row)) {
            parallel_load(dy, e->types.gradients, t * e->width, e->width, scratch);
            add_row(e, row, scratch, dtable);
        }
    }
    free(scratch);
    return result;
}
