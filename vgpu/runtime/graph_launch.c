// Launching an executable graph: its operations are made anew, ordered, and enqueued as one.
//
// They come behind what is on the stream and behind the same executable graph's launch before.
// SPDX-License-Identifier: Apache-2.0
#include "capture.h"
#include "cuda_runtime_api.h"
#include "error.h"
#include "graph_executable.h"
#include "pool.h"
#include "stream_internal.h"

#include <stdlib.h>

// The last operation of a launch: keeps the user objects that the launch may use.
struct launch_end {
    struct vgpu_operation operation; // first
    struct vgpu_resources *resources;
};

static void destroy_end(struct vgpu_operation *operation)
{
    vgpu_resources_release(((struct launch_end *)operation)->resources);
    free(operation);
}

static struct vgpu_operation *new_end(struct vgpu_device *device, struct vgpu_resources *resources)
{
    struct launch_end *end = malloc(sizeof(*end));
    if (!end) {
        return NULL;
    }
    vgpu_operation_init(&end->operation, device, NULL, destroy_end);
    end->resources = vgpu_resources_share(resources);
    return &end->operation;
}

// An operation for each item; as many as there is memory for. Returns how many.
static size_t make_operations(const struct vgpu_executable *executable, struct vgpu_device *device,
                              struct vgpu_operation **operation)
{
    const struct vgpu_flat *flat = &executable->flat;
    for (size_t i = 0; i < flat->count; i++) {
        const struct vgpu_node *node = flat->item[i].node;
        if (i + 1 == flat->count) {
            operation[i] = new_end(device, executable->graph->resources);
        } else if (node && node->work && !node->disabled) {
            operation[i] = node->work->kind->prepare(node->work);
        } else {
            operation[i] = vgpu_marker_new(device);
        }
        if (!operation[i]) {
            return i;
        }
    }
    return flat->count;
}

// Orders them as the items are. False: no memory.
static bool link_operations(const struct vgpu_flat *flat, struct vgpu_operation **operation)
{
    bool enough = true;
    vgpu_graph_lock();
    for (size_t i = 0; enough && i < flat->count; i++) {
        const struct vgpu_flat_item *item = &flat->item[i];
        for (size_t k = 0; enough && k < item->before_count; k++) {
            enough = vgpu_operation_follow(operation[i],
                                           operation[flat->before[item->first_before + k]]);
        }
    }
    vgpu_graph_unlock();
    return enough;
}

// Lets operations run when their turn comes; abandoned ones do nothing then, except those that
// others rely on.
static void submit_all(struct vgpu_operation **operation, size_t count, bool abandoned)
{
    for (size_t i = 0; i < count; i++) {
        if (abandoned && !operation[i]->always_starts) {
            operation[i]->start = NULL;
        }
        vgpu_operation_submitted(operation[i]);
    }
}

static cudaError_t launch(const char *function, struct vgpu_executable *executable,
                          struct vgpu_stream *stream)
{
    const struct vgpu_flat *flat = &executable->flat;
    struct vgpu_operation **operation = malloc(flat->count * sizeof(struct vgpu_operation *));
    if (!operation) {
        return vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for %zu operations", function,
                         flat->count);
    }
    size_t made = make_operations(executable, stream->device, operation);
    bool enough = made == flat->count && link_operations(flat, operation);
    cudaError_t error =
        enough
            ? vgpu_stream_enqueue_pair(stream, operation[0], operation[made - 1], executable->last)
            : vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for %zu operations", function,
                        flat->count);
    struct vgpu_operation *before = NULL;
    if (error == cudaSuccess) {
        vgpu_graph_lock();
        before = executable->last;
        executable->last = operation[made - 1];
        vgpu_operation_hold(executable->last);
        vgpu_graph_unlock();
    }
    submit_all(operation, made, error != cudaSuccess);
    vgpu_operation_release(before);
    free(operation);
    return error;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
    static const char *const function = "cudaGraphLaunch";
    struct vgpu_executable *found = NULL;
    struct vgpu_stream *on = NULL;
    cudaError_t error = vgpu_executable_find(function, executable, &found);
    if (error == cudaSuccess) {
        error = vgpu_stream_resolve(function, stream, &on);
    }
    if (error != cudaSuccess) {
        return error;
    }
    if (vgpu_stream_captures(on)) {
        return vgpu_capture_add_graph(function, on, found->graph);
    }
    error = vgpu_pool_start();
    return error == cudaSuccess ? launch(function, found, on) : error;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream)
{
    struct vgpu_executable *found = NULL;
    struct vgpu_stream *on = NULL;
    cudaError_t error = vgpu_executable_find("cudaGraphUpload", executable, &found);
    if (error == cudaSuccess) {
        error = vgpu_stream_resolve("cudaGraphUpload", stream, &on);
    }
    if (error != cudaSuccess) {
        return error;
    }
    error = vgpu_capture_refuse("cudaGraphUpload", on, "uploads cannot be captured");
    return error == cudaSuccess ? vgpu_pool_start() : error; // all that a launch needs
}
