// The driver's error numbers, names and strings.
//
// Most numbers are the runtime's; what only the runtime has becomes the nearest of the driver's.
// SPDX-License-Identifier: Apache-2.0
#include "driver_error.h"

#include "cuda_runtime_api.h"
#include "device.h"
#include "error.h"

struct row {
    CUresult error;
    const char *name;
};

// The names that the driver has; texts are the runtime's of the same number.
#define NAMED(error)                                                                               \
    {                                                                                              \
        error, #error                                                                              \
    }
static const struct row ROWS[] = {
    NAMED(CUDA_SUCCESS),
    NAMED(CUDA_ERROR_INVALID_VALUE),
    NAMED(CUDA_ERROR_OUT_OF_MEMORY),
    NAMED(CUDA_ERROR_NOT_INITIALIZED),
    NAMED(CUDA_ERROR_DEINITIALIZED),
    NAMED(CUDA_ERROR_PROFILER_DISABLED),
    NAMED(CUDA_ERROR_PROFILER_NOT_INITIALIZED),
    NAMED(CUDA_ERROR_PROFILER_ALREADY_STARTED),
    NAMED(CUDA_ERROR_PROFILER_ALREADY_STOPPED),
    NAMED(CUDA_ERROR_STUB_LIBRARY),
    NAMED(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER),
    NAMED(CUDA_ERROR_DEVICE_UNAVAILABLE),
    NAMED(CUDA_ERROR_NO_DEVICE),
    NAMED(CUDA_ERROR_INVALID_DEVICE),
    NAMED(CUDA_ERROR_DEVICE_NOT_LICENSED),
    NAMED(CUDA_ERROR_INVALID_IMAGE),
    NAMED(CUDA_ERROR_INVALID_CONTEXT),
    NAMED(CUDA_ERROR_CONTEXT_ALREADY_CURRENT),
    NAMED(CUDA_ERROR_MAP_FAILED),
    NAMED(CUDA_ERROR_UNMAP_FAILED),
    NAMED(CUDA_ERROR_ARRAY_IS_MAPPED),
    NAMED(CUDA_ERROR_ALREADY_MAPPED),
    NAMED(CUDA_ERROR_NO_BINARY_FOR_GPU),
    NAMED(CUDA_ERROR_ALREADY_ACQUIRED),
    NAMED(CUDA_ERROR_NOT_MAPPED),
    NAMED(CUDA_ERROR_NOT_MAPPED_AS_ARRAY),
    NAMED(CUDA_ERROR_NOT_MAPPED_AS_POINTER),
    NAMED(CUDA_ERROR_ECC_UNCORRECTABLE),
    NAMED(CUDA_ERROR_UNSUPPORTED_LIMIT),
    NAMED(CUDA_ERROR_CONTEXT_ALREADY_IN_USE),
    NAMED(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED),
    NAMED(CUDA_ERROR_INVALID_PTX),
    NAMED(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT),
    NAMED(CUDA_ERROR_NVLINK_UNCORRECTABLE),
    NAMED(CUDA_ERROR_JIT_COMPILER_NOT_FOUND),
    NAMED(CUDA_ERROR_UNSUPPORTED_PTX_VERSION),
    NAMED(CUDA_ERROR_JIT_COMPILATION_DISABLED),
    NAMED(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY),
    NAMED(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC),
    NAMED(CUDA_ERROR_CONTAINED),
    NAMED(CUDA_ERROR_INVALID_SOURCE),
    NAMED(CUDA_ERROR_FILE_NOT_FOUND),
    NAMED(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND),
    NAMED(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED),
    NAMED(CUDA_ERROR_OPERATING_SYSTEM),
    NAMED(CUDA_ERROR_INVALID_HANDLE),
    NAMED(CUDA_ERROR_ILLEGAL_STATE),
    NAMED(CUDA_ERROR_LOSSY_QUERY),
    NAMED(CUDA_ERROR_NOT_FOUND),
    NAMED(CUDA_ERROR_NOT_READY),
    NAMED(CUDA_ERROR_ILLEGAL_ADDRESS),
    NAMED(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
    NAMED(CUDA_ERROR_LAUNCH_TIMEOUT),
    NAMED(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING),
    NAMED(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED),
    NAMED(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED),
    NAMED(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE),
    NAMED(CUDA_ERROR_CONTEXT_IS_DESTROYED),
    NAMED(CUDA_ERROR_ASSERT),
    NAMED(CUDA_ERROR_TOO_MANY_PEERS),
    NAMED(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED),
    NAMED(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
    NAMED(CUDA_ERROR_HARDWARE_STACK_ERROR),
    NAMED(CUDA_ERROR_ILLEGAL_INSTRUCTION),
    NAMED(CUDA_ERROR_MISALIGNED_ADDRESS),
    NAMED(CUDA_ERROR_INVALID_ADDRESS_SPACE),
    NAMED(CUDA_ERROR_INVALID_PC),
    NAMED(CUDA_ERROR_LAUNCH_FAILED),
    NAMED(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE),
    NAMED(CUDA_ERROR_TENSOR_MEMORY_LEAK),
    NAMED(CUDA_ERROR_NOT_PERMITTED),
    NAMED(CUDA_ERROR_NOT_SUPPORTED),
    NAMED(CUDA_ERROR_SYSTEM_NOT_READY),
    NAMED(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH),
    NAMED(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE),
    NAMED(CUDA_ERROR_MPS_CONNECTION_FAILED),
    NAMED(CUDA_ERROR_MPS_RPC_FAILURE),
    NAMED(CUDA_ERROR_MPS_SERVER_NOT_READY),
    NAMED(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED),
    NAMED(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED),
    NAMED(CUDA_ERROR_MPS_CLIENT_TERMINATED),
    NAMED(CUDA_ERROR_CDP_NOT_SUPPORTED),
    NAMED(CUDA_ERROR_CDP_VERSION_MISMATCH),
    NAMED(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
    NAMED(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
    NAMED(CUDA_ERROR_STREAM_CAPTURE_MERGE),
    NAMED(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED),
    NAMED(CUDA_ERROR_STREAM_CAPTURE_UNJOINED),
    NAMED(CUDA_ERROR_STREAM_CAPTURE_ISOLATION),
    NAMED(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
    NAMED(CUDA_ERROR_CAPTURED_EVENT),
    NAMED(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD),
    NAMED(CUDA_ERROR_TIMEOUT),
    NAMED(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE),
    NAMED(CUDA_ERROR_EXTERNAL_DEVICE),
    NAMED(CUDA_ERROR_INVALID_CLUSTER_SIZE),
    NAMED(CUDA_ERROR_FUNCTION_NOT_LOADED),
    NAMED(CUDA_ERROR_INVALID_RESOURCE_TYPE),
    NAMED(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION),
    NAMED(CUDA_ERROR_KEY_ROTATION),
    NAMED(CUDA_ERROR_UNKNOWN),
};

static const struct row *find_row(CUresult error)
{
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        if (ROWS[i].error == error) {
            return &ROWS[i];
        }
    }
    return NULL;
}

static CUresult driver_number(cudaError_t error)
{
    switch (error) {
    case cudaErrorInvalidDeviceFunction:
        return CUDA_ERROR_INVALID_HANDLE;
    case cudaErrorInvalidSymbol:
        return CUDA_ERROR_NOT_FOUND;
    default:
        break;
    }
    const struct row *row = find_row((CUresult)error);
    if (row) {
        return row->error;
    }
    // Numbers below 100 that the driver lacks are about arguments.
    return (int)error < 100 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_UNKNOWN;
}

cudaError_t vgpu_driver_begin(void)
{
    cudaError_t before = vgpu_last_error_exchange(cudaSuccess);
    vgpu_last_error_exchange(before);
    return before;
}

CUresult vgpu_driver_end(cudaError_t before, cudaError_t error)
{
    vgpu_last_error_exchange(before);
    return driver_number(error);
}

CUresult cuGetErrorName(CUresult error, const char **text)
{
    const struct row *row = find_row(error);
    if (!text) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *text = row ? row->name : NULL;
    return row ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    const struct row *row = find_row(error);
    if (!text) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *text = NULL;
    if (!row) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // Two that the runtime has no number for.
    switch (error) {
    case CUDA_ERROR_CONTEXT_ALREADY_CURRENT:
        *text = "context already current";
        break;
    case CUDA_ERROR_KEY_ROTATION:
        *text = "key rotation needed";
        break;
    default:
        *text = cudaGetErrorString((cudaError_t)error);
        break;
    }
    return CUDA_SUCCESS;
}
