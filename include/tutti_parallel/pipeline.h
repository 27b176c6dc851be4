// tutti_parallel/pipeline.h: pipeline parallelism. The layers of a model are split into stages, one
// a rank; a batch is split into micro-batches, which follow each other through the stages: forward
// from the first to the last, backward from the last to the first. Neighbours send each other
// activations and gradients. A stage waits while the pipeline fills and drains: the bubble.
//
// Schedules, after
//   Y. Huang et al., GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism,
//   NeurIPS 2019;
//   D. Narayanan et al., PipeDream: Generalized Pipeline Parallelism for DNN Training, SOSP 2019,
//   and Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, SC 2021
//   (1F1B with a flush at the end of each batch).
// All functions return ncclInvalidArgument for an argument that is out of range, with its name and
// value in ncclGetLastError's text.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_PARALLEL_PIPELINE_H
#define TUTTI_PARALLEL_PIPELINE_H

#include "nccl.h"

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Schedules ----------------------------------------------------------------------------------

enum tuttiPipelineSchedule {
    tuttiPipelineGPipe = 0, // all forward, then all backward
    tuttiPipeline1F1B = 1,  // as few forward as fill the pipeline, then one backward after each
};

enum tuttiPipelineKind { tuttiPipelineForward = 0, tuttiPipelineBackward = 1 };

struct tuttiPipelineAction {
    enum tuttiPipelineKind kind;
    int microBatch; // 0 to microBatches - 1
};

// What a stage does, in its order. In both schedules micro-batches go forward in ascending order,
// and backward in ascending order too, so that gradients are added up in one order whatever the
// schedule and the number of stages. (GPipe's paper draws the backward half in descending order;
// its time and memory are the same.)
// stages, microBatches: at least 1. stage: 0 to stages - 1. actions: receives [2 * microBatches].
// Since 0.1.
ncclResult_t tuttiPipelineActions(enum tuttiPipelineSchedule schedule, int stages, int microBatches,
                                  int stage, struct tuttiPipelineAction *actions);

// The most micro-batches that are in flight at a stage: forward has begun, backward has not ended.
// So many micro-batches' activations a stage holds at once. GPipe: microBatches; 1F1B: the smaller
// of microBatches and stages - stage. inFlight: receives the number. Since 0.1.
ncclResult_t tuttiPipelineInFlight(enum tuttiPipelineSchedule schedule, int stages,
                                   int microBatches, int stage, int *inFlight);

// The share of the time in which a stage waits, where all stages take equally long and messages
// take no time: (stages - 1) / (microBatches + stages - 1), in both schedules. bubble: receives the
// share, 0 to 1. Since 0.1.
ncclResult_t tuttiPipelineIdealBubble(int stages, int microBatches, double *bubble);

// ---- Running ------------------------------------------------------------------------------------

struct tuttiPipeline; // a stage's end of a pipeline

// A stage's forward pass of one micro-batch. input: [inputElements] of activationType, from the
// stage before; NULL on the first stage; it stays as it is until backward of the same micro-batch
// has returned, so a program may keep the address. output: [outputElements], to be written, for the
// next stage; NULL on the last, which computes the loss instead. Both are device memory. When the
// function returns, the work is done or enqueued on the options' stream.
typedef ncclResult_t (*tuttiPipelineForwardFunction)(void *context, int microBatch,
                                                     const void *input, void *output);

// A stage's backward pass of one micro-batch, of which forward was called before. outputGradient:
// [outputElements] of gradientType, the loss's gradient by forward's output; NULL on the last
// stage. inputGradient: [inputElements], to be written: that by forward's input; NULL on the first.
typedef ncclResult_t (*tuttiPipelineBackwardFunction)(void *context, int microBatch,
                                                      const void *outputGradient,
                                                      void *inputGradient);

// Begin with TUTTI_PIPELINE_OPTIONS_INITIALIZER, so that programs stay right when fields are added
// at the end.
struct tuttiPipelineOptions {
    size_t size;                         // sizeof(struct tuttiPipelineOptions), as compiled
    enum tuttiPipelineSchedule schedule; // equal on all stages
    int microBatches;                    // at least 1; equal on all stages
    size_t inputElements;                // of one micro-batch, from the stage before; may be 0. Not
                                         // looked at on the first stage
    size_t outputElements;               // to the next stage, whose inputElements it equals. Not
                                         // looked at on the last stage
    ncclDataType_t activationType;       // ncclFloat32, ncclFloat64 or ncclBfloat16; equal on all
    ncclDataType_t gradientType;         // of gradients on their way; one of these; equal on all
    tuttiPipelineForwardFunction forward;
    tuttiPipelineBackwardFunction backward; // NULL: tuttiPipelineEvaluate alone may be called
    void *context;                          // handed to both
    cudaStream_t stream; // on which the two may enqueue; waited for after each call
};

#define TUTTI_PIPELINE_OPTIONS_INITIALIZER                                                         \
    {                                                                                              \
        sizeof(struct tuttiPipelineOptions), /* size */                                            \
            tuttiPipeline1F1B,               /* schedule */                                        \
            1,                               /* microBatches */                                    \
            0,                               /* inputElements */                                   \
            0,                               /* outputElements */                                  \
            ncclFloat32,                     /* activationType */                                  \
            ncclFloat32,                     /* gradientType */                                    \
            NULL,                            /* forward */                                         \
            NULL,                            /* backward */                                        \
            NULL,                            /* context */                                         \
            NULL                             /* stream */                                          \
    }

// Makes this rank's stage of a pipeline over `comm` (a mesh's ppComm): stage = rank, stages = size.
// Collective and synchronous: the stages compare their options. The pipeline uses comm until it is
// destroyed, for nothing but calls of the functions below; it does not own it. comm: blocking. Its
// device is the current one while one of these calls runs, and the caller's again afterwards; none
// stands in a group. pipeline: receives the pipeline; NULL on error. Errors, on all stages where
// one has them: ncclInvalidArgument for a bad argument (ncclRemoteError on the other stages, which
// names the stage), ncclInvalidUsage where options of stages do not fit together. A stage whose
// comm is no good cannot tell the others. Since 0.1.
ncclResult_t tuttiPipelineCreate(ncclComm_t comm, const struct tuttiPipelineOptions *options,
                                 struct tuttiPipeline **pipeline);

// Frees it. NULL: nothing. Also after an error, and after comm has been aborted. Local. Since 0.1.
ncclResult_t tuttiPipelineDestroy(struct tuttiPipeline *pipeline);

// Device memory that the pipeline holds for activations and gradients, in bytes: inFlight inputs,
// one gradient that has come, and two outputs and two gradients that go (one each with one
// micro-batch), each rounded up to 256 bytes. Since 0.1.
ncclResult_t tuttiPipelineBytes(const struct tuttiPipeline *pipeline, size_t *bytes);

// One batch: calls forward and backward once for each micro-batch, in the schedule's order, with
// the messages between. Collective and synchronous. What a stage sends and what it must have next
// are one group of ncclSend and ncclRecv, so that neighbours who send to each other cannot wait in
// a circle; where nothing is to be received, the next action runs while the message is on its way.
//
// Where a function fails, its stage calls none any more, but goes on with the messages of the
// schedule, with zeros, so that nobody waits for it in vain. At the end all stages know: the run
// returns the function's result on its stage and ncclRemoteError on the others, with a text that
// names the stage, the micro-batch and the result. The program throws the batch's gradients away;
// the pipeline and comm can be used again. (Ranks that wait for the failed function in
// communicators of the program, such as a mesh's tpComm, are the program's to free.)
//
// Where comm fails or is aborted, or a rank dies, the run returns ncclCommGetAsyncError's error on
// every stage. A program that leaves a run in another way than by its return (longjmp, the end of a
// thread) must ncclCommAbort comm, or end the process: else the other stages wait for it. Since
// 0.1.
ncclResult_t tuttiPipelineRun(struct tuttiPipeline *pipeline);

// The forward actions of a batch alone, for evaluation. An input stays as it is for its call only;
// no times are taken. Otherwise as tuttiPipelineRun. Since 0.1.
ncclResult_t tuttiPipelineEvaluate(struct tuttiPipeline *pipeline);

// ---- Measuring ----------------------------------------------------------------------------------

struct tuttiPipelineTime {
    struct tuttiPipelineAction action;
    double begin, end; // seconds; the first action of all stages begins at 0
};

// When the actions of the last tuttiPipelineRun began and ended, of all stages, on every stage.
// An action's time is its function's and that of its work on the stream; waits for messages are
// outside. Stages of one machine share its clock; those of others are set to it at a barrier, to
// within the time that a rank needs to leave it. Collective and synchronous.
// times: receives [stages x 2 * microBatches], each stage's in its order.
// Errors: ncclInvalidUsage, on all stages, where none was run yet, or the last one failed, on some
// stage, or `times` is NULL on another; ncclInvalidArgument where it is NULL. Since 0.1.
ncclResult_t tuttiPipelineTimes(struct tuttiPipeline *pipeline, struct tuttiPipelineTime *times);

// The times of a schedule whose actions take forward and backward seconds on every stage, and
// whose messages take none. forward, backward: finite, >= 0. times: receives [stages x 2 *
// microBatches]. Since 0.1.
ncclResult_t tuttiPipelineIdealTimes(enum tuttiPipelineSchedule schedule, int stages,
                                     int microBatches, double forward, double backward,
                                     struct tuttiPipelineTime *times);

// The share of the time in which stages waited: 1 - sum of all actions' times / (stages x span),
// where the span goes from the first begin to the last end. 0 where the span is 0. times: [stages x
// 2 * microBatches]. bubble: receives the share, 0 to 1. Since 0.1.
ncclResult_t tuttiPipelineBubble(int stages, int microBatches,
                                 const struct tuttiPipelineTime *times, double *bubble);

// Draws times as an SVG: stages from top to bottom, time to the right, a box for each action with
// its micro-batch's number; above it the schedule as it would be with equal stages (the mean times
// of the measured ones) and messages that take no time, in the same scale. Local: rank 0 calls it.
// path: of the file, which is replaced. times: [stages x 2 * microBatches], as from
// tuttiPipelineTimes; NULL: the ideal alone, in which backward takes twice as long as forward.
// Errors: ncclSystemError where the file cannot be written. Since 0.1.
ncclResult_t tuttiPipelineDraw(const char *path, enum tuttiPipelineSchedule schedule, int stages,
                               int microBatches, const struct tuttiPipelineTime *times);

#ifdef __cplusplus
}
#endif
#endif
