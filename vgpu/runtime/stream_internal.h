// A stream's structure, for streams, events, launches and host functions.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_STREAM_INTERNAL_H
#define VGPU_RUNTIME_STREAM_INTERNAL_H

#include "graph.h"
#include "handles.h"
#include "operation.h"
#include "stream.h"

struct vgpu_capture;

struct vgpu_stream {
    struct vgpu_device *device;
    unsigned flags;
    int priority;
    unsigned long long id;
    bool is_legacy;

    // Under the graph's lock.
    struct vgpu_operation *last; // the newest operation, until it is done
    unsigned references;         // operations that are not done, plus one until destroyed
    struct vgpu_stream *next;    // of the device
    struct vgpu_stream *previous;

    // Capture (capture.h). Written under the graph's lock.
    struct vgpu_capture *_Atomic capture; // that the stream is part of; NULL: none
    struct vgpu_nodes frontier;           // what its next node comes behind
    struct vgpu_stream *next_captured;    // of the capture
};

// The stream of a handle, 0 and the two special ones included. function: for messages.
// cudaErrorInvalidResourceHandle; cudaErrorNotPermitted inside kernels and host functions; the
// errors of vgpu_device_ready and vgpu_capture_check.
cudaError_t vgpu_stream_resolve(const char *function, cudaStream_t handle,
                                struct vgpu_stream **stream_out);
// The nearest priority that streams may have.
int vgpu_stream_priority(int wanted);
// The same stream without any check of what may be done with it; NULL where the handle is none.
struct vgpu_stream *vgpu_stream_find(cudaStream_t handle);
// Enqueues the operation behind everything that CUDA's rules put before it, and behind `also_after`
// (may be NULL). Holds a reference of its own until the operation is done.
// cudaErrorMemoryAllocation: nothing was enqueued.
cudaError_t vgpu_stream_enqueue(struct vgpu_stream *stream, struct vgpu_operation *operation,
                                struct vgpu_operation *also_after);
// Enqueues the first and the last of operations that follow each other in between, as if they were
// one: `first` comes behind everything that CUDA's rules put before it and behind `also_after`, and
// what the stream is given next comes behind `last`. The caller then submits them all, `first` and
// `last` too; each submission takes over a reference. cudaErrorMemoryAllocation: nothing was
// enqueued.
cudaError_t vgpu_stream_enqueue_pair(struct vgpu_stream *stream, struct vgpu_operation *first,
                                     struct vgpu_operation *last,
                                     struct vgpu_operation *also_after);
// Under the graph's lock: an operation of a stream is done.
void vgpu_stream_operation_ended(struct vgpu_operation *operation);

// A marker: an operation without work. NULL: no memory.
struct vgpu_operation *vgpu_marker_new(struct vgpu_device *device);

#endif
