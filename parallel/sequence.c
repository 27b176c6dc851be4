// See tutti_parallel/sequence.h: rows shared out over ranks along tokens.
// SPDX-License-Identifier: Apache-2.0
#include "tutti_parallel/sequence.h"

#include "elements.h"
#include "fail.h"
#include "part.h"

#include <stdbool.h>
#include <stdlib.h>

PARALLEL_EXPORT ncclResult_t tuttiSequenceOwn(size_t tokens, ncclComm_t comm, size_t *first,
                                              size_t *count)
{
    struct parallel_part part = {0};
    TRY(parallel_part(comm, tokens, &part));
    if (first != NULL) {
        *first = part.first;
    }
    if (count != NULL) {
        *count = part.count;
    }
    return ncclSuccess;
}

static ncclResult_t begin(const char *function, const struct tuttiSequence *s,
                          struct parallel_call *call)
{
    if (s == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: sequence is NULL", function);
    }
    TRY(parallel_begin(function, s->comm, s->tokens, call));
    if (s->width < 1) {
        return tuttiFail(ncclInvalidArgument, "%s: width is 0, must be at least 1", call->name);
    }
    return parallel_check_elements(call->name, "tokens x width", s->tokens, s->width);
}

// Whether all ranks have equally many tokens: then NCCL's own functions do it.
static bool is_even(const struct parallel_part *part)
{
    return part->total % (size_t)part->size == 0;
}

PARALLEL_EXPORT ncclResult_t tuttiSequenceReduceScatter(const struct tuttiSequence *sequence,
                                                        const void *partial, void *own)
{
    const struct tuttiSequence *s = sequence;
    struct parallel_call call = {{0}, {0}};
    const struct parallel_part *part = &call.part;
    size_t *counts = NULL;
    TRY(begin("tuttiSequenceReduceScatter", s, &call));
    TRY(parallel_check_pointer(call.name, "partial", partial, s->tokens * s->width));
    TRY(parallel_check_pointer(call.name, "own", own, part->count * s->width));
    if (is_even(part)) {
        return ncclReduceScatter(partial, own, part->count * s->width, s->type, ncclSum, s->comm,
                                 s->stream);
    }
    TRY(parallel_part_counts(call.name, part, s->width, &counts));
    ncclResult_t result =
        tuttiReduceScatterV(partial, own, counts, s->type, ncclSum, s->comm, s->stream);
    free(counts);
    return result;
}

PARALLEL_EXPORT ncclResult_t tuttiSequenceAllGather(const struct tuttiSequence *sequence,
                                                    const void *own, void *rows)
{
    const struct tuttiSequence *s = sequence;
    struct parallel_call call = {{0}, {0}};
    const struct parallel_part *part = &call.part;
    size_t *counts = NULL;
    TRY(begin("tuttiSequenceAllGather", s, &call));
    TRY(parallel_check_pointer(call.name, "own", own, part->count * s->width));
    TRY(parallel_check_pointer(call.name, "rows", rows, s->tokens * s->width));
    if (is_even(part)) {
        return ncclAllGather(own, rows, part->count * s->width, s->type, s->comm, s->stream);
    }
    TRY(parallel_part_counts(call.name, part, s->width, &counts));
    ncclResult_t result = tuttiAllGatherV(own, part->count * s->width, rows, counts, NULL, s->type,
                                          s->comm, s->stream);
    free(counts);
    return result;
}
