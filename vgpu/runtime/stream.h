// Streams: in-order queues of operations. Owned by stream.c; memory and driver code submit work
// through this header.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_STREAM_H
#define VGPU_RUNTIME_STREAM_H

#include "device.h"

// Enqueues `run(argument)` on `stream` (0, cudaStreamLegacy and cudaStreamPerThread allowed), in
// order with everything before; a pool thread calls it as a block of one thread: it may wait for
// memory to change by polling with vgpu_yield, and a fault in it (a bad address, say) fails the
// device like a kernel's. argument: `argument_bytes` bytes, copied before return, 16-byte aligned.
// A result other than cudaSuccess becomes the device's sticky error. name: for messages; must
// outlive the work. type: what it is as a node of a graph, where the stream is being captured.
// Errors: cudaErrorInvalidResourceHandle for a bad stream, cudaErrorNotPermitted
// inside kernels and host functions, the device's sticky error.
cudaError_t vgpu_stream_submit(cudaStream_t stream, enum cudaGraphNodeType type, const char *name,
                               cudaError_t (*run)(void *argument), const void *argument,
                               size_t argument_bytes);
// Waits until everything enqueued on `stream` is done; with the sticky error of its device, if any.
cudaError_t vgpu_stream_wait(cudaStream_t stream);
// Whether work submitted to it now begins at once. False for a bad handle.
bool vgpu_stream_is_idle(cudaStream_t stream);
// Waits for every stream of the device.
cudaError_t vgpu_device_wait(struct vgpu_device *device);
// The device that a stream belongs to (the current one for 0); NULL for a bad handle.
struct vgpu_device *vgpu_stream_device(cudaStream_t stream);

#endif
