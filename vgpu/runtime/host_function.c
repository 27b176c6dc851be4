// Host functions and stream callbacks: user code in a stream's order.
//
// They run on one thread of their own, one after the other: a function that waits for something
// must not keep a worker's blocks from running. SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime_api.h"
#include "error.h"
#include "pool.h"
#include "stream_internal.h"

#include <pthread.h>
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
        if (host->function) {
            host->function(host->argument);
        } else {
            host->callback(host->stream,
                           (cudaError_t)atomic_load(&host->operation.device->sticky_error),
                           host->argument);
        }
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

static cudaError_t enqueue(const char *name, cudaStream_t handle, struct host_function wanted)
{
    struct vgpu_stream *stream = NULL;
    cudaError_t error = vgpu_stream_resolve(name, handle, &stream);
    if (error != cudaSuccess) {
        return error;
    }
    struct host_function *host = malloc(sizeof(*host));
    if (!host || !start_thread()) {
        free(host);
        return vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory, or no thread to run it", name);
    }
    *host = wanted;
    vgpu_operation_init(&host->operation, stream->device, start, destroy);
    host->operation.always_starts = wanted.callback != NULL;
    error = vgpu_stream_enqueue(stream, &host->operation, NULL);
    vgpu_operation_release(&host->operation);
    return error;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    if (!function) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaLaunchHostFunc: function is NULL");
    }
    return enqueue("cudaLaunchHostFunc", stream,
                   (struct host_function){.function = function, .argument = argument});
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback,
                                  void *argument, unsigned int flags)
{
    if (!callback || flags != 0) {
        return vgpu_fail(
            cudaErrorInvalidValue,
            "cudaStreamAddCallback: callback is %s, flags are 0x%x; must be a function "
            "and 0",
            callback ? "a function" : "NULL", flags);
    }
    return enqueue(
        "cudaStreamAddCallback", stream,
        (struct host_function){.callback = callback, .stream = stream, .argument = argument});
}
