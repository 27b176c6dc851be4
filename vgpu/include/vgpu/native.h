// Native work on a virtual device: a C function that runs as a kernel, for libraries that bring
// their own CPU code.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_NATIVE_H
#define VGPU_NATIVE_H

#include "../driver_types.h"

#ifdef __cplusplus
extern "C" {
#endif

// Enqueues `function(argument, block, block_count)` for block = 0 .. block_count-1 on `stream`,
// each as a block of one thread under the same scheduler as kernels: it may wait for other blocks,
// of other devices and processes too, by polling with vgpu_yield() (vgpu/device_runtime.h) between
// looks. argument: `argument_bytes` bytes, copied before return. name: a string that outlives the
// launch, for messages and traces. In a stream that is being captured it becomes a node of the
// graph, which runs it with the same argument each time; let the graph hold what the argument
// points to (cudaGraphRetainUserObject on the graph that cudaStreamGetCaptureInfo gives): it is
// freed when no graph, executable graph or launch has it any more. Errors: those of
// cudaLaunchKernel, and of calls in a stream whose capture has failed. Since 0.1.
cudaError_t vgpuLaunchNative(const char *name,
                             void (*function)(void *argument, unsigned block, unsigned block_count),
                             const void *argument, size_t argument_bytes, unsigned block_count,
                             cudaStream_t stream);

// Calls function(argument) in the calling thread, instead of launching it on `stream` where that is
// idle and the work shorter than a launch. What a fault does there is what it does in a native
// block: it is said with `name`, and becomes the error of the stream's device and the result.
// `function` is then left where it was: nothing that it holds is released. cudaSuccess: it has
// returned. Since 0.2.
cudaError_t vgpuRunNative(const char *name, void (*function)(void *argument), void *argument,
                          cudaStream_t stream);

// Native work that is told of its runs: of what a launch or a graph's launch made of it, each with
// a copy of the argument of its own, which it may change.
struct vgpuNativeWork {
    const char *name;
    void (*function)(void *argument, unsigned block, unsigned block_count);
    // Work of a graph: a launch of the graph is about to enqueue a run. In the thread that
    // launches. NULL: nobody is told.
    void (*launched)(void *argument);
    // A run that was enqueued, or was about to be, is over: its blocks have ended, or were dropped,
    // begun or not. error: the device's where it has failed or was reset, which drops them. Once
    // for each run, in any thread, before what comes behind it begins. NULL: nobody is told.
    void (*ended)(void *argument, cudaError_t error);
    const void *argument;
    size_t argument_bytes;
    unsigned block_count;
};
// vgpuLaunchNative of such work. The two functions must not call CUDA. After an error no run was
// enqueued. Since 0.2.
cudaError_t vgpuLaunchNativeWork(const struct vgpuNativeWork *work, cudaStream_t stream);

// 1 where work that is given to the stream now would begin at once: it is not being captured, and
// nothing that CUDA's rules put before the work is still to be done. 0 also for what is no stream.
// What another thread does meanwhile is not known. Since 0.2.
int vgpuStreamIsIdle(cudaStream_t stream);

// Threads that run kernel blocks in this process: how many native blocks make progress at once. At
// least 1. Since 0.1.
int vgpuWorkerCount(void);

// Why the calling thread's last CUDA call failed: the argument, its value, what would be right; ""
// if none has. Valid until the thread's next failure.
const char *vgpuLastErrorText(void);

#ifdef __cplusplus
}
#endif
#endif
