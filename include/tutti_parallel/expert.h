// expert.h: expert parallelism (mixture of experts): a router, and the ways of tokens to their
// experts' ranks and back, forward and backward.
//
// E experts are split over the ranks of a communicator by tuttiSplitCounts(E, ranks): consecutive
// ones on one rank; any numbers, also ranks without experts. Each token goes to `choices` experts:
//     out[t] = sum over j of weight[t][j] * expert(index[t][j])(token[t])
//
//     tuttiRouterForward   logits -> indices, weights, load-balancing loss
//     tuttiMoeDispatch     tokens -> rows, grouped by expert, on the experts' ranks
//     (the experts)        rows -> rows
//     tuttiMoeCombine      rows -> weighted sums, on the tokens' ranks
// and backward:
//     tuttiMoeCombineBackward   gradients of sums -> gradients of rows, and of weights
//     (the experts)
//     tuttiMoeDispatchBackward  gradients of rows -> gradients of tokens
//     tuttiRouterBackward       gradients of weights -> gradients of logits
//
// Sources: N. Shazeer et al., Outrageously Large Neural Networks: The Sparsely-Gated
// Mixture-of-Experts Layer, 2017 (the layer); D. Lepikhin et al., GShard, 2020 (experts over
// ranks, capacity); W. Fedus, B. Zoph, N. Shazeer, Switch Transformers, 2021 (the loss);
// DeepSeek-AI, DeepSeek-V3 Technical Report, 2024 (the loss by sequence, two stages across hosts).
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_PARALLEL_EXPERT_H
#define TUTTI_PARALLEL_EXPERT_H

#include "../nccl.h"

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Router -------------------------------------------------------------------------------------
// Plain functions: no communicator, no stream; synchronous. Memory: what the processor can read and
// write, that of virtual GPUs included.

struct tuttiRouter {
    size_t size;   // sizeof(struct tuttiRouter) as the program was compiled
    int experts;   // at least 1
    int choices;   // experts of a token (k of "top-k"), 1 to experts
    int normalise; // 1: the weights of a token are divided by their sum; 0: they are not
    ncclDataType_t
        datatype;   // ncclFloat32 or ncclFloat64: logits, probabilities, weights, gradients
    double balance; // factor of the load-balancing loss; 0: none. For a mean over sequences:
                    // alpha / (sequences of the global batch)
};

// Two experts a token, normalised weights, no loss.
#define TUTTI_ROUTER_INITIALIZER                                                                   \
    {                                                                                              \
        sizeof(struct tuttiRouter), 0, 2, 1, ncclFloat32, 0.0                                      \
    }

// The tokens of one call, and what becomes of them. The arrays are the program's; all but logits
// are written by tuttiRouterForward and read by tuttiRouterBackward.
struct tuttiRouting {
    size_t tokens;         // 0 is allowed; all pointers may then be NULL
    size_t sequences;      // the tokens are so many whole sequences, one behind the other
    const size_t *lengths; // [sequences], sum: tokens; NULL: tokens / sequences each, without rest
    const void *logits;    // [tokens x experts]
    void *probabilities;   // [tokens x experts]: softmax of the logits
    int32_t *indices;      // [tokens x choices]: the most probable first; ties: lower index first
    void *weights;         // [tokens x choices]: their probabilities, normalised where asked for
};

// loss: receives balance * sum over sequences of the sum over experts i of f_i * P_i, where
//     f_i = experts / (choices * T) * (choices of i in the sequence)
//     P_i = 1 / T * (sum of the sequence's probabilities of i)
// and T is the sequence's tokens (empty sequences count nothing). 1 * balance a sequence where
// experts are used evenly. May be NULL. Each sequence is judged by itself, so that the loss does
// not depend on how sequences are shared out over ranks (DeepSeek-V3, 2024, equations 17 to 20;
// for one sequence and one choice: Fedus et al., 2021, equations 4 to 6).
// Errors: ncclInvalidArgument for a bad argument, and for a logit that is not finite (token and
// expert are named). Since 0.1.
ncclResult_t tuttiRouterForward(const struct tuttiRouter *router,
                                const struct tuttiRouting *routing, double *loss);

// logitGrads: [tokens x experts], written: the gradient of what weightGrads [tokens x choices] is
// the gradient of, plus the gradient of the loss. (The loss's counts f_i are constants.)
// weightGrads may be NULL: zeros. Errors: as tuttiRouterForward. Since 0.1.
ncclResult_t tuttiRouterBackward(const struct tuttiRouter *router,
                                 const struct tuttiRouting *routing, const void *weightGrads,
                                 void *logitGrads);

// ---- Dispatch and combine -----------------------------------------------------------------------

// What becomes of rows of one expert, from all ranks, beyond the capacity.
typedef enum {
    tuttiMoeGrow = 0, // they are kept: there is no capacity, buffers grow
    tuttiMoeDrop = 1, // the last ones, by source rank, then token, are dropped: add nothing
    tuttiMoeError = 2 // ncclInvalidUsage on every rank, which names the expert and the numbers
} tuttiMoeCapacityRule_t;

// Who moves rows.
typedef enum {
    tuttiMoePathAuto = 0,   // virtual GPUs: native; real GPUs: kernels
    tuttiMoePathNative = 1, // C code of the processor; virtual GPUs only
    tuttiMoePathKernel = 2  // kernels that load and store in peers' windows; one host only
} tuttiMoePath_t;

// Begin with TUTTI_MOE_OPTIONS_INITIALIZER. All fields equal on all ranks.
struct tuttiMoeOptions {
    size_t size;             // sizeof(struct tuttiMoeOptions) as the program was compiled
    int experts;             // in all; 1 to 2^20
    int choices;             // experts of a token, 1 to experts, at most 64
    size_t hidden;           // elements of a token, 1 to 2^31 - 1
    size_t maxTokens;        // most tokens that any rank gives to one call; ranks * maxTokens *
                             // choices, with what align adds, is below 2^31
    ncclDataType_t datatype; // of tokens and rows: ncclFloat32, ncclBfloat16 or ncclFloat64.
                             // Weights and gradients: ncclFloat64 for ncclFloat64, else
                             // ncclFloat32
    tuttiMoeCapacityRule_t rule;
    size_t capacity;       // rows of one expert, of all ranks; 0: capacityFactor tells
    double capacityFactor; // capacity = ceil(factor * tokens of all ranks * choices / experts);
                           // 0 with capacity 0: no limit
    size_t align;          // each expert's rows begin at a multiple of it; rows between are zeros.
                           // 1 to 2^20
    tuttiMoePath_t path;
};

#define TUTTI_MOE_OPTIONS_INITIALIZER                                                              \
    {                                                                                              \
        sizeof(struct tuttiMoeOptions), 0, 2, 0, 0, ncclFloat32, tuttiMoeGrow, 0, 0.0, 1,          \
            tuttiMoePathAuto                                                                       \
    }

typedef struct tuttiMoe *tuttiMoe_t;           // buffers and windows of a communicator
typedef struct tuttiMoeRoute *tuttiMoeRoute_t; // where the tokens of one dispatch went

// Collective, synchronous. comm: stays the program's; outlives *moe or is aborted. One tuttiMoe
// serves any number of layers with these sizes and any number of routes, one call after the other:
// in one stream, or in streams that wait for each other. moe: receives it; NULL after an error.
// Errors: ncclInvalidArgument for a bad option, on each rank that has it, and ncclInvalidUsage on
// the others; ncclInvalidUsage where ranks' options differ or the communicator has no windows.
// Since 0.1.
ncclResult_t tuttiMoeCreate(ncclComm_t comm, const struct tuttiMoeOptions *options,
                            tuttiMoe_t *moe);
// Collective, synchronous. After the routes. NULL is allowed. After comm has been aborted: local,
// frees all the same, ncclInvalidArgument. Since 0.1.
ncclResult_t tuttiMoeDestroy(tuttiMoe_t moe);

// Sends each token to the ranks of its experts: once to each rank, and across hosts (LSA teams)
// once to each host, to the rank with this one's place there, which spreads it inside.
// tokens: [count x hidden] in the data type, not inside received rows. indices: [count x choices],
// experts, none twice for one token. weights: [count x choices], float or double. All device
// memory, aligned as elements are; NULL where count is 0. count may differ between ranks, which
// need not know each other's.
// route: receives where the tokens went, NULL after an error; tuttiMoeRouteDestroy ends it.
// Collective. Synchronises the stream to learn counts; the rows are there when the stream has come
// so far. Errors: ncclInvalidArgument for a bad argument, a bad index or an expert twice, on all
// ranks: the text names rank, token and index; ncclInvalidUsage with tuttiMoeError; without memory
// for windows an error on all ranks, for all else on this one alone. Since 0.1.
ncclResult_t tuttiMoeDispatch(tuttiMoe_t moe, const void *tokens, size_t count,
                              const int32_t *indices, const void *weights, tuttiMoeRoute_t *route,
                              cudaStream_t stream);

// The collective calls below exchange nothing by which ranks could learn of each other's errors. A
// rank that refuses a bad argument (ncclInvalidArgument), or has no memory, does so alone; the
// others wait until it calls as it should, or the communicator is aborted.

// Sends other tokens the ways of `route` (its count, indices and weights): no counts are exchanged,
// the stream is not synchronised (but where buffers must grow). tokens: [count x hidden].
// Collective. Since 0.1.
ncclResult_t tuttiMoeDispatchAgain(tuttiMoeRoute_t route, const void *tokens, cudaStream_t stream);

// What this rank has received. Pointers are the library's: the arrays last as long as the route,
// the rows until the next dispatch or tuttiMoeCombineBackward of the tuttiMoe.
struct tuttiMoeReceived {
    void *rows;           // [rowCount x hidden] in the data type, device memory; may be overwritten
    size_t rowCount;      // with the rows that align adds
    int firstExpert;      // of this rank
    int experts;          // of this rank; 0 is possible
    const size_t *counts; // [experts] rows of each, in order of source rank, then token
    const size_t *offsets; // [experts] the first row of each
};
// Local. Since 0.1.
ncclResult_t tuttiMoeGetReceived(tuttiMoeRoute_t route, struct tuttiMoeReceived *received);

// Numbers of rows of one dispatch, on this rank unless said otherwise.
struct tuttiMoeReport {
    size_t capacity;       // rows of one expert; 0: no limit
    const size_t *demand;  // [all experts] rows that all ranks wanted; lasts as long as the route
    const size_t *dropped; // [all experts] of them dropped, of all ranks
    size_t ownDropped;     // choices of this rank's tokens that were dropped
    size_t choices;        // (token, expert) pairs that this rank sent: the rows at experts
    size_t toRanks;        // rows sent for them, one for each token and rank
    size_t toHosts;        // of rows sent, those to other hosts: one for each token and host
    size_t forwarded;      // rows that came from other hosts, to be spread in this one
    size_t received;       // rows that arrived, one for each token that has experts here
    size_t rows;           // rows at this rank's experts, without padding
    size_t padded;         // rows between them, of zeros
};
// Local. Since 0.1.
ncclResult_t tuttiMoeGetReport(tuttiMoeRoute_t route, struct tuttiMoeReport *report);

// Brings the experts' results back: out[t] = sum over kept choices j of weights[t][j] * row.
// rows: [rowCount x hidden] in the data type, in the order of the received ones; device memory, the
// received rows themselves too; rows of padding are not read. NULL where rowCount is 0.
// out: [count x hidden] in the data type; zeros for a token whose choices were all dropped.
// The order of sums is fixed: on each rank its experts, ascending; then the ranks of a host,
// ascending; then hosts, ascending. Products and sums in float (double for ncclFloat64), each
// rank's and each host's part rounded once to the data type. The same bits in every run, on every
// path. Collective. Does not synchronise. Since 0.1.
ncclResult_t tuttiMoeCombine(tuttiMoeRoute_t route, const void *rows, void *out,
                             cudaStream_t stream);

// The backward pass of tuttiMoeCombine. G: float (double for ncclFloat64).
// outGrads: [count x hidden] in G. rows: what tuttiMoeCombine got, in the data type; not inside the
// received rows, which are overwritten. rowGrads: receives a pointer as of the received rows to
// [rowCount x hidden] in G: weight * outGrad, of padding zeros. weightGrads: [count x choices] in
// G: the dot products of row and outGrad; 0 for dropped choices; NULL: not wanted.
// Collective. Does not synchronise (but where buffers must grow). Since 0.1.
ncclResult_t tuttiMoeCombineBackward(tuttiMoeRoute_t route, const void *outGrads, const void *rows,
                                     void **rowGrads, void *weightGrads, cudaStream_t stream);
// The backward pass of tuttiMoeDispatch: tokenGrads[t] = sum over kept choices of rowGrads, in the
// order of tuttiMoeCombine. rowGrads: [rowCount x hidden] in G, rows of padding are not read;
// tokenGrads: [count x hidden] in G. Collective. Does not synchronise (but where buffers must
// grow). Since 0.1.
ncclResult_t tuttiMoeDispatchBackward(tuttiMoeRoute_t route, const void *rowGrads, void *tokenGrads,
                                      cudaStream_t stream);

// Local; synchronises the stream that has used it last. NULL is allowed. Also after comm has been
// aborted. Since 0.1.
ncclResult_t tuttiMoeRouteDestroy(tuttiMoeRoute_t route);

// ---- All ranks' tokens in lockstep --------------------------------------------------------------
// Another way, for few tokens or experts that all choose: in steps of at most `chunk` tokens of
// each rank, every rank gets the tokens of all (tuttiAllGatherV), computes what its experts add to
// each, and the sums go back (tuttiReduceScatterV). No padding: ranks that have no more tokens add
// none.

// How many steps: the largest of tokens[r] / chunk, rounded up. counts: [nranks], receives the
// tokens of each rank in step `step` (may be NULL). first: [nranks], the first of them (may be
// NULL). steps: may be NULL. Local.
// Errors: ncclInvalidArgument for chunk 0, nranks < 1, tokens NULL. Since 0.1.
ncclResult_t tuttiMoeChunk(const size_t *tokens, int nranks, size_t chunk, size_t step,
                           size_t *counts, size_t *first, size_t *steps);

// What is done in each step: sums[i] = what this rank's experts add to rows[i], i < rowCount, in
// order of rank, then token; enqueued on `stream`, or done after synchronising it.
typedef ncclResult_t (*tuttiMoeChunkFunction_t)(void *context, const void *rows, void *sums,
                                                const size_t *counts, cudaStream_t stream);
struct tuttiMoeLockstep {
    size_t size;             // sizeof(struct tuttiMoeLockstep) as the program was compiled
    const size_t *tokens;    // [ranks] tokens of each rank, equal on all ranks
    size_t hidden;           // elements of a token
    size_t chunk;            // most tokens of a rank in one step
    ncclDataType_t datatype; // of tokens and sums
    tuttiMoeChunkFunction_t function;
    void *context; // for the function
};
// in, out: [tokens[own rank] x hidden], device memory; NULL where that is 0. Collective.
// Synchronises the stream before it returns. Errors: ncclInvalidArgument for a bad argument; those
// of tuttiAllGatherV and tuttiReduceScatterV; the first that `function` returns; that of the
// communicator (ncclCommGetAsyncError) where it has failed meanwhile: `out` is undefined then.
// After one that is this rank's alone the others wait for it until the communicator is aborted.
// Since 0.1.
ncclResult_t tuttiMoeRunLockstep(ncclComm_t comm, const struct tuttiMoeLockstep *lockstep,
                                 const void *in, void *out, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
