// A capture's structure, for capture.c and capture_stream.c. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_CAPTURE_INTERNAL_H
#define VGPU_RUNTIME_CAPTURE_INTERNAL_H

#include "capture.h"

// All fields under the graph's lock. Lives until it has ended and no event names it.
struct vgpu_capture {
    unsigned long long id;
    enum cudaStreamCaptureMode mode;
    const void *thread;       // that began it
    struct vgpu_graph *graph; // NULL: ended
    bool given;               // the graph is the caller's (cudaStreamBeginCaptureToGraph)
    bool failed;              // by a call that is forbidden
    struct vgpu_stream *origin;
    struct vgpu_stream *streams; // all members, by their next_captured
    unsigned references;         // until ended, by its streams, by events
    struct vgpu_capture *next;   // of all
};

// What tells the calling thread from others.
const void *vgpu_thread_identity(void);

// All under the lock.
// A capture into `graph` without streams; NULL: no memory.
struct vgpu_capture *vgpu_capture_begin(struct vgpu_graph *graph, enum cudaStreamCaptureMode mode);
// The stream becomes a member. False: no memory.
bool vgpu_capture_join(struct vgpu_stream *stream, struct vgpu_capture *capture,
                       const struct vgpu_nodes *frontier);
// Ends it and lets all its streams go. Returns its graph, NULL where that is the caller's.
struct vgpu_graph *vgpu_capture_end(struct vgpu_capture *capture);

// cudaErrorStreamCaptureImplicit where `stream` is the legacy stream and would wait for one that is
// being captured; fail: that capture fails. Without the lock.
cudaError_t vgpu_capture_implicit(const char *function, const struct vgpu_stream *stream,
                                  bool fail);

#endif
