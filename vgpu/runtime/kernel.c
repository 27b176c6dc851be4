// The registry of kernels, their attributes, and how many of their blocks fit.
//
// Kernels are registered by static initialisers, so before main and in any order; lookups take the
// same lock. SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime_api.h"
#include "error.h"
#include "launch.h"
#include "vgpu/stats.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUCKETS = 1024,
    BLOCKS_PER_MULTIPROCESSOR = 32,
    THREADS_PER_MULTIPROCESSOR = 2048,
    RESERVED_SHARED_BYTES = 1024, // of each block
    WARP = 32,
    ATTRIBUTE_DEFAULT_THREADS = 1024,
};

// Guards the buckets' lists; entries stay for ever.
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vgpu_kernel_entry *bucket[BUCKETS];

static struct vgpu_kernel_entry **bucket_of(const void *function)
{
    return &bucket[((uintptr_t)function * 0x9E3779B97F4A7C15ull >> 40) % BUCKETS];
}

static struct vgpu_kernel_entry *find(const void *function)
{
    struct vgpu_kernel_entry *entry = *bucket_of(function);
    while (entry && entry->kernel->function != function) {
        entry = entry->next;
    }
    return entry;
}

void vgpu_register_kernel(const struct vgpu_kernel *kernel)
{
    pthread_mutex_lock(&registry_lock);
    struct vgpu_kernel_entry *entry = find(kernel->function);
    if (entry) {
        entry->kernel = kernel; // another copy of the same template instance, or a reloaded library
    } else {
        entry = calloc(1, sizeof(*entry));
        if (!entry) {
            vgpu_say("no memory to register kernel %s", kernel->name);
            abort();
        }
        entry->kernel = kernel;
        entry->next = *bucket_of(kernel->function);
        *bucket_of(kernel->function) = entry;
    }
    pthread_mutex_unlock(&registry_lock);
}

struct vgpu_kernel_entry *vgpu_kernel_find(const void *function)
{
    pthread_mutex_lock(&registry_lock);
    struct vgpu_kernel_entry *entry = find(function);
    pthread_mutex_unlock(&registry_lock);
    return entry;
}

bool vgpu_image_fits(const struct vgpu_image *image, const struct vgpu_device *device)
{
    if (!image) {
        return true;
    }
    int capability = device->info.major * 10 + device->info.minor;
    int compiled = image->compiled_arch;
    if (compiled <= 0 || compiled > capability) {
        return false;
    }
    for (int i = 0; i < image->target_count; i++) {
        if (image->targets[i].arch == compiled &&
            (image->targets[i].ptx || compiled / 10 == device->info.major)) {
            return true;
        }
    }
    return false;
}

size_t vgpu_shared_optin_bytes(const struct vgpu_device *device)
{
    return device->info.major >= 9 ? VGPU_SHARED_OPTIN_BYTES : VGPU_SHARED_OPTIN_BYTES_AMPERE;
}

// ---- Attributes ---------------------------------------------------------------------------------

static cudaError_t find_function(const char *name, const void *function,
                                 struct vgpu_kernel_entry **entry_out,
                                 struct vgpu_device **device_out)
{
    *device_out = vgpu_current_device();
    cudaError_t error = vgpu_device_ready(*device_out);
    if (error != cudaSuccess) {
        return error;
    }
    *entry_out = vgpu_kernel_find(function);
    return *entry_out
               ? cudaSuccess
               : vgpu_fail(cudaErrorInvalidDeviceFunction, "%s: %p is no kernel", name, function);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function)
{
    struct vgpu_kernel_entry *entry = NULL;
    struct vgpu_device *device = NULL;
    if (!attributes) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaFuncGetAttributes: attributes is NULL");
    }
    cudaError_t error = find_function("cudaFuncGetAttributes", function, &entry, &device);
    if (error != cudaSuccess) {
        return error;
    }
    const struct vgpu_kernel *kernel = entry->kernel;
    int limit = atomic_load_explicit(&entry->shared_limit[device->ordinal], memory_order_relaxed);
    int compiled =
        kernel->image ? kernel->image->compiled_arch : device->info.major * 10 + device->info.minor;
    memset(attributes, 0, sizeof(*attributes));
    attributes->maxThreadsPerBlock =
        kernel->max_threads > 0 ? kernel->max_threads : ATTRIBUTE_DEFAULT_THREADS;
    attributes->numRegs = 32;
    attributes->ptxVersion = compiled;
    attributes->binaryVersion = compiled;
    attributes->maxDynamicSharedSizeBytes = limit ? limit : VGPU_SHARED_DEFAULT_BYTES;
    attributes->preferredShmemCarveout = cudaSharedmemCarveoutDefault;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    struct vgpu_kernel_entry *entry = NULL;
    struct vgpu_device *device = NULL;
    cudaError_t error = find_function("cudaFuncSetAttribute", function, &entry, &device);
    if (error != cudaSuccess) {
        return error;
    }
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
        return value >= -1 && value <= 100
                   ? cudaSuccess
                   : vgpu_fail(cudaErrorInvalidValue,
                               "cudaFuncSetAttribute: a carveout of %d; must be -1 to 100", value);
    }
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaFuncSetAttribute: attribute %d; virtual GPUs have "
                         "cudaFuncAttributeMaxDynamicSharedMemorySize and the carveout",
                         (int)attribute);
    }
    size_t most = vgpu_shared_optin_bytes(device);
    if (value < 0 || (size_t)value > most) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaFuncSetAttribute: %d bytes of dynamic shared memory for %s; must be "
                         "0 to %zu",
                         value, entry->kernel->name, most);
    }
    atomic_store_explicit(&entry->shared_limit[device->ordinal], value, memory_order_relaxed);
    return cudaSuccess;
}

cudaError_t cudaFuncSetCacheConfig(const void *function, enum cudaFuncCache config)
{
    struct vgpu_kernel_entry *entry = NULL;
    struct vgpu_device *device = NULL;
    (void)config; // a preference; there is nothing to prefer
    return find_function("cudaFuncSetCacheConfig", function, &entry, &device);
}

// ---- Occupancy ----------------------------------------------------------------------------------

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks,
                                                                   const void *function,
                                                                   int block_size,
                                                                   size_t dynamic_shared_bytes,
                                                                   unsigned int flags)
{
    struct vgpu_kernel_entry *entry = NULL;
    struct vgpu_device *device = NULL;
    cudaError_t error =
        find_function("cudaOccupancyMaxActiveBlocksPerMultiprocessor", function, &entry, &device);
    if (error != cudaSuccess) {
        return error;
    }
    if (!blocks || block_size <= 0 || (flags & ~(unsigned)cudaOccupancyDisableCachingOverride)) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaOccupancyMaxActiveBlocksPerMultiprocessor: %d threads, flags 0x%x, "
                         "blocks at %p",
                         block_size, flags, (void *)blocks);
    }
    size_t optin = vgpu_shared_optin_bytes(device);
    int most =
        entry->kernel->max_threads > 0 ? entry->kernel->max_threads : ATTRIBUTE_DEFAULT_THREADS;
    *blocks = 0;
    if (block_size > most || dynamic_shared_bytes > optin) {
        return cudaSuccess;
    }
    int warps = (block_size + WARP - 1) / WARP;
    int fit = THREADS_PER_MULTIPROCESSOR / (warps * WARP);
    size_t shared =
        (optin + RESERVED_SHARED_BYTES) / (dynamic_shared_bytes + RESERVED_SHARED_BYTES);
    fit = fit < BLOCKS_PER_MULTIPROCESSOR ? fit : BLOCKS_PER_MULTIPROCESSOR;
    *blocks = shared < (size_t)fit ? (int)shared : fit;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function,
                                                          int block_size,
                                                          size_t dynamic_shared_bytes)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks, function, block_size, dynamic_shared_bytes, cudaOccupancyDefault);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *dynamic_shared_bytes,
                                                      const void *function, int blocks,
                                                      int block_size)
{
    static const char *const name = "cudaOccupancyAvailableDynamicSMemPerBlock";
    int fit = 0;
    cudaError_t error =
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, function, block_size, 0);
    if (error != cudaSuccess) {
        return error;
    }
    if (!dynamic_shared_bytes || blocks <= 0 || blocks > fit) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: %d blocks of %d threads, result at %p; 1 to %d fit on a "
                         "multiprocessor",
                         name, blocks, block_size, (void *)dynamic_shared_bytes, fit);
    }
    struct vgpu_device *device = vgpu_current_device();
    const struct vgpu_kernel_entry *entry = vgpu_kernel_find(function);
    int set = atomic_load_explicit(&entry->shared_limit[device->ordinal], memory_order_relaxed);
    size_t limit = set > VGPU_SHARED_DEFAULT_BYTES ? (size_t)set : VGPU_SHARED_DEFAULT_BYTES;
    size_t share = (vgpu_shared_optin_bytes(device) + RESERVED_SHARED_BYTES) / (size_t)blocks;
    *dynamic_shared_bytes = share < limit ? share : limit;
    return cudaSuccess;
}

// Clusters of one block are all that there are.
cudaError_t cudaOccupancyMaxPotentialClusterSize(int *cluster_size, const void *function,
                                                 const cudaLaunchConfig_t *config)
{
    int clusters;
    cudaError_t error = cudaOccupancyMaxActiveClusters(&clusters, function, config);
    if (error == cudaSuccess && !cluster_size) {
        error = vgpu_fail(cudaErrorInvalidValue,
                          "cudaOccupancyMaxPotentialClusterSize: the place for the size is NULL");
    }
    if (error == cudaSuccess) {
        *cluster_size = 1;
    }
    return error;
}

cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *function,
                                           const cudaLaunchConfig_t *config)
{
    int blocks = 0;
    if (!config || !clusters) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaOccupancyMaxActiveClusters: %s is NULL",
                         config ? "the place for the number" : "config");
    }
    unsigned threads = config->blockDim.x * config->blockDim.y * config->blockDim.z;
    cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, function, (int)threads, config->dynamicSmemBytes);
    if (error == cudaSuccess) {
        *clusters = blocks * vgpu_current_device()->info.multiprocessors;
    }
    return error;
}

// ---- What a kernel is ---------------------------------------------------------------------------

cudaError_t cudaFuncGetName(const char **name, const void *function)
{
    struct vgpu_kernel_entry *entry = NULL;
    struct vgpu_device *device = NULL;
    cudaError_t error = find_function("cudaFuncGetName", function, &entry, &device);
    if (error == cudaSuccess && !name) {
        error = vgpu_fail(cudaErrorInvalidValue, "cudaFuncGetName: the place for the name is NULL");
    }
    if (error == cudaSuccess) {
        *name = entry->kernel->name;
    }
    return error;
}

cudaError_t cudaFuncGetParamInfo(const void *function, size_t index, size_t *offset, size_t *bytes)
{
    struct vgpu_kernel_entry *entry = NULL;
    struct vgpu_device *device = NULL;
    cudaError_t error = find_function("cudaFuncGetParamInfo", function, &entry, &device);
    if (error != cudaSuccess) {
        return error;
    }
    const struct vgpu_kernel *kernel = entry->kernel;
    if (!offset || index >= (size_t)kernel->parameter_count) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaFuncGetParamInfo: parameter %zu of %s, which has %d; result at %p",
                         index, kernel->name, kernel->parameter_count, (void *)offset);
    }
    size_t at = 0;
    for (size_t i = 0; i <= index; i++) {
        size_t align = kernel->parameter_align[i];
        at = (at + align - 1) / align * align;
        *offset = at;
        at += kernel->parameter_bytes[i];
    }
    if (bytes) {
        *bytes = kernel->parameter_bytes[index];
    }
    return cudaSuccess;
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *function, const void *symbol)
{
    struct vgpu_kernel_entry *entry = NULL;
    struct vgpu_device *device = NULL;
    cudaError_t error = find_function("cudaGetFuncBySymbol", symbol, &entry, &device);
    if (error == cudaSuccess && !function) {
        error = vgpu_fail(cudaErrorInvalidValue,
                          "cudaGetFuncBySymbol: the place for the function is NULL");
    }
    if (error == cudaSuccess) {
        *function = (cudaFunction_t)(uintptr_t)symbol;
    }
    return error;
}
