// A stage of a pipeline, as pipeline.c makes it, pipeline_run.c runs it and pipeline_times.c tells
// its times. SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_PIPELINE_PARTS_H
#define PARALLEL_PIPELINE_PARTS_H

#include "schedule.h"

#include <stdint.h>

enum {
    PIPELINE_SENT = 2,     // buffers of what goes: one is on its way while the next is written
    PIPELINE_WORDS = 4096, // bytes that a stage tells the others at once
};

// Places for messages of one kind in one direction; micro-batch i has place i % count.
struct pipeline_places {
    size_t offset;   // of the first, in the pipeline's memory
    size_t elements; // of a message
    size_t bytes;    // of a message
    size_t stride;   // bytes from one place to the next; at least 1 place has at least 1 byte
    int count;       // 0: this stage has no such messages
    ncclDataType_t type;
};

// How an action ended, as the stages tell each other.
struct pipeline_end {
    int32_t result; // ncclResult_t
    int32_t kind, microBatch;
};

struct tuttiPipeline {
    ncclComm_t comm;
    struct tuttiPipelineOptions options;
    int stage, stages, device;
    cudaStream_t stream; // of messages
    char *memory;
    size_t bytes;                       // of it
    struct pipeline_places received[2]; // by kind
    struct pipeline_places sent[2];     // by kind
    char *words;                        // [stages x PIPELINE_WORDS], device memory
    cudaEvent_t has_left[2][PIPELINE_SENT];
    struct tuttiPipelineAction *action;   // [2 * microBatches], the schedule's
    struct tuttiPipelineAction *evaluate; // [microBatches], forward alone
    struct tuttiPipelineTime *time;       // [2 * microBatches] of the last run, of CLOCK_MONOTONIC
    bool has_times;                       // whether it ended well
    struct pipeline_end failure;          // of this run; result ncclSuccess: none
    char failure_text[256];
};

// The place of a message; NULL where the stage has none of the kind.
static inline char *pipeline_place(const struct tuttiPipeline *pipeline,
                                   const struct pipeline_places *places, int microBatch)
{
    return places->count == 0 ? NULL
                              : pipeline->memory + places->offset +
                                    (size_t)(microBatch % places->count) * places->stride;
}

// Seconds of CLOCK_MONOTONIC.
double parallel_pipeline_now(void);

// Hands each stage's `bytes` at `mine` to all: all[stage * bytes]. Host memory. Synchronous.
ncclResult_t parallel_pipeline_gather(const struct tuttiPipeline *pipeline, const void *mine,
                                      void *all, size_t bytes);

// Checks the communicator after a wait.
ncclResult_t parallel_pipeline_check_comm(const struct tuttiPipeline *pipeline, const char *name);

#endif
