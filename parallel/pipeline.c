// Making and freeing a stage of a pipeline: its buffers, and the stages' agreement on the options.
// SPDX-License-Identifier: Apache-2.0
#include "device.h"
#include "fail.h"
#include "pipeline_parts.h"

#include <stdio.h>
#include <stdlib.h>

enum { ALIGNMENT = 256 }; // of buffers

// What stages tell each other of their options.
struct card {
    int32_t result; // ncclResult_t of this stage's own checks
    int32_t schedule, microBatches, activationType, gradientType, has_backward;
    uint64_t inputElements, outputElements;
};

// ---- This stage's part --------------------------------------------------------------------------

static size_t bytes_of(ncclDataType_t type)
{
    return type == ncclFloat64 ? 8 : type == ncclFloat32 ? 4 : type == ncclBfloat16 ? 2 : 0;
}

static ncclResult_t check_type(const char *name, ncclDataType_t type, int stage)
{
    return bytes_of(type) > 0
               ? ncclSuccess
               : tuttiFail(ncclInvalidArgument,
                           "tuttiPipelineCreate: %s is %d at stage %d, must be ncclFloat32 (%d), "
                           "ncclFloat64 (%d) or ncclBfloat16 (%d)",
                           name, (int)type, stage, (int)ncclFloat32, (int)ncclFloat64,
                           (int)ncclBfloat16);
}

static ncclResult_t check_elements(const char *name, size_t elements, int microBatches, int stage)
{
    size_t most = SIZE_MAX / 64 / ((size_t)microBatches + PIPELINE_SENT);
    return elements <= most ? ncclSuccess
                            : tuttiFail(ncclInvalidArgument,
                                        "tuttiPipelineCreate: %s is %zu at stage %d, must be at "
                                        "most %zu",
                                        name, elements, stage, most);
}

static ncclResult_t check_options(const struct tuttiPipelineOptions *options, int stage, int stages)
{
    if (options == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiPipelineCreate: options is NULL at stage %d",
                         stage);
    }
    if (options->size != sizeof *options) {
        return tuttiFail(ncclInvalidArgument,
                         "tuttiPipelineCreate: options.size is %zu at stage %d, must be %zu: begin "
                         "with TUTTI_PIPELINE_OPTIONS_INITIALIZER",
                         options->size, stage, sizeof *options);
    }
    char name[64];
    (void)snprintf(name, sizeof name, "tuttiPipelineCreate at stage %d", stage);
    TRY(parallel_schedule_check(name, options->schedule, stages, options->microBatches));
    TRY(check_type("activationType", options->activationType, stage));
    TRY(check_type("gradientType", options->gradientType, stage));
    if (stage > 0) {
        TRY(check_elements("inputElements", options->inputElements, options->microBatches, stage));
    }
    if (stage < stages - 1) {
        TRY(check_elements("outputElements", options->outputElements, options->microBatches,
                           stage));
    }
    if (options->forward == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiPipelineCreate: forward is NULL at stage %d",
                         stage);
    }
    return ncclSuccess;
}

// Lays places out behind what there is.
static struct pipeline_places lay_out(struct tuttiPipeline *p, bool exists, int count,
                                      size_t elements, ncclDataType_t type)
{
    struct pipeline_places places = {p->bytes, elements, elements * bytes_of(type), 0, 0, type};
    if (exists) {
        size_t least = places.bytes > 0 ? places.bytes : 1; // so that no address is NULL
        places.stride = (least + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        places.count = count;
        p->bytes += places.stride * (size_t)count;
    }
    return places;
}

static ncclResult_t make_buffers(struct tuttiPipeline *p)
{
    const struct tuttiPipelineOptions *o = &p->options;
    bool has_before = p->stage > 0, has_next = p->stage < p->stages - 1;
    int going = o->microBatches < PIPELINE_SENT ? o->microBatches : PIPELINE_SENT, in_flight = 0;
    TRY(tuttiPipelineInFlight(o->schedule, p->stages, o->microBatches, p->stage, &in_flight));
    p->received[tuttiPipelineForward] =
        lay_out(p, has_before, in_flight, o->inputElements, o->activationType);
    p->sent[tuttiPipelineForward] =
        lay_out(p, has_next, going, o->outputElements, o->activationType);
    p->received[tuttiPipelineBackward] =
        lay_out(p, has_next && o->backward != NULL, 1, o->outputElements, o->gradientType);
    p->sent[tuttiPipelineBackward] =
        lay_out(p, has_before && o->backward != NULL, going, o->inputElements, o->gradientType);
    if (p->bytes > 0) {
        TRY_CUDA(cudaMalloc((void **)&p->memory, p->bytes));
    }
    return ncclSuccess;
}

static ncclResult_t make_events(struct tuttiPipeline *p)
{
    for (int i = 0; i < 2 * PIPELINE_SENT; i++) {
        cudaEvent_t *event = &p->has_left[i / PIPELINE_SENT][i % PIPELINE_SENT];
        TRY_CUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
    return ncclSuccess;
}

static ncclResult_t make_lists(struct tuttiPipeline *p)
{
    size_t count = (size_t)p->options.microBatches;
    p->action = malloc(2 * count * sizeof *p->action);
    p->evaluate = malloc(count * sizeof *p->evaluate);
    p->time = calloc(2 * count, sizeof *p->time);
    if (p->action == NULL || p->evaluate == NULL || p->time == NULL) {
        return tuttiFail(ncclSystemError,
                         "tuttiPipelineCreate: no memory for the lists of %zu micro-batches at "
                         "stage %d",
                         count, p->stage);
    }
    for (size_t i = 0; i < count; i++) {
        p->evaluate[i] = (struct tuttiPipelineAction){tuttiPipelineForward, (int)i};
    }
    return tuttiPipelineActions(p->options.schedule, p->stages, p->options.microBatches, p->stage,
                                p->action);
}

// ---- The stages' agreement ----------------------------------------------------------------------

static ncclResult_t compare(const char *name, int64_t first, int64_t other, int stage)
{
    return first == other
               ? ncclSuccess
               : tuttiFail(ncclInvalidUsage,
                           "tuttiPipelineCreate: %s is %lld at stage 0 and %lld at stage %d, must "
                           "be equal",
                           name, (long long)first, (long long)other, stage);
}

// Stage s against stage 0, and against the one before it.
static ncclResult_t compare_card(const struct card *card, int s)
{
    TRY(compare("schedule", card[0].schedule, card[s].schedule, s));
    TRY(compare("microBatches", card[0].microBatches, card[s].microBatches, s));
    TRY(compare("activationType", card[0].activationType, card[s].activationType, s));
    TRY(compare("gradientType", card[0].gradientType, card[s].gradientType, s));
    TRY(compare("backward != NULL", card[0].has_backward, card[s].has_backward, s));
    return card[s - 1].outputElements == card[s].inputElements
               ? ncclSuccess
               : tuttiFail(ncclInvalidUsage,
                           "tuttiPipelineCreate: outputElements is %llu at stage %d, inputElements "
                           "%llu at stage %d, must be equal",
                           (unsigned long long)card[s - 1].outputElements, s - 1,
                           (unsigned long long)card[s].inputElements, s);
}

static ncclResult_t compare_cards(const struct card *card, int stages)
{
    for (int s = 0; s < stages; s++) {
        if (card[s].result != ncclSuccess) {
            return tuttiFail(ncclRemoteError, "tuttiPipelineCreate: failed at stage %d: %s", s,
                             ncclGetErrorString((ncclResult_t)card[s].result));
        }
    }
    for (int s = 1; s < stages; s++) {
        TRY(compare_card(card, s));
    }
    return ncclSuccess;
}

// own: what this stage's own checks said.
static ncclResult_t agree(const struct tuttiPipeline *p, ncclResult_t own)
{
    const struct tuttiPipelineOptions *o = &p->options;
    struct card mine = {(int32_t)own,
                        (int32_t)o->schedule,
                        (int32_t)o->microBatches,
                        (int32_t)o->activationType,
                        (int32_t)o->gradientType,
                        o->backward != NULL,
                        o->inputElements,
                        o->outputElements};
    struct card *all = malloc((size_t)p->stages * sizeof *all);
    if (all == NULL) {
        return tuttiFail(ncclSystemError, "tuttiPipelineCreate: no memory for %d stages' options",
                         p->stages);
    }
    ncclResult_t result = parallel_pipeline_gather(p, &mine, all, sizeof mine);
    if (result == ncclSuccess) {
        result = own != ncclSuccess ? own : compare_cards(all, p->stages);
    }
    free(all);
    return result;
}

// ---- Public -------------------------------------------------------------------------------------

// What the stage needs to speak to the others.
static ncclResult_t make_line(struct tuttiPipeline *p)
{
    TRY_CUDA(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
    TRY_CUDA(cudaMalloc((void **)&p->words, (size_t)p->stages * PIPELINE_WORDS));
    return ncclSuccess;
}

static ncclResult_t make_stage(struct tuttiPipeline *p, const struct tuttiPipelineOptions *options)
{
    TRY(check_options(options, p->stage, p->stages));
    p->options = *options;
    TRY(make_lists(p));
    TRY(make_buffers(p));
    return make_events(p);
}

// Makes what can be made and tells the other stages how that went. pipeline: of the program.
static ncclResult_t make_pipeline(struct tuttiPipeline *p,
                                  const struct tuttiPipelineOptions *options,
                                  struct tuttiPipeline *const *pipeline)
{
    TRY(make_line(p));
    ncclResult_t result = make_stage(p, options);
    if (result == ncclSuccess && pipeline == NULL) {
        result = tuttiFail(ncclInvalidArgument, "tuttiPipelineCreate: pipeline is NULL at stage %d",
                           p->stage);
    }
    return agree(p, result);
}

PARALLEL_EXPORT ncclResult_t tuttiPipelineCreate(ncclComm_t comm,
                                                 const struct tuttiPipelineOptions *options,
                                                 struct tuttiPipeline **pipeline)
{
    struct tuttiPipeline found = {.comm = comm};
    if (pipeline != NULL) {
        *pipeline = NULL;
    }
    TRY(tuttiRefuseGroup("tuttiPipelineCreate"));
    TRY(ncclCommUserRank(comm, &found.stage));
    TRY(ncclCommCount(comm, &found.stages));
    TRY(ncclCommCuDevice(comm, &found.device));
    int previous = 0;
    struct tuttiPipeline *p = malloc(sizeof *p);
    if (p == NULL) {
        return tuttiFail(ncclSystemError, "tuttiPipelineCreate: no memory for %zu bytes",
                         sizeof *p);
    }
    *p = found;
    ncclResult_t result = parallel_enter_known_device(p->device, &previous);
    if (result == ncclSuccess) {
        result = make_pipeline(p, options, pipeline);
        parallel_leave_device(previous);
    }
    if (result != ncclSuccess || pipeline == NULL) {
        (void)tuttiPipelineDestroy(p);
        return result;
    }
    *pipeline = p;
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiPipelineDestroy(struct tuttiPipeline *pipeline)
{
    if (pipeline == NULL) {
        return ncclSuccess;
    }
    cudaError_t error = cudaSuccess;
    char *const memory[] = {pipeline->memory, pipeline->words};
    for (int i = 0; i < 2; i++) {
        if (memory[i] != NULL) { // in the stream's order: cudaFree waits for the whole device
            cudaError_t one = cudaFreeAsync(memory[i], pipeline->stream);
            error = error != cudaSuccess ? error : one;
        }
    }
    for (int kind = 0; kind < 2; kind++) {
        for (int i = 0; i < PIPELINE_SENT; i++) {
            if (pipeline->has_left[kind][i] != NULL) {
                cudaError_t one = cudaEventDestroy(pipeline->has_left[kind][i]);
                error = error != cudaSuccess ? error : one;
            }
        }
    }
    if (pipeline->stream != NULL) {
        cudaError_t one = cudaStreamDestroy(pipeline->stream);
        error = error != cudaSuccess ? error : one;
    }
    free(pipeline->action);
    free(pipeline->evaluate);
    free(pipeline->time);
    free(pipeline);
    return parallel_cuda((int)error, "tuttiPipelineDestroy");
}

PARALLEL_EXPORT ncclResult_t tuttiPipelineBytes(const struct tuttiPipeline *pipeline, size_t *bytes)
{
    if (pipeline == NULL || bytes == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiPipelineBytes: %s is NULL",
                         pipeline == NULL ? "pipeline" : "bytes");
    }
    *bytes = pipeline->bytes;
    return ncclSuccess;
}
