// All ranks' tokens to all ranks, a chunk at a time, and sums back. SPDX-License-Identifier: Apache-2.0
#include "device.h"
#include "fail.h"
#include "part.h"
#include "tutti_parallel/expert.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static size_t in_chunk(size_t tokens, size_t chunk, size_t step)
{
    size_t first = step * chunk;
    size_t left = tokens > first ? tokens - first : 0;
    return left < chunk ? left : chunk;
}

PARALLEL_EXPORT ncclResult_t tuttiMoeChunk(const size_t *tokens, int nranks, size_t chunk,
                                           size_t step, size_t *counts, size_t *first,
                                           size_t *steps)
{
    if (tokens == NULL || nranks < 1 || chunk < 1) {
        return tokens == NULL ? tuttiFail(ncclInvalidArgument, "tuttiMoeChunk: tokens is NULL")
               : nranks < 1   ? tuttiFail(ncclInvalidArgument,
                                          "tuttiMoeChunk: nranks is %d, must be at least 1", nranks)
                              : tuttiFail(ncclInvalidArgument,
                                          "tuttiMoeChunk: chunk is 0, must be at least 1");
    }
    size_t most = 0;
    for (int r = 0; r < nranks; r++) {
        size_t needs = tokens[r] / chunk + (tokens[r] % chunk != 0);
        most = needs > most ? needs : most;
    }
    for (int r = 0; r < nranks; r++) {
        size_t before = step > tokens[r] / chunk ? tokens[r] : step * chunk;
        if (counts != NULL) {
            counts[r] = step < most ? in_chunk(tokens[r], chunk, step) : 0;
        }
        if (first != NULL) {
            first[r] = before < tokens[r] ? before : tokens[r];
        }
    }
    if (steps != NULL) {
        *steps = most;
    }
    return ncclSuccess;
}

static ncclResult_t check_lockstep(const struct tuttiMoeLockstep *lockstep)
{
    static const char call[] = "tuttiMoeRunLockstep";
    if (lockstep == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: lockstep is NULL", call);
    }
    if (lockstep->size != sizeof *lockstep) {
        return tuttiFail(ncclInvalidArgument, "%s: lockstep->size is %zu, must be %zu", call,
                         lockstep->size, sizeof *lockstep);
    }
    if (lockstep->tokens == NULL || lockstep->function == NULL) {
        return tuttiFail(ncclInvalidArgument, "%s: %s is NULL", call,
                         lockstep->tokens == NULL ? "tokens" : "function");
    }
    if (lockstep->hidden < 1 || lockstep->chunk < 1) {
        return tuttiFail(ncclInvalidArgument, "%s: %s is 0, must be at least 1", call,
                         lockstep->hidden < 1 ? "hidden" : "chunk");
    }
    if (parallel_type_bytes(lockstep->datatype) == 0) {
        return tuttiFail(ncclInvalidArgument, "%s: datatype is %d, which is none", call,
                         (int)lockstep->datatype);
    }
    return ncclSuccess;
}

struct lockstep_run {
    const struct tuttiMoeLockstep *what;
    ncclComm_t comm;
    cudaStream_t stream;
    int rank, ranks;
    size_t *counts, *elements; // [ranks] of this step
    size_t first;              // of this rank's tokens in this step
    char *rows, *sums;         // [tokens of a step x hidden]
};

static ncclResult_t run_step(const struct lockstep_run *run, const char *in, char *out)
{
    const struct tuttiMoeLockstep *what = run->what;
    size_t place = run->first * what->hidden * parallel_type_bytes(what->datatype);
    for (int r = 0; r < run->ranks; r++) {
        run->elements[r] = run->counts[r] * what->hidden;
    }
    TRY(tuttiAllGatherV(in == NULL ? NULL : in + place, run->elements[run->rank], run->rows,
                        run->elements, NULL, what->datatype, run->comm, run->stream));
    TRY(what->function(what->context, run->rows, run->sums, run->counts, run->stream));
    return tuttiReduceScatterV(run->sums, out == NULL ? NULL : out + place, run->elements,
                               what->datatype, ncclSum, run->comm, run->stream);
}

static ncclResult_t run_steps(struct lockstep_run *run, const void *in, void *out)
{
    size_t steps = 0, first_step_tokens = 0; // no step has more
    const struct tuttiMoeLockstep *what = run->what;
    size_t *first = run->elements + run->ranks;
    TRY(tuttiMoeChunk(what->tokens, run->ranks, what->chunk, 0, run->counts, NULL, &steps));
    size_t width = parallel_type_bytes(what->datatype);
    size_t most = SIZE_MAX / 4 / width / what->hidden;
    for (int r = 0; r < run->ranks && first_step_tokens <= most; r++) {
        bool fits = run->counts[r] <= most - first_step_tokens;
        first_step_tokens = fits ? first_step_tokens + run->counts[r] : SIZE_MAX;
    }
    if (first_step_tokens > most) {
        return tuttiFail(ncclInvalidArgument,
                         "tuttiMoeRunLockstep: rank %d: hidden is %zu: a step's tokens of all "
                         "ranks must be at most %zu of that size: their bytes are beyond what can "
                         "be counted",
                         run->rank, what->hidden, most);
    }
    size_t bytes = first_step_tokens * what->hidden * width;
    TRY_CUDA(cudaMallocAsync((void **)&run->rows, 2 * bytes + 1, run->stream));
    run->sums = run->rows + bytes;
    for (size_t step = 0; step < steps; step++) {
        TRY(tuttiMoeChunk(what->tokens, run->ranks, what->chunk, step, run->counts, first, NULL));
        run->first = first[run->rank];
        TRY(run_step(run, in, out));
    }
    char call[64];
    (void)snprintf(call, sizeof call, "tuttiMoeRunLockstep: rank %d", run->rank);
    return parallel_wait(call, run->comm, run->stream);
}

PARALLEL_EXPORT ncclResult_t tuttiMoeRunLockstep(ncclComm_t comm,
                                                 const struct tuttiMoeLockstep *lockstep,
                                                 const void *in, void *out, cudaStream_t stream)
{
    int previous = 0;
    struct lockstep_run run = {lockstep, comm, stream, 0, 0, NULL, NULL, 0, NULL, NULL};
    TRY(check_lockstep(lockstep));
    TRY(tuttiRefuseGroup("tuttiMoeRunLockstep"));
    TRY(ncclCommCount(comm, &run.ranks));
    TRY(ncclCommUserRank(comm, &run.rank));
    if (lockstep->tokens[run.rank] > 0 && (in == NULL || out == NULL)) {
        return tuttiFail(ncclInvalidArgument,
                         "tuttiMoeRunLockstep: rank %d: %s is NULL, but it has %zu tokens",
                         run.rank, in == NULL ? "in" : "out", lockstep->tokens[run.rank]);
    }
    run.counts = calloc(3 * (size_t)run.ranks, sizeof *run.counts);
    if (run.counts == NULL) {
        return tuttiFail(ncclSystemError, "tuttiMoeRunLockstep: no memory for %d ranks", run.ranks);
    }
    run.elements = run.counts + run.ranks;
    ncclResult_t result = parallel_enter_device(comm, &previous);
    if (result == ncclSuccess) {
        result = run_steps(&run, in, out);
        if (run.rows != NULL) { // not cudaFree, which waits for other ranks' work, too
            (void)cudaFreeAsync(run.rows, stream);
        }
        parallel_leave_device(previous);
    }
    free(run.counts);
    return result;
}
