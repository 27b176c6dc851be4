// What a stream is given to do, kept so that it can be done again and again: the contents of a
// graph's node.
//
// A kind of work is a table of functions. To let streams capture something new, write such a table
// and give a work of it to vgpu_stream_give. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_WORK_H
#define VGPU_RUNTIME_WORK_H

#include "operation.h"

struct vgpu_work;
struct vgpu_stream;

struct vgpu_work_kind {
    // A new operation that does the work once, with one reference and not yet submitted; it may
    // already follow others. NULL: no memory.
    struct vgpu_operation *(*prepare)(const struct vgpu_work *work);
    // Another work that does the same. NULL: no memory.
    struct vgpu_work *(*copy)(const struct vgpu_work *work);
    void (*destroy)(struct vgpu_work *work);
    // Writes one line about it, without a newline, for pictures and messages. May be NULL.
    void (*describe)(const struct vgpu_work *work, char *text, size_t text_bytes);
};

struct vgpu_work {
    const struct vgpu_work_kind *kind;
    enum cudaGraphNodeType type;
    struct vgpu_device *device; // whose operations it makes
};

static inline void vgpu_work_destroy(struct vgpu_work *work)
{
    if (work) {
        work->kind->destroy(work);
    }
}

// Work that does nothing: a node that only orders others. NULL: no memory.
struct vgpu_work *vgpu_empty_work(struct vgpu_device *device);

// Makes `work` the next on `stream`: a node of the graph where the stream is being captured, else
// an operation, enqueued now. Takes the work over, also where it fails. function: for messages.
// work NULL: cudaErrorMemoryAllocation. The errors of vgpu_capture_add and vgpu_stream_enqueue.
cudaError_t vgpu_stream_give(const char *function, struct vgpu_stream *stream,
                             struct vgpu_work *work);

#endif
