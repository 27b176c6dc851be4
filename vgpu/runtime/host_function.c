// Host functions and stream callbacks: user code in a stream's order.
//
// They run on one thread of their own, one after the other: a function that waits for something
// must not keep a worker's blocks from running. SPDX-License-Identifier: Apache-2.0
#include "capture.h"
#include "cuda_runtime_api.h"
#include "error.h"
#include "pool.h"
#include "stream_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct host_function {
    struct vgpu_operation operation; // first
    cudaHostFn_t function;           // exactly one of the two is set
    cudaStreamCallback_t callback;
    cudaStream_t stream; // as the callback's caller named it
    void *argument;
    struct host_function *next;
};

// Guards the queue and whether its thread runs.
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_grown = PTHREAD_COND_INITIALIZER;
static struct host_function *first;
static struct host_function *last;
static bool thread_runs;

static void *run_functions(void *argument)
{
    vgpu_mark_pool_thread();
    for (;;) {
        pthread_mutex_lock(&queue_lock);
        while (!first) {
            pthread_cond_wait(&queue_grown, &queue_lock);
        }
        struct host_function *host = first;
        first = host->next;
        pthread_mutex_unlock(&queue_lock);
        vgpu_host_function_begins();
        if (host->function) {
            host->function(host->argument);
        } else {
            host->callback(host->stream,
                           (cudaError_t)atomic_load(&host->operation.device->sticky_error),
                           host->argument);
        }
        vgpu_host_function_ends();
        vgpu_operation_complete(&host->operation);
    }
    return argument;
}

static void start(struct vgpu_operation *operation)
{
    struct host_function *host = (struct host_function *)operation;
    pthread_mutex_lock(&queue_lock);
    host->next = NULL;
    *(first ? &last->next : &first) = host;
    last = host;
    pthread_cond_signal(&queue_grown);
    pthread_mutex_unlock(&queue_lock);
}

static void destroy(struct vgpu_operation *operation)
{
    free(operation);
}

static bool start_thread(void)
{
    pthread_mutex_lock(&queue_lock);
    if (!thread_runs) {
        thread_runs = vgpu_start_thread("vgpu-host", run_functions, NULL);
    }
    bool runs = thread_runs;
    pthread_mutex_unlock(&queue_lock);
    return runs;
}

// ---- As work ------------------------------------------------------------------------------------

struct host_work {
    struct vgpu_work work; // first
    struct cudaHostNodeParams parameters;
};

static struct vgpu_operation *make(struct vgpu_device *device, struct host_function wanted)
{
    struct host_function *host = malloc(sizeof(*host));
    if (!host || !start_thread()) {
        free(host);
        return NULL;
    }
    *host = wanted;
    vgpu_operation_init(&host->operation, device, start, destroy);
    host->operation.always_starts = wanted.callback != NULL;
    return &host->operation;
}

static struct vgpu_operation *prepare(const struct vgpu_work *work)
{
    const struct cudaHostNodeParams *p = &((const struct host_work *)work)->parameters;
    return make(work->device, (struct host_function){.function = p->fn, .argument = p->userData});
}

static struct vgpu_work *new_work(struct vgpu_device *device,
                                  const struct cudaHostNodeParams *parameters);

static struct vgpu_work *copy_work(const struct vgpu_work *work)
{
    return new_work(work->device, &((const struct host_work *)work)->parameters);
}

static void destroy_work(struct vgpu_work *work)
{
    free(work);
}

static void describe(const struct vgpu_work *work, char *text, size_t text_bytes)
{
    const struct cudaHostNodeParams *p = &((const struct host_work *)work)->parameters;
    (void)snprintf(text, text_bytes, "function 0x%llx, argument %p",
                   (unsigned long long)(uintptr_t)p->fn, p->userData);
}

static const struct vgpu_work_kind host_kind = {
    .prepare = prepare, .copy = copy_work, .destroy = destroy_work, .describe = describe};

static struct vgpu_work *new_work(struct vgpu_device *device,
                                  const struct cudaHostNodeParams *parameters)
{
    struct host_work *made = malloc(sizeof(*made));
    if (!made) {
        return NULL;
    }
    made->work = (struct vgpu_work){&host_kind, cudaGraphNodeTypeHost, device};
    made->parameters = *parameters;
    return &made->work;
}

cudaError_t vgpu_host_work(const char *function, struct vgpu_device *device,
                           const struct cudaHostNodeParams *parameters, struct vgpu_work **work_out)
{
    cudaError_t error = vgpu_device_ready(device);
    if (error != cudaSuccess) {
        return error;
    }
    if (!parameters || !parameters->fn) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: the %s NULL", function,
                         parameters ? "function is" : "parameters are");
    }
    *work_out = new_work(device, parameters);
    return *work_out ? cudaSuccess
                     : vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", function);
}

void vgpu_host_parameters(const struct vgpu_work *work, struct cudaHostNodeParams *parameters)
{
    *parameters = ((const struct host_work *)work)->parameters;
}

// ---- CUDA's functions ---------------------------------------------------------------------------

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    static const char *const name = "cudaLaunchHostFunc";
    struct vgpu_stream *on = NULL;
    if (!function) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: function is NULL", name);
    }
    cudaError_t error = vgpu_stream_resolve(name, stream, &on);
    if (error != cudaSuccess) {
        return error;
    }
    struct cudaHostNodeParams parameters = {function, argument};
    return vgpu_stream_give(name, on, new_work(on->device, &parameters));
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback,
                                  void *argument, unsigned int flags)
{
    static const char *const name = "cudaStreamAddCallback";
    struct vgpu_stream *on = NULL;
    if (!callback || flags != 0) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: callback is %s, flags are 0x%x; must be a function and 0", name,
                         callback ? "a function" : "NULL", flags);
    }
    cudaError_t error = vgpu_stream_resolve(name, stream, &on);
    if (error == cudaSuccess) {
        error =
            vgpu_capture_refuse(name, on, "callbacks cannot be captured; use cudaLaunchHostFunc");
    }
    if (error != cudaSuccess) {
        return error;
    }
    struct vgpu_operation *operation =
        make(on->device,
             (struct host_function){.callback = callback, .stream = stream, .argument = argument});
    if (!operation) {
        return vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory, or no thread to run it", name);
    }
    error = vgpu_stream_enqueue(on, operation, NULL);
    vgpu_operation_release(operation);
    return error;
}
