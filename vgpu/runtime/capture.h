// Capture: what streams are given becomes nodes of a graph instead of being done.
//
// A capture begins on one stream, its origin. Streams that wait for an event which was recorded in
// it join it. Each has a frontier: the nodes that its next one comes behind. All state is under the
// graph's lock; where nothing is captured, each function costs one load.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_CAPTURE_H
#define VGPU_RUNTIME_CAPTURE_H

#include "graph.h"
#include "stream_internal.h"

struct vgpu_capture;

// What an event that was recorded in a capture stands for.
struct vgpu_captured {
    struct vgpu_capture *capture; // NULL: it was not
    struct vgpu_nodes nodes;      // the stream's frontier at that moment
};

// Captures of the process. Relaxed: who must see one has begun or joined it.
extern atomic_uint vgpu_capture_count;
static inline bool vgpu_capturing(void)
{
    return atomic_load_explicit(&vgpu_capture_count, memory_order_relaxed) > 0;
}

// ---- For everything that streams are given ------------------------------------------------------

// Whether the stream is being captured. A bad handle is not.
static inline bool vgpu_stream_captures(const struct vgpu_stream *stream)
{
    return vgpu_capturing() && atomic_load(&stream->capture) != NULL;
}
bool vgpu_capture_covers(cudaStream_t handle);

// Whether the stream may be given work: cudaErrorStreamCaptureInvalidated where its capture has
// failed; cudaErrorStreamCaptureImplicit, and that capture fails, where it is the legacy stream and
// a stream that it would wait for is being captured.
cudaError_t vgpu_capture_check(const char *function, struct vgpu_stream *stream);
// Adds a node behind the stream's frontier. Takes over `work`, also where it fails.
cudaError_t vgpu_capture_add(const char *function, struct vgpu_stream *stream,
                             struct vgpu_work *work);
// The same with a child graph, of which it keeps a copy.
cudaError_t vgpu_capture_add_graph(const char *function, struct vgpu_stream *stream,
                                   const struct vgpu_graph *child);
// Ends the membership of a stream that is being destroyed.
void vgpu_capture_leave(struct vgpu_stream *stream);

// ---- What must not happen during a capture ------------------------------------------------------

// Calls that may wait for work or change memory's addresses: cudaErrorStreamCaptureUnsupported
// where a capture of the calling thread, or any thread's global one, forbids them (as
// cudaThreadExchangeStreamCaptureMode says); the capture fails with it.
cudaError_t vgpu_capture_allows(const char *function);
// The same for a call that waits for a stream or asks whether it is done, which is an error in any
// mode where the stream is being captured; stream NULL: for all of the device's.
cudaError_t vgpu_capture_allows_wait(const char *function, const struct vgpu_device *device,
                                     struct vgpu_stream *stream);
// A call that a stream which is being captured cannot take: cudaErrorStreamCaptureUnsupported, and
// the capture fails; cudaSuccess where it is not being captured.
cudaError_t vgpu_capture_refuse(const char *function, struct vgpu_stream *stream, const char *why);

// ---- Events -------------------------------------------------------------------------------------

// Remembers the frontier of a stream that is being captured.
cudaError_t vgpu_capture_record(const char *function, struct vgpu_stream *stream,
                                struct vgpu_captured *captured);
// The stream waits for an event. *captured_out: that was part of a capture, and there is nothing
// left to do. recorded: whether the event was recorded outside of captures.
cudaError_t vgpu_capture_wait(const char *function, struct vgpu_stream *stream,
                              const struct vgpu_captured *captured, bool recorded,
                              bool *captured_out);
// An event's completion is asked for: cudaErrorCapturedEvent, and the capture fails;
// cudaErrorInvalidValue where the capture has ended.
cudaError_t vgpu_captured_ask(const char *function, const struct vgpu_captured *captured);
// The event means something else now.
void vgpu_captured_clear(struct vgpu_captured *captured);

#endif
