// Sequence parallelism: where tensor parallelism has the same [tokens x width] on all ranks, for
// norm, dropout and residual, each rank has only its tokens; an all-reduce becomes a reduce-scatter
// and, behind the norm, an all-gather, which together move the same bytes. After V. Korthikanti, J.
// Casper, S. Lym, L. McAfee, M. Andersch, M. Shoeybi, B. Catanzaro: Reducing Activation
// Recomputation in Large Transformer Models, 2022.
//
// Rank r has the tokens that tuttiSplitCounts(tokens, ranks) gives it: uneven and none are allowed.
// "own" is their number. Waiting, memory, errors: as in tensor.h.
//     row-parallel layer, TUTTI_LEAVE_PARTIAL -> reduce-scatter -> own rows: dropout, + residual,
//     norm -> all-gather -> column-parallel layer
// Backward each is the other: an all-gather's is the reduce-scatter of the partial dx that the
// column-parallel layers leave, a reduce-scatter's is the all-gather of dy.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_PARALLEL_SEQUENCE_H
#define TUTTI_PARALLEL_SEQUENCE_H

#include "tutti_parallel/norm.h"
#include "tutti_parallel/types.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- The two collectives ------------------------------------------------------------------------

// Rows that are shared out over the ranks of a communicator.
struct tuttiSequence {
    size_t tokens, width;
    ncclDataType_t type; // any that NCCL's functions take
    ncclComm_t comm;
    cudaStream_t stream;
};

// The own tokens: the first of them and their number; each may be NULL. Since 0.1.
ncclResult_t tuttiSequenceOwn(size_t tokens, ncclComm_t comm, size_t *first, size_t *count);
// own[own x width] = the own rows of the ranks' sum of partial[tokens x width]. own may be where
// the own rows lie in partial. Enqueued; does not wait. Since 0.1.
ncclResult_t tuttiSequenceReduceScatter(const struct tuttiSequence *sequence, const void *partial,
                                        void *own);
// rows[tokens x width] = the ranks' own rows, one behind the other. own may be where they lie in
// rows. Enqueued; does not wait. Since 0.1.
ncclResult_t tuttiSequenceAllGather(const struct tuttiSequence *sequence, const void *own,
                                    void *rows);

// ---- The boundary between two layers ------------------------------------------------------------

// From a row-parallel layer's partial sums to the input of the next column-parallel layers:
//     x = reduce-scatter(rows) (+ residual);  rows = all-gather(norm(x))
// An object owns `rows`, memory of [most tokens x width] activations, where the partial sums come
// from and the result goes to: a symmetric window, so that RMSNorm can be one fused operation,
// tuttiAllReduceRMSNorm. One object may serve all boundaries of a model in turn; what is in rows is
// valid until the next call.
struct tuttiBoundary;

enum tuttiBoundaryWay {
    TUTTI_BOUNDARY_AUTO = 0,   // fused where that can be
    TUTTI_BOUNDARY_FUSED = 1,  // ncclInvalidUsage at creation where it cannot
    TUTTI_BOUNDARY_HALVES = 2, // reduce-scatter, norm, all-gather
};

// norm: kind, width, eps and types; the norm can be fused where it is RMSNorm, activations are
// ncclFloat32 or ncclBfloat16, eps is in float's range, and the ranks share memory (one LSA team,
// window support). most: the largest number of tokens, on all ranks together, that calls will have.
// Collective over comm, synchronous in the stream. Ranks first tell each other their arguments:
// ncclInvalidArgument on all where those of one are bad, or differ. boundary: receives it; NULL
// after an error. Since 0.1.
ncclResult_t tuttiBoundaryCreate(const struct tuttiNorm *norm, size_t most,
                                 enum tuttiBoundaryWay way, ncclComm_t comm, cudaStream_t stream,
                                 struct tuttiBoundary **boundary);
// Waits for its stream. Collective over comm, which must still be there. NULL: nothing. Since 0.1.
ncclResult_t tuttiBoundaryDestroy(struct tuttiBoundary *boundary);
// The memory of the object, [most x width]: the y of the row-parallel layer, the x of the
// column-parallel ones. Since 0.1.
ncclResult_t tuttiBoundaryRows(struct tuttiBoundary *boundary, void **rows);
// fused: receives 1 where tuttiBoundaryForward is one fused operation, else 0. Since 0.1.
ncclResult_t tuttiBoundaryIsFused(const struct tuttiBoundary *boundary, int *fused);

// All of it. residual, x: [own x width] activations; residual NULL: none (on all ranks that have
// rows); x receives the sum that the norm sees, for the next residual and for backward; NULL: not
// wanted; may be residual. gamma, beta: [width] weights, equal on all ranks; NULL: all 1, all 0.
// Afterwards rows has the result; synchronous. Both ways agree within rounding. Since 0.1.
struct tuttiBoundaryInput {
    const void *gamma, *beta, *residual;
    void *x;
};
ncclResult_t tuttiBoundaryForward(struct tuttiBoundary *boundary, size_t tokens,
                                  const struct tuttiBoundaryInput *input);

// The halves, between which the program does what it wants (dropout) to its own rows.
// x[own x width] = reduce-scatter(rows). Synchronous. Since 0.1.
ncclResult_t tuttiBoundaryReduce(struct tuttiBoundary *boundary, size_t tokens, void *x);
// rows = all-gather(norm(x[own x width])). Also for backward, to have the inputs of the
// column-parallel layers again from the own rows, which are all that needs to be kept. Since 0.1.
ncclResult_t tuttiBoundaryGather(struct tuttiBoundary *boundary, size_t tokens, const void *x,
                                 const void *gamma, const void *beta);

// Backward: x: [own x width], as forward gave it. gamma: as forward. partial: [tokens x width]
// gradients, what the column-parallel layers left (TUTTI_LEAVE_PARTIAL). dx: [own x width]
// gradients: holds the derivatives by x that come along the residual, and receives all: those by
// residual and, before dropout, by the reduced sum. hasResidual 0: what dx holds is not read.
// dgamma, dbeta: added to; sums over the own tokens only (norm.h); NULL: not wanted. dy: [tokens x
// width] gradients, the derivatives by the row-parallel layer's y on every rank, all-gathered from
// dx; may be partial; NULL: not wanted (where there is dropout the program goes on from dx, with
// tuttiSequenceAllGather), on all ranks. Since 0.1.
struct tuttiBoundaryGradients {
    const void *x, *gamma;
    void *partial, *dx;
    void *dgamma, *dbeta;
    void *dy;
    int hasResidual;
};
ncclResult_t tuttiBoundaryBackward(struct tuttiBoundary *boundary, size_t tokens,
                                   const struct tuttiBoundaryGradients *gradients);

#ifdef __cplusplus
}
#endif
#endif
