// The visible devices' state, the calling thread's device, peers and limits.
//
// vgpu_machine() says once what devices there are; the array is constant from then on, so readers
// take no lock. SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include "cuda_runtime_api.h"
#include "error.h"
#include "machine.h"
#include "memory.h"
#include "stream.h"
#include "vgpu/limit.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { LIMIT_COUNT = cudaLimitPersistingL2CacheSize + 1 };

static const size_t DEFAULT_LIMIT[LIMIT_COUNT] = {
    [cudaLimitStackSize] = 1024,
    [cudaLimitPrintfFifoSize] = 1 << 20,
    [cudaLimitMallocHeapSize] = 8 << 20,
    [cudaLimitDevRuntimeSyncDepth] = 2,
    [cudaLimitDevRuntimePendingLaunchCount] = 2048,
    [cudaLimitMaxL2FetchGranularity] = 64,
    [cudaLimitPersistingL2CacheSize] = 0,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct vgpu_device all_devices[VGPU_MAX_DEVICES];
static atomic_int device_count;                             // released once the array is made
static atomic_size_t limits[VGPU_MAX_DEVICES][LIMIT_COUNT]; // relaxed; 0: the default
static atomic_uint flags_of[VGPU_MAX_DEVICES];
static atomic_bool peer_enabled[VGPU_MAX_DEVICES][VGPU_MAX_DEVICES];

__thread struct vgpu_device *vgpu_running_device;
static __thread int current_ordinal;
static __thread bool has_context;
static __thread bool in_host_function;

// After fork() the child has the memory but not the threads of the pool: as with CUDA, all calls
// that need a device fail there.
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static bool forked; // written in a child before it has a second thread

static void fail_in_child(void)
{
    forked = true;
    for (int i = 0; i < device_count; i++) {
        atomic_store(&all_devices[i].sticky_error, cudaSuccess);
        vgpu_device_fail(&all_devices[i], cudaErrorInitializationError);
    }
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, fail_in_child);
}

// Why the process has no device.
static cudaError_t fail_without_devices(void)
{
    const struct vgpu_machine *machine = vgpu_machine();
    if (machine->error[0] && machine->error_code == cudaErrorInvalidDevice) {
        return vgpu_fail(cudaErrorInvalidDevice, "%s", machine->error);
    }
    if (machine->error[0]) {
        return vgpu_fail(cudaErrorInitializationError, "no virtual machine: %s", machine->error);
    }
    return vgpu_fail(cudaErrorNoDevice, "no device is visible: VGPU_MACHINE is %s%s%s",
                     machine->name, machine->hidden[0] ? "; " : "", machine->hidden);
}

static cudaError_t fail_forked(void)
{
    return vgpu_fail(cudaErrorInitializationError,
                     "this process was forked from one that had used CUDA, which does not go on in "
                     "a child: fork before the first CUDA call, or exec a new program");
}

static void make_devices(void)
{
    const struct vgpu_machine *machine = vgpu_machine();
    for (int i = 0; i < machine->device_count; i++) {
        all_devices[i].info = machine->device[i];
        all_devices[i].ordinal = i;
    }
    atomic_store_explicit(&device_count, machine->device_count, memory_order_release);
}

int vgpu_device_count(void)
{
    int count = atomic_load_explicit(&device_count, memory_order_acquire);
    if (count == 0) { // not made yet, or none
        pthread_once(&once, make_devices);
        count = atomic_load_explicit(&device_count, memory_order_relaxed);
    }
    return count;
}

struct vgpu_device *vgpu_device(int ordinal)
{
    return ordinal >= 0 && ordinal < vgpu_device_count() ? &all_devices[ordinal] : NULL;
}

struct vgpu_device *vgpu_current_device(void)
{
    if (vgpu_running_device) {
        return vgpu_running_device;
    }
    has_context = true;
    return vgpu_device(current_ordinal);
}

bool vgpu_thread_has_context(void)
{
    return has_context && vgpu_device_count() > 0;
}

bool vgpu_peer_access(const struct vgpu_device *a, const struct vgpu_device *b)
{
    return a == b || (vgpu_machine()->linked[a->info.physical] >> b->info.physical & 1) != 0;
}

void vgpu_host_function_begins(void)
{
    in_host_function = true;
}

void vgpu_host_function_ends(void)
{
    in_host_function = false;
}

cudaError_t vgpu_calls_allowed(void)
{
    return in_host_function
               ? vgpu_fail(cudaErrorNotPermitted,
                           "a host function, stream callback or user object's destructor must not "
                           "call CUDA")
               : cudaSuccess;
}

cudaError_t vgpu_device_ready(const struct vgpu_device *device)
{
    cudaError_t allowed = vgpu_calls_allowed();
    if (allowed != cudaSuccess) {
        return allowed;
    }
    if (!device) {
        return fail_without_devices();
    }
    pthread_once(&fork_once, watch_forks);
    cudaError_t sticky = (cudaError_t)atomic_load(&device->sticky_error);
    if (forked) {
        return fail_forked();
    }
    if (sticky != cudaSuccess) {
        return vgpu_fail(sticky, "%s has failed before (%s); cudaDeviceReset clears it",
                         vgpu_device_name(device->ordinal).text, cudaGetErrorName(sticky));
    }
    return cudaSuccess;
}

cudaError_t vgpu_device_get(const char *function, int ordinal, struct vgpu_device **device_out)
{
    int count = vgpu_device_count();
    if (count == 0) {
        return vgpu_device_ready(NULL);
    }
    if (ordinal < 0 || ordinal >= count) {
        return vgpu_fail(cudaErrorInvalidDevice, "%s: device is %d; it must be 0 to %d", function,
                         ordinal, count - 1);
    }
    *device_out = &all_devices[ordinal];
    return cudaSuccess;
}

struct vgpu_device_name vgpu_device_name(int ordinal)
{
    struct vgpu_device_name name;
    int used = snprintf(name.text, sizeof(name.text), "device %d", ordinal);
    const struct vgpu_device *device = vgpu_device(ordinal);
    if (device) {
        (void)snprintf(name.text + used, sizeof(name.text) - (size_t)used, " (physical %d)",
                       device->info.physical);
    }
    return name;
}

int vgpuPhysicalDevice(int device)
{
    const struct vgpu_device *found = vgpu_device(device);
    return found ? found->info.physical : -1;
}

struct vgpu_device *vgpu_device_by_uuid(const unsigned char uuid[16])
{
    for (int i = 0; i < vgpu_device_count(); i++) {
        if (memcmp(all_devices[i].info.uuid, uuid, 16) == 0) {
            return &all_devices[i];
        }
    }
    return NULL;
}

// ---- The thread's device -----------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int *count)
{
    if (!count) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaGetDeviceCount: count is NULL");
    }
    *count = vgpu_device_count();
    return *count > 0 ? cudaSuccess : vgpu_device_ready(NULL);
}

cudaError_t cudaGetDevice(int *device)
{
    if (!device) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaGetDevice: device is NULL");
    }
    struct vgpu_device *current = vgpu_current_device();
    if (!current) {
        return vgpu_device_ready(NULL);
    }
    *device = current->ordinal;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    struct vgpu_device *found = NULL;
    cudaError_t error = vgpu_device_get("cudaSetDevice", device, &found);
    if (error == cudaSuccess) {
        current_ordinal = device;
        has_context = true;
        error = vgpu_device_ready(found);
    }
    return error;
}

cudaError_t cudaInitDevice(int device, unsigned int device_flags, unsigned int flags)
{
    struct vgpu_device *found = NULL;
    cudaError_t error = vgpu_device_get("cudaInitDevice", device, &found);
    if (error != cudaSuccess) {
        return error;
    }
    if (flags & cudaInitDeviceFlagsAreValid) {
        atomic_store(&flags_of[device], device_flags & cudaDeviceMask);
    }
    return vgpu_device_ready(found);
}

cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
    struct vgpu_device *device = vgpu_current_device();
    if (!device) {
        return vgpu_device_ready(NULL);
    }
    unsigned int schedule = flags & cudaDeviceScheduleMask;
    if ((flags & ~(unsigned int)cudaDeviceMask) || (schedule & (schedule - 1))) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaSetDeviceFlags: flags are 0x%x; at most one "
                         "cudaDeviceSchedule* and the cudaDevice* flags",
                         flags);
    }
    atomic_store(&flags_of[device->ordinal], flags);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceFlags(unsigned int *flags)
{
    if (!flags) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaGetDeviceFlags: flags is NULL");
    }
    struct vgpu_device *device = vgpu_current_device();
    if (!device) {
        return vgpu_device_ready(NULL);
    }
    *flags = atomic_load(&flags_of[device->ordinal]) | cudaDeviceMapHost;
    return cudaSuccess;
}

cudaError_t cudaSetValidDevices(int *devices, int count)
{
    if (count < 0 || (count > 0 && !devices)) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaSetValidDevices: count is %d, devices %p",
                         count, (void *)devices);
    }
    struct vgpu_device *device = NULL;
    for (int i = 0; i < count; i++) {
        cudaError_t error = vgpu_device_get("cudaSetValidDevices", devices[i], &device);
        if (error != cudaSuccess) {
            return error;
        }
    }
    if (count > 0 && !has_context) {
        current_ordinal = devices[0];
    }
    return cudaSuccess;
}

cudaError_t cudaChooseDevice(int *device, const struct cudaDeviceProp *wanted)
{
    if (!device || !wanted) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaChooseDevice: an argument is NULL");
    }
    if (vgpu_device_count() == 0) {
        return vgpu_device_ready(NULL);
    }
    *device = 0;
    for (int i = vgpu_device_count() - 1; i >= 0; i--) {
        const struct vgpu_device_info *info = &all_devices[i].info;
        if (info->major >= wanted->major && info->memory_bytes >= wanted->totalGlobalMem) {
            *device = i;
        }
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceReset(void)
{
    cudaError_t allowed = vgpu_calls_allowed();
    if (allowed != cudaSuccess) {
        return allowed;
    }
    struct vgpu_device *device = vgpu_current_device();
    if (!device) {
        return vgpu_device_ready(NULL);
    }
    if (forked) {
        return fail_forked();
    }
    if (atomic_load(&device->busy_streams) > 0) { // what it has to do is dropped, as after a fault
        vgpu_device_fail(device, cudaErrorContextIsDestroyed);
    }
    (void)vgpu_device_wait(device); // a failed device's work ends with its error: cleared below
    vgpu_symbols_forget(device->ordinal);
    vgpu_memory_free_device(device->ordinal);
    for (int i = 0; i < LIMIT_COUNT; i++) {
        atomic_store(&limits[device->ordinal][i], 0);
    }
    for (int i = 0; i < VGPU_MAX_DEVICES; i++) {
        atomic_store(&peer_enabled[device->ordinal][i], false);
    }
    atomic_store(&flags_of[device->ordinal], 0);
    atomic_store(&device->sticky_error, cudaSuccess);
    (void)cudaGetLastError();
    return cudaSuccess;
}

// ---- PCI addresses, peers ----------------------------------------------------------------------

cudaError_t cudaDeviceGetPCIBusId(char *bus_id, int length, int device)
{
    struct vgpu_device *found = NULL;
    cudaError_t error = vgpu_device_get("cudaDeviceGetPCIBusId", device, &found);
    if (error != cudaSuccess) {
        return error;
    }
    char text[16];
    int needed = snprintf(text, sizeof(text), "%04X:%02X:%02X.0", found->info.pci_domain & 0xffff,
                          found->info.pci_bus & 0xff, found->info.pci_device & 0x1f);
    if (!bus_id || length <= needed) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaDeviceGetPCIBusId: buffer %p of %d bytes; it must hold %d",
                         (void *)bus_id, length, needed + 1);
    }
    memcpy(bus_id, text, (size_t)needed + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *bus_id)
{
    if (!device || !bus_id) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaDeviceGetByPCIBusId: an argument is NULL");
    }
    long wanted = 0;
    if (!vgpu_machine_busid(bus_id, &wanted)) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaDeviceGetByPCIBusId: \"%.40s\" is not of the form "
                         "[domain]:[bus]:[device].[function]",
                         bus_id);
    }
    for (int i = 0; i < vgpu_device_count(); i++) {
        const struct vgpu_device_info *info = &all_devices[i].info;
        long here =
            (long)info->pci_domain << 16 | (long)info->pci_bus << 8 | (long)info->pci_device << 3;
        if (here == wanted) {
            *device = i;
            return cudaSuccess;
        }
    }
    return vgpu_fail(cudaErrorInvalidDevice, "cudaDeviceGetByPCIBusId: no visible device at %.40s",
                     bus_id);
}

cudaError_t cudaDeviceCanAccessPeer(int *can_access, int device, int peer)
{
    struct vgpu_device *a = NULL;
    struct vgpu_device *b = NULL;
    if (!can_access) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaDeviceCanAccessPeer: can_access is NULL");
    }
    cudaError_t error = vgpu_device_get("cudaDeviceCanAccessPeer", device, &a);
    if (error == cudaSuccess) {
        error = vgpu_device_get("cudaDeviceCanAccessPeer", peer, &b);
    }
    if (error == cudaSuccess) {
        *can_access = a != b && vgpu_peer_access(a, b);
    }
    return error;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    struct vgpu_device *device = vgpu_current_device();
    struct vgpu_device *other = NULL;
    cudaError_t error = vgpu_device_ready(device);
    if (error == cudaSuccess) {
        error = vgpu_device_get("cudaDeviceEnablePeerAccess", peer, &other);
    }
    if (error != cudaSuccess) {
        return error;
    }
    if (flags != 0) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaDeviceEnablePeerAccess: flags are 0x%x; they must be 0", flags);
    }
    if (other == device) {
        return vgpu_fail(cudaErrorInvalidDevice, "cudaDeviceEnablePeerAccess: %s is its own peer",
                         vgpu_device_name(peer).text);
    }
    if (!vgpu_peer_access(device, other)) {
        return vgpu_fail(cudaErrorPeerAccessUnsupported,
                         "cudaDeviceEnablePeerAccess: %s and %s are not linked",
                         vgpu_device_name(device->ordinal).text, vgpu_device_name(peer).text);
    }
    if (atomic_exchange(&peer_enabled[device->ordinal][peer], true)) {
        return vgpu_fail(cudaErrorPeerAccessAlreadyEnabled,
                         "cudaDeviceEnablePeerAccess: %s already has access to %s",
                         vgpu_device_name(device->ordinal).text, vgpu_device_name(peer).text);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    struct vgpu_device *device = vgpu_current_device();
    struct vgpu_device *other = NULL;
    cudaError_t error = vgpu_device_ready(device);
    if (error == cudaSuccess) {
        error = vgpu_device_get("cudaDeviceDisablePeerAccess", peer, &other);
    }
    if (error == cudaSuccess && !atomic_exchange(&peer_enabled[device->ordinal][peer], false)) {
        error = vgpu_fail(cudaErrorPeerAccessNotEnabled,
                          "cudaDeviceDisablePeerAccess: %s has no access to %s",
                          vgpu_device_name(device->ordinal).text, vgpu_device_name(peer).text);
    }
    return error;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    if (!vgpu_current_device()) {
        return vgpu_device_ready(NULL);
    }
    if (least) {
        *least = 0;
    }
    if (greatest) {
        *greatest = -5;
    }
    return cudaSuccess;
}

// ---- Limits and caches -------------------------------------------------------------------------

size_t vgpu_device_limit(const struct vgpu_device *device, enum cudaLimit limit)
{
    if (!device || (unsigned)limit >= LIMIT_COUNT) {
        return 0;
    }
    size_t set = atomic_load_explicit(&limits[device->ordinal][limit], memory_order_relaxed);
    return set ? set : DEFAULT_LIMIT[limit];
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    struct vgpu_device *device = vgpu_current_device();
    cudaError_t error = vgpu_device_ready(device);
    if (error != cudaSuccess) {
        return error;
    }
    if ((unsigned)limit >= LIMIT_COUNT) {
        return vgpu_fail(cudaErrorUnsupportedLimit, "cudaDeviceSetLimit: no limit %d", (int)limit);
    }
    if (limit == cudaLimitStackSize && value > 512 << 10) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaDeviceSetLimit: a stack of %zu bytes; at most "
                         "524288 a thread",
                         value);
    }
    atomic_store(&limits[device->ordinal][limit], value);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit)
{
    struct vgpu_device *device = vgpu_current_device();
    cudaError_t error = vgpu_device_ready(device);
    if (error != cudaSuccess) {
        return error;
    }
    if (!value || (unsigned)limit >= LIMIT_COUNT) {
        return vgpu_fail(value ? cudaErrorUnsupportedLimit : cudaErrorInvalidValue,
                         "cudaDeviceGetLimit: limit %d, value at %p", (int)limit, (void *)value);
    }
    *value = vgpu_device_limit(device, limit);
    return cudaSuccess;
}

cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config)
{
    (void)config; // a preference; there is nothing to prefer
    return vgpu_device_ready(vgpu_current_device());
}

cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *config)
{
    if (!config) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaDeviceGetCacheConfig: config is NULL");
    }
    *config = cudaFuncCachePreferNone;
    return vgpu_device_ready(vgpu_current_device());
}

cudaError_t cudaDeviceSetSharedMemConfig(enum cudaSharedMemConfig config)
{
    (void)config;
    return vgpu_device_ready(vgpu_current_device());
}

cudaError_t cudaDeviceGetSharedMemConfig(enum cudaSharedMemConfig *config)
{
    if (!config) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaDeviceGetSharedMemConfig: config is NULL");
    }
    *config = cudaSharedMemBankSizeFourByte;
    return vgpu_device_ready(vgpu_current_device());
}

cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(enum cudaFlushGPUDirectRDMAWritesTarget target,
                                               enum cudaFlushGPUDirectRDMAWritesScope scope)
{
    if (target != cudaFlushGPUDirectRDMAWritesTargetCurrentDevice ||
        (scope != cudaFlushGPUDirectRDMAWritesToOwner &&
         scope != cudaFlushGPUDirectRDMAWritesToAllDevices)) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaDeviceFlushGPUDirectRDMAWrites: target %d, scope %d", (int)target,
                         (int)scope);
    }
    return vgpu_device_ready(vgpu_current_device());
}

cudaError_t cudaDriverGetVersion(int *version)
{
    if (!version) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaDriverGetVersion: version is NULL");
    }
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    if (!version) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaRuntimeGetVersion: version is NULL");
    }
    *version = CUDART_VERSION;
    return cudaSuccess;
}

// ---- Profilers: nothing to attach to -----------------------------------------------------------

cudaError_t cudaProfilerStart(void)
{
    return cudaSuccess;
}

cudaError_t cudaProfilerStop(void)
{
    return cudaSuccess;
}
