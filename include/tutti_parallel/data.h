// Data parallelism: ranks with the same parameters and other sequences.
//
//   tuttiBroadcastBuffers   parameters at the start, and after loading
//   tuttiBuckets...         gradients are summed over the ranks in buckets, while the backward pass
//                           goes on; ZeRO stage 1: each rank gets its pieces of the sum only,
//                           updates these, and parameters are gathered
//   tuttiSumSquares, tuttiGlobalNorm, tuttiClipFactor, tuttiScale
//                           gradients are clipped by their global norm
//
// One step, with gradients accumulated over micro-batches:
//     zero the gradients
//     for each micro-batch but the last: forward, backward (gradients are added; no call here)
//     the last: forward; backward, and as soon as gradient i is complete:
//         tuttiBucketsReady(buckets, i, stream)
//     tuttiBucketsWait(buckets, stream)
//     squares = 0; tuttiSumSquares(... parts of tuttiBucketsOwned ..., replicas, ..., &squares)
//     tuttiGlobalNorm(squares, world, stream, &norm); tuttiClipFactor(norm, most, &factor)
//     tuttiScale(... the same parts ..., factor, stream); the optimizer updates the same parts
//     tuttiBucketsGather(buckets, parameters, type, stream)
// The norm counts each element of the model once, so replicas[i] is how many ranks of `world`
// count part i. Without ZeRO each rank's parts are whole gradients, and all ranks of the buckets'
// communicator have the same: replicas is the number of its ranks. With ZeRO they share the parts
// out, and it is 1. Either is multiplied by the tensor parallel ranks for a parameter that is not
// split over them.
// With ZeRO the first forward pass of the next step calls, before it uses parameter i,
//     tuttiBucketsGatherWait(buckets, i, stream)
// and whoever uses all parameters at once (a checkpoint) calls it with -1. Without ZeRO neither
// does anything.
//
// A model with experts has two sets of buckets: dense parameters over mesh.dataComm, experts' over
// mesh.dpComm. They know nothing of each other and may be in use at once.
//
// Sources: S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training",
// 2020, section 3.2 (buckets, overlap). S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward
// Training Trillion Parameter Models", 2020, section 5.1 (stage 1: optimizer states). R. Pascanu,
// T. Mikolov, Y. Bengio, "On the difficulty of training recurrent neural networks", 2013, section
// 3.2 (clipping by the norm).
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_PARALLEL_DATA_H
#define TUTTI_PARALLEL_DATA_H

#include "tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- Parameters at the start --------------------------------------------------------------------

struct tuttiBuffer {
    void *data;   // [count] device memory; NULL where count is 0
    size_t count; // elements, the same on all ranks
    ncclDataType_t type;
};

// The root's contents of all buffers go to every rank, in one group of calls. Enqueued in `stream`.
// buffers: [bufferCount], read before the call returns; NULL where bufferCount is 0. Errors:
// ncclInvalidArgument for a bad argument, before anything is enqueued; those of ncclBroadcast.
// Since 0.1.
ncclResult_t tuttiBroadcastBuffers(const struct tuttiBuffer *buffers, int bufferCount, int root,
                                   ncclComm_t comm, cudaStream_t stream);

// ---- Gradients in buckets -----------------------------------------------------------------------
// No call about buckets may be between ncclGroupStart and ncclGroupEnd.

// Where the gradient of one parameter lies in the flat buffer; parameters have the same places in
// theirs.
struct tuttiGradient {
    size_t offset, count; // elements; count may be 0
    const char *name;     // for messages; NULL: none. Not copied: lives as long as the buckets.
};

// A flat buffer of gradients. A program has one for each data type and communicator.
struct tuttiGradients {
    void *buffer;                          // [count] device memory; NULL where count is 0
    size_t count;                          // elements
    ncclDataType_t type;                   // ncclFloat32 or ncclFloat64
    const struct tuttiGradient *gradients; // [gradientCount], in the order of the forward pass, one
                                           // behind the other in the buffer: offsets ascend, there
                                           // may be gaps, which travel along with what is around
                                           // them in a bucket
    int gradientCount;                     // may be 0
};

// Begin with TUTTI_BUCKETS_OPTIONS_INITIALIZER, so that programs stay right when fields are added.
struct tuttiBucketsOptions {
    size_t size;        // sizeof(struct tuttiBucketsOptions) as the program was compiled
    size_t bucketBytes; // most bytes of a bucket, unless one gradient alone has more; 0: 25 MiB
    ncclRedOp_t op;     // ncclSum or ncclAvg
    int zero;           // 1: ZeRO stage 1; 0: every rank gets all sums
    int stub;           // 1: no communication, all else as it is: for measurements of what it costs
    cudaStream_t stream; // what communicates; NULL: one is made. Of the communicator's device.
};

#define TUTTI_BUCKETS_OPTIONS_INITIALIZER                                                          \
    {                                                                                              \
        sizeof(struct tuttiBucketsOptions), /* size */                                             \
            0,                              /* bucketBytes */                                      \
            ncclSum,                        /* op */                                               \
            0,                              /* zero */                                             \
            0,                              /* stub */                                             \
            NULL                            /* stream */                                           \
    }

struct tuttiBuckets;

// Divides the flat buffer into buckets: contiguous pieces of at most bucketBytes, from the last
// gradient to the first, which is the order in which the backward pass completes them. Local: no
// rank waits for another; but what is given must be equal on all ranks of comm (names and `stub`
// excepted), else their operations do not fit together and end with ncclInvalidUsage on all.
// gradients: read before the call returns, but for buffer and names. comm: ready; its operations
// are called in the order of buckets whatever the order of Ready, so ranks may differ in that.
// options: NULL means TUTTI_BUCKETS_OPTIONS_INITIALIZER. buckets: receives them; NULL after an
// error. Errors: ncclInvalidArgument for a bad argument, with the number and name of the gradient;
// ncclSystemError without memory; ncclUnhandledCudaError. Since 0.1.
ncclResult_t tuttiBucketsCreate(const struct tuttiGradients *gradients, ncclComm_t comm,
                                const struct tuttiBucketsOptions *options,
                                struct tuttiBuckets **buckets);

// Frees them. Waits for nothing: what was launched goes on, and needs the buffer until then.
// NULL is allowed. Since 0.1.
ncclResult_t tuttiBucketsDestroy(struct tuttiBuckets *buckets);

// Tells that this rank's gradient `index` is complete in the order of `stream`: what wrote it is in
// there before this call. With the last gradient of a bucket (and of those before it) the bucket's
// all-reduce, or reduce-scatter, begins in the communicating stream. Different gradients may be
// told with different streams. Once for each gradient in a pass; the gradients must not be written
// again before what follows tuttiBucketsWait. Not from several threads at once.
// Errors: ncclInvalidArgument where index is none; ncclInvalidUsage where the gradient was told
// ready already in this pass, with its name (the pass goes on); those of ncclAllReduce and
// tuttiReduceScatterV. Since 0.1.
ncclResult_t tuttiBucketsReady(struct tuttiBuckets *buckets, int index, cudaStream_t stream);

// Ends the pass: `stream` goes on when all buckets are summed. Does not wait itself. With ZeRO this
// rank's parts (tuttiBucketsOwned) are the sums then, and the rest of the buffer is undefined.
// Errors: ncclInvalidUsage where a gradient was never told ready in this pass, with the name of the
// first and their number: the pass is given up and the next one begins. Where other ranks have
// told theirs, their operations end with ncclInvalidUsage too (ncclCommGetAsyncError), because this
// rank makes calls that fit with none. Since 0.1.
ncclResult_t tuttiBucketsWait(struct tuttiBuckets *buckets, cudaStream_t stream);

// How far this pass is: buckets launched, buckets whose sums are there, all buckets. After
// tuttiBucketsWait of the pass that it ended, until the next Ready. Does not wait. launched,
// finished, total: may be NULL. Since 0.1.
ncclResult_t tuttiBucketsProgress(struct tuttiBuckets *buckets, int *launched, int *finished,
                                  int *total);

// ---- ZeRO stage 1 -------------------------------------------------------------------------------

// A part of the flat buffer, within one gradient.
struct tuttiPart {
    size_t offset, count; // elements, count > 0
    int gradient;         // its index
};

// The parts of the flat buffer that rank `rank` updates, with ascending offsets: without ZeRO all
// gradients; with ZeRO, of each bucket the piece that tuttiSplitCounts(elements of the bucket,
// ranks) gives the rank, cut at the borders of gradients (gaps left out). All ranks' parts together
// are all gradients, each element once. An optimizer keeps its state for these alone, one part
// behind the other.
// rank: of the communicator; -1: this one. parts: [capacity]; may be NULL with capacity 0.
// partCount: receives how many there are, also where parts is too small. Local. Errors:
// ncclInvalidArgument for a bad argument, or where parts are given and too few. Since 0.1.
ncclResult_t tuttiBucketsOwned(const struct tuttiBuckets *buckets, int rank,
                               struct tuttiPart *parts, int capacity, int *partCount);

// Every rank gets the parameters that the others have updated, bucket by bucket in the order of the
// forward pass; begins, in the communicating stream, when what is in `stream` before this call is
// done. Without ZeRO there is nothing to do. In place; every rank must call it.
// parameters: flat buffer with the gradients' places, [count of the gradients' buffer], of any type
// (bf16 weights, say). Errors: ncclInvalidArgument for a bad argument; those of tuttiAllGatherV.
// Since 0.1.
ncclResult_t tuttiBucketsGather(struct tuttiBuckets *buckets, void *parameters, ncclDataType_t type,
                                cudaStream_t stream);

// `stream` goes on when parameter `index` (-1: all) has been gathered by the last
// tuttiBucketsGather; so the forward pass can begin with the first layers while the others' arrive.
// Does not wait itself. Errors: ncclInvalidArgument where index is none. Since 0.1.
ncclResult_t tuttiBucketsGatherWait(struct tuttiBuckets *buckets, int index, cudaStream_t stream);

// ---- Clipping by the global norm ----------------------------------------------------------------

// Adds the sum of the squares of a flat buffer's parts to *sum; in double and in a fixed order, so
// it is the same in every run. Synchronous: waits for `stream`.
// buffer: device memory, ncclFloat32 or ncclFloat64. parts: [partCount]; `gradient` is not looked
// at. replicas: [partCount], by how many ranks of the communicator of tuttiGlobalNorm each part is
// held, by which its squares are divided, so that all together count it once; NULL: 1. sum: added
// to. NaN and infinity make the sum so, and are no error here. Errors: ncclInvalidArgument;
// ncclUnhandledCudaError. Since 0.1.
ncclResult_t tuttiSumSquares(const void *buffer, ncclDataType_t type, const struct tuttiPart *parts,
                             int partCount, const int *replicas, cudaStream_t stream, double *sum);

// The root of the sum of all ranks' squares, summed in rank order in double: the same bits on all
// ranks. Collective over comm; synchronous, in `stream`; not in a group.
// norm: receives it, also where it is not finite. Errors: ncclInvalidUsage, on all ranks and with
// the first such rank in the text, where the sum of one is NaN or infinite: nothing should be
// updated then; ncclInvalidArgument (where `norm` is NULL, on this rank alone); those of
// ncclAllGather. Since 0.1.
ncclResult_t tuttiGlobalNorm(double squares, ncclComm_t comm, cudaStream_t stream, double *norm);

// What gradients are to be multiplied with: most / norm where norm > most, else 1. norm: finite,
// >= 0. most: > 0; infinity: no clipping. Errors: ncclInvalidArgument. Since 0.1.
ncclResult_t tuttiClipFactor(double norm, double most, double *factor);

// Multiplies a flat buffer's parts with a factor (in double, rounded once). Nothing to do for 1.
// Synchronous: waits for `stream`. Arguments as for tuttiSumSquares. factor: finite. Errors:
// ncclInvalidArgument; ncclUnhandledCudaError. Since 0.1.
ncclResult_t tuttiScale(void *buffer, ncclDataType_t type, const struct tuttiPart *parts,
                        int partCount, double factor, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
