// Events: a point in a stream's work, its completion and its time.
//
// An event names the operation that its last record enqueued; a new record takes its place, and who
// waits for the old one still does. SPDX-License-Identifier: Apache-2.0
#include "event.h"

#include "cuda_runtime_api.h"
#include "error.h"
#include "pool.h"

#include <stdlib.h>

cudaError_t vgpu_event_find(const char *function, cudaEvent_t handle, struct vgpu_event **event_out)
{
    cudaError_t allowed = vgpu_calls_allowed();
    if (allowed != cudaSuccess) {
        return allowed;
    }
    if (!vgpu_handle_known(handle, VGPU_HANDLE_EVENT)) {
        return vgpu_fail(cudaErrorInvalidResourceHandle, "%s: %p is no event", function,
                         (void *)handle);
    }
    *event_out = (struct vgpu_event *)(void *)handle;
    return cudaSuccess;
}

struct vgpu_operation *vgpu_event_hold_recorded(struct vgpu_event *event)
{
    vgpu_graph_lock();
    struct vgpu_operation *operation = event->recorded;
    if (operation) {
        vgpu_operation_hold(operation);
    }
    vgpu_graph_unlock();
    return operation;
}

// Takes over the operation's reference.
static void replace_recorded(struct vgpu_event *event, struct vgpu_operation *operation)
{
    vgpu_graph_lock();
    struct vgpu_operation *before = event->recorded;
    event->recorded = operation;
    vgpu_graph_unlock();
    vgpu_operation_release(before);
}

struct vgpu_operation *vgpu_event_recorder(struct vgpu_event *event, struct vgpu_device *device)
{
    struct vgpu_operation *operation =
        event->shared ? vgpu_shared_event_recorder(event->shared, device) : vgpu_marker_new(device);
    if (operation) {
        vgpu_operation_hold(operation);
        replace_recorded(event, operation);
        vgpu_captured_clear(&event->captured);
    }
    return operation;
}

// ---- Making -------------------------------------------------------------------------------------

cudaError_t vgpu_event_new(const char *function, unsigned flags, struct vgpu_shared_event *shared,
                           cudaEvent_t *event_out)
{
    struct vgpu_device *device = vgpu_current_device();
    cudaError_t error = vgpu_device_ready(device);
    struct vgpu_event *made = error == cudaSuccess ? calloc(1, sizeof(*made)) : NULL;
    if (!made || !vgpu_handle_add(made, VGPU_HANDLE_EVENT)) {
        free(made);
        vgpu_shared_event_release(shared);
        return error != cudaSuccess
                   ? error
                   : vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", function);
    }
    made->device = device;
    made->flags = flags;
    made->shared = shared;
    *event_out = (cudaEvent_t)(void *)made;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    static const char *const function = "cudaEventCreateWithFlags";
    const unsigned known = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    if (!event) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: event is NULL", function);
    }
    if ((flags & ~known) ||
        ((flags & cudaEventInterprocess) && !(flags & cudaEventDisableTiming))) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: flags are 0x%x; cudaEventInterprocess needs cudaEventDisableTiming",
                         function, flags);
    }
    struct vgpu_shared_event *shared = NULL;
    cudaError_t error =
        flags & cudaEventInterprocess ? vgpu_shared_event_new(function, &shared) : cudaSuccess;
    return error == cudaSuccess ? vgpu_event_new(function, flags, shared, event) : error;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    struct vgpu_event *found = NULL;
    cudaError_t error = vgpu_event_find("cudaEventDestroy", event, &found);
    if (error == cudaSuccess) {
        vgpu_handle_remove(found);
        replace_recorded(found, NULL);
        vgpu_captured_clear(&found->captured);
        vgpu_shared_event_release(found->shared);
        free(found);
    }
    return error;
}

// ---- Recording ----------------------------------------------------------------------------------

// Records in a stream that is being captured: the event stands for the stream's frontier, or, with
// cudaEventRecordExternal, a node of the graph records it.
static cudaError_t record_captured(struct vgpu_event *event, struct vgpu_stream *stream,
                                   unsigned flags)
{
    static const char *const function = "cudaEventRecord";
    if (flags != cudaEventRecordExternal) {
        cudaError_t error = vgpu_capture_record(function, stream, &event->captured);
        if (error == cudaSuccess) {
            replace_recorded(event, NULL);
        }
        return error;
    }
    struct vgpu_work *work = NULL;
    cudaError_t error =
        vgpu_event_work(function, cudaGraphNodeTypeEventRecord, (cudaEvent_t)(void *)event, &work);
    return error == cudaSuccess ? vgpu_capture_add(function, stream, work) : error;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    struct vgpu_event *found = NULL;
    struct vgpu_stream *on = NULL;
    cudaError_t error = vgpu_event_find("cudaEventRecord", event, &found);
    if (error == cudaSuccess) {
        error = vgpu_stream_resolve("cudaEventRecord", stream, &on);
    }
    if (error != cudaSuccess) {
        return error;
    }
    bool captures = vgpu_stream_captures(on);
    if (flags != cudaEventRecordDefault && (!captures || flags != cudaEventRecordExternal)) {
        return vgpu_fail(flags == cudaEventRecordExternal ? cudaErrorIllegalState
                                                          : cudaErrorInvalidValue,
                         "cudaEventRecordWithFlags: flags are 0x%x; must be 0, or "
                         "cudaEventRecordExternal in a stream that is being captured",
                         flags);
    }
    if (on->device != found->device) {
        return vgpu_fail(cudaErrorInvalidResourceHandle,
                         "cudaEventRecord: the event is of %s, the stream of %s",
                         vgpu_device_name(found->device->ordinal).text,
                         vgpu_device_name(on->device->ordinal).text);
    }
    if (captures) {
        return record_captured(found, on, flags);
    }
    struct vgpu_operation *operation = vgpu_event_recorder(found, on->device);
    if (!operation) {
        return vgpu_fail(cudaErrorMemoryAllocation, "cudaEventRecord: no memory");
    }
    error = vgpu_stream_enqueue(on, operation, NULL);
    if (error != cudaSuccess) {
        replace_recorded(found, NULL);
    }
    vgpu_operation_release(operation);
    return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

// ---- Streams that wait --------------------------------------------------------------------------

static cudaError_t wait_external(cudaEvent_t event, struct vgpu_stream *stream)
{
    static const char *const function = "cudaStreamWaitEvent";
    struct vgpu_work *work = NULL;
    if (!vgpu_stream_captures(stream)) {
        return vgpu_fail(cudaErrorIllegalState,
                         "%s: cudaEventWaitExternal is for streams that are being captured",
                         function);
    }
    cudaError_t error = vgpu_event_work(function, cudaGraphNodeTypeWaitEvent, event, &work);
    return error == cudaSuccess ? vgpu_capture_add(function, stream, work) : error;
}

static cudaError_t wait_recorded(struct vgpu_stream *stream, struct vgpu_operation *recorded)
{
    if (!recorded || vgpu_operation_done(recorded)) {
        return cudaSuccess;
    }
    struct vgpu_operation *marker = vgpu_marker_new(stream->device);
    cudaError_t error =
        marker ? vgpu_stream_enqueue(stream, marker, recorded)
               : vgpu_fail(cudaErrorMemoryAllocation, "cudaStreamWaitEvent: no memory");
    vgpu_operation_release(marker);
    return error;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    static const char *const function = "cudaStreamWaitEvent";
    struct vgpu_event *found = NULL;
    struct vgpu_stream *on = NULL;
    cudaError_t error = vgpu_event_find(function, event, &found);
    if (error == cudaSuccess) {
        error = vgpu_stream_resolve(function, stream, &on);
    }
    if (error != cudaSuccess) {
        return error;
    }
    if (flags == cudaEventWaitExternal) {
        return wait_external(event, on);
    }
    if (flags != cudaEventWaitDefault) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: flags are 0x%x; must be 0, or cudaEventWaitExternal in a stream that "
                         "is being captured",
                         function, flags);
    }
    struct vgpu_operation *recorded = vgpu_event_hold_recorded(found);
    bool captured = false;
    if (vgpu_capturing() || !recorded) {
        error =
            vgpu_capture_wait(function, on, &found->captured, recorded || found->shared, &captured);
    }
    if (error == cudaSuccess && !captured) {
        error = found->shared ? vgpu_shared_event_hold_up(function, found->shared, stream)
                              : wait_recorded(on, recorded);
    }
    vgpu_operation_release(recorded);
    return error;
}

// ---- Completion ---------------------------------------------------------------------------------

// The event, if its completion may be asked for.
static cudaError_t find_asked(const char *function, cudaEvent_t handle,
                              struct vgpu_event **event_out)
{
    cudaError_t error = vgpu_event_find(function, handle, event_out);
    if (error == cudaSuccess) {
        error = vgpu_captured_ask(function, &(*event_out)->captured);
    }
    return error == cudaSuccess ? vgpu_capture_allows(function) : error;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    struct vgpu_event *found = NULL;
    cudaError_t error = find_asked("cudaEventQuery", event, &found);
    if (error == cudaSuccess) {
        error = vgpu_device_ready(found->device);
    }
    if (error != cudaSuccess) {
        return error;
    }
    struct vgpu_operation *recorded = vgpu_event_hold_recorded(found);
    bool ready = found->shared ? vgpu_shared_event_done(found->shared)
                               : !recorded || vgpu_operation_done(recorded);
    vgpu_operation_release(recorded);
    return ready ? cudaSuccess : vgpu_fail(cudaErrorNotReady, "cudaEventQuery: work is pending");
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    struct vgpu_event *found = NULL;
    cudaError_t error = find_asked("cudaEventSynchronize", event, &found);
    if (error != cudaSuccess) {
        return error;
    }
    if (vgpu_on_pool_thread()) {
        return vgpu_fail(cudaErrorNotPermitted,
                         "cudaEventSynchronize: kernels and host functions must not do it");
    }
    if (found->shared) {
        error = vgpu_shared_event_wait("cudaEventSynchronize", found->shared);
        return error == cudaSuccess ? vgpu_device_ready(found->device) : error;
    }
    struct vgpu_operation *recorded = vgpu_event_hold_recorded(found);
    if (recorded) {
        vgpu_operation_wait(recorded);
        vgpu_operation_release(recorded);
    }
    return vgpu_device_ready(found->device);
}

// The time of the last record in *time_out, or the error of cudaEventElapsedTime.
static cudaError_t read_time(const char *which, cudaEvent_t handle, uint64_t *time_out)
{
    struct vgpu_event *event = NULL;
    cudaError_t error = vgpu_event_find("cudaEventElapsedTime", handle, &event);
    if (error == cudaSuccess) {
        error = vgpu_captured_ask("cudaEventElapsedTime", &event->captured);
    }
    if (error != cudaSuccess) {
        return error;
    }
    if (event->flags & cudaEventDisableTiming) {
        return vgpu_fail(cudaErrorInvalidResourceHandle,
                         "cudaEventElapsedTime: the %s event was created with "
                         "cudaEventDisableTiming",
                         which);
    }
    struct vgpu_operation *recorded = vgpu_event_hold_recorded(event);
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
