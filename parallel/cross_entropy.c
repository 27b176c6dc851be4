// See tutti_parallel/tensor.h: cross-entropy over a vocabulary that is split over the ranks.
// SPDX-License-Identifier: Apache-2.0
#include "tutti_parallel/tensor.h"

#include "elements.h"
#include "fail.h"
#include "part.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

// The three parts of `sums`, [tokens] each.
struct sums {
    double *largest, *exponentials, *target;
};

static struct sums parts_of(double *sums, size_t tokens)
{
    return (struct sums){sums, sums == NULL ? NULL : sums + tokens,
                         sums == NULL ? NULL : sums + 2 * tokens};
}

static ncclResult_t begin(const char *function, const struct tuttiCrossEntropy *c, size_t tokens,
                          const int32_t *targets, struct parallel_call *call_out)
{
    if (c == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: entropy is NULL", function);
    }
    TRY(parallel_begin(function, c->comm, c->vocabulary, call_out));
    const char *call = call_out->name;
    if (c->vocabulary < 1 || c->vocabulary > INT32_MAX) {
        return tuttiFail(ncclInvalidArgument, "%s: vocabulary is %zu, must be 1 to %d", call,
                         c->vocabulary, INT32_MAX);
    }
    const struct tuttiTypes types = {c->logits, c->logits, c->logits};
    TRY(parallel_check_types(call, &types));
    TRY(parallel_check_elements(call, "tokens x vocabulary", tokens, c->vocabulary));
    TRY(parallel_check_elements(call, "sums", tokens, 3));
    TRY(parallel_check_pointer(call, "targets", targets, tokens));
    for (size_t t = 0; t < tokens; t++) {
        if (targets[t] < -1 || (targets[t] >= 0 && (size_t)targets[t] >= c->vocabulary)) {
            return tuttiFail(ncclInvalidArgument, "%s: targets[%zu] is %d, must be -1 to %zu", call,
                             t, (int)targets[t], c->vocabulary - 1);
        }
    }
    return ncclSuccess;
}

// Where the target is in the own part; part->count: it is not.
static size_t own_target(const struct parallel_part *part, int32_t target)
{
    size_t word = (size_t)target;
    return target >= 0 && word >= part->first && word < part->first + part->count
               ? word - part->first
               : part->count;
}

// The largest of a row; a NaN is left to the sum of exponentials.
static double largest_of(const double *row, size_t count)
{
    double largest = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        largest = row[i] > largest ? row[i] : largest;
    }
    return largest;
}

// Replaces a row by exp(logit - largest); gives their sum.
static double exponentials_of(double *row, size_t count, double largest, ncclDataType_t type)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        row[i] =
            type == ncclFloat64 ? exp(row[i] - largest) : (double)expf((float)(row[i] - largest));
        sum += row[i];
    }
    return sum;
}

static ncclResult_t reduce(const char *call, const struct tuttiCrossEntropy *c, double *values,
                           size_t count, ncclRedOp_t operator)
{
    TRY(ncclAllReduce(values, values, count, ncclFloat64, operator, c->comm, c->stream));
    return parallel_wait(call, c->comm, c->stream);
}

// row: [own vocabulary], scratch.
static ncclResult_t forward(const struct parallel_call *call, const struct tuttiCrossEntropy *c,
                            size_t tokens, void *logits, const int32_t *targets, struct sums sums,
                            double *row)
{
    const struct parallel_part *part = &call->part;
    const size_t own = part->count;
    for (size_t t = 0; t < tokens; t++) {
        parallel_load(logits, c->logits, t * own, own, row);
        sums.largest[t] = largest_of(row, own);
    }
    TRY(reduce(call->name, c, sums.largest, tokens, ncclMax));
    for (size_t t = 0; t < tokens; t++) {
        parallel_load(logits, c->logits, t * own, own, row);
        size_t at = own_target(part, targets[t]);
        sums.target[t] = at < own ? row[at] - sums.largest[t] : 0;
        sums.exponentials[t] = exponentials_of(row, own, sums.largest[t], c->logits);
        parallel_store(logits, c->logits, t * own, own, row);
    }
    // And the target, which lies behind it.
    return reduce(call->name, c, sums.exponentials, 2 * tokens, ncclSum);
}

PARALLEL_EXPORT ncclResult_t tuttiCrossEntropyForward(const struct tuttiCrossEntropy *entropy,
                                                      size_t tokens, void *logits,
                                                      const int32_t *targets, double *losses,
                                                      double *sums)
{
    struct parallel_call call = {{0}, {0}};
    double *row = NULL;
    TRY(begin("tuttiCrossEntropyForward", entropy, tokens, targets, &call));
    TRY(parallel_check_pointer(call.name, "logits", logits, tokens * call.part.count));
    TRY(parallel_check_pointer(call.name, "losses", losses, tokens));
    TRY(parallel_check_pointer(call.name, "sums", sums, 3 * tokens));
    TRY(parallel_wait(call.name, entropy->comm, entropy->stream));
    TRY(parallel_row(call.name, call.part.count, &row));
    struct sums parts = parts_of(sums, tokens);
    ncclResult_t result = forward(&call, entropy, tokens, logits, targets, parts, row);
    for (size_t t = 0; result == ncclSuccess && t < tokens; t++) {
        losses[t] = targets[t] < 0 ? 0 : log(parts.exponentials[t]) - parts.target[t];
    }
    free(row);
    return result;
}

PARALLEL_EXPORT ncclResult_t tuttiCrossEntropyBackward(const struct tuttiCrossEntropy *entropy,
                                                       size_t tokens, void *logits,
                                                       const int32_t *targets, const double *sums,
                                                       double scale)
{
    struct parallel_call call = {{0}, {0}};
    double *row = NULL;
    TRY(begin("tuttiCrossEntropyBackward", entropy, tokens, targets, &call));
    TRY(parallel_check_pointer(call.name, "logits", logits, tokens * call.part.count));
    TRY(parallel_check_pointer(call.name, "sums", sums, 3 * tokens));
    TRY(parallel_wait(call.name, entropy->comm, entropy->stream));
    TRY(parallel_row(call.name, call.part.count, &row));
    const size_t own = call.part.count;
    for (size_t t = 0; t < tokens; t++) {
        const double factor = scale / sums[tokens + t]; // the sum of exponentials
        size_t at = own_target(&call.part, targets[t]);
        parallel_load(logits, entropy->logits, t * own, own, row);
        for (size_t i = 0; i < own; i++) {
            row[i] = targets[t] < 0 ? 0 : row[i] * factor;
        }
        if (at < own) {
            row[at] -= scale;
        }
        parallel_store(logits, entropy->logits, t * own, own, row);
    }
    free(row);
    return ncclSuccess;
}
