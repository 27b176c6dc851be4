// The driver's devices and contexts.
//
// Every device has one context, its primary one; a handle is the device's address. So the current
// context and the runtime's current device are the same thing. SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime_api.h"
#include "device.h"
#include "driver_error.h"
#include "error.h"
#include "properties.h"
#include "stream.h"
#include "thread_memory.h"

#include <stdio.h>
#include <string.h>

enum { CONTEXT_STACK = 64 };

static atomic_bool initialised;
// Contexts below the current one (cuCtxPushCurrent): in VGPU_THREAD_CONTEXTS; NULL: none was
// current.
static __thread int pushed_count;
static __thread bool without_context; // popped to nothing, or set to NULL
static atomic_uint primary_uses[64];

CUresult cuInit(unsigned int flags)
{
    cudaError_t before = vgpu_driver_begin();
    if (flags != 0) {
        return vgpu_driver_end(before, vgpu_fail(cudaErrorInvalidValue,
                                                 "cuInit: flags are 0x%x; they must be 0", flags));
    }
    if (vgpu_device_count() == 0) {
        return vgpu_driver_end(before, vgpu_device_ready(NULL));
    }
    atomic_store(&initialised, true);
    return CUDA_SUCCESS;
}

// The driver's functions work after cuInit; the runtime initialises for itself.
static cudaError_t ready(const char *function)
{
    if (atomic_load(&initialised) || vgpu_thread_has_context()) {
        return cudaSuccess;
    }
    return vgpu_fail(cudaErrorInitializationError, "%s: call cuInit first", function);
}

// Device number `ordinal`, after cuInit.
static cudaError_t get_device(const char *function, CUdevice ordinal, struct vgpu_device **out)
{
    cudaError_t error = ready(function);
    return error == cudaSuccess ? vgpu_device_get(function, ordinal, out) : error;
}

static cudaError_t null_argument(const char *function)
{
    return vgpu_fail(cudaErrorInvalidValue, "%s: the place for the result is NULL", function);
}

CUresult cuDriverGetVersion(int *version)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaDriverGetVersion(version));
}

// ---- Devices -----------------------------------------------------------------------------------

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_device *found = NULL;
    cudaError_t error =
        device ? get_device("cuDeviceGet", ordinal, &found) : null_argument("cuDeviceGet");
    if (error == cudaSuccess) {
        *device = ordinal;
    }
    return vgpu_driver_end(before, error);
}

CUresult cuDeviceGetCount(int *count)
{
    cudaError_t before = vgpu_driver_begin();
    cudaError_t error = count ? ready("cuDeviceGetCount") : null_argument("cuDeviceGetCount");
    if (error == cudaSuccess) {
        *count = vgpu_device_count();
    }
    return vgpu_driver_end(before, error);
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_device *found = NULL;
    cudaError_t error = name && length > 0 ? get_device("cuDeviceGetName", device, &found)
                                           : null_argument("cuDeviceGetName");
    if (error == cudaSuccess) {
        (void)snprintf(name, (size_t)length, "%s", found->info.name);
    }
    return vgpu_driver_end(before, error);
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_device *found = NULL;
    cudaError_t error =
        uuid ? get_device("cuDeviceGetUuid", device, &found) : null_argument("cuDeviceGetUuid");
    if (error == cudaSuccess) {
        memcpy(uuid->bytes, found->info.uuid, sizeof(uuid->bytes));
    }
    return vgpu_driver_end(before, error);
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_device *found = NULL;
    cudaError_t error =
        bytes ? get_device("cuDeviceTotalMem", device, &found) : null_argument("cuDeviceTotalMem");
    if (error == cudaSuccess) {
        *bytes = found->info.memory_bytes;
    }
    return vgpu_driver_end(before, error);
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_device *found = NULL;
    cudaError_t error = value ? get_device("cuDeviceGetAttribute", device, &found)
                              : null_argument("cuDeviceGetAttribute");
    if (error == cudaSuccess && !vgpu_attribute(found, (int)attribute, value)) {
        error = vgpu_fail(cudaErrorInvalidValue, "cuDeviceGetAttribute: no attribute %d",
                          (int)attribute);
    }
    return vgpu_driver_end(before, error);
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice source,
                                 CUdevice destination)
{
    cudaError_t before = vgpu_driver_begin();
    cudaError_t error = ready("cuDeviceGetP2PAttribute");
    if (error == cudaSuccess) {
        error = cudaDeviceGetP2PAttribute(value, (enum cudaDeviceP2PAttr)attribute, source,
                                          destination);
    }
    return vgpu_driver_end(before, error);
}

CUresult cuDeviceGetPCIBusId(char *bus_id, int length, CUdevice device)
{
    cudaError_t before = vgpu_driver_begin();
    cudaError_t error = ready("cuDeviceGetPCIBusId");
    if (error == cudaSuccess) {
        error = cudaDeviceGetPCIBusId(bus_id, length, device);
    }
    return vgpu_driver_end(before, error);
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *bus_id)
{
    cudaError_t before = vgpu_driver_begin();
    cudaError_t error = ready("cuDeviceGetByPCIBusId");
    if (error == cudaSuccess) {
        error = cudaDeviceGetByPCIBusId(device, bus_id);
    }
    return vgpu_driver_end(before, error);
}

CUresult cuDeviceCanAccessPeer(int *can_access, CUdevice device, CUdevice peer)
{
    cudaError_t before = vgpu_driver_begin();
    cudaError_t error = ready("cuDeviceCanAccessPeer");
    if (error == cudaSuccess) {
        error = cudaDeviceCanAccessPeer(can_access, device, peer);
    }
    return vgpu_driver_end(before, error);
}

// ---- Primary contexts --------------------------------------------------------------------------

static CUcontext context_of(struct vgpu_device *device)
{
    return (CUcontext)device;
}

// The device of a context handle; NULL for anything else.
static struct vgpu_device *device_of(CUcontext context)
{
    for (int i = 0; i < vgpu_device_count(); i++) {
        if (context_of(vgpu_device(i)) == context) {
            return vgpu_device(i);
        }
    }
    return NULL;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_device *found = NULL;
    cudaError_t error = context ? get_device("cuDevicePrimaryCtxRetain", device, &found)
                                : null_argument("cuDevicePrimaryCtxRetain");
    if (error == cudaSuccess) {
        atomic_fetch_add(&primary_uses[device], 1);
        *context = context_of(found);
    }
    return vgpu_driver_end(before, error);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_device *found = NULL;
    cudaError_t error = get_device("cuDevicePrimaryCtxRelease", device, &found);
    if (error == cudaSuccess) {
        unsigned uses = atomic_load(&primary_uses[device]);
        while (uses > 0 && !atomic_compare_exchange_weak(&primary_uses[device], &uses, uses - 1)) {
        }
        if (uses == 0) {
            error = vgpu_fail(cudaErrorDeviceUninitialized,
                              "cuDevicePrimaryCtxRelease: the context of %s is not retained",
                              vgpu_device_name(device).text);
        }
    }
    return vgpu_driver_end(before, error);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_device *found = NULL;
    cudaError_t error = get_device("cuDevicePrimaryCtxReset", device, &found);
    if (error == cudaSuccess) {
        struct vgpu_device *current = vgpu_current_device();
        (void)cudaSetDevice(device); // the device's own error is about to be cleared
        error = cudaDeviceReset();
        (void)cudaSetDevice(current->ordinal);
    }
    return vgpu_driver_end(before, error);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_device *found = NULL;
    cudaError_t error = get_device("cuDevicePrimaryCtxSetFlags", device, &found);
    if (error == cudaSuccess) {
        error = cudaInitDevice(device, flags, cudaInitDeviceFlagsAreValid);
    }
    return vgpu_driver_end(before, error);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_device *found = NULL;
    cudaError_t error = flags && active ? get_device("cuDevicePrimaryCtxGetState", device, &found)
                                        : null_argument("cuDevicePrimaryCtxGetState");
    if (error == cudaSuccess) {
        *flags = CU_CTX_SCHED_AUTO | CU_CTX_MAP_HOST;
        *active = atomic_load(&primary_uses[device]) > 0 || vgpu_thread_has_context();
    }
    return vgpu_driver_end(before, error);
}

// ---- Current contexts --------------------------------------------------------------------------

static CUcontext current_context(void)
{
    if (without_context || !vgpu_thread_has_context()) {
        return NULL;
    }
    return context_of(vgpu_current_device());
}

static cudaError_t set_current(const char *function, CUcontext context)
{
    if (!context) {
        without_context = true;
        return cudaSuccess;
    }
    struct vgpu_device *device = device_of(context);
    if (!device) {
        return vgpu_fail(cudaErrorDeviceUninitialized, "%s: %p is no context", function,
                         (void *)context);
    }
    without_context = false;
    (void)cudaSetDevice(device->ordinal); // a context is current even where its device has failed
    return cudaSuccess;
}

CUresult cuCtxCreate(CUcontext *context, CUctxCreateParams *parameters, unsigned int flags,
                     CUdevice device)
{
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_device *found = NULL;
    cudaError_t error =
        context ? get_device("cuCtxCreate", device, &found) : null_argument("cuCtxCreate");
    if (error == cudaSuccess && (parameters || (flags & ~(unsigned)CU_CTX_FLAGS_MASK))) {
        error = vgpu_fail(cudaErrorInvalidValue,
                          "cuCtxCreate: parameters at %p (none are supported), flags 0x%x",
                          (void *)parameters, flags);
    }
    if (error != cudaSuccess) {
        return vgpu_driver_end(before, error);
    }
    CUresult result = cuCtxPushCurrent(context_of(found));
    if (result == CUDA_SUCCESS) {
        *context = context_of(found);
    }
    return result;
}

CUresult cuCtxDestroy(CUcontext context)
{
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_device *device = device_of(context);
    if (!device) {
        return vgpu_driver_end(before,
                               vgpu_fail(cudaErrorDeviceUninitialized,
                                         "cuCtxDestroy: %p is no context", (void *)context));
    }
    if (current_context() == context) {
        CUcontext popped;
        return cuCtxPopCurrent(&popped);
    }
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, set_current("cuCtxSetCurrent", context));
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    cudaError_t before = vgpu_driver_begin();
    cudaError_t error = context ? ready("cuCtxGetCurrent") : null_argument("cuCtxGetCurrent");
    if (error == cudaSuccess) {
        *context = current_context();
    }
    return vgpu_driver_end(before, error);
}

static CUcontext *pushed_contexts(void)
{
    return (CUcontext *)vgpu_thread_memory(VGPU_THREAD_CONTEXTS, CONTEXT_STACK * sizeof(void *));
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    cudaError_t before = vgpu_driver_begin();
    if (pushed_count == CONTEXT_STACK || !context) {
        return vgpu_driver_end(before, vgpu_fail(cudaErrorInvalidValue,
                                                 "cuCtxPushCurrent: context %p, %d pushed (at "
                                                 "most %d)",
                                                 (void *)context, pushed_count, CONTEXT_STACK));
    }
    CUcontext below = current_context();
    CUcontext *pushed = pushed_contexts();
    cudaError_t error = pushed ? set_current("cuCtxPushCurrent", context)
                               : vgpu_fail(cudaErrorMemoryAllocation,
                                           "cuCtxPushCurrent: no memory for bookkeeping");
    if (error == cudaSuccess) {
        pushed[pushed_count++] = below;
    }
    return vgpu_driver_end(before, error);
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    cudaError_t before = vgpu_driver_begin();
    CUcontext current = current_context();
    if (!current) {
        return vgpu_driver_end(before, vgpu_fail(cudaErrorDeviceUninitialized,
                                                 "cuCtxPopCurrent: no context is current"));
    }
    if (context) {
        *context = current;
    }
    CUcontext below = pushed_count > 0 ? pushed_contexts()[--pushed_count] : NULL;
    return vgpu_driver_end(before, set_current("cuCtxPopCurrent", below));
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_device *current = device_of(current_context());
    cudaError_t error = device ? cudaSuccess : null_argument("cuCtxGetDevice");
    if (error == cudaSuccess && !current) {
        error = vgpu_fail(cudaErrorDeviceUninitialized, "cuCtxGetDevice: no context is current");
    }
    if (error == cudaSuccess) {
        *device = current->ordinal;
    }
    return vgpu_driver_end(before, error);
}

CUresult cuCtxSynchronize(void)
{
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_device *device = device_of(current_context());
    return vgpu_driver_end(before, device ? vgpu_device_wait(device)
                                          : vgpu_fail(cudaErrorDeviceUninitialized,
                                                      "cuCtxSynchronize: no context is current"));
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *version)
{
    cudaError_t before = vgpu_driver_begin();
    if (!version || (context && !device_of(context))) {
        return vgpu_driver_end(
            before, vgpu_fail(version ? cudaErrorDeviceUninitialized : cudaErrorInvalidValue,
                              "cuCtxGetApiVersion: context %p, result at %p", (void *)context,
                              (void *)version));
    }
    *version = 3020; // what CUDA's contexts have said since 3.2
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    cudaError_t before = vgpu_driver_begin();
    if (!flags || !current_context()) {
        return vgpu_driver_end(
            before, vgpu_fail(flags ? cudaErrorDeviceUninitialized : cudaErrorInvalidValue,
                              "cuCtxGetFlags: %s",
                              flags ? "no context is current" : "the place for the flags is NULL"));
    }
    *flags = CU_CTX_SCHED_AUTO | CU_CTX_MAP_HOST;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
    cudaError_t before = vgpu_driver_begin();
    const struct vgpu_device *device = device_of(context ? context : current_context());
    if (!id || !device) {
        return vgpu_driver_end(
            before, vgpu_fail(id ? cudaErrorContextIsDestroyed : cudaErrorInvalidValue,
                              "cuCtxGetId: context %p, result at %p", (void *)context, (void *)id));
    }
    *id = (unsigned long long)device->ordinal + 1;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaDeviceGetLimit(value, (enum cudaLimit)limit));
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaDeviceSetLimit((enum cudaLimit)limit, value));
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    cudaError_t before = vgpu_driver_begin();
    return vgpu_driver_end(before, cudaDeviceGetStreamPriorityRange(least, greatest));
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_device *device = device_of(peer);
    return vgpu_driver_end(before, device ? cudaDeviceEnablePeerAccess(device->ordinal, flags)
                                          : vgpu_fail(cudaErrorDeviceUninitialized,
                                                      "cuCtxEnablePeerAccess: %p is no context",
                                                      (void *)peer));
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    cudaError_t before = vgpu_driver_begin();
    struct vgpu_device *device = device_of(peer);
    return vgpu_driver_end(before, device ? cudaDeviceDisablePeerAccess(device->ordinal)
                                          : vgpu_fail(cudaErrorDeviceUninitialized,
                                                      "cuCtxDisablePeerAccess: %p is no context",
                                                      (void *)peer));
}
