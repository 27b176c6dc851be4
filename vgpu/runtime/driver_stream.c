// The driver's streams, events, capture and graphs: the runtime's under other names. The handles
// are the same. SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime_api.h"
#include "driver_error.h"
#include "error.h"
#include "stream.h"

#include <string.h>

// ---- Streams -----------------------------------------------------------------------------------

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaStreamCreateWithFlags(stream, flags));
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaStreamCreateWithPriority(stream, flags, priority));
}

CUresult cuStreamDestroy(CUstream stream)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaStreamDestroy(stream));
}

CUresult cuStreamSynchronize(CUstream stream)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaStreamSynchronize(stream));
}

CUresult cuStreamQuery(CUstream stream)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaStreamQuery(stream));
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaStreamWaitEvent(stream, event, flags));
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_device *device = vgpu_stream_device(stream);
    if (!context || !device) {
        return vgpu_driver_end(
            before,
            vgpu_fail(context ? cudaErrorInvalidResourceHandle : cudaErrorInvalidValue,
                      "cuStreamGetCtx: stream %p, result at %p", (void *)stream, (void *)context));
    }
    *context = (CUcontext)device;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream stream, unsigned int *flags)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaStreamGetFlags(stream, flags));
}

CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaStreamGetPriority(stream, priority));
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *id)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaStreamGetId(stream, id));
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    cudaError_t before = vgpu_driver_begin();
    enum cudaStreamCaptureStatus same = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaStreamIsCapturing(stream, status ? &same : NULL);
    if (error == cudaSuccess) {
        *status = (CUstreamCaptureStatus)same;
    }
    return vgpu_driver_end(before, error);
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *argument,
                             unsigned int flags)
{
    cudaError_t before = vgpu_driver_begin();
    // The two types differ in the name of the error's type only.
    return vgpu_driver_end(
        before, cudaStreamAddCallback(stream, (cudaStreamCallback_t)callback, argument, flags));
}

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr pointer, size_t bytes,
                                unsigned int flags)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(
        before, cudaStreamAttachMemAsync(stream, (void *)(uintptr_t)pointer, bytes, flags));
}

// ---- Capture and graphs ------------------------------------------------------------------------

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before,
                           cudaStreamBeginCapture(stream, (enum cudaStreamCaptureMode)mode));
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaStreamEndCapture(stream, graph));
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                CUgraph *graph, const CUgraphNode **dependencies,
                                const CUgraphEdgeData **edges, size_t *dependency_count)
{
    cudaError_t before = vgpu_driver_begin();
    enum cudaStreamCaptureStatus same = cudaStreamCaptureStatusNone;
    unsigned long long number = 0;
    cudaError_t error =
        cudaStreamGetCaptureInfo(stream, status ? &same : NULL, &number, graph, dependencies,
                                 (const cudaGraphEdgeData **)edges, dependency_count);
    if (error == cudaSuccess) {
        *status = (CUstreamCaptureStatus)same;
        if (id && same == cudaStreamCaptureStatusActive) {
            *id = number;
        }
    }
    return vgpu_driver_end(before, error);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies,
                                           const CUgraphEdgeData *edges, size_t count,
                                           unsigned int flags)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(
        before, cudaStreamUpdateCaptureDependencies(
                    stream, dependencies, (const cudaGraphEdgeData *)edges, count, flags));
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before,
                           cudaThreadExchangeStreamCaptureMode((enum cudaStreamCaptureMode *)mode));
}

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaGraphCreate(graph, flags));
}

CUresult cuGraphDestroy(CUgraph graph)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaGraphDestroy(graph));
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaGraphGetNodes(graph, nodes, count));
}

CUresult cuGraphInstantiate(CUgraphExec *executable, CUgraph graph, unsigned long long flags)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaGraphInstantiate(executable, graph, flags));
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaGraphLaunch(executable, stream));
}

CUresult cuGraphExecDestroy(CUgraphExec executable)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaGraphExecDestroy(executable));
}

// ---- Events ------------------------------------------------------------------------------------

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaEventCreateWithFlags(event, flags));
}

CUresult cuEventDestroy(CUevent event)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaEventDestroy(event));
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaEventRecord(event, stream));
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaEventRecordWithFlags(event, stream, flags));
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaIpcGetEventHandle((cudaIpcEventHandle_t *)handle, event));
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
    cudaError_t before = vgpu_driver_begin();
    cudaIpcEventHandle_t same;
    memcpy(&same, &handle, sizeof(same));
    return vgpu_driver_end(before, cudaIpcOpenEventHandle(event, same));
}

CUresult cuEventQuery(CUevent event)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaEventQuery(event));
}

CUresult cuEventSynchronize(CUevent event)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaEventSynchronize(event));
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaEventElapsedTime(milliseconds, start, end));
}
