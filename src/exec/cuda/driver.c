// The driver's functions that the library calls, found when they are called first. So libnccl.so.2
// needs no libcuda.so.1 to be loaded: on a machine without a driver it loads, answers what needs
// no device, and says what is missing.
//
// Each function here forwards to the driver's of the same name, through the CUDA runtime that is
// linked in. Hidden: programs find the driver's own.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

// The oldest driver interface that has all of them in the form that <cuda.h> declares.
enum { INTERFACE_VERSION = 12010 };

static pthread_mutex_t mapping = PTHREAD_MUTEX_INITIALIZER;

// NULL where the driver has it not; says so once for all functions that a program misses.
static void *find(_Atomic(void *) *known, const char *name, bool is_missed)
{
    static _Atomic int said;
    void *found = atomic_load_explicit(known, memory_order_acquire);
    if (found != NULL) {
        return found;
    }
    enum cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, INTERFACE_VERSION,
                                                         cudaEnableDefault, &status);
    if (error == cudaSuccess && status == cudaDriverEntryPointSuccess && found != NULL) {
        atomic_store_explicit(known, found, memory_order_release);
        return found;
    }
    (void)cudaGetLastError();
    if (is_missed && atomic_fetch_add(&said, 1) == 0) {
        tt_say("the CUDA driver (libcuda.so.1) has no %s: %s", name,
               error != cudaSuccess ? cudaGetErrorString(error)
                                    : "it is older than CUDA 12.1, update it");
    }
    return NULL;
}

// The names are <cuda.h>'s, some of which are macros for a version of the function.
#define FORWARD_SAID(is_missed, function, name, parameters, arguments)                             \
    CUresult CUDAAPI function parameters                                                           \
    {                                                                                              \
        static _Atomic(void *) known;                                                              \
        void *found = find(&known, name, is_missed);                                               \
        return found == NULL ? CUDA_ERROR_NOT_FOUND                                                \
                             : ((CUresult(CUDAAPI *) parameters)found)arguments;                   \
    }
#define FORWARD(function, name, parameters, arguments)                                             \
    FORWARD_SAID(true, function, name, parameters, arguments)
// One thread at a time: cuMemUnmap of two mappings of one allocation, by two threads at once, frees
// the driver's record of it twice (seen with driver 580 by the address sanitizer).
#define FORWARD_ALONE(function, name, parameters, arguments)                                       \
    CUresult CUDAAPI function parameters                                                           \
    {                                                                                              \
        static _Atomic(void *) known;                                                              \
        void *found = find(&known, name, true);                                                    \
        if (found == NULL) {                                                                       \
            return CUDA_ERROR_NOT_FOUND;                                                           \
        }                                                                                          \
        (void)pthread_mutex_lock(&mapping);                                                        \
        CUresult result = ((CUresult(CUDAAPI *) parameters)found)arguments;                        \
        (void)pthread_mutex_unlock(&mapping);                                                      \
        return result;                                                                             \
    }

// Called before it is known whether there is a device at all.
FORWARD_SAID(false, cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode",
             (CUstreamCaptureMode * mode), (mode))

FORWARD(cuDeviceGet, "cuDeviceGet", (CUdevice * device, int ordinal), (device, ordinal))
FORWARD(cuDeviceGetAttribute, "cuDeviceGetAttribute",
        (int *value, CUdevice_attribute attribute, CUdevice device), (value, attribute, device))
FORWARD(cuGetErrorName, "cuGetErrorName", (CUresult error, const char **text), (error, text))
FORWARD(cuGetErrorString, "cuGetErrorString", (CUresult error, const char **text), (error, text))

FORWARD_ALONE(cuMemAddressReserve, "cuMemAddressReserve",
              (CUdeviceptr * pointer, size_t bytes, size_t alignment, CUdeviceptr address,
               unsigned long long flags),
              (pointer, bytes, alignment, address, flags))
FORWARD_ALONE(cuMemAddressFree, "cuMemAddressFree", (CUdeviceptr pointer, size_t bytes),
              (pointer, bytes))
FORWARD_ALONE(cuMemCreate, "cuMemCreate",
              (CUmemGenericAllocationHandle * handle, size_t bytes,
               const CUmemAllocationProp *properties, unsigned long long flags),
              (handle, bytes, properties, flags))
FORWARD_ALONE(cuMemRelease, "cuMemRelease", (CUmemGenericAllocationHandle handle), (handle))
FORWARD_ALONE(cuMemMap, "cuMemMap",
              (CUdeviceptr pointer, size_t bytes, size_t offset,
               CUmemGenericAllocationHandle handle, unsigned long long flags),
              (pointer, bytes, offset, handle, flags))
FORWARD_ALONE(cuMemUnmap, "cuMemUnmap", (CUdeviceptr pointer, size_t bytes), (pointer, bytes))
FORWARD_ALONE(cuMemSetAccess, "cuMemSetAccess",
              (CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access, size_t count),
              (pointer, bytes, access, count))
FORWARD_ALONE(cuMemExportToShareableHandle, "cuMemExportToShareableHandle",
              (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
               unsigned long long flags),
              (shareable, handle, type, flags))
FORWARD_ALONE(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle",
              (CUmemGenericAllocationHandle * handle, void *shareable,
               CUmemAllocationHandleType type),
              (handle, shareable, type))
FORWARD(cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity",
        (size_t * bytes, const CUmemAllocationProp *properties,
         CUmemAllocationGranularity_flags flags),
        (bytes, properties, flags))
FORWARD_ALONE(cuMemGetAllocationPropertiesFromHandle, "cuMemGetAllocationPropertiesFromHandle",
              (CUmemAllocationProp * properties, CUmemGenericAllocationHandle handle),
              (properties, handle))
FORWARD_ALONE(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle",
              (CUmemGenericAllocationHandle * handle, void *pointer), (handle, pointer))
FORWARD_ALONE(cuMemGetAddressRange, "cuMemGetAddressRange",
              (CUdeviceptr * base, size_t *bytes, CUdeviceptr pointer), (base, bytes, pointer))

FORWARD_ALONE(cuMulticastCreate, "cuMulticastCreate",
              (CUmemGenericAllocationHandle * handle, const CUmulticastObjectProp *properties),
              (handle, properties))
FORWARD_ALONE(cuMulticastAddDevice, "cuMulticastAddDevice",
              (CUmemGenericAllocationHandle handle, CUdevice device), (handle, device))
FORWARD_ALONE(cuMulticastBindMem, "cuMulticastBindMem",
              (CUmemGenericAllocationHandle object, size_t object_offset,
               CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
               unsigned long long flags),
              (object, object_offset, memory, memory_offset, bytes, flags))
FORWARD_ALONE(cuMulticastUnbind, "cuMulticastUnbind",
              (CUmemGenericAllocationHandle object, CUdevice device, size_t offset, size_t bytes),
              (object, device, offset, bytes))
FORWARD(cuMulticastGetGranularity, "cuMulticastGetGranularity",
        (size_t * bytes, const CUmulticastObjectProp *properties,
         CUmulticastGranularity_flags flags),
        (bytes, properties, flags))

// Of what each operation calls: the same as the runtime's, some tens of nanoseconds cheaper.
FORWARD(cuStreamIsCapturing, "cuStreamIsCapturing",
        (CUstream stream, CUstreamCaptureStatus *status), (stream, status))
FORWARD(cuStreamGetId, "cuStreamGetId", (CUstream stream, unsigned long long *id), (stream, id))
FORWARD(cuEventRecord, "cuEventRecord", (CUevent event, CUstream stream), (event, stream))
FORWARD(cuStreamWaitEvent, "cuStreamWaitEvent",
        (CUstream stream, CUevent event, unsigned int flags), (stream, event, flags))
FORWARD(cuStreamWaitValue32, "cuStreamWaitValue32",
        (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags),
        (stream, address, value, flags))
FORWARD(cuStreamWriteValue32, "cuStreamWriteValue32",
        (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags),
        (stream, address, value, flags))
