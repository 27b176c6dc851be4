// Stream capture and graphs: not there yet; every function says so.
// SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime_api.h"
#include "error.h"
#include "stream_internal.h"

static cudaError_t refuse(const char *function)
{
    return vgpu_fail(cudaErrorNotSupported,
                     "%s: virtual GPUs do not capture streams or run graphs yet; enqueue the work "
                     "itself",
                     function);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    if (!status) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaStreamIsCapturing: status is NULL");
    }
    if (!vgpu_stream_device(stream)) {
        return vgpu_fail(cudaErrorInvalidResourceHandle, "cudaStreamIsCapturing: %p is no stream",
                         (void *)stream);
    }
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

// NOLINTBEGIN(readability-non-const-parameter): CUDA's signature
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **dependencies,
                                     const cudaGraphEdgeData **edges, size_t *dependency_count)
{
    (void)id; // the others are defined only during a capture
    (void)graph;
    (void)dependencies;
    (void)edges;
    (void)dependency_count;
    return cudaStreamIsCapturing(stream, status);
}
// NOLINTEND(readability-non-const-parameter)

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)stream;
    (void)mode;
    return refuse("cudaStreamBeginCapture");
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    (void)stream;
    (void)graph;
    return refuse("cudaStreamEndCapture");
}

// A thread's mode matters only while it captures; it is kept, so that it can be put back.
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    static __thread enum cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
    if (!mode || (unsigned)*mode > cudaStreamCaptureModeRelaxed) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaThreadExchangeStreamCaptureMode: mode is %s",
                         mode ? "none of the three" : "NULL");
    }
    enum cudaStreamCaptureMode before = current;
    current = *mode;
    *mode = before;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph,
                                 unsigned long long flags)
{
    (void)executable;
    (void)graph;
    (void)flags;
    return refuse("cudaGraphInstantiate");
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
    (void)executable;
    (void)stream;
    return refuse("cudaGraphLaunch");
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
    (void)executable;
    return refuse("cudaGraphExecDestroy");
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    (void)graph;
    return refuse("cudaGraphDestroy");
}
