// Capture of streams: state, nodes, joining and leaving, and what is forbidden meanwhile.
//
// Error codes and what they invalidate are those of CUDA 13.0, as a GPU gives them.
// SPDX-License-Identifier: Apache-2.0
#include "capture.h"

#include "capture_internal.h"
#include "cuda_runtime_api.h"
#include "error.h"

#include <stdlib.h>

atomic_uint vgpu_capture_count;
static struct vgpu_capture *first_capture; // under the graph's lock
static __thread enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

const void *vgpu_thread_identity(void)
{
    return &thread_mode;
}

// ---- Captures -----------------------------------------------------------------------------------

struct vgpu_capture *vgpu_capture_begin(struct vgpu_graph *graph, enum cudaStreamCaptureMode mode)
{
    static unsigned long long last_id; // under the graph's lock
    struct vgpu_capture *capture = calloc(1, sizeof(*capture));
    if (capture) {
        capture->id = ++last_id;
        capture->mode = mode;
        capture->thread = vgpu_thread_identity();
        capture->graph = graph;
        capture->references = 1;
        graph->captures++;
        capture->next = first_capture;
        first_capture = capture;
        atomic_fetch_add(&vgpu_capture_count, 1);
    }
    return capture;
}

static void release(struct vgpu_capture *capture)
{
    if (capture && --capture->references == 0) {
        free(capture);
    }
}

bool vgpu_capture_join(struct vgpu_stream *stream, struct vgpu_capture *capture,
                       const struct vgpu_nodes *frontier)
{
    struct vgpu_nodes nodes = {NULL, 0, 0};
    if (!vgpu_nodes_add_all(&nodes, frontier)) {
        vgpu_nodes_clear(&nodes);
        return false;
    }
    stream->frontier = nodes;
    stream->next_captured = capture->streams;
    capture->streams = stream;
    capture->references++;
    atomic_store(&stream->capture, capture);
    return true;
}

static void leave(struct vgpu_stream *stream)
{
    struct vgpu_capture *capture = atomic_load(&stream->capture);
    struct vgpu_stream **link = &capture->streams;
    while (*link != stream) {
        link = &(*link)->next_captured;
    }
    *link = stream->next_captured;
    vgpu_nodes_clear(&stream->frontier);
    atomic_store(&stream->capture, NULL);
    release(capture);
}

void vgpu_capture_leave(struct vgpu_stream *stream)
{
    if (!vgpu_stream_captures(stream)) {
        return;
    }
    vgpu_graph_lock();
    struct vgpu_capture *capture = atomic_load(&stream->capture);
    struct vgpu_graph *unused = NULL;
    if (capture && capture->origin == stream) {
        unused = vgpu_capture_end(capture);
    } else if (capture) {
        leave(stream);
    }
    vgpu_graph_unlock();
    vgpu_graph_destroy(unused);
}

struct vgpu_graph *vgpu_capture_end(struct vgpu_capture *capture)
{
    struct vgpu_capture **link = &first_capture;
    while (*link != capture) {
        link = &(*link)->next;
    }
    *link = capture->next;
    while (capture->streams) {
        leave(capture->streams);
    }
    struct vgpu_graph *graph = capture->given ? NULL : capture->graph;
    capture->graph->captures--;
    capture->graph = NULL; // ended: events may still name the capture
    release(capture);
    atomic_fetch_sub(&vgpu_capture_count, 1);
    return graph;
}

// ---- Nodes --------------------------------------------------------------------------------------

bool vgpu_capture_covers(cudaStream_t handle)
{
    bool special = !handle || handle == cudaStreamLegacy;
    if (!vgpu_capturing() || special) {
        return false;
    }
    struct vgpu_stream *stream = vgpu_stream_find(handle);
    return stream && vgpu_stream_captures(stream);
}

static cudaError_t invalidated(const char *function)
{
    return vgpu_fail(cudaErrorStreamCaptureInvalidated,
                     "%s: the stream's capture has failed because of an earlier call; end it with "
                     "cudaStreamEndCapture",
                     function);
}

// Under the lock: fails captures of streams that the legacy stream would wait for.
static bool fail_implicit(const struct vgpu_stream *legacy, bool fail)
{
    bool found = false;
    for (struct vgpu_capture *capture = first_capture; capture; capture = capture->next) {
        for (struct vgpu_stream *one = capture->streams; one; one = one->next_captured) {
            if (one->device == legacy->device && !(one->flags & cudaStreamNonBlocking)) {
                found = true;
                capture->failed |= fail;
            }
        }
    }
    return found;
}

cudaError_t vgpu_capture_implicit(const char *function, const struct vgpu_stream *stream, bool fail)
{
    if (!vgpu_capturing() || !stream->is_legacy) {
        return cudaSuccess;
    }
    vgpu_graph_lock();
    bool found = fail_implicit(stream, fail);
    vgpu_graph_unlock();
    return found ? vgpu_fail(cudaErrorStreamCaptureImplicit,
                             "%s: the legacy stream would wait for a stream that is being "
                             "captured; use another stream, or make that one with "
                             "cudaStreamNonBlocking",
                             function)
                 : cudaSuccess;
}

cudaError_t vgpu_capture_check(const char *function, struct vgpu_stream *stream)
{
    if (!vgpu_capturing()) {
        return cudaSuccess;
    }
    vgpu_graph_lock();
    struct vgpu_capture *capture = atomic_load(&stream->capture);
    bool failed = capture && capture->failed;
    vgpu_graph_unlock();
    return failed ? invalidated(function) : vgpu_capture_implicit(function, stream, true);
}

// Adds work or a child graph to the stream's capture.
static cudaError_t add_node(const char *function, struct vgpu_stream *stream,
                            struct vgpu_work *work, struct vgpu_graph *child)
{
    cudaError_t error = cudaSuccess;
    vgpu_graph_lock();
    struct vgpu_capture *capture = atomic_load(&stream->capture);
    struct vgpu_node *node = NULL;
    bool refused = !capture || capture->failed; // ended or failed by another thread meanwhile
    if (!refused) {
        node = vgpu_node_new(capture->graph, work, child, &stream->frontier);
    }
    if (node) {
        struct vgpu_nodes frontier = {NULL, 0, 0};
        if (vgpu_nodes_add(&frontier, node)) {
            vgpu_nodes_clear(&stream->frontier);
            stream->frontier = frontier;
        } else {
            node = NULL; // stays in a graph that has failed
        }
    }
    if (!refused && !node) {
        capture->failed = true;
        error = vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for a node", function);
    }
    vgpu_graph_unlock();
    if (refused) {
        vgpu_work_destroy(work);
        vgpu_graph_destroy(child);
        error = invalidated(function);
    }
    return error;
}

cudaError_t vgpu_capture_add(const char *function, struct vgpu_stream *stream,
                             struct vgpu_work *work)
{
    return work ? add_node(function, stream, work, NULL)
                : vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for a node", function);
}

cudaError_t vgpu_capture_add_graph(const char *function, struct vgpu_stream *stream,
                                   const struct vgpu_graph *child)
{
    struct vgpu_graph *copy = vgpu_graph_copy(child);
    return copy ? add_node(function, stream, NULL, copy)
                : vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for a node", function);
}

// ---- What is forbidden --------------------------------------------------------------------------

static cudaError_t unsupported(const char *function, const char *why)
{
    return vgpu_fail(cudaErrorStreamCaptureUnsupported, "%s: %s", function, why);
}

cudaError_t vgpu_capture_allows(const char *function)
{
    cudaError_t allowed = vgpu_calls_allowed();
    if (allowed != cudaSuccess) {
        return allowed;
    }
    if (!vgpu_capturing() || thread_mode == cudaStreamCaptureModeRelaxed) {
        return cudaSuccess;
    }
    bool forbidden = false;
    vgpu_graph_lock();
    for (struct vgpu_capture *capture = first_capture; capture; capture = capture->next) {
        bool own = capture->thread == vgpu_thread_identity();
        bool global = capture->mode == cudaStreamCaptureModeGlobal && thread_mode == capture->mode;
        if (capture->mode != cudaStreamCaptureModeRelaxed && (own || global)) {
            capture->failed = true;
            forbidden = true;
        }
    }
    vgpu_graph_unlock();
    return forbidden ? unsupported(function,
                                   "not during a capture that is not relaxed (of this thread, or "
                                   "global); see cudaThreadExchangeStreamCaptureMode")
                     : cudaSuccess;
}

cudaError_t vgpu_capture_allows_wait(const char *function, const struct vgpu_device *device,
                                     struct vgpu_stream *stream)
{
    if (!vgpu_capturing()) {
        return cudaSuccess;
    }
    bool captured = false;
    vgpu_graph_lock();
    for (struct vgpu_capture *capture = first_capture; capture; capture = capture->next) {
        for (struct vgpu_stream *one = capture->streams; one; one = one->next_captured) {
            if (one == stream || (!stream && one->device == device)) {
                captured = true;
                capture->failed = true;
            }
        }
    }
    vgpu_graph_unlock();
    if (captured) {
        return unsupported(function, stream ? "the stream is being captured"
                                            : "a stream of the device is being captured");
    }
    cudaError_t error = vgpu_capture_allows(function);
    return error == cudaSuccess && stream ? vgpu_capture_implicit(function, stream, true) : error;
}

cudaError_t vgpu_capture_refuse(const char *function, struct vgpu_stream *stream, const char *why)
{
    if (!vgpu_stream_captures(stream)) {
        return cudaSuccess;
    }
    vgpu_graph_lock();
    struct vgpu_capture *capture = atomic_load(&stream->capture);
    if (capture) {
        capture->failed = true;
    }
    vgpu_graph_unlock();
    return unsupported(function, why);
}

// CUDA's function lives here, beside the mode.
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    if (!mode || (unsigned)*mode > cudaStreamCaptureModeRelaxed) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaThreadExchangeStreamCaptureMode: mode is %s",
                         mode ? "none of the three" : "NULL");
    }
    enum cudaStreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

// ---- Events -------------------------------------------------------------------------------------

void vgpu_captured_clear(struct vgpu_captured *captured)
{
    vgpu_graph_lock();
    release(captured->capture);
    captured->capture = NULL;
    vgpu_nodes_clear(&captured->nodes);
    vgpu_graph_unlock();
}

cudaError_t vgpu_capture_record(const char *function, struct vgpu_stream *stream,
                                struct vgpu_captured *captured)
{
    struct vgpu_nodes nodes = {NULL, 0, 0};
    vgpu_graph_lock();
    struct vgpu_capture *capture = atomic_load(&stream->capture);
    bool enough = capture && vgpu_nodes_add_all(&nodes, &stream->frontier);
    if (enough) {
        release(captured->capture);
        vgpu_nodes_clear(&captured->nodes);
        captured->capture = capture;
        captured->nodes = nodes;
        capture->references++;
    } else {
        vgpu_nodes_clear(&nodes);
    }
    vgpu_graph_unlock();
    return enough ? cudaSuccess
                  : vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for a captured event",
                              function);
}

// Under the lock: the stream, which is `in` a capture or none, waits for a captured event.
static cudaError_t join_or_merge(const char *function, struct vgpu_stream *stream,
                                 const struct vgpu_captured *captured)
{
    struct vgpu_capture *capture = captured->capture;
    struct vgpu_capture *in = atomic_load(&stream->capture);
    if (capture->failed) {
        return invalidated(function);
    }
    if (stream->is_legacy) {
        capture->failed = true;
        return vgpu_fail(cudaErrorStreamCaptureImplicit,
                         "%s: the legacy stream cannot be captured, so it cannot wait for an event "
                         "that was",
                         function);
    }
    if (in && in != capture) {
        in->failed = true;
        capture->failed = true;
        return vgpu_fail(cudaErrorStreamCaptureMerge,
                         "%s: the stream and the event belong to different captures", function);
    }
    bool enough = in ? vgpu_nodes_add_all(&stream->frontier, &captured->nodes)
                     : vgpu_capture_join(stream, capture, &captured->nodes);
    return enough ? cudaSuccess : vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", function);
}

cudaError_t vgpu_capture_wait(const char *function, struct vgpu_stream *stream,
                              const struct vgpu_captured *captured, bool recorded,
                              bool *captured_out)
{
    cudaError_t error = cudaSuccess;
    vgpu_graph_lock();
    struct vgpu_capture *in = atomic_load(&stream->capture);
    *captured_out = captured->capture || in;
    if (captured->capture && !captured->capture->graph) {
        error = vgpu_fail(cudaErrorInvalidValue,
                          "%s: the event was recorded in a capture that has ended", function);
    } else if (captured->capture) {
        error = join_or_merge(function, stream, captured);
    } else if (in && recorded) {
        in->failed = true;
        error = vgpu_fail(cudaErrorStreamCaptureIsolation,
                          "%s: the stream is being captured and the event was recorded outside "
                          "that capture; record it there, or wait with cudaEventWaitExternal",
                          function);
    }
    vgpu_graph_unlock();
    return error;
}

cudaError_t vgpu_captured_ask(const char *function, const struct vgpu_captured *captured)
{
    vgpu_graph_lock();
    struct vgpu_capture *capture = captured->capture;
    bool ended = capture && !capture->graph;
    if (capture) {
        capture->failed = true;
    }
    vgpu_graph_unlock();
    if (!capture) {
        return cudaSuccess;
    }
    return ended ? vgpu_fail(cudaErrorInvalidValue,
                             "%s: the event was last recorded in a capture that has ended; it has "
                             "no completion",
                             function)
                 : vgpu_fail(cudaErrorCapturedEvent,
                             "%s: the event was recorded in a capture; it has no completion",
                             function);
}
