// Driver functions by name: cuGetProcAddress and cudaGetDriverEntryPoint.
//
// A name means its current generation: cuMemAlloc is cuMemAlloc_v2 here. The version is that of the
// CUDA release which brought this generation. SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime_api.h"
#include "driver_error.h"
#include "error.h"

#include <string.h>

struct row {
    const char *name;
    void *function;
    int since;
};

// The name as text is taken before cuda.h's macros replace it by that of a generation.
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name
#define ROW(name, since)                                                                           \
    {                                                                                              \
#name, (void *)name, since                                                                 \
    }

// In the order of strcmp.
static const struct row ROWS[] = {
    ROW(cuCtxCreate, 13000),
    ROW(cuCtxDestroy, 4000),
    ROW(cuCtxDisablePeerAccess, 4000),
    ROW(cuCtxEnablePeerAccess, 4000),
    ROW(cuCtxGetApiVersion, 4000),
    ROW(cuCtxGetCurrent, 4000),
    ROW(cuCtxGetDevice, 4000),
    ROW(cuCtxGetFlags, 7000),
    ROW(cuCtxGetId, 12000),
    ROW(cuCtxGetLimit, 4000),
    ROW(cuCtxGetStreamPriorityRange, 5050),
    ROW(cuCtxPopCurrent, 4000),
    ROW(cuCtxPushCurrent, 4000),
    ROW(cuCtxSetCurrent, 4000),
    ROW(cuCtxSetLimit, 4000),
    ROW(cuCtxSynchronize, 4000),
    ROW(cuDeviceCanAccessPeer, 4000),
    ROW(cuDeviceGet, 4000),
    ROW(cuDeviceGetAttribute, 4000),
    ROW(cuDeviceGetByPCIBusId, 4010),
    ROW(cuDeviceGetCount, 4000),
    ROW(cuDeviceGetDefaultMemPool, 11020),
    ROW(cuDeviceGetMemPool, 11020),
    ROW(cuDeviceGetName, 4000),
    ROW(cuDeviceGetP2PAttribute, 8000),
    ROW(cuDeviceGetPCIBusId, 4010),
    ROW(cuDeviceGetUuid, 11040),
    ROW(cuDevicePrimaryCtxGetState, 7000),
    ROW(cuDevicePrimaryCtxRelease, 11000),
    ROW(cuDevicePrimaryCtxReset, 11000),
    ROW(cuDevicePrimaryCtxRetain, 7000),
    ROW(cuDevicePrimaryCtxSetFlags, 11000),
    ROW(cuDeviceSetMemPool, 11020),
    ROW(cuDeviceTotalMem, 4000),
    ROW(cuDriverGetVersion, 4000),
    ROW(cuEventCreate, 4000),
    ROW(cuEventDestroy, 4000),
    ROW(cuEventElapsedTime, 4000),
    ROW(cuEventQuery, 4000),
    ROW(cuEventRecord, 4000),
    ROW(cuEventRecordWithFlags, 11010),
    ROW(cuEventSynchronize, 4000),
    ROW(cuFuncGetAttribute, 4000),
    ROW(cuFuncGetName, 12030),
    ROW(cuFuncGetParamInfo, 12040),
    ROW(cuFuncSetAttribute, 9000),
    ROW(cuFuncSetCacheConfig, 4000),
    ROW(cuGetErrorName, 6000),
    ROW(cuGetErrorString, 6000),
    ROW(cuGetProcAddress, 12000),
    ROW(cuGraphCreate, 10000),
    ROW(cuGraphDestroy, 10000),
    ROW(cuGraphExecDestroy, 10000),
    ROW(cuGraphGetNodes, 10000),
    ROW(cuGraphInstantiate, 12000),
    ROW(cuGraphLaunch, 10000),
    ROW(cuInit, 4000),
    ROW(cuIpcCloseMemHandle, 4010),
    ROW(cuIpcGetEventHandle, 4010),
    ROW(cuIpcGetMemHandle, 4010),
    ROW(cuIpcOpenEventHandle, 4010),
    ROW(cuIpcOpenMemHandle, 11000),
    ROW(cuLaunchCooperativeKernel, 9000),
    ROW(cuLaunchHostFunc, 10000),
    ROW(cuLaunchKernel, 4000),
    ROW(cuLaunchKernelEx, 11060),
    ROW(cuMemAddressFree, 10020),
    ROW(cuMemAddressReserve, 10020),
    ROW(cuMemAlloc, 4000),
    ROW(cuMemAllocAsync, 11020),
    ROW(cuMemAllocFromPoolAsync, 11020),
    ROW(cuMemAllocHost, 4000),
    ROW(cuMemAllocManaged, 6000),
    ROW(cuMemAllocPitch, 4000),
    ROW(cuMemCreate, 10020),
    ROW(cuMemExportToShareableHandle, 10020),
    ROW(cuMemFree, 4000),
    ROW(cuMemFreeAsync, 11020),
    ROW(cuMemFreeHost, 4000),
    ROW(cuMemGetAccess, 10020),
    ROW(cuMemGetAddressRange, 4000),
    ROW(cuMemGetAllocationGranularity, 10020),
    ROW(cuMemGetAllocationPropertiesFromHandle, 10020),
    ROW(cuMemGetHandleForAddressRange, 11070),
    ROW(cuMemGetInfo, 4000),
    ROW(cuMemHostAlloc, 4000),
    ROW(cuMemHostGetDevicePointer, 4000),
    ROW(cuMemHostGetFlags, 4000),
    ROW(cuMemHostRegister, 4000),
    ROW(cuMemHostUnregister, 4000),
    ROW(cuMemImportFromShareableHandle, 10020),
    ROW(cuMemMap, 10020),
    ROW(cuMemRelease, 10020),
    ROW(cuMemRetainAllocationHandle, 11000),
    ROW(cuMemSetAccess, 10020),
    ROW(cuMemUnmap, 10020),
    ROW(cuMemcpy, 4000),
    ROW(cuMemcpyAsync, 4000),
    ROW(cuMemcpyDtoD, 4000),
    ROW(cuMemcpyDtoDAsync, 4000),
    ROW(cuMemcpyDtoH, 4000),
    ROW(cuMemcpyDtoHAsync, 4000),
    ROW(cuMemcpyHtoD, 4000),
    ROW(cuMemcpyHtoDAsync, 4000),
    ROW(cuMemcpyPeer, 4000),
    ROW(cuMemcpyPeerAsync, 4000),
    ROW(cuMemsetD16, 4000),
    ROW(cuMemsetD16Async, 4000),
    ROW(cuMemsetD2D32, 4000),
    ROW(cuMemsetD2D8, 4000),
    ROW(cuMemsetD32, 4000),
    ROW(cuMemsetD32Async, 4000),
    ROW(cuMemsetD8, 4000),
    ROW(cuMemsetD8Async, 4000),
    ROW(cuModuleGetFunction, 4000),
    ROW(cuModuleGetGlobal, 4000),
    ROW(cuModuleLoad, 4000),
    ROW(cuModuleLoadData, 4000),
    ROW(cuModuleLoadDataEx, 4000),
    ROW(cuModuleUnload, 4000),
    ROW(cuMulticastAddDevice, 12010),
    ROW(cuMulticastBindAddr, 12010),
    ROW(cuMulticastBindMem, 12010),
    ROW(cuMulticastCreate, 12010),
    ROW(cuMulticastGetGranularity, 12010),
    ROW(cuMulticastUnbind, 12010),
    ROW(cuOccupancyAvailableDynamicSMemPerBlock, 10020),
    ROW(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050),
    ROW(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000),
    ROW(cuPointerGetAttribute, 4000),
    ROW(cuPointerGetAttributes, 7000),
    ROW(cuPointerSetAttribute, 6000),
    ROW(cuStreamAddCallback, 5000),
    ROW(cuStreamAttachMemAsync, 6000),
    ROW(cuStreamBatchMemOp, 11070),
    ROW(cuStreamBeginCapture, 10010),
    ROW(cuStreamCreate, 4000),
    ROW(cuStreamCreateWithPriority, 5050),
    ROW(cuStreamDestroy, 4000),
    ROW(cuStreamEndCapture, 10000),
    ROW(cuStreamGetCaptureInfo, 12030),
    ROW(cuStreamGetCtx, 9020),
    ROW(cuStreamGetFlags, 5050),
    ROW(cuStreamGetId, 12000),
    ROW(cuStreamGetPriority, 5050),
    ROW(cuStreamIsCapturing, 10000),
    ROW(cuStreamQuery, 4000),
    ROW(cuStreamSynchronize, 4000),
    ROW(cuStreamUpdateCaptureDependencies, 12030),
    ROW(cuStreamWaitEvent, 4000),
    ROW(cuStreamWaitValue32, 11070),
    ROW(cuStreamWaitValue64, 11070),
    ROW(cuStreamWriteValue32, 11070),
    ROW(cuStreamWriteValue64, 11070),
    ROW(cuThreadExchangeStreamCaptureMode, 10010),
};

static int compare(const char *name, const struct row *row)
{
    return strcmp(name, row->name);
}

static const struct row *find_row(const char *name)
{
    size_t low = 0;
    size_t high = sizeof(ROWS) / sizeof(ROWS[0]);
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = compare(name, &ROWS[middle]);
        if (order == 0) {
            return &ROWS[middle];
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

// What a look-up says; *function is NULL unless it is found.
static CUdriverProcAddressQueryResult look_up(const char *symbol, int version, void **function)
{
    const struct row *row = find_row(symbol);
    *function = NULL;
    if (!row) {
        return CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    if (version < row->since) {
        return CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    }
    *function = row->function;
    return CU_GET_PROC_ADDRESS_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult *status)
{
    cudaError_t before = vgpu_driver_begin();
    if (!symbol || !function || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) {
        return vgpu_driver_end(before, vgpu_fail(cudaErrorInvalidValue,
                                                 "cuGetProcAddress: symbol at %p, result at %p, "
                                                 "flags 0x%llx",
                                                 (const void *)symbol, (void *)function,
                                                 (unsigned long long)flags));
    }
    CUdriverProcAddressQueryResult found = look_up(symbol, version, function);
    if (status) {
        *status = found;
    }
    if (found == CU_GET_PROC_ADDRESS_SUCCESS || status) {
        return CUDA_SUCCESS;
    }
    return vgpu_driver_end(before, vgpu_fail(cudaErrorSymbolNotFound,
                                             "cuGetProcAddress: there is no %s in version %d",
                                             symbol, version));
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
                                             unsigned int version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status)
{
    if (!symbol || !function || flags > cudaEnablePerThreadDefaultStream) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaGetDriverEntryPointByVersion: symbol at %p, result at %p, flags "
                         "0x%llx",
                         (const void *)symbol, (void *)function, flags);
    }
    CUdriverProcAddressQueryResult found = look_up(symbol, (int)version, function);
    if (status) {
        *status = (enum cudaDriverEntryPointQueryResult)found;
    }
    if (found == CU_GET_PROC_ADDRESS_SUCCESS || status) {
        return cudaSuccess;
    }
    return vgpu_fail(cudaErrorSymbolNotFound,
                     "cudaGetDriverEntryPointByVersion: there is no %s in version %u", symbol,
                     version);
}

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status)
{
    return cudaGetDriverEntryPointByVersion(symbol, function, CUDART_VERSION, flags, status);
}
