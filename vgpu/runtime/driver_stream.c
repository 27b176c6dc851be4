// The driver's streams, events and launches: the runtime's under other names. The handles are the
// same; a CUfunction is the address of a kernel's host stub. SPDX-License-Identifier: Apache-2.0
#include "copy.h"
#include "cuda_runtime_api.h"
#include "driver_error.h"
#include "error.h"
#include "stream.h"

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
    cudaError_t error = cudaStreamIsCapturing(stream, &same);
    if (error == cudaSuccess && status) {
        *status = (CUstreamCaptureStatus)same;
    }
    return status ? vgpu_driver_end(before, error) : CUDA_ERROR_INVALID_VALUE;
}

// Waiting in a stream for a word of memory would hold up a thread of the pool; devices say that
// they cannot (CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1 and its like are 0).
static CUresult no_wait(const char *function, CUstream stream, CUdeviceptr address)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before,
                           vgpu_fail(cudaErrorNotSupported,
                                     "%s: streams cannot wait for memory (stream %p, 0x%llx)",
                                     function, (void *)stream, address));
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                             unsigned int flags)
{
    (void)value;
    (void)flags;
    return no_wait("cuStreamWaitValue32", stream, address);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                             unsigned int flags)
{
    (void)value;
    (void)flags;
    return no_wait("cuStreamWaitValue64", stream, address);
}

static CUresult write_value(const char *function, CUstream stream, CUdeviceptr address,
                            const void *value, size_t bytes)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, vgpu_copy(function, (void *)(uintptr_t)address, value, bytes,
                                             cudaMemcpyHostToDevice, stream, false));
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                              unsigned int flags)
{
    (void)flags; // the one flag there is lifts an ordering that costs nothing here
    return write_value("cuStreamWriteValue32", stream, address, &value, sizeof(value));
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                              unsigned int flags)
{
    (void)flags;
    return write_value("cuStreamWriteValue64", stream, address, &value, sizeof(value));
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

// ---- Launches ----------------------------------------------------------------------------------

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *argument)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaLaunchHostFunc(stream, function, argument));
}

// NOLINTNEXTLINE(readability-function-size): CUDA's parameters
CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void **arguments, void **extra)
{
    cudaError_t before = vgpu_driver_begin();
    if (extra) {
        return vgpu_driver_end(before, vgpu_fail(cudaErrorNotSupported,
                                                 "cuLaunchKernel: `extra` (%p) is not supported; "
                                                 "pass the arguments one by one",
                                                 (void *)extra));
    }
    dim3 grid = {grid_x, grid_y, grid_z};
    dim3 block = {block_x, block_y, block_z};
    return vgpu_driver_end(before, cudaLaunchKernel((const void *)function, grid, block, arguments,
                                                    shared_bytes, stream));
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments,
                          void **extra)
{
    if (!config) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool cooperative = false;
    for (unsigned int i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *a = &config->attrs[i];
        if (a->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
            cooperative = a->value.cooperative != 0;
        } else if (a->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION &&
                   (a->value.clusterDim.x > 1 || a->value.clusterDim.y > 1 ||
                    a->value.clusterDim.z > 1)) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    if (!cooperative) {
        return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                              config->blockDimX, config->blockDimY, config->blockDimZ,
                              config->sharedMemBytes, config->hStream, arguments, extra);
    }
    cudaError_t before = vgpu_driver_begin();
    dim3 grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
    dim3 block = {config->blockDimX, config->blockDimY, config->blockDimZ};
    return vgpu_driver_end(before, cudaLaunchCooperativeKernel((const void *)function, grid, block,
                                                               arguments, config->sharedMemBytes,
                                                               config->hStream));
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    cudaError_t before = vgpu_driver_begin();
    struct cudaFuncAttributes a;
    cudaError_t error = cudaFuncGetAttributes(&a, (const void *)function);
    if (error != cudaSuccess || !value) {
        return value ? vgpu_driver_end(before, error) : CUDA_ERROR_INVALID_VALUE;
    }
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = a.maxThreadsPerBlock;
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)a.sharedSizeBytes;
        break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *value = (int)a.constSizeBytes;
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)a.localSizeBytes;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = a.numRegs;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *value = a.ptxVersion;
        break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = a.binaryVersion;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = a.maxDynamicSharedSizeBytes;
        break;
    default:
        *value = 0; // preferences and clusters: none
        break;
    }
    return vgpu_driver_end(before, cudaSuccess);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaFuncSetAttribute((const void *)function,
                                                        (enum cudaFuncAttribute)attribute, value));
}
