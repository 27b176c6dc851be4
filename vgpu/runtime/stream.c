// Streams: which operations come before which, and who waits for them.
//
// An operation follows its stream's last one. On the legacy stream it also follows the last of
// every blocking stream of the device, and on those also the legacy stream's last. Stream objects
// live until they are destroyed and their operations done. SPDX-License-Identifier: Apache-2.0
#include "stream_internal.h"

#include "capture.h"
#include "cuda_runtime_api.h"
#include "error.h"
#include "pool.h"
#include "vgpu/native.h"
#include "vgpu/stats.h"

#include <pthread.h>
#include <stdlib.h>

enum { GREATEST_PRIORITY = -5, LEAST_PRIORITY = 0 };

static struct vgpu_stream *first_stream[VGPU_MAX_DEVICES]; // by device; under the graph's lock
static atomic_ullong last_id = 2;                          // 1 and 2: the special handles

// The calling thread's own streams, by device; made on first use.
struct thread_streams {
    struct vgpu_stream *stream[VGPU_MAX_DEVICES];
};
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;
static bool have_thread_key;

// ---- Making and freeing -------------------------------------------------------------------------

int vgpu_stream_priority(int wanted)
{
    return wanted < GREATEST_PRIORITY ? GREATEST_PRIORITY
           : wanted > LEAST_PRIORITY  ? LEAST_PRIORITY
                                      : wanted;
}

static struct vgpu_stream *make_stream(struct vgpu_device *device, unsigned flags, int priority)
{
    struct vgpu_stream *stream = calloc(1, sizeof(*stream));
    if (!stream) {
        return NULL;
    }
    stream->device = device;
    stream->flags = flags;
    stream->priority = vgpu_stream_priority(priority);
    stream->id = atomic_fetch_add(&last_id, 1) + 1;
    stream->references = 1;
    return stream;
}

// Under the graph's lock.
static void list_stream(struct vgpu_stream *stream)
{
    struct vgpu_stream **first = &first_stream[stream->device->ordinal];
    stream->next = *first;
    if (*first) {
        (*first)->previous = stream;
    }
    *first = stream;
}

// Under the graph's lock.
static void drop_reference(struct vgpu_stream *stream)
{
    if (--stream->references > 0) {
        return;
    }
    *(stream->previous ? &stream->previous->next : &first_stream[stream->device->ordinal]) =
        stream->next;
    if (stream->next) {
        stream->next->previous = stream->previous;
    }
    free(stream);
}

static struct vgpu_stream *legacy_stream(struct vgpu_device *device)
{
    vgpu_graph_lock();
    struct vgpu_stream *stream = device->legacy_stream;
    if (!stream) {
        stream = make_stream(device, cudaStreamDefault, 0);
        if (stream) {
            stream->is_legacy = true;
            stream->id = 1;
            list_stream(stream);
            device->legacy_stream = stream;
        }
    }
    vgpu_graph_unlock();
    return stream;
}

static void free_thread_streams(void *value)
{
    struct thread_streams *streams = value;
    for (int i = 0; i < VGPU_MAX_DEVICES; i++) {
        if (streams->stream[i]) {
            vgpu_capture_leave(streams->stream[i]);
        }
    }
    vgpu_graph_lock();
    for (int i = 0; i < VGPU_MAX_DEVICES; i++) {
        if (streams->stream[i]) {
            drop_reference(streams->stream[i]);
        }
    }
    vgpu_graph_unlock();
    free(streams);
}

static void make_thread_key(void)
{
    have_thread_key = pthread_key_create(&thread_key, free_thread_streams) == 0;
}

static struct vgpu_stream *thread_stream(struct vgpu_device *device)
{
    pthread_once(&thread_key_once, make_thread_key);
    if (!have_thread_key) {
        return NULL;
    }
    struct thread_streams *streams = pthread_getspecific(thread_key);
    if (!streams) {
        streams = calloc(1, sizeof(*streams));
        if (!streams || pthread_setspecific(thread_key, streams) != 0) {
            free(streams);
            return NULL;
        }
    }
    struct vgpu_stream *stream = streams->stream[device->ordinal];
    if (!stream) {
        stream = make_stream(device, cudaStreamDefault, 0);
        if (stream) {
            vgpu_graph_lock();
            list_stream(stream);
            vgpu_graph_unlock();
            streams->stream[device->ordinal] = stream;
        }
    }
    return stream;
}

// ---- Handles ------------------------------------------------------------------------------------

static bool is_special(cudaStream_t handle)
{
    return handle == NULL || handle == cudaStreamLegacy || handle == cudaStreamPerThread;
}

// The stream, or NULL with the error.
static struct vgpu_stream *find_stream(const char *function, cudaStream_t handle,
                                       cudaError_t *error_out)
{
    if (!is_special(handle)) {
        if (vgpu_handle_known(handle, VGPU_HANDLE_STREAM)) {
            return (struct vgpu_stream *)(void *)handle;
        }
        *error_out = vgpu_fail(cudaErrorInvalidResourceHandle, "%s: %p is no stream", function,
                               (void *)handle);
        return NULL;
    }
    struct vgpu_device *device = vgpu_current_device();
    if (!device) {
        *error_out = vgpu_device_ready(NULL);
        return NULL;
    }
    struct vgpu_stream *stream =
        handle == cudaStreamPerThread ? thread_stream(device) : legacy_stream(device);
    if (!stream) {
        *error_out = vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for a stream", function);
    }
    return stream;
}

static cudaError_t not_permitted(const char *function)
{
    return vgpu_fail(cudaErrorNotPermitted, "%s: kernels and host functions must not do it",
                     function);
}

cudaError_t vgpu_stream_resolve(const char *function, cudaStream_t handle,
                                struct vgpu_stream **stream_out)
{
    if (vgpu_on_pool_thread()) {
        return not_permitted(function);
    }
    cudaError_t error = cudaSuccess;
    *stream_out = find_stream(function, handle, &error);
    if (*stream_out) {
        error = vgpu_device_ready((*stream_out)->device);
    }
    return error == cudaSuccess ? vgpu_capture_check(function, *stream_out) : error;
}

struct vgpu_stream *vgpu_stream_find(cudaStream_t handle)
{
    cudaError_t error = cudaSuccess;
    return find_stream("finding a stream", handle, &error);
}

struct vgpu_device *vgpu_stream_device(cudaStream_t stream)
{
    if (is_special(stream)) {
        return vgpu_current_device();
    }
    return vgpu_handle_known(stream, VGPU_HANDLE_STREAM)
               ? ((struct vgpu_stream *)(void *)stream)->device
               : NULL;
}

// ---- Order --------------------------------------------------------------------------------------

static bool is_blocking(const struct vgpu_stream *stream)
{
    return !(stream->flags & cudaStreamNonBlocking);
}

// Whether new work on `stream` comes after what is on `other`.
static bool comes_after(const struct vgpu_stream *stream, const struct vgpu_stream *other)
{
    return stream == other ||
           (is_blocking(stream) && is_blocking(other) && (stream->is_legacy || other->is_legacy));
}

// Under the lock: takes back the edges of vgpu_operation_follow, which are each the newest.
static void unfollow(struct vgpu_operation *later, struct vgpu_operation *earlier)
{
    if (earlier && earlier->successor_count > 0 &&
        earlier->successors[earlier->successor_count - 1] == later) {
        earlier->successor_count--;
        later->waiting_for--;
    }
}

// Under the lock: the operation follows everything that is on those streams of the device that
// `stream` comes after; with NULL, everything on the device. False: no memory, nothing was changed.
static bool follow_streams(struct vgpu_operation *operation, struct vgpu_device *device,
                           const struct vgpu_stream *stream)
{
    bool enough = true;
    struct vgpu_stream *other;
    for (other = first_stream[device->ordinal]; enough && other; other = other->next) {
        if (!stream || comes_after(stream, other)) {
            enough = vgpu_operation_follow(operation, other->last);
        }
    }
    for (other = first_stream[device->ordinal]; !enough && other; other = other->next) {
        unfollow(operation, other->last);
    }
    return enough;
}

// Under the lock: the newest operation of a stream, until it is done; NULL: nothing is left.
static void set_last(struct vgpu_stream *stream, struct vgpu_operation *last)
{
    int more = (last != NULL) - (stream->last != NULL);
    atomic_fetch_add_explicit(&stream->device->busy_streams, more, memory_order_release);
    stream->last = last;
}

// Whether nothing is left to do on the device, what other threads add meanwhile aside.
static bool is_at_rest(struct vgpu_device *device)
{
    return atomic_load_explicit(&device->busy_streams, memory_order_acquire) == 0;
}

cudaError_t vgpu_stream_enqueue(struct vgpu_stream *stream, struct vgpu_operation *operation,
                                struct vgpu_operation *also_after)
{
    vgpu_graph_lock();
    bool enough = vgpu_operation_follow(operation, also_after);
    if (enough && !follow_streams(operation, stream->device, stream)) {
        unfollow(operation, also_after);
        enough = false;
    }
    if (enough) {
        operation->stream = stream;
        stream->references++;
        set_last(stream, operation);
        vgpu_operation_hold(operation);
    }
    vgpu_graph_unlock();
    if (!enough) {
        return vgpu_fail(cudaErrorMemoryAllocation, "no memory to order an operation");
    }
    vgpu_operation_submitted(operation);
    return cudaSuccess;
}

cudaError_t vgpu_stream_enqueue_pair(struct vgpu_stream *stream, struct vgpu_operation *first,
                                     struct vgpu_operation *last, struct vgpu_operation *also_after)
{
    vgpu_graph_lock();
    bool enough = vgpu_operation_follow(first, also_after);
    if (enough && !follow_streams(first, stream->device, stream)) {
        unfollow(first, also_after);
        enough = false;
    }
    if (enough) {
        last->stream = stream;
        stream->references++;
        set_last(stream, last);
    }
    vgpu_graph_unlock();
    return enough ? cudaSuccess
                  : vgpu_fail(cudaErrorMemoryAllocation, "no memory to order a graph");
}

void vgpu_stream_operation_ended(struct vgpu_operation *operation)
{
    struct vgpu_stream *stream = operation->stream;
    if (!stream) {
        return;
    }
    if (stream->last == operation) {
        set_last(stream, NULL);
    }
    operation->stream = NULL;
    drop_reference(stream);
}

// ---- Waiting ------------------------------------------------------------------------------------

static void free_marker(struct vgpu_operation *marker)
{
    free(marker);
}

struct vgpu_operation *vgpu_marker_new(struct vgpu_device *device)
{
    struct vgpu_operation *marker = malloc(sizeof(*marker));
    if (marker) {
        vgpu_operation_init(marker, device, NULL, free_marker);
    }
    return marker;
}

// Waits for what is on the streams that `stream` comes after; with NULL, on all of the device.
static cudaError_t wait_for_streams(struct vgpu_device *device, const struct vgpu_stream *stream)
{
    struct vgpu_operation *marker = vgpu_marker_new(device);
    if (!marker) {
        return vgpu_fail(cudaErrorMemoryAllocation, "no memory to wait for a stream");
    }
    vgpu_graph_lock();
    bool enough = follow_streams(marker, device, stream);
    vgpu_graph_unlock();
    if (enough) {
        vgpu_operation_hold(marker); // the submission's
        vgpu_operation_submitted(marker);
        vgpu_operation_wait(marker);
    }
    vgpu_operation_release(marker);
    return enough ? cudaSuccess
                  : vgpu_fail(cudaErrorMemoryAllocation, "no memory to wait for a stream");
}

static cudaError_t wait_for_last(struct vgpu_stream *stream)
{
    vgpu_graph_lock();
    struct vgpu_operation *last = stream->last;
    if (last) {
        vgpu_operation_hold(last);
    }
    vgpu_graph_unlock();
    if (last) {
        vgpu_operation_wait(last);
        vgpu_operation_release(last);
    }
    return cudaSuccess;
}

static cudaError_t wait_for(const char *function, cudaStream_t handle)
{
    if (vgpu_on_pool_thread()) {
        return not_permitted(function);
    }
    cudaError_t error = cudaSuccess;
    struct vgpu_stream *stream = find_stream(function, handle, &error);
    if (!stream) {
        return error;
    }
    struct vgpu_device *device = stream->device;
    if (!is_at_rest(device)) { // work of a failed device ends too: wait for that
        error = stream->is_legacy ? wait_for_streams(device, stream) : wait_for_last(stream);
    }
    return error == cudaSuccess ? vgpu_device_ready(device) : error;
}

cudaError_t vgpu_stream_wait(cudaStream_t stream)
{
    return wait_for("waiting for a stream", stream);
}

// Whether a stream has work that is not done; `before`: or what new work on it comes after.
static bool is_busy(const struct vgpu_stream *stream, bool before)
{
    if (is_at_rest(stream->device)) {
        return false;
    }
    bool busy = false, others = before || stream->is_legacy;
    vgpu_graph_lock();
    for (struct vgpu_stream *s = first_stream[stream->device->ordinal]; s && !busy; s = s->next) {
        busy = s->last && (s == stream || (others && comes_after(stream, s)));
    }
    vgpu_graph_unlock();
    return busy;
}

bool vgpu_stream_is_idle(cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    struct vgpu_stream *found = find_stream("looking at a stream", stream, &error);
    return found && !is_busy(found, false);
}

int vgpuStreamIsIdle(cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    struct vgpu_stream *found =
        vgpu_on_pool_thread() ? NULL : find_stream("vgpuStreamIsIdle", stream, &error);
    if (!found || vgpu_capturing() ||
        atomic_load_explicit(&found->device->sticky_error, memory_order_relaxed) != cudaSuccess) {
        return 0; // while anything is captured, whatever it is, work takes the long way
    }
    return !is_busy(found, true);
}

cudaError_t vgpu_device_wait(struct vgpu_device *device)
{
    if (vgpu_on_pool_thread()) {
        return not_permitted("waiting for a device");
    }
    if (!device) {
        return vgpu_device_ready(device);
    }
    cudaError_t error = wait_for_streams(device, NULL);
    return error == cudaSuccess ? vgpu_device_ready(device) : error;
}

// ---- CUDA's functions ---------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    if (!stream) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaStreamCreate: stream is NULL");
    }
    if (flags & ~(unsigned)cudaStreamNonBlocking) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaStreamCreate: flags are 0x%x; must be cudaStreamDefault or "
                         "cudaStreamNonBlocking",
                         flags);
    }
    struct vgpu_device *device = vgpu_current_device();
    cudaError_t error = vgpu_device_ready(device);
    if (error != cudaSuccess) {
        return error;
    }
    struct vgpu_stream *made = make_stream(device, flags, priority);
    if (!made || !vgpu_handle_add(made, VGPU_HANDLE_STREAM)) {
        free(made);
        return vgpu_fail(cudaErrorMemoryAllocation, "cudaStreamCreate: no memory");
    }
    vgpu_graph_lock();
    list_stream(made);
    vgpu_graph_unlock();
    *stream = (cudaStream_t)(void *)made;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cudaError_t allowed = vgpu_calls_allowed();
    if (allowed != cudaSuccess) {
        return allowed;
    }
    if (is_special(stream) || !vgpu_handle_known(stream, VGPU_HANDLE_STREAM)) {
        return vgpu_fail(cudaErrorInvalidResourceHandle,
                         "cudaStreamDestroy: %p is no stream that "
                         "was created",
                         (void *)stream);
    }
    vgpu_handle_remove(stream);
    vgpu_capture_leave((struct vgpu_stream *)(void *)stream);
    vgpu_graph_lock();
    drop_reference((struct vgpu_stream *)(void *)stream);
    vgpu_graph_unlock();
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    struct vgpu_stream *found =
        vgpu_capturing() ? find_stream("cudaStreamSynchronize", stream, &error) : NULL;
    if (found) {
        error = vgpu_capture_allows_wait("cudaStreamSynchronize", found->device, found);
    }
    if (error != cudaSuccess) {
        return error;
    }
    return wait_for("cudaStreamSynchronize", stream);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    if (vgpu_on_pool_thread()) {
        return not_permitted("cudaStreamQuery");
    }
    cudaError_t error = cudaSuccess;
    struct vgpu_stream *found = find_stream("cudaStreamQuery", stream, &error);
    if (!found) {
        return error;
    }
    error = vgpu_device_ready(found->device);
    if (error == cudaSuccess) {
        error = vgpu_capture_allows_wait("cudaStreamQuery", found->device, found);
    }
    if (error != cudaSuccess) {
        return error;
    }
    return is_busy(found, false) ? vgpu_fail(cudaErrorNotReady, "cudaStreamQuery: work is pending")
                                 : cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    struct vgpu_device *device = vgpu_current_device();
    cudaError_t error = vgpu_capture_allows_wait("cudaDeviceSynchronize", device, NULL);
    return error == cudaSuccess ? vgpu_device_wait(device) : error;
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int *flags)
{
    cudaError_t error = cudaSuccess;
    struct vgpu_stream *found = find_stream("cudaStreamGetFlags", stream, &error);
    if (!found) {
        return error;
    }
    if (!flags) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaStreamGetFlags: flags is NULL");
    }
    *flags = found->flags;
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    cudaError_t error = cudaSuccess;
    struct vgpu_stream *found = find_stream("cudaStreamGetPriority", stream, &error);
    if (!found) {
        return error;
    }
    if (!priority) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaStreamGetPriority: priority is NULL");
    }
    *priority = found->priority;
    return cudaSuccess;
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device)
{
    cudaError_t error = cudaSuccess;
    struct vgpu_stream *found = find_stream("cudaStreamGetDevice", stream, &error);
    if (!found) {
        return error;
    }
    if (!device) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaStreamGetDevice: device is NULL");
    }
    *device = found->device->ordinal;
    return cudaSuccess;
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id)
{
    cudaError_t error = cudaSuccess;
    struct vgpu_stream *found = find_stream("cudaStreamGetId", stream, &error);
    if (!found) {
        return error;
    }
    if (!id) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaStreamGetId: id is NULL");
    }
    *id = found->id;
    return cudaSuccess;
}
