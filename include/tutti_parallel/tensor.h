// Tensor parallelism: each rank has a part of every weight matrix and computes with it; what the
// parts give is joined by two all-reduces per transformer block and direction. After M. Shoeybi, M.
// Patwary, R. Puri, P. LeGresley, J. Casper, B. Catanzaro: Megatron-LM: Training Multi-Billion
// Parameter Language Models Using Model Parallelism, 2019.
//
// A block has two pairs of a column-parallel and a row-parallel layer (query, key and value before
// the attention, its output behind it; up and down of the MLP):
//     x, on all ranks -> column-parallel: some features each -> row-parallel: partial sums
//                     -> all-reduce: y, on all ranks
// Parts: rank r has what tuttiSplitCounts gives it of the split dimension; uneven parts and parts
// of size 0 are allowed. "own" stands for the size of the own part.
//
// The host computes. Each function first waits for its stream (cudaStreamSynchronize) and then
// computes; collectives are enqueued in the stream, and may still run when the function returns:
// the functions here wait for them by themselves, other host code synchronises the stream before it
// reads. Matrices lie in memory that NCCL's functions take and the host reads (virtual GPUs: that
// of cudaMalloc), row-major, contiguous; NULL is allowed where they have no elements. All ranks of
// `comm` call the same functions with the same sizes, types and options, not between ncclGroupStart
// and ncclGroupEnd. Errors, everywhere: ncclInvalidArgument for a bad argument, before anything is
// computed or sent; those of tuttiMatmul and of the collectives; after each wait that of the
// communicator (ncclCommGetAsyncError), where an operation of it has failed: ranks that call with
// other sizes find out so. What results are in memory then is undefined.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_PARALLEL_TENSOR_H
#define TUTTI_PARALLEL_TENSOR_H

#include "tutti_parallel/matmul.h"
#include "tutti_parallel/types.h"

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Linear layers ------------------------------------------------------------------------------

// y[tokens x out] = x[tokens x in] * W[out x in]^T, without bias.
struct tuttiLinear {
    size_t in, out; // features of the whole layer, on all ranks together
    struct tuttiTypes types;
    ncclComm_t comm;     // the ranks among which the layer is split
    cudaStream_t stream; // of its device
};

// Options of a call, which may be added.
enum {
    // Column-parallel, forward: rank 0's x counts, and is broadcast into the others' (x is written
    // there). Without it x is equal on all ranks already.
    TUTTI_BROADCAST_INPUT = 1,
    // Column-parallel, forward: y is [tokens x out] on every rank, backward: so is dy. Without it
    // they are [tokens x own out], the own columns.
    TUTTI_GATHER_OUTPUT = 2,
    // Row-parallel, forward: x is [tokens x in], equal on all ranks, of which each takes its
    // columns; backward: dx is so too (gathered). Without it they are [tokens x own in].
    TUTTI_SPLIT_INPUT = 4,
    // No all-reduce: y (row-parallel and embedding, forward) or dx (column-parallel, backward) is
    // left as each rank's partial sum, for a reduce-scatter along tokens (sequence.h) or for a sum
    // of several layers' that is reduced once.
    TUTTI_LEAVE_PARTIAL = 8,
    // Backward: dx is added to what dx holds (before it is all-reduced). For layers with the same
    // input: the first with TUTTI_LEAVE_PARTIAL, those after it with both, the last with this
    // alone.
    TUTTI_ADD_TO_DX = 16
};

// The matrices of a backward call. Shapes as in the forward call; dw has weight's.
struct tuttiLinearGradients {
    const void *x;      // as forward read it; may be NULL where dw is
    const void *weight; // may be NULL where dx is
    const void *dy;     // the loss's derivatives by y
    void *dx;           // receives those by x; NULL: not wanted (on all ranks)
    void *dw;           // float (double): those by weight are added to it; NULL: not wanted
};

// Column-parallel: the rank has `own` rows of W. weight: [own out x in]. x: [tokens x in]. y:
// [tokens x own out]; with TUTTI_GATHER_OUTPUT [tokens x out]. Options: TUTTI_BROADCAST_INPUT,
// TUTTI_GATHER_OUTPUT. No communication without them. Since 0.1.
ncclResult_t tuttiColumnLinearForward(const struct tuttiLinear *layer, int options, size_t tokens,
                                      void *x, const void *weight, void *y);
// dx: [tokens x in], all-reduced over the ranks unless TUTTI_LEAVE_PARTIAL is set; dw is computed
// while the all-reduce runs. Options: TUTTI_GATHER_OUTPUT (about dy), TUTTI_LEAVE_PARTIAL,
// TUTTI_ADD_TO_DX. One collective at most. Since 0.1.
ncclResult_t tuttiColumnLinearBackward(const struct tuttiLinear *layer, int options, size_t tokens,
                                       const struct tuttiLinearGradients *gradients);

// Row-parallel: the rank has `own` columns of W, copied together. weight: [out x own in]. x:
// [tokens x own in]; with TUTTI_SPLIT_INPUT [tokens x in]. y: [tokens x out], all-reduced over the
// ranks unless TUTTI_LEAVE_PARTIAL is set. Options: TUTTI_SPLIT_INPUT, TUTTI_LEAVE_PARTIAL. Since
// 0.1.
ncclResult_t tuttiRowLinearForward(const struct tuttiLinear *layer, int options, size_t tokens,
                                   const void *x, const void *weight, void *y);
// dy: [tokens x out], equal on all ranks. Options: TUTTI_SPLIT_INPUT (about x and dx),
// TUTTI_ADD_TO_DX (not both). No communication without TUTTI_SPLIT_INPUT. Since 0.1.
ncclResult_t tuttiRowLinearBackward(const struct tuttiLinear *layer, int options, size_t tokens,
                                    const struct tuttiLinearGradients *gradients);

// ---- Vocabulary: embedding and loss -------------------------------------------------------------

// A table of one row of features for each word of the vocabulary, its rows split over the ranks.
struct tuttiEmbedding {
    size_t vocabulary; // words, on all ranks together
    size_t width;      // features
    struct tuttiTypes types;
    ncclComm_t comm;
    cudaStream_t stream;
};

// y[tokens x width]: the rows of the table that `words` names. Each rank writes the rows that it
// has and zeros for the others; the sum by all-reduce is exact. words: [tokens] numbers from 0 to
// vocabulary - 1, equal on all ranks, memory that the host reads. table: [own vocabulary x width].
// options: 0 or TUTTI_LEAVE_PARTIAL. Since 0.1.
ncclResult_t tuttiEmbeddingForward(const struct tuttiEmbedding *embedding, int options,
                                   size_t tokens, const int32_t *words, const void *table, void *y);
// Adds dy[tokens x width] (equal on all ranks) to the rows of the gradient table that `words`
// names, in the order of tokens. dtable: float (double) [own vocabulary x width]. No communication.
// Since 0.1.
ncclResult_t tuttiEmbeddingBackward(const struct tuttiEmbedding *embedding, size_t tokens,
                                    const int32_t *words, const void *dy, void *dtable);

// Cross-entropy of logits whose vocabulary is split over the ranks, without gathering them.
struct tuttiCrossEntropy {
    size_t vocabulary;     // words, on all ranks together
    ncclDataType_t logits; // ncclFloat32, ncclBfloat16 or ncclFloat64
    ncclComm_t comm;
    cudaStream_t stream;
};

// losses[t] = log(sum over words w of exp(logit[t][w])) - logit[t][targets[t]], on every rank. Two
// all-reduces of [tokens] and [2 x tokens] doubles: the largest logit; the sum of the exponentials
// and the target's logit.
// logits: [tokens x own vocabulary] in the type; receives exp(logit - largest), which backward
// needs. targets: [tokens] words, equal on all ranks; a target of -1 does not count: its loss is 0.
// losses: [tokens]. sums: [3 x tokens], of which backward needs the second third, each rank's own
// memory that NCCL's functions take. Synchronous. A NaN among the logits is a NaN in the loss on
// every rank. Since 0.1.
ncclResult_t tuttiCrossEntropyForward(const struct tuttiCrossEntropy *entropy, size_t tokens,
                                      void *logits, const int32_t *targets, double *losses,
                                      double *sums);
// Replaces what forward left in logits by scale * (softmax - 1 at the target), the derivative of
// scale * sum of losses by the logits; zeros where the target is -1. sums: as forward left them. No
// communication. Since 0.1.
ncclResult_t tuttiCrossEntropyBackward(const struct tuttiCrossEntropy *entropy, size_t tokens,
                                       void *logits, const int32_t *targets, const double *sums,
                                       double scale);

#ifdef __cplusplus
}
#endif
#endif
