// CUDA's functions that copy: cudaMemcpy and its peer, 2D, 3D and asynchronous forms.
// SPDX-License-Identifier: Apache-2.0
#include "copy.h"
#include "device.h"
#include "error.h"
#include "stream.h"

cudaError_t cudaMemcpy(void *destination, const void *source, size_t bytes,
                       enum cudaMemcpyKind kind)
{
    return vgpu_copy("cudaMemcpy", destination, source, bytes, kind, 0, true);
}

cudaError_t cudaMemcpyAsync(void *destination, const void *source, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return vgpu_copy("cudaMemcpyAsync", destination, source, bytes, kind, stream, false);
}

// ---- Between devices ---------------------------------------------------------------------------

static cudaError_t check_devices(const char *function, int destination, int source)
{
    struct vgpu_device *device = NULL;
    cudaError_t error = vgpu_device_get(function, destination, &device);
    return error == cudaSuccess ? vgpu_device_get(function, source, &device) : error;
}

cudaError_t cudaMemcpyPeer(void *destination, int destination_device, const void *source,
                           int source_device, size_t bytes)
{
    cudaError_t error = check_devices("cudaMemcpyPeer", destination_device, source_device);
    if (error != cudaSuccess) {
        return error;
    }
    return vgpu_copy("cudaMemcpyPeer", destination, source, bytes, cudaMemcpyDefault, 0, true);
}

cudaError_t cudaMemcpyPeerAsync(void *destination, int destination_device, const void *source,
                                int source_device, size_t bytes, cudaStream_t stream)
{
    cudaError_t error = check_devices("cudaMemcpyPeerAsync", destination_device, source_device);
    if (error != cudaSuccess) {
        return error;
    }
    return vgpu_copy("cudaMemcpyPeerAsync", destination, source, bytes, cudaMemcpyDefault, stream,
                     false);
}

// ---- 2D ----------------------------------------------------------------------------------------

cudaError_t cudaMemcpy2D(void *destination, size_t destination_pitch, const void *source,
                         size_t source_pitch, size_t width, size_t height, enum cudaMemcpyKind kind)
{
    struct vgpu_copy copy = vgpu_flat_copy(destination, source, width, kind);
    copy.destination_pitch = destination_pitch;
    copy.source_pitch = source_pitch;
    copy.height = height;
    return vgpu_copy_submit("cudaMemcpy2D", &copy, 0, true);
}

// NOLINTNEXTLINE(readability-function-size): CUDA's parameters
cudaError_t cudaMemcpy2DAsync(void *destination, size_t destination_pitch, const void *source,
                              size_t source_pitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
    struct vgpu_copy copy = vgpu_flat_copy(destination, source, width, kind);
    copy.destination_pitch = destination_pitch;
    copy.source_pitch = source_pitch;
    copy.height = height;
    return vgpu_copy_submit("cudaMemcpy2DAsync", &copy, stream, false);
}

// ---- 3D ----------------------------------------------------------------------------------------

static cudaError_t copy_3d(const char *function, const struct cudaMemcpy3DParms *parameters,
                           cudaStream_t stream, bool wait)
{
    struct vgpu_copy copy;
    cudaError_t error = vgpu_copy_from_3d(function, parameters, &copy);
    return error == cudaSuccess ? vgpu_copy_submit(function, &copy, stream, wait) : error;
}

cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *parameters)
{
    return copy_3d("cudaMemcpy3D", parameters, 0, true);
}

cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *parameters, cudaStream_t stream)
{
    return copy_3d("cudaMemcpy3DAsync", parameters, stream, false);
}

static cudaError_t copy_3d_peer(const char *function,
                                const struct cudaMemcpy3DPeerParms *parameters, cudaStream_t stream,
                                bool wait)
{
    if (!parameters) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: the parameters are NULL", function);
    }
    cudaError_t error = check_devices(function, parameters->dstDevice, parameters->srcDevice);
    if (error != cudaSuccess) {
        return error;
    }
    struct cudaMemcpy3DParms same = {.srcArray = parameters->srcArray,
                                     .srcPos = parameters->srcPos,
                                     .srcPtr = parameters->srcPtr,
                                     .dstArray = parameters->dstArray,
                                     .dstPos = parameters->dstPos,
                                     .dstPtr = parameters->dstPtr,
                                     .extent = parameters->extent,
                                     .kind = cudaMemcpyDefault};
    return copy_3d(function, &same, stream, wait);
}

cudaError_t cudaMemcpy3DPeer(const struct cudaMemcpy3DPeerParms *parameters)
{
    return copy_3d_peer("cudaMemcpy3DPeer", parameters, 0, true);
}

cudaError_t cudaMemcpy3DPeerAsync(const struct cudaMemcpy3DPeerParms *parameters,
                                  cudaStream_t stream)
{
    return copy_3d_peer("cudaMemcpy3DPeerAsync", parameters, stream, false);
}
