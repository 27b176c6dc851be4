// See part.h. SPDX-License-Identifier: Apache-2.0
#include "part.h"

#include "fail.h"

#include <stdio.h>
#include <stdlib.h>

size_t parallel_part_count(const struct parallel_part *part, int rank)
{
    size_t ranks = (size_t)part->size;
    return part->total / ranks + ((size_t)rank < part->total % ranks ? 1 : 0);
}

ncclResult_t parallel_part(ncclComm_t comm, size_t total, struct parallel_part *part_out)
{
    struct parallel_part part = {.total = total};
    TRY(ncclCommUserRank(comm, &part.rank));
    TRY(ncclCommCount(comm, &part.size));
    size_t rank = (size_t)part.rank, more = total % (size_t)part.size;
    part.count = parallel_part_count(&part, part.rank);
    part.first = total / (size_t)part.size * rank + (rank < more ? rank : more);
    *part_out = part;
    return ncclSuccess;
}

ncclResult_t parallel_begin(const char *function, ncclComm_t comm, size_t total,
                            struct parallel_call *call_out)
{
    TRY(parallel_part(comm, total, &call_out->part));
    (void)snprintf(call_out->name, sizeof call_out->name, "%s: rank %d", function,
                   call_out->part.rank);
    return ncclSuccess;
}

ncclResult_t parallel_wait(const char *call, ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t state = ncclSuccess;
    TRY(tuttiRefuseGroup(call));
    TRY_CUDA(cudaStreamSynchronize(stream));
    TRY(ncclCommGetAsyncError(comm, &state));
    if (state == ncclSuccess || state == ncclInProgress) { // a nonblocking one's own affairs
        return ncclSuccess;
    }
    char text[512];
    (void)snprintf(text, sizeof text, "%s", ncclGetLastError(comm));
    return tuttiFail(state, "%s: the communicator has failed: %s", call, text);
}

ncclResult_t parallel_part_counts(const char *call, const struct parallel_part *part,
                                  size_t elements, size_t **counts_out)
{
    size_t *counts = malloc((size_t)part->size * sizeof *counts);
    if (counts == NULL) {
        return tuttiFail(ncclSystemError, "%s: no memory for the counts of %d ranks", call,
                         part->size);
    }
    for (int r = 0; r < part->size; r++) {
        counts[r] = parallel_part_count(part, r) * elements;
    }
    *counts_out = counts;
    return ncclSuccess;
}
