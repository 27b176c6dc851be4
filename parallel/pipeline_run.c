// One batch through a stage: its actions, and before each the messages that it sends and must have.
// See tuttiPipelineRun. SPDX-License-Identifier: Apache-2.0
#include "device.h"
#include "fail.h"
#include "pipeline_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

double parallel_pipeline_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

ncclResult_t parallel_pipeline_check_comm(const struct tuttiPipeline *p, const char *name)
{
    ncclResult_t state = ncclSuccess;
    TRY(ncclCommGetAsyncError(p->comm, &state));
    if (state == ncclSuccess) {
        return ncclSuccess;
    }
    char text[512];
    (void)snprintf(text, sizeof text, "%s", ncclGetLastError(p->comm));
    return tuttiFail(state, "%s: the communicator failed at stage %d: %s", name, p->stage, text);
}

// ---- Messages -----------------------------------------------------------------------------------

static ncclResult_t enqueue(struct tuttiPipeline *p, const struct schedule_message *message,
                            const struct pipeline_places *places, bool is_send)
{
    char *place = pipeline_place(p, places, message->microBatch);
    return is_send
               ? ncclSend(place, places->elements, places->type, message->peer, p->comm, p->stream)
               : ncclRecv(place, places->elements, places->type, message->peer, p->comm, p->stream);
}

// What stands between two actions. Waits only where something comes.
static ncclResult_t exchange(struct tuttiPipeline *p, const struct schedule_exchange *messages)
{
    const struct schedule_message *send = &messages->send, *receive = &messages->receive;
    if (!send->exists && !receive->exists) {
        return ncclSuccess;
    }
    ncclResult_t result = ncclSuccess;
    TRY(ncclGroupStart());
    if (send->exists) {
        result = enqueue(p, send, &p->sent[send->kind], true);
    }
    if (result == ncclSuccess && receive->exists) {
        result = enqueue(p, receive, &p->received[receive->kind], false);
    }
    ncclResult_t end = ncclGroupEnd();
    TRY(result);
    TRY(end);
    if (send->exists) {
        int place = send->microBatch % p->sent[send->kind].count;
        TRY_CUDA(cudaEventRecord(p->has_left[send->kind][place], p->stream));
    }
    if (!receive->exists) {
        return ncclSuccess;
    }
    TRY_CUDA(cudaStreamSynchronize(p->stream));
    return parallel_pipeline_check_comm(p, "tuttiPipelineRun");
}

// ---- Actions ------------------------------------------------------------------------------------

static void note_failure(struct tuttiPipeline *p, struct tuttiPipelineAction action,
                         ncclResult_t result)
{
    p->failure = (struct pipeline_end){(int32_t)result, (int32_t)action.kind, action.microBatch};
    (void)snprintf(p->failure_text, sizeof p->failure_text, "%s", ncclGetLastError(NULL));
}

// Waits for the stream after a failure, too: what was enqueued before it uses the places.
static ncclResult_t call(const struct tuttiPipeline *p, struct tuttiPipelineAction action,
                         const void *from, void *to)
{
    const struct tuttiPipelineOptions *o = &p->options;
    ncclResult_t result = action.kind == tuttiPipelineForward
                              ? o->forward(o->context, action.microBatch, from, to)
                              : o->backward(o->context, action.microBatch, from, to);
    cudaError_t error = cudaStreamSynchronize(o->stream);
    TRY(result);
    return parallel_cuda((int)error, "cudaStreamSynchronize");
}

// time: receives when; NULL: nobody wants to know.
static ncclResult_t act(struct tuttiPipeline *p, struct tuttiPipelineAction action,
                        struct tuttiPipelineTime *time)
{
    const struct pipeline_places *received = &p->received[action.kind];
    const struct pipeline_places *sent = &p->sent[action.kind];
    char *to = pipeline_place(p, sent, action.microBatch);
    if (to != NULL) { // what was there has left
        TRY_CUDA(cudaEventSynchronize(p->has_left[action.kind][action.microBatch % sent->count]));
        TRY(parallel_pipeline_check_comm(p, "tuttiPipelineRun"));
    }
    double begin = parallel_pipeline_now();
    if (p->failure.result == ncclSuccess) {
        ncclResult_t result = call(p, action, pipeline_place(p, received, action.microBatch), to);
        if (result != ncclSuccess) {
            note_failure(p, action, result);
        }
    }
    if (p->failure.result != ncclSuccess && to != NULL) {
        TRY_CUDA(cudaMemsetAsync(to, 0, sent->bytes, p->stream));
    }
    if (time != NULL) {
        *time = (struct tuttiPipelineTime){action, begin, parallel_pipeline_now()};
    }
    return ncclSuccess;
}

// ---- The end ------------------------------------------------------------------------------------

static ncclResult_t gather_piece(const struct tuttiPipeline *p, const char *mine, size_t bytes)
{
    char *own = p->words + bytes * (size_t)p->stage;
    TRY_CUDA(cudaMemcpyAsync(own, mine, bytes, cudaMemcpyDefault, p->stream));
    TRY(ncclAllGather(own, p->words, bytes, ncclUint8, p->comm, p->stream));
    TRY_CUDA(cudaStreamSynchronize(p->stream));
    return parallel_pipeline_check_comm(p, "tuttiPipeline");
}

// In pieces that fit into the words: memory made and freed here would wait for the whole device,
// and so for other ranks on it.
ncclResult_t parallel_pipeline_gather(const struct tuttiPipeline *p, const void *mine, void *all,
                                      size_t bytes)
{
    for (size_t at = 0; at < bytes; at += PIPELINE_WORDS) {
        size_t piece = bytes - at < PIPELINE_WORDS ? bytes - at : PIPELINE_WORDS;
        TRY(gather_piece(p, (const char *)mine + at, piece));
        TRY_CUDA(cudaMemcpy2DAsync((char *)all + at, bytes, p->words, piece, piece,
                                   (size_t)p->stages, cudaMemcpyDefault, p->stream));
        TRY_CUDA(cudaStreamSynchronize(p->stream));
    }
    return ncclSuccess;
}

// The run's result, from how it ended on all stages.
static ncclResult_t agree_on_end(const struct tuttiPipeline *p)
{
    static const char *const names[] = {"forward", "backward"};
    struct pipeline_end *all = malloc((size_t)p->stages * sizeof *all);
    if (all == NULL) {
        return tuttiFail(ncclSystemError, "tuttiPipelineRun: no memory for %d stages' results",
                         p->stages);
    }
    ncclResult_t result = parallel_pipeline_gather(p, &p->failure, all, sizeof *all);
    if (result == ncclSuccess && p->failure.result != ncclSuccess) {
        result = tuttiFail((ncclResult_t)p->failure.result,
                           "tuttiPipelineRun: %s of micro-batch %d failed at stage %d: %s (last "
                           "error: %s)",
                           names[p->failure.kind], p->failure.microBatch, p->stage,
                           ncclGetErrorString((ncclResult_t)p->failure.result), p->failure_text);
    }
    for (int s = 0; result == ncclSuccess && s < p->stages; s++) {
        if (all[s].result != ncclSuccess) {
            result = tuttiFail(ncclRemoteError,
                               "tuttiPipelineRun: %s of micro-batch %d failed at stage %d: %s",
                               names[all[s].kind], all[s].microBatch, s,
                               ncclGetErrorString((ncclResult_t)all[s].result));
        }
    }
    free(all);
    return result;
}

static ncclResult_t run_actions(struct tuttiPipeline *p, const struct tuttiPipelineAction *action,
                                int actions, struct tuttiPipelineTime *time)
{
    p->failure = (struct pipeline_end){ncclSuccess, 0, 0};
    for (int k = 0; k < actions; k++) {
        struct schedule_exchange messages =
            parallel_schedule_exchange(action, actions, k, p->stage, p->stages);
        TRY(exchange(p, &messages));
        TRY(act(p, action[k], time == NULL ? NULL : &time[k]));
    }
    struct schedule_exchange last =
        parallel_schedule_exchange(action, actions, actions, p->stage, p->stages);
    TRY(exchange(p, &last));
    return agree_on_end(p);
}

static ncclResult_t run(struct tuttiPipeline *p, const struct tuttiPipelineAction *action,
                        int actions, struct tuttiPipelineTime *time)
{
    int previous = 0;
    TRY(tuttiRefuseGroup(time == NULL ? "tuttiPipelineEvaluate" : "tuttiPipelineRun"));
    TRY(parallel_enter_known_device(p->device, &previous));
    ncclResult_t result = run_actions(p, action, actions, time);
    parallel_leave_device(previous);
    return result;
}

PARALLEL_EXPORT ncclResult_t tuttiPipelineRun(struct tuttiPipeline *pipeline)
{
    if (pipeline == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiPipelineRun: pipeline is NULL");
    }
    if (pipeline->options.backward == NULL) {
        return tuttiFail(ncclInvalidUsage,
                         "tuttiPipelineRun: the options' backward is NULL (stage %d): "
                         "tuttiPipelineEvaluate alone may be called",
                         pipeline->stage);
    }
    ncclResult_t result =
        run(pipeline, pipeline->action, 2 * pipeline->options.microBatches, pipeline->time);
    pipeline->has_times = result == ncclSuccess;
    return result;
}

PARALLEL_EXPORT ncclResult_t tuttiPipelineEvaluate(struct tuttiPipeline *pipeline)
{
    if (pipeline == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiPipelineEvaluate: pipeline is NULL");
    }
    return run(pipeline, pipeline->evaluate, pipeline->options.microBatches, NULL);
}
