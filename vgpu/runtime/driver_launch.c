// The driver's launches and functions: the runtime's under other names. A CUfunction is the address
// of a kernel's host stub. SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime_api.h"
#include "driver_error.h"
#include "error.h"
#include "launch.h"

#include <stdlib.h>
#include <string.h>

// ---- Launches ----------------------------------------------------------------------------------

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *argument)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaLaunchHostFunc(stream, function, argument));
}

// Arguments as one buffer (`extra`), as pointers to each: (*pointers_out), which the caller frees.
static cudaError_t unpack(const char *function, CUfunction kernel_function, void **extra,
                          void ***pointers_out)
{
    char *buffer = NULL;
    size_t bytes = 0;
    size_t at = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            buffer = extra[1];
        } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            bytes = *(const size_t *)extra[1];
        } else {
            return vgpu_fail(cudaErrorInvalidValue, "%s: `extra` has an unknown entry %p", function,
                             *extra);
        }
    }
    const struct vgpu_kernel_entry *entry = vgpu_kernel_find((const void *)kernel_function);
    if (!entry) {
        return vgpu_fail(cudaErrorInvalidDeviceFunction, "%s: %p is no kernel", function,
                         (void *)kernel_function);
    }
    const struct vgpu_kernel *kernel = entry->kernel;
    void **pointers = malloc(((size_t)kernel->parameter_count + 1) * sizeof(void *));
    if (!pointers) {
        return vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", function);
    }
    for (int i = 0; i < kernel->parameter_count; i++) {
        size_t align = kernel->parameter_align[i];
        at = (at + align - 1) / align * align;
        pointers[i] = buffer + at;
        at += kernel->parameter_bytes[i];
    }
    if (!buffer || at > bytes) {
        free(pointers);
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: a buffer of %zu bytes at %p; kernel %s takes %zu", function, bytes,
                         (void *)buffer, kernel->name, at);
    }
    *pointers_out = pointers;
    return cudaSuccess;
}

static CUresult launch(const char *function, const cudaLaunchConfig_t *config,
                       CUfunction kernel_function, void **arguments, void **extra)
{
    cudaError_t before = vgpu_driver_begin();
    void **unpacked = NULL;
    cudaError_t error = cudaSuccess;
    if (extra && !arguments) {
        error = unpack(function, kernel_function, extra, &unpacked);
    } else if (extra) {
        error = vgpu_fail(cudaErrorInvalidValue,
                          "%s: arguments both one by one (%p) and in `extra` (%p)", function,
                          (void *)arguments, (void *)extra);
    }
    if (error == cudaSuccess) {
        error = cudaLaunchKernelExC(config, (const void *)kernel_function,
                                    unpacked ? unpacked : arguments);
    }
    free(unpacked);
    return vgpu_driver_end(before, error);
}

// NOLINTNEXTLINE(readability-function-size): CUDA's parameters
CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void **arguments, void **extra)
{
    cudaLaunchConfig_t config = {.gridDim = {grid_x, grid_y, grid_z},
                                 .blockDim = {block_x, block_y, block_z},
                                 .dynamicSmemBytes = shared_bytes,
                                 .stream = stream};
    return launch("cuLaunchKernel", &config, function, arguments, extra);
}

// NOLINTNEXTLINE(readability-function-size): CUDA's parameters
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void **arguments)
{
    cudaLaunchAttribute cooperative = {.id = cudaLaunchAttributeCooperative,
                                       .val = {.cooperative = 1}};
    cudaLaunchConfig_t config = {.gridDim = {grid_x, grid_y, grid_z},
                                 .blockDim = {block_x, block_y, block_z},
                                 .dynamicSmemBytes = shared_bytes,
                                 .stream = stream,
                                 .attrs = &cooperative,
                                 .numAttrs = 1};
    return launch("cuLaunchCooperativeKernel", &config, function, arguments, NULL);
}

_Static_assert(sizeof(CUlaunchAttribute) == sizeof(cudaLaunchAttribute),
               "the driver's attributes are the runtime's");

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments,
                          void **extra)
{
    static const char *const name = "cuLaunchKernelEx";
    cudaError_t before = vgpu_driver_begin();
    if (!config || (config->numAttrs > 0 && !config->attrs)) {
        return vgpu_driver_end(before, vgpu_fail(cudaErrorInvalidValue, "%s: %s is NULL", name,
                                                 config ? "config->attrs" : "config"));
    }
    size_t bytes = config->numAttrs * sizeof(cudaLaunchAttribute);
    cudaLaunchAttribute *attributes = malloc(bytes + 1);
    if (!attributes) {
        return vgpu_driver_end(before, vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", name));
    }
    if (bytes > 0) {
        memcpy(attributes, config->attrs, bytes);
    }
    cudaLaunchConfig_t same = {
        .gridDim = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .blockDim = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .dynamicSmemBytes = config->sharedMemBytes,
        .stream = config->hStream,
        .attrs = attributes,
        .numAttrs = config->numAttrs};
    CUresult result = launch(name, &same, function, arguments, extra);
    free(attributes);
    return result;
}

// ---- Functions ---------------------------------------------------------------------------------

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    cudaError_t before = vgpu_driver_begin();
    struct cudaFuncAttributes a;
    cudaError_t error = value
                            ? cudaFuncGetAttributes(&a, (const void *)function)
                            : vgpu_fail(cudaErrorInvalidValue, "cuFuncGetAttribute: value is NULL");
    if (error != cudaSuccess) {
        return vgpu_driver_end(before, error);
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

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(
        before, cudaFuncSetCacheConfig((const void *)function, (enum cudaFuncCache)config));
}

CUresult cuFuncGetName(const char **name, CUfunction function)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaFuncGetName(name, (const void *)function));
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before,
                           cudaFuncGetParamInfo((const void *)function, index, offset, bytes));
}

// ---- Occupancy ---------------------------------------------------------------------------------

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
                                                     int block_size, size_t dynamic_shared_bytes)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size,
                                                                dynamic_shared_bytes, 0);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function,
                                                              int block_size,
                                                              size_t dynamic_shared_bytes,
                                                              unsigned int flags)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(
        before, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                    blocks, (const void *)function, block_size, dynamic_shared_bytes, flags));
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamic_shared_bytes, CUfunction function,
                                                 int blocks, int block_size)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaOccupancyAvailableDynamicSMemPerBlock(dynamic_shared_bytes,
                                                                             (const void *)function,
                                                                             blocks, block_size));
}
