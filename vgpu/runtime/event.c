// Events: a point in a stream's work, its completion and its time.
//
// An event names the marker operation that its last record enqueued; a new record takes its place,
// and who waits for the old one still does. SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime_api.h"
#include "error.h"
#include "pool.h"
#include "stream_internal.h"

#include <stdlib.h>

struct event {
    struct vgpu_device *device;
    unsigned flags;
    struct vgpu_operation *recorded; // held; NULL: never recorded. Under the graph's lock
};

static cudaError_t find_event(const char *function, cudaEvent_t handle, struct event **event_out)
{
    if (!vgpu_handle_known(handle)) {
        return vgpu_fail(cudaErrorInvalidResourceHandle, "%s: %p is no event", function,
                         (void *)handle);
    }
    *event_out = (struct event *)(void *)handle;
    return cudaSuccess;
}

// The operation of the last record, held; NULL: none.
static struct vgpu_operation *hold_recorded(struct event *event)
{
    vgpu_graph_lock();
    struct vgpu_operation *operation = event->recorded;
    if (operation) {
        vgpu_operation_hold(operation);
    }
    vgpu_graph_unlock();
    return operation;
}

static void replace_recorded(struct event *event, struct vgpu_operation *operation)
{
    vgpu_graph_lock();
    struct vgpu_operation *before = event->recorded;
    event->recorded = operation;
    vgpu_graph_unlock();
    vgpu_operation_release(before);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    const unsigned known = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    if (!event) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaEventCreate: event is NULL");
    }
    if ((flags & ~known) ||
        ((flags & cudaEventInterprocess) && !(flags & cudaEventDisableTiming))) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaEventCreateWithFlags: flags are 0x%x; cudaEventInterprocess needs "
                         "cudaEventDisableTiming",
                         flags);
    }
    if (flags & cudaEventInterprocess) {
        return vgpu_fail(cudaErrorNotSupported,
                         "cudaEventCreateWithFlags: virtual GPUs have no events between processes");
    }
    struct vgpu_device *device = vgpu_current_device();
    cudaError_t error = vgpu_device_ready(device);
    if (error != cudaSuccess) {
        return error;
    }
    struct event *made = calloc(1, sizeof(*made));
    if (!made || !vgpu_handle_add(made)) {
        free(made);
        return vgpu_fail(cudaErrorMemoryAllocation, "cudaEventCreate: no memory");
    }
    made->device = device;
    made->flags = flags;
    *event = (cudaEvent_t)(void *)made;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    struct event *found = NULL;
    cudaError_t error = find_event("cudaEventDestroy", event, &found);
    if (error == cudaSuccess) {
        vgpu_handle_remove(found);
        replace_recorded(found, NULL);
        free(found);
    }
    return error;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    struct event *found = NULL;
    struct vgpu_stream *on = NULL;
    cudaError_t error = find_event("cudaEventRecord", event, &found);
    if (error == cudaSuccess) {
        error = vgpu_stream_resolve("cudaEventRecord", stream, &on);
    }
    if (error != cudaSuccess) {
        return error;
    }
    if (flags != cudaEventRecordDefault) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaEventRecordWithFlags: flags are 0x%x; must be 0 outside a capture",
                         flags);
    }
    if (on->device != found->device) {
        return vgpu_fail(cudaErrorInvalidResourceHandle,
                         "cudaEventRecord: the event is of device %d, the stream of device %d",
                         found->device->ordinal, on->device->ordinal);
    }
    struct vgpu_operation *marker = vgpu_marker_new(on->device);
    if (!marker) {
        return vgpu_fail(cudaErrorMemoryAllocation, "cudaEventRecord: no memory");
    }
    error = vgpu_stream_enqueue(on, marker, NULL);
    if (error != cudaSuccess) {
        vgpu_operation_release(marker);
        return error;
    }
    replace_recorded(found, marker);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    struct event *found = NULL;
    struct vgpu_stream *on = NULL;
    cudaError_t error = find_event("cudaStreamWaitEvent", event, &found);
    if (error == cudaSuccess) {
        error = vgpu_stream_resolve("cudaStreamWaitEvent", stream, &on);
    }
    if (error != cudaSuccess) {
        return error;
    }
    if (flags != cudaEventWaitDefault) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaStreamWaitEvent: flags are 0x%x; must be 0 outside a capture", flags);
    }
    struct vgpu_operation *recorded = hold_recorded(found);
    if (!recorded || vgpu_operation_done(recorded)) {
        vgpu_operation_release(recorded);
        return cudaSuccess;
    }
    struct vgpu_operation *marker = vgpu_marker_new(on->device);
    error = marker ? vgpu_stream_enqueue(on, marker, recorded)
                   : vgpu_fail(cudaErrorMemoryAllocation, "cudaStreamWaitEvent: no memory");
    vgpu_operation_release(marker);
    vgpu_operation_release(recorded);
    return error;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    struct event *found = NULL;
    cudaError_t error = find_event("cudaEventQuery", event, &found);
    if (error == cudaSuccess) {
        error = vgpu_device_ready(found->device);
    }
    if (error != cudaSuccess) {
        return error;
    }
    struct vgpu_operation *recorded = hold_recorded(found);
    bool ready = !recorded || vgpu_operation_done(recorded);
    vgpu_operation_release(recorded);
    return ready ? cudaSuccess : vgpu_fail(cudaErrorNotReady, "cudaEventQuery: work is pending");
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    struct event *found = NULL;
    cudaError_t error = find_event("cudaEventSynchronize", event, &found);
    if (error != cudaSuccess) {
        return error;
    }
    if (vgpu_on_pool_thread()) {
        return vgpu_fail(cudaErrorNotPermitted,
                         "cudaEventSynchronize: kernels and host functions must not do it");
    }
    struct vgpu_operation *recorded = hold_recorded(found);
    if (recorded) {
        vgpu_operation_wait(recorded);
        vgpu_operation_release(recorded);
    }
    return vgpu_device_ready(found->device);
}

// The time of the last record in *time_out, or the error of cudaEventElapsedTime.
static cudaError_t read_time(const char *which, cudaEvent_t handle, uint64_t *time_out)
{
    struct event *event = NULL;
    cudaError_t error = find_event("cudaEventElapsedTime", handle, &event);
    if (error != cudaSuccess) {
        return error;
    }
    if (event->flags & cudaEventDisableTiming) {
        return vgpu_fail(cudaErrorInvalidResourceHandle,
                         "cudaEventElapsedTime: the %s event was created with "
                         "cudaEventDisableTiming",
                         which);
    }
    struct vgpu_operation *recorded = hold_recorded(event);
    if (!recorded) {
        return vgpu_fail(cudaErrorInvalidResourceHandle,
                         "cudaEventElapsedTime: the %s event was never recorded", which);
    }
    bool done = vgpu_operation_done(recorded);
    *time_out = done ? recorded->done_ns : 0;
    vgpu_operation_release(recorded);
    return done ? cudaSuccess
                : vgpu_fail(cudaErrorNotReady, "cudaEventElapsedTime: the %s event is pending",
                            which);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    uint64_t from;
    uint64_t to;
    if (!milliseconds) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaEventElapsedTime: milliseconds is NULL");
    }
    cudaError_t error = read_time("start", start, &from);
    if (error == cudaSuccess) {
        error = read_time("end", end, &to);
    }
    if (error == cudaSuccess) {
        *milliseconds = (float)((double)(int64_t)(to - from) * 1e-6);
    }
    return error;
}
