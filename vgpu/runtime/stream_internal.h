// A stream's structure, for streams, events, launches and host functions.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_STREAM_INTERNAL_H
#define VGPU_RUNTIME_STREAM_INTERNAL_H

#include "operation.h"
#include "stream.h"

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
};

// The stream of a handle, 0 and the two special ones included. function: for messages.
// cudaErrorInvalidResourceHandle; cudaErrorNotPermitted inside kernels and host functions; the
// errors of vgpu_device_ready.
cudaError_t vgpu_stream_resolve(const char *function, cudaStream_t handle,
                                struct vgpu_stream **stream_out);
// Enqueues the operation behind everything that CUDA's rules put before it, and behind `also_after`
// (may be NULL). Holds a reference of its own until the operation is done.
// cudaErrorMemoryAllocation: nothing was enqueued.
cudaError_t vgpu_stream_enqueue(struct vgpu_stream *stream, struct vgpu_operation *operation,
                                struct vgpu_operation *also_after);
// Under the graph's lock: an operation of a stream is done.
void vgpu_stream_operation_ended(struct vgpu_operation *operation);

// A marker: an operation without work. NULL: no memory.
struct vgpu_operation *vgpu_marker_new(struct vgpu_device *device);

// ---- Handles (handles.c) ------------------------------------------------------------------------

// The streams and events that exist, so that a wrong handle is an error and not a crash.
bool vgpu_handle_add(const void *object);
void vgpu_handle_remove(const void *object);
bool vgpu_handle_known(const void *object);

#endif
