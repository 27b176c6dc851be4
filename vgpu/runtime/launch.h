// A launch: a kernel, a native function or a stream's task, and how far its blocks are.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_LAUNCH_H
#define VGPU_RUNTIME_LAUNCH_H

#include "device.h"
#include "operation.h"
#include "vgpu/device_runtime.h"
#include "work.h"

struct vgpu_launch {
    struct vgpu_operation operation; // first: the stream's view of it
    const char *name;                // outlives the launch
    const struct vgpu_kernel *kernel;
    // Exactly one of kernel, native and task is set.
    void (*native)(void *argument, unsigned block, unsigned block_count);
    cudaError_t (*task)(void *argument);
    void (*native_launched)(void *argument); // with `native`: see vgpuNativeWork
    void (*native_ended)(void *argument, cudaError_t error);
    void **arguments; // kernel: [parameter_count]; else arguments[0] is the argument
    dim3 grid;
    dim3 block;
    unsigned threads; // in a block
    uint64_t block_count;
    size_t shared_bytes;
    int stack_class;
    bool cooperative;
    enum cudaGraphNodeType node_type; // as a node of a graph
    size_t memory_bytes;              // of this structure and everything behind it
    atomic_ullong grid_arrived;       // blocks that came to this_grid().sync(), ever

    // Under the pool's lock.
    uint64_t next_block; // the first one that no worker has taken
    bool listed;
    struct vgpu_launch *next;
    struct vgpu_launch *previous;

    atomic_ullong unfinished; // blocks; who brings it to 0 completes the launch
    atomic_bool failed;       // a fault: blocks are dropped. Relaxed: workers look again
    uint64_t serial;          // unique in the process
    atomic_int rank_seen;     // its rank + 2, -1 for none known; 0: nobody has looked. Relaxed
};

// Makes a launch with room for `argument_bytes` bytes of arguments at *storage_out and
// `argument_count` pointers to them; NULL: no memory. Freed with its last reference.
struct vgpu_launch *vgpu_launch_new(struct vgpu_device *device, const char *name,
                                    size_t argument_count, size_t argument_bytes,
                                    char **storage_out);
// A launch that does the same, not yet enqueued; NULL: no memory.
struct vgpu_launch *vgpu_launch_clone(const struct vgpu_launch *launch);
// Enqueues the launch, or makes it a node where the stream is being captured. Takes it over.
cudaError_t vgpu_launch_submit(const char *function, struct vgpu_launch *launch,
                               struct vgpu_stream *stream);

struct vgpu_shape {
    dim3 grid;
    dim3 block;
    size_t shared_bytes;
    bool cooperative;
};
// A launch of the kernel that `function` stands for, checked by CUDA's rules, arguments copied.
// cudaErrorInvalidDeviceFunction, cudaErrorNoKernelImageForDevice, cudaErrorInvalidConfiguration,
// cudaErrorInvalidValue, cudaErrorCooperativeLaunchTooLarge, cudaErrorMemoryAllocation.
cudaError_t vgpu_kernel_launch_new(struct vgpu_device *device, const void *function,
                                   const struct vgpu_shape *shape, void **arguments,
                                   struct vgpu_launch **launch_out);
// A launch of `run(argument)` as one block of one thread (see vgpu_stream_submit). NULL: no memory.
struct vgpu_launch *vgpu_task_launch_new(struct vgpu_device *device, enum cudaGraphNodeType type,
                                         const char *name, cudaError_t (*run)(void *argument),
                                         const void *argument, size_t argument_bytes);

// A launch as a graph's work, which takes it over (NULL: no memory; the launch is released), and
// back.
struct vgpu_work *vgpu_launch_work(struct vgpu_launch *launch);
struct vgpu_launch *vgpu_work_launch(const struct vgpu_work *work);

// Runs one thread of the block whose built-in variables are set.
void vgpu_launch_run_thread(struct vgpu_launch *launch, uint64_t block);

// ---- The registry of kernels (kernel.c) ---------------------------------------------------------

// The kernel that the host stub `function` stands for; NULL where there is none.
struct vgpu_kernel_entry *vgpu_kernel_find(const void *function);

struct vgpu_kernel_entry {
    const struct vgpu_kernel *kernel;
    // cudaFuncAttributeMaxDynamicSharedMemorySize by device; 0: not set. Relaxed.
    _Atomic int shared_limit[64];
    atomic_bool told_no_image;
    struct vgpu_kernel_entry *next;
};

// Whether a translation unit's code runs on the device; NULL image: yes.
bool vgpu_image_fits(const struct vgpu_image *image, const struct vgpu_device *device);
// The dynamic shared memory that a launch may ask for without, and with, an attribute.
enum {
    VGPU_SHARED_DEFAULT_BYTES = 48 << 10,
    VGPU_SHARED_OPTIN_BYTES = 227 << 10,       // compute capability 9.0
    VGPU_SHARED_OPTIN_BYTES_AMPERE = 163 << 10 // 8.0
};
size_t vgpu_shared_optin_bytes(const struct vgpu_device *device);

#endif
