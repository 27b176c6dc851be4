// For tests of pipelines: functions that check every byte that comes and the order of the calls,
// and that can be told to sleep, to fail, to die. SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_PIPELINE_PARCEL_H
#define PARALLEL_PIPELINE_PARCEL_H

#include "expect.h"
#include "member.h"
#include "ranks.h"
#include "tutti.h"
#include "tutti_parallel/pipeline.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_MICRO = 100, MOST_STAGES = 4, LIMIT_S = 100 };

struct parcel {
    int stage, stages, fails_at; // the call that fails, counted from 0; -1: none
    ncclDataType_t types[2];     // by kind
    size_t input, output;        // elements
    struct tuttiPipelineOptions options;
    const unsigned char *seen[MOST_MICRO]; // inputs of micro-batches in flight
    struct tuttiPipelineAction called[2 * MOST_MICRO];
    int calls, sleep_ms, flying, most_flying;
    bool dies;
    ncclComm_t aborts; // in the call that fails
};

static inline size_t width_of(ncclDataType_t type)
{
    return type == ncclFloat64 ? 8 : type == ncclFloat32 ? 4 : 2;
}

// Byte i of what `stage` sends.
static inline unsigned char byte_of(int stage, int kind, int micro, size_t i)
{
    return (unsigned char)(i * 7 + i / 251 + (size_t)(stage * 31 + kind * 101 + micro * 59));
}

static inline void put(unsigned char *to, size_t bytes, int stage, int kind, int micro)
{
    for (size_t i = 0; i < bytes; i++) {
        to[i] = byte_of(stage, kind, micro, i);
    }
}

// What comes from a stage is what it sends, or, where one may have failed, zeros.
static inline void check_parcel(const struct parcel *p, const unsigned char *from, int stage,
                                int kind, int micro)
{
    size_t bytes = (stage < p->stage ? p->input : p->output) * width_of(p->types[kind]);
    size_t wrong = 0, set = 0;
    for (size_t i = 0; i < bytes; i++) {
        wrong += from[i] != byte_of(stage, kind, micro, i);
        set += from[i] != 0;
    }
    EXPECT(wrong == 0 || (p->fails_at != -1 && set == 0));
}

static inline ncclResult_t note(struct parcel *p, int kind, int micro)
{
    if (p->calls < 2 * MOST_MICRO) {
        p->called[p->calls] = (struct tuttiPipelineAction){(enum tuttiPipelineKind)kind, micro};
    }
    p->flying += kind == tuttiPipelineForward ? 1 : -1;
    p->most_flying = p->flying > p->most_flying ? p->flying : p->most_flying;
    if (p->sleep_ms > 0) {
        struct timespec time = {0, p->sleep_ms * 1000000L};
        (void)nanosleep(&time, NULL);
    }
    if (p->calls++ != p->fails_at) {
        return ncclSuccess;
    }
    if (p->dies) {
        _exit(0);
    }
    if (p->aborts != NULL) {
        EXPECT_OK(ncclCommAbort(p->aborts));
        return ncclSuccess;
    }
    return tuttiFail(ncclInternalError, "the test's own failure");
}

static inline ncclResult_t parcel_forward(void *context, int micro, const void *input, void *output)
{
    struct parcel *p = context;
    EXPECT_EQ(input == NULL, p->stage == 0);
    EXPECT_EQ(output == NULL, p->stage == p->stages - 1);
    if (input != NULL) {
        check_parcel(p, input, p->stage - 1, 0, micro);
    }
    p->seen[micro] = input;
    if (output != NULL) {
        put(output, p->output * width_of(p->types[0]), p->stage, 0, micro);
    }
    return note(p, tuttiPipelineForward, micro);
}

static inline ncclResult_t parcel_backward(void *context, int micro, const void *gradient,
                                           void *output)
{
    struct parcel *p = context;
    EXPECT_EQ(gradient == NULL, p->stage == p->stages - 1);
    EXPECT_EQ(output == NULL, p->stage == 0);
    if (gradient != NULL) {
        check_parcel(p, gradient, p->stage + 1, 1, micro);
    }
    if (p->seen[micro] != NULL) { // the input is still there
        check_parcel(p, p->seen[micro], p->stage - 1, 0, micro);
    }
    if (output != NULL) {
        put(output, p->input * width_of(p->types[1]), p->stage, 1, micro);
    }
    return note(p, tuttiPipelineBackward, micro);
}

static inline struct parcel make_parcel(const struct member *m, enum tuttiPipelineSchedule schedule,
                                        int micro, size_t elements)
{
    struct parcel p = {.stage = m->rank, .stages = m->size, .fails_at = -1};
    // Each boundary has a size of its own, but that 0 is 0 everywhere.
    p.input = m->rank == 0 ? 77 : elements == 0 ? 0 : elements + (size_t)m->rank - 1;
    p.output = m->rank == m->size - 1 ? 99 : elements == 0 ? 0 : elements + (size_t)m->rank;
    p.types[0] = p.types[1] = ncclFloat32;
    p.options = (struct tuttiPipelineOptions)TUTTI_PIPELINE_OPTIONS_INITIALIZER;
    p.options.schedule = schedule;
    p.options.microBatches = micro;
    p.options.inputElements = p.input;
    p.options.outputElements = p.output;
    p.options.forward = parcel_forward;
    p.options.backward = parcel_backward;
    p.options.stream = m->stream;
    return p;
}

// The address goes into the options late: parcels are copied.
static inline bool create(struct parcel *p, const struct member *m, struct tuttiPipeline **pipeline)
{
    p->options.activationType = p->types[0];
    p->options.gradientType = p->types[1];
    p->options.context = p;
    return EXPECT_OK(tuttiPipelineCreate(m->comm, &p->options, pipeline)) &&
           EXPECT(*pipeline != NULL);
}

static inline void check_calls(const struct parcel *p)
{
    struct tuttiPipelineAction right[2 * MOST_MICRO];
    int micro = p->options.microBatches, promised = 0;
    EXPECT_OK(tuttiPipelineActions(p->options.schedule, p->stages, micro, p->stage, right));
    EXPECT_OK(tuttiPipelineInFlight(p->options.schedule, p->stages, micro, p->stage, &promised));
    EXPECT_EQ(p->calls, 2 * micro);
    EXPECT_EQ(memcmp(p->called, right, sizeof right[0] * (size_t)(2 * micro)), 0);
    EXPECT_EQ(p->most_flying, promised);
}

// Bytes by the formula, each place rounded up to 256.
static inline void check_bytes(const struct parcel *p, const struct tuttiPipeline *pipeline)
{
    size_t bytes = 0, right = 0;
    int micro = p->options.microBatches, flying = 0, going = micro < 2 ? 1 : 2;
    EXPECT_OK(tuttiPipelineInFlight(p->options.schedule, p->stages, micro, p->stage, &flying));
    if (p->stage > 0) {
        right += (size_t)flying * ((p->input * width_of(p->types[0]) + 255) / 256 * 256);
        right += (size_t)going * ((p->input * width_of(p->types[1]) + 255) / 256 * 256);
    }
    if (p->stage < p->stages - 1) {
        right += (size_t)going * ((p->output * width_of(p->types[0]) + 255) / 256 * 256);
        right += (p->output * width_of(p->types[1]) + 255) / 256 * 256;
    }
    EXPECT_OK(tuttiPipelineBytes(pipeline, &bytes));
    EXPECT_EQ(bytes, right);
}

static inline void run_parcel(const struct member *m, struct parcel p)
{
    struct tuttiPipeline *pipeline = NULL;
    if (!create(&p, m, &pipeline)) {
        return;
    }
    for (int batch = 0; batch < 2; batch++) {
        p.calls = p.most_flying = 0;
        EXPECT_OK(tuttiPipelineRun(pipeline));
        check_calls(&p);
    }
    p.calls = p.flying = 0;
    EXPECT_OK(tuttiPipelineEvaluate(pipeline));
    EXPECT_EQ(p.calls, p.options.microBatches);
    EXPECT_EQ(p.flying, p.options.microBatches);
    if (p.options.inputElements > 0 && p.options.outputElements > 0) {
        check_bytes(&p, pipeline);
    }
    EXPECT_OK(tuttiPipelineDestroy(pipeline));
}

#endif
