// CUDA's functions that capture streams. SPDX-License-Identifier: Apache-2.0
#include "capture_internal.h"
#include "cuda_runtime_api.h"
#include "error.h"

#include <stdlib.h>

// ---- Beginning ----------------------------------------------------------------------------------

// The stream of a handle, if it may be captured.
static cudaError_t find_capturable(const char *function, cudaStream_t handle,
                                   enum cudaStreamCaptureMode mode, struct vgpu_stream **stream_out)
{
    cudaError_t error = vgpu_stream_resolve(function, handle, stream_out);
    if (error != cudaSuccess) {
        return error;
    }
    if ((unsigned)mode > cudaStreamCaptureModeRelaxed) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: mode %d; cudaStreamCaptureMode* are 0 to 2",
                         function, (int)mode);
    }
    if ((*stream_out)->is_legacy) {
        return vgpu_fail(cudaErrorStreamCaptureUnsupported,
                         "%s: the legacy stream cannot be captured; make a stream, or use "
                         "cudaStreamPerThread",
                         function);
    }
    if (vgpu_stream_captures(*stream_out)) {
        return vgpu_fail(cudaErrorIllegalState, "%s: the stream is being captured already",
                         function);
    }
    return cudaSuccess;
}

// given: the graph stays the caller's.
static cudaError_t begin(const char *function, struct vgpu_stream *stream, struct vgpu_graph *graph,
                         const struct vgpu_nodes *frontier, enum cudaStreamCaptureMode mode,
                         bool given)
{
    bool joined = false;
    vgpu_graph_lock();
    struct vgpu_capture *capture = vgpu_capture_begin(graph, mode);
    if (capture) {
        capture->given = true; // until it succeeds
        capture->origin = stream;
        joined = vgpu_capture_join(stream, capture, frontier);
        if (joined) {
            capture->given = given;
        } else {
            (void)vgpu_capture_end(capture);
        }
    }
    vgpu_graph_unlock();
    return joined ? cudaSuccess
                  : vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory to capture", function);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    static const char *const function = "cudaStreamBeginCapture";
    static const struct vgpu_nodes none = {NULL, 0, 0};
    struct vgpu_stream *found = NULL;
    cudaError_t error = find_capturable(function, stream, mode, &found);
    if (error != cudaSuccess) {
        return error;
    }
    struct vgpu_graph *graph = vgpu_graph_new();
    error = graph ? begin(function, found, graph, &none, mode, false)
                  : vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for a graph", function);
    if (error != cudaSuccess) {
        vgpu_graph_destroy(graph);
    }
    return error;
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t *dependencies,
                                          const cudaGraphEdgeData *edges, size_t count,
                                          enum cudaStreamCaptureMode mode)
{
    static const char *const function = "cudaStreamBeginCaptureToGraph";
    struct vgpu_stream *found = NULL;
    struct vgpu_graph *into = NULL;
    struct vgpu_nodes frontier = {NULL, 0, 0};
    cudaError_t error = find_capturable(function, stream, mode, &found);
    if (error == cudaSuccess) {
        error = vgpu_graph_find(function, graph, &into);
    }
    if (error == cudaSuccess) {
        error = vgpu_check_edges(function, edges, count);
    }
    if (error == cudaSuccess) {
        error = vgpu_nodes_find(function, into, dependencies, count, &frontier);
    }
    if (error == cudaSuccess) {
        error = begin(function, found, into, &frontier, mode, true);
    }
    vgpu_nodes_clear(&frontier);
    return error;
}

// ---- Ending -------------------------------------------------------------------------------------

// Marks everything that comes before the nodes of a set, and them. False: no memory.
static bool mark_before(struct vgpu_graph *graph, const struct vgpu_nodes *frontier)
{
    struct vgpu_node **stack = malloc((graph->node_count + 1) * sizeof(struct vgpu_node *));
    if (!stack) {
        return false;
    }
    size_t height = 0;
    for (struct vgpu_node *node = graph->first; node; node = node->next) {
        node->position = 0;
    }
    for (size_t i = 0; i < frontier->count; i++) {
        frontier->node[i]->position = 1;
        stack[height++] = frontier->node[i];
    }
    while (height > 0) {
        const struct vgpu_nodes *before = &stack[--height]->before;
        for (size_t i = 0; i < before->count; i++) {
            if (before->node[i]->position == 0) {
                before->node[i]->position = 1;
                stack[height++] = before->node[i];
            }
        }
    }
    free(stack);
    return true;
}

// Under the lock: whether every stream's work comes before what the origin does next.
static cudaError_t check_joined(const struct vgpu_capture *capture)
{
    if (!mark_before(capture->graph, &capture->origin->frontier)) {
        return vgpu_fail(cudaErrorMemoryAllocation, "cudaStreamEndCapture: no memory");
    }
    for (struct vgpu_stream *stream = capture->streams; stream; stream = stream->next_captured) {
        for (size_t i = 0; i < stream->frontier.count; i++) {
            if (stream->frontier.node[i]->position == 0) {
                return vgpu_fail(cudaErrorStreamCaptureUnjoined,
                                 "cudaStreamEndCapture: stream %p joined the capture and has work "
                                 "in it that the origin does not wait for; record an event there "
                                 "and let the origin wait for it",
                                 (void *)stream);
            }
        }
    }
    return cudaSuccess;
}

// Under the lock: ends the capture. *graph_out: the result; else *unused_out is to be destroyed.
static cudaError_t end(struct vgpu_stream *stream, struct vgpu_graph **graph_out,
                       struct vgpu_graph **unused_out)
{
    struct vgpu_capture *capture = atomic_load(&stream->capture);
    cudaError_t error = cudaSuccess;
    if (!capture) {
        return vgpu_fail(cudaErrorIllegalState,
                         "cudaStreamEndCapture: the stream is not being captured");
    }
    if (capture->origin != stream) {
        capture->failed = true;
        return vgpu_fail(cudaErrorStreamCaptureUnmatched,
                         "cudaStreamEndCapture: the capture began on stream %p, not on this one",
                         (void *)capture->origin);
    }
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        capture->thread != vgpu_thread_identity()) {
        error = vgpu_fail(cudaErrorStreamCaptureWrongThread,
                          "cudaStreamEndCapture: another thread began the capture, which is not "
                          "relaxed");
    } else if (capture->failed) {
        error = vgpu_fail(cudaErrorStreamCaptureInvalidated,
                          "cudaStreamEndCapture: the capture has failed because of an earlier "
                          "call");
    } else {
        error = check_joined(capture);
    }
    struct vgpu_graph *given = capture->given ? capture->graph : NULL;
    struct vgpu_graph *own = vgpu_capture_end(capture);
    if (error == cudaSuccess) {
        *graph_out = given ? given : own;
    } else {
        *unused_out = own;
    }
    return error;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    struct vgpu_graph *result = NULL;
    struct vgpu_graph *unused = NULL;
    if (!graph) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaStreamEndCapture: the place for the graph is NULL");
    }
    *graph = NULL;
    struct vgpu_stream *found = vgpu_stream_find(stream);
    if (!found) {
        return vgpu_fail(cudaErrorInvalidResourceHandle, "cudaStreamEndCapture: %p is no stream",
                         (void *)stream);
    }
    vgpu_graph_lock();
    cudaError_t error = end(found, &result, &unused);
    vgpu_graph_unlock();
    vgpu_graph_destroy(unused);
    *graph = (cudaGraph_t)(void *)result;
    return error;
}

// ---- Asking and changing ------------------------------------------------------------------------

static enum cudaStreamCaptureStatus status_of(const struct vgpu_capture *capture)
{
    return !capture          ? cudaStreamCaptureStatusNone
           : capture->failed ? cudaStreamCaptureStatusInvalidated
                             : cudaStreamCaptureStatusActive;
}

// The stream, and a place for its status.
static cudaError_t find_asked(const char *function, cudaStream_t handle,
                              const enum cudaStreamCaptureStatus *status,
                              struct vgpu_stream **stream_out)
{
    if (!status) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: the place for the status is NULL", function);
    }
    *stream_out = vgpu_stream_find(handle);
    if (!*stream_out) {
        return vgpu_fail(cudaErrorInvalidResourceHandle, "%s: %p is no stream", function,
                         (void *)handle);
    }
    return vgpu_capture_implicit(function, *stream_out, false);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    struct vgpu_stream *found = NULL;
    cudaError_t error = find_asked("cudaStreamIsCapturing", stream, status, &found);
    if (error == cudaSuccess) {
        vgpu_graph_lock();
        *status = status_of(atomic_load(&found->capture));
        vgpu_graph_unlock();
    }
    return error;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **dependencies,
                                     const cudaGraphEdgeData **edges, size_t *dependency_count)
{
    struct vgpu_stream *found = NULL;
    cudaError_t error = find_asked("cudaStreamGetCaptureInfo", stream, status, &found);
    if (error != cudaSuccess) {
        return error;
    }
    vgpu_graph_lock();
    const struct vgpu_capture *capture = atomic_load(&found->capture);
    *status = status_of(capture);
    if (*status == cudaStreamCaptureStatusActive) { // the others are defined only then
        if (id) {
            *id = capture->id;
        }
        if (graph) {
            *graph = (cudaGraph_t)(void *)capture->graph;
        }
        if (dependencies) { // lives until the stream's next call
            *dependencies = (const cudaGraphNode_t *)(void *)found->frontier.node;
        }
        if (edges) {
            *edges = NULL;
        }
        if (dependency_count) {
            *dependency_count = found->frontier.count;
        }
    }
    vgpu_graph_unlock();
    return cudaSuccess;
}

// Under the lock: nodes of a capture's graph, added to the stream's frontier or in its place.
static cudaError_t update(const char *function, struct vgpu_stream *stream,
                          const cudaGraphNode_t *nodes, size_t count, bool replace)
{
    const struct vgpu_capture *capture = atomic_load(&stream->capture);
    if (status_of(capture) != cudaStreamCaptureStatusActive) {
        return vgpu_fail(capture ? cudaErrorStreamCaptureInvalidated : cudaErrorIllegalState,
                         "%s: the stream %s", function,
                         capture ? "'s capture has failed" : "is not being captured");
    }
    struct vgpu_nodes wanted = {NULL, 0, 0};
    cudaError_t error = vgpu_nodes_find(function, capture->graph, nodes, count, &wanted);
    if (error == cudaSuccess && !replace) {
        if (!vgpu_nodes_add_all(&stream->frontier, &wanted)) {
            error = vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", function);
        }
    } else if (error == cudaSuccess) {
        vgpu_nodes_clear(&stream->frontier);
        stream->frontier = wanted;
        return cudaSuccess;
    }
    vgpu_nodes_clear(&wanted);
    return error;
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *dependencies,
                                                const cudaGraphEdgeData *edges, size_t count,
                                                unsigned int flags)
{
    static const char *const function = "cudaStreamUpdateCaptureDependencies";
    struct vgpu_stream *found = vgpu_stream_find(stream);
    if (!found || flags > cudaStreamSetCaptureDependencies) {
        return vgpu_fail(found ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle,
                         "%s: stream %p, flags 0x%x; they must be cudaStreamAdd- or "
                         "cudaStreamSetCaptureDependencies",
                         function, (void *)stream, flags);
    }
    cudaError_t error = vgpu_check_edges(function, edges, count);
    if (error == cudaSuccess) {
        vgpu_graph_lock();
        error =
            update(function, found, dependencies, count, flags == cudaStreamSetCaptureDependencies);
        vgpu_graph_unlock();
    }
    return error;
}
