// Fills: cudaMemset and its 2D, 3D and asynchronous forms, and fills as nodes of graphs.
// SPDX-License-Identifier: Apache-2.0
#include "copy.h"
#include "error.h"
#include "graph.h"
#include "launch.h"
#include "memory.h"
#include "stream.h"

#include <stdio.h>
#include <string.h>

// ---- What the stream does ----------------------------------------------------------------------

static void fill_row(char *row, const struct vgpu_fill *fill)
{
    if (fill->element_bytes == 1) {
        memset(row, (int)fill->value, fill->width);
        return;
    }
    for (size_t at = 0; at < fill->width; at += fill->element_bytes) {
        memcpy(row + at, &fill->value, fill->element_bytes); // little-endian
    }
}

static cudaError_t run_fill(void *argument)
{
    const struct vgpu_fill *fill = argument;
    for (size_t row = 0; row < fill->height; row++) {
        fill_row(fill->destination + row * fill->pitch, fill);
    }
    return cudaSuccess;
}

// ---- Checks and submitting ---------------------------------------------------------------------

cudaError_t vgpu_fill_check(const char *function, const struct vgpu_fill *fill, bool *pinned_out)
{
    size_t bytes;
    char what[80];
    struct vgpu_memory_range range;
    if (fill->height > 1 && fill->width > fill->pitch) {
        return vgpu_fail(cudaErrorInvalidPitchValue, "%s: rows of %zu bytes, %zu apart", function,
                         fill->width, fill->pitch);
    }
    if (__builtin_mul_overflow(fill->pitch, fill->height - 1, &bytes) ||
        __builtin_add_overflow(bytes, fill->width, &bytes)) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: %zu x %zu bytes are too many", function,
                         fill->width, fill->height);
    }
    (void)snprintf(what, sizeof(what), "%s: destination", function);
    cudaError_t error = vgpu_memory_check(what, fill->destination, bytes, true, &range);
    if (error != cudaSuccess) {
        return error;
    }
    if (range.kind == VGPU_MEMORY_NONE) {
        return vgpu_fail(cudaErrorInvalidValue, "%s %p is neither device memory nor pinned", what,
                         (void *)fill->destination);
    }
    if ((uintptr_t)fill->destination % fill->element_bytes != 0) {
        return vgpu_fail(cudaErrorInvalidValue, "%s %p is not a multiple of %u", what,
                         (void *)fill->destination, fill->element_bytes);
    }
    if (pinned_out) {
        *pinned_out = range.kind != VGPU_MEMORY_DEVICE;
    }
    return cudaSuccess;
}

// Unlike copies, CUDA's fills of device memory do not wait for their end; those of pinned memory
// do. On a GPU a fill that nothing precedes has all but ended when the call returns, and programs
// whose other ranks then write there count on it: such a one is waited for. It cannot depend on
// what the program would do next.
cudaError_t vgpu_fill_submit(const char *function, const struct vgpu_fill *fill,
                             cudaStream_t stream, bool synchronous)
{
    bool pinned = false;
    struct vgpu_device *device = vgpu_stream_device(stream);
    if (!device && vgpu_current_device()) {
        return vgpu_fail(cudaErrorInvalidResourceHandle, "%s: %p is no stream", function,
                         (void *)stream);
    }
    cudaError_t error = vgpu_device_ready(device);
    if (error != cudaSuccess || fill->width == 0 || fill->height == 0) {
        return error;
    }
    error = vgpu_fill_check(function, fill, &pinned);
    if (error != cudaSuccess) {
        return error;
    }
    bool waits = synchronous && (pinned || vgpu_stream_is_idle(stream));
    error = vgpu_stream_submit(stream, cudaGraphNodeTypeMemset, function, run_fill, fill,
                               sizeof(*fill));
    if (error == cudaSuccess && waits) {
        error = vgpu_stream_wait(stream);
    }
    return error;
}

cudaError_t vgpu_fill(const char *function, void *pointer, uint32_t value, unsigned element_bytes,
                      size_t count, cudaStream_t stream, bool synchronous)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, (size_t)element_bytes, &bytes)) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: %zu elements are too many", function, count);
    }
    struct vgpu_fill fill = {pointer, bytes, bytes, 1, value, element_bytes};
    return vgpu_fill_submit(function, &fill, stream, synchronous);
}

// ---- CUDA's functions --------------------------------------------------------------------------

cudaError_t cudaMemset(void *pointer, int value, size_t bytes)
{
    return vgpu_fill("cudaMemset", pointer, (uint32_t)value & 0xff, 1, bytes, 0, true);
}

cudaError_t cudaMemsetAsync(void *pointer, int value, size_t bytes, cudaStream_t stream)
{
    return vgpu_fill("cudaMemsetAsync", pointer, (uint32_t)value & 0xff, 1, bytes, stream, false);
}

cudaError_t cudaMemset2D(void *pointer, size_t pitch, int value, size_t width, size_t height)
{
    struct vgpu_fill fill = {pointer, pitch, width, height, (uint32_t)value & 0xff, 1};
    return vgpu_fill_submit("cudaMemset2D", &fill, 0, true);
}

cudaError_t cudaMemset2DAsync(void *pointer, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream)
{
    struct vgpu_fill fill = {pointer, pitch, width, height, (uint32_t)value & 0xff, 1};
    return vgpu_fill_submit("cudaMemset2DAsync", &fill, stream, false);
}

static cudaError_t fill_3d(const char *function, struct cudaPitchedPtr pointer, int value,
                           struct cudaExtent extent, cudaStream_t stream, bool synchronous)
{
    size_t slice;
    if (extent.height > pointer.ysize && extent.depth > 1) {
        return vgpu_fail(cudaErrorInvalidPitchValue, "%s: %zu rows in slices of %zu", function,
                         extent.height, pointer.ysize);
    }
    if (__builtin_mul_overflow(pointer.pitch, pointer.ysize, &slice)) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: slices of %zu x %zu bytes", function,
                         pointer.pitch, pointer.ysize);
    }
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; error == cudaSuccess && i < extent.depth; i++) {
        struct vgpu_fill fill = {(char *)pointer.ptr + i * slice,
                                 pointer.pitch,
                                 extent.width,
                                 extent.height,
                                 (uint32_t)value & 0xff,
                                 1};
        error = vgpu_fill_submit(function, &fill, stream, synchronous);
    }
    return error;
}

cudaError_t cudaMemset3D(struct cudaPitchedPtr pointer, int value, struct cudaExtent extent)
{
    return fill_3d("cudaMemset3D", pointer, value, extent, 0, true);
}

cudaError_t cudaMemset3DAsync(struct cudaPitchedPtr pointer, int value, struct cudaExtent extent,
                              cudaStream_t stream)
{
    return fill_3d("cudaMemset3DAsync", pointer, value, extent, stream, false);
}

// ---- Nodes of graphs ---------------------------------------------------------------------------

cudaError_t vgpu_fill_work(const char *function, struct vgpu_device *device,
                           const struct cudaMemsetParams *parameters, struct vgpu_work **work_out)
{
    cudaError_t error = vgpu_device_ready(device);
    if (error != cudaSuccess) {
        return error;
    }
    if (!parameters) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: the parameters are NULL", function);
    }
    const struct cudaMemsetParams *p = parameters;
    size_t width;
    if ((p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4) || p->width == 0 ||
        p->height == 0 || __builtin_mul_overflow(p->width, (size_t)p->elementSize, &width)) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: %zu x %zu elements of %u bytes; there must be some, of 1, 2 or 4 "
                         "bytes",
                         function, p->width, p->height, p->elementSize);
    }
    struct vgpu_fill fill = {p->dst, p->pitch, width, p->height, p->value, p->elementSize};
    if (p->elementSize < 4) {
        fill.value &= (1u << 8 * p->elementSize) - 1;
    }
    error = vgpu_fill_check(function, &fill, NULL);
    if (error != cudaSuccess) {
        return error;
    }
    struct vgpu_launch *launch = vgpu_task_launch_new(
        device, cudaGraphNodeTypeMemset, "fill of a graph", run_fill, &fill, sizeof(fill));
    *work_out = launch ? vgpu_launch_work(launch) : NULL;
    return *work_out ? cudaSuccess
                     : vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", function);
}

void vgpu_fill_parameters(const struct vgpu_work *work, struct cudaMemsetParams *parameters)
{
    const struct vgpu_fill *fill = vgpu_work_launch(work)->arguments[0];
    *parameters = (struct cudaMemsetParams){.dst = fill->destination,
                                            .pitch = fill->pitch,
                                            .value = fill->value,
                                            .elementSize = fill->element_bytes,
                                            .width = fill->width / fill->element_bytes,
                                            .height = fill->height};
}
