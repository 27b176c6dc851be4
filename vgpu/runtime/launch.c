// Launches: checked by CUDA's rules, copied, and put on their stream.
// SPDX-License-Identifier: Apache-2.0
#include "launch.h"

#include "capture.h"
#include "counts.h"
#include "cuda_runtime_api.h"
#include "error.h"
#include "fiber.h"
#include "pool.h"
#include "sanitizer.h"
#include "stream_internal.h"
#include "thread_memory.h"
#include "vgpu/native.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_THREADS = 1024,
    MAX_BLOCK_Z = 64,
    MAX_GRID_YZ = 65535,
    MAX_PUSHED = 16,
    PARAMETER_ALIGN = 64,
};
static const unsigned MAX_GRID_X = 2147483647u;

// ---- The structure ------------------------------------------------------------------------------

static void start(struct vgpu_operation *operation)
{
    vgpu_pool_add((struct vgpu_launch *)operation);
}

static void destroy(struct vgpu_operation *operation)
{
    free(operation);
}

static void tell_ended(struct vgpu_operation *operation, cudaError_t error)
{
    const struct vgpu_launch *launch = (const struct vgpu_launch *)operation;
    launch->native_ended(launch->arguments[0], error);
}

static void set_native(struct vgpu_launch *launch, const struct vgpu_launch *like)
{
    launch->native = like->native;
    launch->task = like->task;
    launch->native_launched = like->native_launched;
    launch->native_ended = like->native_ended;
    launch->operation.ended = like->native_ended ? tell_ended : NULL;
    launch->node_type = like->node_type;
}

static size_t round_up(size_t bytes, size_t align)
{
    return (bytes + align - 1) / align * align;
}

static void set_shape(struct vgpu_launch *launch, dim3 grid, dim3 block)
{
    launch->grid = grid;
    launch->block = block;
    launch->threads = block.x * block.y * block.z;
    launch->block_count = (uint64_t)grid.x * grid.y * grid.z;
    atomic_store(&launch->unfinished, launch->block_count);
}

struct vgpu_launch *vgpu_launch_new(struct vgpu_device *device, const char *name,
                                    size_t argument_count, size_t argument_bytes,
                                    char **storage_out)
{
    static atomic_ullong serial;
    size_t head = round_up(sizeof(struct vgpu_launch), PARAMETER_ALIGN);
    size_t pointers = round_up(argument_count * sizeof(void *), PARAMETER_ALIGN);
    if (argument_bytes > SIZE_MAX / 2) {
        return NULL;
    }
    size_t total = head + pointers + round_up(argument_bytes, PARAMETER_ALIGN);
    char *memory = aligned_alloc(PARAMETER_ALIGN, total);
    if (!memory) {
        return NULL;
    }
    struct vgpu_launch *launch = (struct vgpu_launch *)(void *)memory;
    memset(launch, 0, sizeof(*launch));
    vgpu_operation_init(&launch->operation, device, start, destroy);
    launch->name = name;
    launch->arguments = (void **)(void *)(memory + head);
    launch->serial = atomic_fetch_add(&serial, 1) + 1;
    launch->memory_bytes = total;
    *storage_out = memory + head + pointers;
    return launch;
}

struct vgpu_launch *vgpu_launch_clone(const struct vgpu_launch *launch)
{
    size_t count = launch->kernel ? (size_t)launch->kernel->parameter_count : 1;
    size_t head = round_up(sizeof(struct vgpu_launch), PARAMETER_ALIGN);
    size_t arguments = round_up(count * sizeof(void *), PARAMETER_ALIGN);
    char *storage;
    struct vgpu_launch *clone = vgpu_launch_new(launch->operation.device, launch->name, count,
                                                launch->memory_bytes - head - arguments, &storage);
    if (!clone) {
        return NULL;
    }
    const char *from = (const char *)launch + head + arguments;
    memcpy(storage, from, launch->memory_bytes - head - arguments);
    for (size_t i = 0; i < count; i++) {
        clone->arguments[i] = storage + ((const char *)launch->arguments[i] - from);
    }
    clone->kernel = launch->kernel;
    set_native(clone, launch);
    clone->shared_bytes = launch->shared_bytes;
    clone->stack_class = launch->stack_class;
    clone->cooperative = launch->cooperative;
    set_shape(clone, launch->grid, launch->block);
    return clone;
}

cudaError_t vgpu_launch_submit(const char *function, struct vgpu_launch *launch,
                               struct vgpu_stream *stream)
{
    if (vgpu_stream_captures(stream)) {
        return vgpu_stream_give(function, stream, vgpu_launch_work(launch));
    }
    cudaError_t error = vgpu_pool_start();
    if (error == cudaSuccess) {
        error = vgpu_stream_enqueue(stream, &launch->operation, NULL);
    }
    if (error == cudaSuccess && !launch->task && vgpu_counting) {
        vgpu_count_launch(launch);
    }
    vgpu_operation_release(&launch->operation);
    return error;
}

void vgpu_launch_run_thread(struct vgpu_launch *launch, uint64_t block)
{
    if (launch->kernel) {
        launch->kernel->invoke(launch->arguments);
    } else if (launch->native) {
        launch->native(launch->arguments[0], (unsigned)block, (unsigned)launch->block_count);
    } else {
        cudaError_t error = launch->task(launch->arguments[0]);
        if (error != cudaSuccess) {
            vgpu_fault(error, "failed: %s", vgpu_last_error_text());
        }
    }
}

// ---- Checks -------------------------------------------------------------------------------------

static cudaError_t check_shape(const char *name, dim3 grid, dim3 block)
{
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > MAX_GRID_X || grid.y > MAX_GRID_YZ ||
        grid.z > MAX_GRID_YZ) {
        return vgpu_fail(cudaErrorInvalidConfiguration,
                         "%s: a grid of %u x %u x %u blocks; must be 1 to 2147483647 x 65535 x "
                         "65535",
                         name, grid.x, grid.y, grid.z);
    }
    if (block.x == 0 || block.y == 0 || block.z == 0 || block.x > MAX_THREADS ||
        block.y > MAX_THREADS || block.z > MAX_BLOCK_Z ||
        (uint64_t)block.x * block.y * block.z > MAX_THREADS) {
        return vgpu_fail(cudaErrorInvalidConfiguration,
                         "%s: a block of %u x %u x %u threads; must be 1 to 1024 in all, at most "
                         "64 in z",
                         name, block.x, block.y, block.z);
    }
    return cudaSuccess;
}

static cudaError_t check_image(struct vgpu_kernel_entry *entry, const struct vgpu_device *device)
{
    const struct vgpu_kernel *kernel = entry->kernel;
    const struct vgpu_image *image = kernel->image;
    if (vgpu_image_fits(image, device)) {
        return cudaSuccess;
    }
    char targets[160] = "";
    size_t used = 0;
    for (int i = 0; i < image->target_count && used < sizeof(targets) - 16; i++) {
        used += (size_t)snprintf(targets + used, sizeof(targets) - used, "%s%s_%d", i ? ", " : "",
                                 image->targets[i].ptx ? "compute" : "sm", image->targets[i].arch);
    }
    (void)vgpu_fail(cudaErrorNoKernelImageForDevice,
                    "kernel %s (%s) was compiled for %s; %s has compute capability %d.%d: "
                    "compile with -arch=sm_%d%d, or choose another VGPU_MACHINE",
                    kernel->name, image->source, *targets ? targets : "nothing",
                    vgpu_device_name(device->ordinal).text, device->info.major, device->info.minor,
                    device->info.major, device->info.minor);
    if (!atomic_exchange(&entry->told_no_image, true)) {
        vgpu_say("%s", vgpu_last_error_text());
    }
    return cudaErrorNoKernelImageForDevice;
}

static cudaError_t check_resources(struct vgpu_kernel_entry *entry, unsigned threads,
                                   size_t shared_bytes, const struct vgpu_device *device)
{
    const struct vgpu_kernel *kernel = entry->kernel;
    if (kernel->max_threads > 0 && threads > (unsigned)kernel->max_threads) {
        return vgpu_fail(cudaErrorInvalidConfiguration,
                         "kernel %s: %u threads a block; its __launch_bounds__ allows %d",
                         kernel->name, threads, kernel->max_threads);
    }
    int set = atomic_load_explicit(&entry->shared_limit[device->ordinal], memory_order_relaxed);
    size_t limit =
        (size_t)set > VGPU_SHARED_DEFAULT_BYTES ? (size_t)set : VGPU_SHARED_DEFAULT_BYTES;
    if (shared_bytes > limit) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "kernel %s: %zu bytes of dynamic shared memory; at most %zu (up to %zu "
                         "after cudaFuncSetAttribute with "
                         "cudaFuncAttributeMaxDynamicSharedMemorySize)",
                         kernel->name, shared_bytes, limit, vgpu_shared_optin_bytes(device));
    }
    return cudaSuccess;
}

// Every block of a cooperative launch must fit on the device at once, as CUDA counts it.
static cudaError_t check_cooperative(const struct vgpu_kernel *kernel, uint64_t blocks,
                                     unsigned threads, size_t shared_bytes,
                                     const struct vgpu_device *device)
{
    int each = 0;
    cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel->function,
                                                                      (int)threads, shared_bytes);
    if (error != cudaSuccess) {
        return error;
    }
    uint64_t fit = (uint64_t)each * (uint64_t)device->info.multiprocessors;
    if (blocks > fit) {
        return vgpu_fail(cudaErrorCooperativeLaunchTooLarge,
                         "kernel %s: a cooperative launch of %llu blocks; %llu fit at once",
                         kernel->name, (unsigned long long)blocks, (unsigned long long)fit);
    }
    if (vgpu_tsan() && blocks * threads > VGPU_TSAN_FIBERS) {
        return vgpu_fail(cudaErrorCooperativeLaunchTooLarge,
                         "kernel %s: %llu threads that must exist at once; under the thread "
                         "sanitizer at most %d",
                         kernel->name, (unsigned long long)(blocks * threads), VGPU_TSAN_FIBERS);
    }
    return cudaSuccess;
}

// ---- Kernels ------------------------------------------------------------------------------------

static cudaError_t copy_arguments(const struct vgpu_kernel *kernel, void **arguments,
                                  struct vgpu_device *device, struct vgpu_launch **launch_out)
{
    size_t bytes = 0;
    for (int i = 0; i < kernel->parameter_count; i++) {
        if (kernel->parameter_align[i] > PARAMETER_ALIGN) {
            return vgpu_fail(cudaErrorInvalidValue,
                             "kernel %s: parameter %d is aligned to %u; at "
                             "most %d",
                             kernel->name, i, kernel->parameter_align[i], PARAMETER_ALIGN);
        }
        bytes = round_up(bytes, kernel->parameter_align[i]) + kernel->parameter_bytes[i];
    }
    if (kernel->parameter_count > 0 && !arguments) {
        return vgpu_fail(cudaErrorInvalidValue, "kernel %s: arguments is NULL", kernel->name);
    }
    char *storage;
    struct vgpu_launch *launch =
        vgpu_launch_new(device, kernel->name, (size_t)kernel->parameter_count, bytes, &storage);
    if (!launch) {
        return vgpu_fail(cudaErrorMemoryAllocation, "kernel %s: no memory for a launch",
                         kernel->name);
    }
    size_t offset = 0;
    for (int i = 0; i < kernel->parameter_count; i++) {
        offset = round_up(offset, kernel->parameter_align[i]);
        memcpy(storage + offset, arguments[i], kernel->parameter_bytes[i]);
        launch->arguments[i] = storage + offset;
        offset += kernel->parameter_bytes[i];
    }
    *launch_out = launch;
    return cudaSuccess;
}

cudaError_t vgpu_kernel_launch_new(struct vgpu_device *device, const void *function,
                                   const struct vgpu_shape *shape, void **arguments,
                                   struct vgpu_launch **launch_out)
{
    struct vgpu_kernel_entry *entry = vgpu_kernel_find(function);
    if (!entry) {
        return vgpu_fail(cudaErrorInvalidDeviceFunction, "launch: %p is no kernel", function);
    }
    const struct vgpu_kernel *kernel = entry->kernel;
    cudaError_t error = check_image(entry, device);
    if (error == cudaSuccess) {
        error = check_shape(kernel->name, shape->grid, shape->block);
    }
    unsigned threads = shape->block.x * shape->block.y * shape->block.z;
    if (error == cudaSuccess) {
        error = check_resources(entry, threads, shape->shared_bytes, device);
    }
    if (error == cudaSuccess && shape->cooperative) {
        error = check_cooperative(kernel, (uint64_t)shape->grid.x * shape->grid.y * shape->grid.z,
                                  threads, shape->shared_bytes, device);
    }
    struct vgpu_launch *launch = NULL;
    if (error == cudaSuccess) {
        error = copy_arguments(kernel, arguments, device, &launch);
    }
    if (error != cudaSuccess) {
        return error;
    }
    launch->kernel = kernel;
    launch->shared_bytes = shape->shared_bytes;
    launch->cooperative = shape->cooperative;
    launch->stack_class = vgpu_stack_class(vgpu_device_limit(device, cudaLimitStackSize));
    launch->node_type = cudaGraphNodeTypeKernel;
    set_shape(launch, shape->grid, shape->block);
    *launch_out = launch;
    return cudaSuccess;
}

static cudaError_t launch_kernel(const void *function, void **arguments,
                                 const struct vgpu_shape *shape, cudaStream_t handle)
{
    struct vgpu_stream *stream = NULL;
    cudaError_t error = vgpu_stream_resolve("launching a kernel", handle, &stream);
    if (error != cudaSuccess) {
        return error;
    }
    if (stream->device != vgpu_current_device()) {
        return vgpu_fail(cudaErrorInvalidResourceHandle,
                         "launching a kernel: the stream is of %s, the current device is %s",
                         vgpu_device_name(stream->device->ordinal).text,
                         vgpu_device_name(vgpu_current_device()->ordinal).text);
    }
    struct vgpu_launch *launch = NULL;
    error = vgpu_kernel_launch_new(stream->device, function, shape, arguments, &launch);
    return error == cudaSuccess ? vgpu_launch_submit("launching a kernel", launch, stream) : error;
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                             size_t shared_bytes, cudaStream_t stream)
{
    struct vgpu_shape shape = {grid, block, shared_bytes, false};
    return launch_kernel(function, arguments, &shape, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block,
                                        void **arguments, size_t shared_bytes, cudaStream_t stream)
{
    struct vgpu_shape shape = {grid, block, shared_bytes, true};
    return launch_kernel(function, arguments, &shape, stream);
}

// Looks at one attribute. *event_out: an event to record behind the kernel; NULL: none.
static cudaError_t read_attribute(const cudaLaunchAttribute *attribute, struct vgpu_shape *shape,
                                  cudaEvent_t *event_out)
{
    const cudaLaunchAttributeValue *value = &attribute->val;
    switch (attribute->id) {
    case cudaLaunchAttributeCooperative:
        shape->cooperative = value->cooperative != 0;
        return cudaSuccess;
    case cudaLaunchAttributeClusterDimension:
    case cudaLaunchAttributePreferredClusterDimension: // x, y, z lie at the same place
        if (value->clusterDim.x > 1 || value->clusterDim.y > 1 || value->clusterDim.z > 1) {
            return vgpu_fail(cudaErrorNotSupported,
                             "cudaLaunchKernelExC: clusters of %u x %u x %u blocks; virtual GPUs "
                             "have none: leave the attribute out",
                             value->clusterDim.x, value->clusterDim.y, value->clusterDim.z);
        }
        return cudaSuccess;
    case cudaLaunchAttributeProgrammaticEvent:
        *event_out = value->programmaticEvent.event;
        return cudaSuccess;
    case cudaLaunchAttributeLaunchCompletionEvent:
        *event_out = value->launchCompletionEvent.event;
        return cudaSuccess;
    case cudaLaunchAttributeDeviceUpdatableKernelNode:
        if (value->deviceUpdatableKernelNode.deviceUpdatable) {
            return vgpu_fail(cudaErrorNotSupported,
                             "cudaLaunchKernelExC: kernels on virtual GPUs cannot change graphs "
                             "(cudaLaunchAttributeDeviceUpdatableKernelNode)");
        }
        return cudaSuccess;
    case cudaLaunchAttributeIgnore:
    case cudaLaunchAttributeAccessPolicyWindow:
    case cudaLaunchAttributeSynchronizationPolicy:
    case cudaLaunchAttributeClusterSchedulingPolicyPreference:
    case cudaLaunchAttributeProgrammaticStreamSerialization: // permits overlap, does not ask for it
    case cudaLaunchAttributePriority:
    case cudaLaunchAttributeMemSyncDomainMap:
    case cudaLaunchAttributeMemSyncDomain:
    case cudaLaunchAttributePreferredSharedMemoryCarveout:
    case cudaLaunchAttributeNvlinkUtilCentricScheduling:
        return cudaSuccess; // hints about placement and priority
    }
    return vgpu_fail(cudaErrorInvalidValue, "cudaLaunchKernelExC: no launch attribute %d",
                     (int)attribute->id);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function,
                                void **arguments)
{
    if (!config || (config->numAttrs > 0 && !config->attrs)) {
        return vgpu_fail(cudaErrorInvalidValue, "cudaLaunchKernelExC: %s is NULL",
                         config ? "config->attrs" : "config");
    }
    struct vgpu_shape shape = {config->gridDim, config->blockDim, config->dynamicSmemBytes, false};
    cudaEvent_t events[2] = {NULL, NULL};
    for (unsigned i = 0; i < config->numAttrs; i++) {
        bool completion = config->attrs[i].id == cudaLaunchAttributeLaunchCompletionEvent;
        cudaError_t error = read_attribute(&config->attrs[i], &shape, &events[completion]);
        if (error != cudaSuccess) {
            return error;
        }
    }
    cudaError_t error = launch_kernel(function, arguments, &shape, config->stream);
    for (int i = 0; error == cudaSuccess && i < 2; i++) {
        // Both may be signalled earlier, when blocks say so or have begun; the kernel's end is
        // never too early.
        error = events[i] ? cudaEventRecord(events[i], config->stream) : cudaSuccess;
    }
    return error;
}

// ---- `<<<>>>` -----------------------------------------------------------------------------------

// Launches pushed and not yet taken; arguments of a launch may launch too, so they nest.
static __thread int pushed_count;

struct pushed {
    struct vgpu_shape shape;
    cudaStream_t stream;
};

static struct pushed *pushed_launches(void)
{
    return vgpu_thread_memory(VGPU_THREAD_LAUNCHES, MAX_PUSHED * sizeof(struct pushed));
}

void vgpu_push_launch(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream)
{
    if (vgpu_in_kernel()) {
        vgpu_fault(cudaErrorNotSupported, "a kernel launched a kernel: virtual GPUs cannot");
    }
    if (pushed_count == MAX_PUSHED) {
        vgpu_say("%d kernel launches nested in each other's arguments", MAX_PUSHED);
        abort();
    }
    struct pushed *pushed = pushed_launches();
    if (!pushed) {
        vgpu_say("no memory to launch a kernel");
        abort();
    }
    pushed[pushed_count++] = (struct pushed){{grid, block, shared_bytes, false}, stream};
}

void vgpu_launch_pushed(const void *function, void **arguments)
{
    if (pushed_count == 0) {
        const struct vgpu_kernel_entry *entry = vgpu_kernel_find(function);
        (void)vgpu_fail(cudaErrorMissingConfiguration,
                        "kernel %s was called without a launch: write %s<<<grid, block>>>(...)",
                        entry ? entry->kernel->name : "?", entry ? entry->kernel->name : "it");
        vgpu_say("%s", vgpu_last_error_text()); // nvcc does not even compile it
        return;
    }
    struct pushed pushed = pushed_launches()[--pushed_count];
    (void)launch_kernel(function, arguments, &pushed.shape, pushed.stream);
}

// ---- Native functions and tasks -----------------------------------------------------------------

static struct vgpu_launch *native_launch_new(struct vgpu_device *device, struct vgpu_launch wanted,
                                             const void *argument, size_t argument_bytes,
                                             unsigned blocks)
{
    char *storage;
    struct vgpu_launch *launch = vgpu_launch_new(device, wanted.name, 1, argument_bytes, &storage);
    if (launch) {
        set_native(launch, &wanted);
        if (argument_bytes > 0) {
            memcpy(storage, argument, argument_bytes);
        }
        launch->arguments[0] = storage;
        launch->stack_class = VGPU_STACK_CLASS_NATIVE;
        set_shape(launch, (dim3){blocks, 1, 1}, (dim3){1, 1, 1});
    }
    return launch;
}

static cudaError_t launch_native(struct vgpu_launch wanted, const void *argument,
                                 size_t argument_bytes, unsigned blocks, cudaStream_t handle)
{
    struct vgpu_stream *stream = NULL;
    cudaError_t error = vgpu_stream_resolve(wanted.name, handle, &stream);
    if (error != cudaSuccess) {
        return error;
    }
    struct vgpu_launch *launch =
        native_launch_new(stream->device, wanted, argument, argument_bytes, blocks);
    return launch ? vgpu_launch_submit(wanted.name, launch, stream)
                  : vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory for a launch", wanted.name);
}

struct vgpu_launch *vgpu_task_launch_new(struct vgpu_device *device, enum cudaGraphNodeType type,
                                         const char *name, cudaError_t (*run)(void *argument),
                                         const void *argument, size_t argument_bytes)
{
    struct vgpu_launch wanted = {.name = name, .task = run, .node_type = type};
    return native_launch_new(device, wanted, argument, argument_bytes, 1);
}

cudaError_t vgpuLaunchNativeWork(const struct vgpuNativeWork *work, cudaStream_t stream)
{
    if (!work->name || !work->function || (work->argument_bytes > 0 && !work->argument) ||
        work->block_count == 0) {
        return vgpu_fail(
            cudaErrorInvalidValue,
            "vgpuLaunchNative: name is %s, function %s, argument %s, %u blocks; none may "
            "be NULL or 0",
            work->name ? work->name : "NULL", work->function ? "set" : "NULL",
            work->argument ? "set" : "NULL", work->block_count);
    }
    struct vgpu_launch wanted = {.name = work->name,
                                 .native = work->function,
                                 .native_launched = work->launched,
                                 .native_ended = work->ended,
                                 .node_type = cudaGraphNodeTypeKernel};
    return launch_native(wanted, work->argument, work->argument_bytes, work->block_count, stream);
}

cudaError_t vgpuLaunchNative(const char *name,
                             void (*function)(void *argument, unsigned block, unsigned block_count),
                             const void *argument, size_t argument_bytes, unsigned block_count,
                             cudaStream_t stream)
{
    struct vgpuNativeWork work = {.name = name,
                                  .function = function,
                                  .argument = argument,
                                  .argument_bytes = argument_bytes,
                                  .block_count = block_count};
    return vgpuLaunchNativeWork(&work, stream);
}

cudaError_t vgpu_stream_submit(cudaStream_t stream, enum cudaGraphNodeType type, const char *name,
                               cudaError_t (*run)(void *argument), const void *argument,
                               size_t argument_bytes)
{
    struct vgpu_launch wanted = {.name = name, .task = run, .node_type = type};
    return launch_native(wanted, argument, argument_bytes, 1, stream);
}
