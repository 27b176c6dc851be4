// Work that streams are given: done once, or kept as a node. Work that does nothing.
// SPDX-License-Identifier: Apache-2.0
#include "work.h"

#include "capture.h"
#include "error.h"
#include "pool.h"
#include "stream_internal.h"

#include <stdlib.h>

static struct vgpu_operation *prepare(const struct vgpu_work *work)
{
    return vgpu_marker_new(work->device);
}

static struct vgpu_work *copy(const struct vgpu_work *work)
{
    return vgpu_empty_work(work->device);
}

static void destroy(struct vgpu_work *work)
{
    free(work);
}

static const struct vgpu_work_kind empty_kind = {
    .prepare = prepare, .copy = copy, .destroy = destroy};

struct vgpu_work *vgpu_empty_work(struct vgpu_device *device)
{
    struct vgpu_work *work = malloc(sizeof(*work));
    if (work) {
        *work = (struct vgpu_work){&empty_kind, cudaGraphNodeTypeEmpty, device};
    }
    return work;
}

cudaError_t vgpu_stream_give(const char *function, struct vgpu_stream *stream,
                             struct vgpu_work *work)
{
    if (vgpu_stream_captures(stream)) {
        return vgpu_capture_add(function, stream, work);
    }
    struct vgpu_operation *operation = work ? work->kind->prepare(work) : NULL;
    vgpu_work_destroy(work);
    if (!operation) {
        return vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", function);
    }
    cudaError_t error = vgpu_pool_start();
    if (error == cudaSuccess) {
        error = vgpu_stream_enqueue(stream, operation, NULL);
    }
    vgpu_operation_release(operation);
    return error;
}
