// Recording an event, and waiting for one, as graphs' work.
//
// The event is looked at when the graph runs: who records it last before that is waited for.
// SPDX-License-Identifier: Apache-2.0
#include "error.h"
#include "event.h"

#include <stdio.h>
#include <stdlib.h>

struct event_work {
    struct vgpu_work work; // first
    cudaEvent_t event;
};

// The event, if it still exists.
static struct vgpu_event *event_of(const struct vgpu_work *work)
{
    cudaEvent_t handle = ((const struct event_work *)work)->event;
    bool known = vgpu_handle_known(handle, VGPU_HANDLE_EVENT);
    return known ? (struct vgpu_event *)(void *)handle : NULL;
}

static struct vgpu_operation *prepare_record(const struct vgpu_work *work)
{
    struct vgpu_event *event = event_of(work);
    return event ? vgpu_event_recorder(event, work->device) : vgpu_marker_new(work->device);
}

static struct vgpu_operation *prepare_wait(const struct vgpu_work *work)
{
    struct vgpu_event *event = event_of(work);
    struct vgpu_operation *marker = vgpu_marker_new(work->device);
    struct vgpu_operation *recorded = event && marker ? vgpu_event_hold_recorded(event) : NULL;
    if (recorded) {
        vgpu_graph_lock();
        bool enough = vgpu_operation_follow(marker, recorded);
        vgpu_graph_unlock();
        vgpu_operation_release(recorded);
        if (!enough) {
            vgpu_operation_release(marker);
            return NULL;
        }
    }
    return marker;
}

static struct vgpu_work *copy(const struct vgpu_work *work)
{
    struct event_work *made = malloc(sizeof(*made));
    if (!made) {
        return NULL;
    }
    *made = *(const struct event_work *)work;
    return &made->work;
}

static void destroy(struct vgpu_work *work)
{
    free(work);
}

static void describe(const struct vgpu_work *work, char *text, size_t text_bytes)
{
    (void)snprintf(text, text_bytes, "event %p", (void *)((const struct event_work *)work)->event);
}

static const struct vgpu_work_kind record_kind = {
    .prepare = prepare_record, .copy = copy, .destroy = destroy, .describe = describe};
static const struct vgpu_work_kind wait_kind = {
    .prepare = prepare_wait, .copy = copy, .destroy = destroy, .describe = describe};

cudaError_t vgpu_event_work(const char *function, enum cudaGraphNodeType type, cudaEvent_t event,
                            struct vgpu_work **work_out)
{
    struct vgpu_event *found = NULL;
    cudaError_t error = vgpu_event_find(function, event, &found);
    if (error != cudaSuccess) {
        return error;
    }
    if (found->shared && type == cudaGraphNodeTypeWaitEvent) {
        return vgpu_fail(cudaErrorNotSupported,
                         "%s: a node that waits for an event between processes; let the stream "
                         "wait for it before the graph",
                         function);
    }
    struct event_work *made = malloc(sizeof(*made));
    if (!made) {
        return vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", function);
    }
    made->work.kind = type == cudaGraphNodeTypeWaitEvent ? &wait_kind : &record_kind;
    made->work.type = type;
    made->work.device = found->device;
    made->event = event;
    *work_out = &made->work;
    return cudaSuccess;
}

cudaEvent_t vgpu_work_event(const struct vgpu_work *work)
{
    return ((const struct event_work *)work)->event;
}
