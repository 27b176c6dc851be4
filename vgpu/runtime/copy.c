// Copies: what the stream does for one, the checks at the call, and copies as nodes of graphs.
//
// From and to pageable host memory a copy follows CUDA's rules: a small source is taken over at the
// call, otherwise the call waits. In a graph it is read and written when the graph runs.
// SPDX-License-Identifier: Apache-2.0
#include "copy.h"

#include "capture.h"
#include "error.h"
#include "graph.h"
#include "launch.h"
#include "memory.h"
#include "statistics.h"
#include "stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAGED_BYTES = 64 << 10 }; // pageable sources up to this size are taken over at the call

// ---- What the stream does ----------------------------------------------------------------------

static cudaError_t run_copy(void *argument)
{
    const struct vgpu_copy *copy = argument;
    const char *source = copy->source ? copy->source : (const char *)(copy + 1);
    if (vgpu_counting && copy->source) {
        vgpu_statistics_copy(copy->destination, source, copy->width * copy->height * copy->depth);
    }
    bool whole = copy->width == copy->destination_pitch && copy->width == copy->source_pitch;
    for (size_t slice = 0; slice < copy->depth; slice++) {
        char *to = copy->destination + slice * copy->destination_slice;
        const char *from = source + slice * copy->source_slice;
        for (size_t row = 0; row < (whole ? 1 : copy->height); row++) {
            memmove(to + row * copy->destination_pitch, from + row * copy->source_pitch,
                    whole ? copy->width * copy->height : copy->width);
        }
    }
    return cudaSuccess;
}

// ---- Checks ------------------------------------------------------------------------------------

static bool is_empty(const struct vgpu_copy *copy)
{
    return copy->width == 0 || copy->height == 0 || copy->depth == 0;
}

// Bytes from the first to the last that a side takes. False: they wrap.
static bool extent(const struct vgpu_copy *copy, size_t pitch, size_t slice, size_t *bytes)
{
    size_t rows;
    size_t slices;
    return !__builtin_mul_overflow(pitch, copy->height - 1, &rows) &&
           !__builtin_mul_overflow(slice, copy->depth - 1, &slices) &&
           !__builtin_add_overflow(rows, slices, bytes) &&
           !__builtin_add_overflow(*bytes, copy->width, bytes);
}

// One side of a copy: that it is memory, and of the kind that the direction says.
static cudaError_t check_side(const char *function, bool writes, const void *address, size_t bytes,
                              bool device_side, bool host_side, enum vgpu_memory_kind *kind_out)
{
    char what[80];
    struct vgpu_memory_range range;
    (void)snprintf(what, sizeof(what), "%s: %s", function, writes ? "destination" : "source");
    cudaError_t error = vgpu_memory_check(what, address, bytes, writes, &range);
    if (error != cudaSuccess) {
        return error;
    }
    if (device_side && range.kind == VGPU_MEMORY_NONE) {
        return vgpu_fail(cudaErrorInvalidValue, "%s %p is host memory; the direction says device",
                         what, address);
    }
    if (host_side && range.kind == VGPU_MEMORY_DEVICE) {
        return vgpu_fail(cudaErrorInvalidValue, "%s %p is memory of %s; the direction says host",
                         what, address, vgpu_device_name(range.device).text);
    }
    *kind_out = range.kind;
    return cudaSuccess;
}

static cudaError_t check_shape(const char *function, const struct vgpu_copy *copy)
{
    if ((unsigned)copy->kind > cudaMemcpyDefault) {
        return vgpu_fail(cudaErrorInvalidMemcpyDirection, "%s: no direction %d (cudaMemcpyKind)",
                         function, (int)copy->kind);
    }
    if (copy->height > 1 &&
        (copy->width > copy->destination_pitch || copy->width > copy->source_pitch)) {
        return vgpu_fail(cudaErrorInvalidPitchValue, "%s: rows of %zu bytes, %zu and %zu apart",
                         function, copy->width, copy->destination_pitch, copy->source_pitch);
    }
    return cudaSuccess;
}

cudaError_t vgpu_copy_check(const char *function, const struct vgpu_copy *copy, bool *pageable_out)
{
    size_t written;
    size_t read;
    enum vgpu_memory_kind destination = VGPU_MEMORY_NONE;
    enum vgpu_memory_kind source = VGPU_MEMORY_NONE;
    cudaError_t error = check_shape(function, copy);
    if (error != cudaSuccess || is_empty(copy)) {
        return error;
    }
    if (!extent(copy, copy->destination_pitch, copy->destination_slice, &written) ||
        !extent(copy, copy->source_pitch, copy->source_slice, &read)) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: %zu x %zu x %zu bytes are too many", function,
                         copy->width, copy->height, copy->depth);
    }
    enum cudaMemcpyKind kind = copy->kind;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool to_host = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    bool from_host = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
    error =
        check_side(function, true, copy->destination, written, to_device, to_host, &destination);
    if (error == cudaSuccess) {
        error = check_side(function, false, copy->source, read, from_device, from_host, &source);
    }
    if (pageable_out) {
        *pageable_out = source == VGPU_MEMORY_NONE || destination == VGPU_MEMORY_NONE;
    }
    return error;
}

// ---- Submitting --------------------------------------------------------------------------------

// Whether the source may be taken over at the call: then nobody waits.
static bool is_staged(const struct vgpu_copy *copy)
{
    return copy->width <= STAGED_BYTES && copy->height <= STAGED_BYTES && copy->depth == 1 &&
           copy->width * copy->height <= STAGED_BYTES &&
           vgpu_memory_find(copy->source).kind == VGPU_MEMORY_NONE &&
           vgpu_memory_find(copy->destination).kind != VGPU_MEMORY_NONE;
}

static cudaError_t submit_staged(const char *function, const struct vgpu_copy *copy,
                                 cudaStream_t stream)
{
    size_t bytes = copy->width * copy->height;
    struct vgpu_copy *staged = malloc(sizeof(*staged) + bytes);
    if (!staged) {
        return vgpu_fail(cudaErrorMemoryAllocation, "%s: no host memory for %zu bytes", function,
                         bytes);
    }
    *staged = *copy;
    staged->source = NULL;
    staged->source_pitch = copy->width;
    for (size_t row = 0; row < copy->height; row++) {
        memcpy((char *)(staged + 1) + row * copy->width, copy->source + row * copy->source_pitch,
               copy->width);
    }
    cudaError_t error = vgpu_stream_submit(stream, cudaGraphNodeTypeMemcpy, function, run_copy,
                                           staged, sizeof(*staged) + bytes);
    free(staged);
    return error;
}

cudaError_t vgpu_copy_submit(const char *function, const struct vgpu_copy *copy,
                             cudaStream_t stream, bool wait)
{
    bool pageable = false;
    struct vgpu_device *device = vgpu_stream_device(stream);
    if (!device && vgpu_current_device()) {
        return vgpu_fail(cudaErrorInvalidResourceHandle, "%s: %p is no stream", function,
                         (void *)stream);
    }
    cudaError_t error = vgpu_device_ready(device);
    if (error == cudaSuccess) {
        error = vgpu_copy_check(function, copy, &pageable);
    }
    if (error != cudaSuccess) {
        return error;
    }
    bool captured = vgpu_capture_covers(stream);
    if (is_empty(copy)) {
        return wait && !captured ? vgpu_stream_wait(stream) : cudaSuccess;
    }
    if (!wait && !captured && is_staged(copy)) {
        return submit_staged(function, copy, stream);
    }
    error = vgpu_stream_submit(stream, cudaGraphNodeTypeMemcpy, function, run_copy, copy,
                               sizeof(*copy));
    if (error == cudaSuccess && (wait || pageable) && !captured) {
        error = vgpu_stream_wait(stream);
    }
    return error;
}

struct vgpu_copy vgpu_flat_copy(void *destination, const void *source, size_t bytes,
                                enum cudaMemcpyKind kind)
{
    struct vgpu_copy copy = {.destination = destination,
                             .source = source,
                             .destination_pitch = bytes,
                             .source_pitch = bytes,
                             .destination_slice = bytes,
                             .source_slice = bytes,
                             .width = bytes,
                             .height = 1,
                             .depth = 1,
                             .kind = kind};
    return copy;
}

cudaError_t vgpu_copy(const char *function, void *destination, const void *source, size_t bytes,
                      enum cudaMemcpyKind kind, cudaStream_t stream, bool wait)
{
    struct vgpu_copy copy = vgpu_flat_copy(destination, source, bytes, kind);
    return vgpu_copy_submit(function, &copy, stream, wait);
}

// ---- Nodes of graphs ---------------------------------------------------------------------------

// One side of a three-dimensional copy: where its first byte is.
static cudaError_t check_pitched(const char *function, const char *side,
                                 const struct cudaPitchedPtr *pointer, const struct cudaPos *at,
                                 char **address_out)
{
    size_t row;
    size_t offset;
    if (!pointer->ptr) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: the %s is NULL", function, side);
    }
    if (__builtin_mul_overflow(at->z, pointer->ysize, &row) ||
        __builtin_add_overflow(row, at->y, &row) ||
        __builtin_mul_overflow(row, pointer->pitch, &offset) ||
        __builtin_add_overflow(offset, at->x, &offset) ||
        __builtin_add_overflow((uintptr_t)pointer->ptr, offset, &row)) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: the %s's position %zu, %zu, %zu is too far",
                         function, side, at->x, at->y, at->z);
    }
    *address_out = (char *)pointer->ptr + offset;
    return cudaSuccess;
}

cudaError_t vgpu_copy_from_3d(const char *function, const struct cudaMemcpy3DParms *parameters,
                              struct vgpu_copy *copy_out)
{
    if (!parameters) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: the parameters are NULL", function);
    }
    const struct cudaMemcpy3DParms *p = parameters;
    if (p->srcArray || p->dstArray) {
        return vgpu_fail(cudaErrorNotSupported,
                         "%s: virtual GPUs have no arrays; set srcPtr and dstPtr", function);
    }
    char *source = NULL;
    char *destination = NULL;
    cudaError_t error = check_pitched(function, "source", &p->srcPtr, &p->srcPos, &source);
    if (error == cudaSuccess) {
        error = check_pitched(function, "destination", &p->dstPtr, &p->dstPos, &destination);
    }
    struct vgpu_copy copy = {.destination = destination,
                             .source = source,
                             .destination_pitch = p->dstPtr.pitch,
                             .source_pitch = p->srcPtr.pitch,
                             .width = p->extent.width,
                             .height = p->extent.height,
                             .depth = p->extent.depth,
                             .kind = p->kind};
    if (error == cudaSuccess &&
        (__builtin_mul_overflow(p->srcPtr.pitch, p->srcPtr.ysize, &copy.source_slice) ||
         __builtin_mul_overflow(p->dstPtr.pitch, p->dstPtr.ysize, &copy.destination_slice))) {
        error =
            vgpu_fail(cudaErrorInvalidValue, "%s: slices of %zu x %zu and %zu x %zu bytes",
                      function, p->srcPtr.pitch, p->srcPtr.ysize, p->dstPtr.pitch, p->dstPtr.ysize);
    }
    size_t rows = (copy.height > 0 ? copy.height - 1 : 0);
    if (error == cudaSuccess && copy.depth > 1 &&
        (p->srcPtr.ysize <= rows || p->dstPtr.ysize <= rows)) {
        error = vgpu_fail(cudaErrorInvalidPitchValue,
                          "%s: slices of %zu rows from slices of %zu to slices of %zu", function,
                          copy.height, p->srcPtr.ysize, p->dstPtr.ysize);
    }
    *copy_out = copy;
    return error;
}

cudaError_t vgpu_copy_work(const char *function, struct vgpu_device *device,
                           const struct cudaMemcpy3DParms *parameters, struct vgpu_work **work_out)
{
    struct vgpu_copy copy;
    cudaError_t error = vgpu_device_ready(device);
    if (error == cudaSuccess) {
        error = vgpu_copy_from_3d(function, parameters, &copy);
    }
    if (error == cudaSuccess && is_empty(&copy)) {
        error = vgpu_fail(cudaErrorInvalidValue, "%s: a node that copies %zu x %zu x %zu bytes",
                          function, copy.width, copy.height, copy.depth);
    }
    if (error == cudaSuccess) {
        error = vgpu_copy_check(function, &copy, NULL);
    }
    if (error != cudaSuccess) {
        return error;
    }
    struct vgpu_launch *launch = vgpu_task_launch_new(
        device, cudaGraphNodeTypeMemcpy, "copy of a graph", run_copy, &copy, sizeof(copy));
    *work_out = launch ? vgpu_launch_work(launch) : NULL;
    return *work_out ? cudaSuccess
                     : vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", function);
}

void vgpu_copy_parameters(const struct vgpu_work *work, struct cudaMemcpy3DParms *parameters)
{
    const struct vgpu_copy *copy = vgpu_work_launch(work)->arguments[0];
    size_t rows = copy->depth > 1 ? copy->source_slice / copy->source_pitch : copy->height;
    memset(parameters, 0, sizeof(*parameters));
    parameters->srcPtr = (struct cudaPitchedPtr){
        .ptr = (void *)(uintptr_t)copy->source, // CUDA's structure has no const
        .pitch = copy->source_pitch,
        .xsize = copy->width,
        .ysize = rows,
    };
    rows = copy->depth > 1 ? copy->destination_slice / copy->destination_pitch : copy->height;
    parameters->dstPtr = (struct cudaPitchedPtr){.ptr = copy->destination,
                                                 .pitch = copy->destination_pitch,
                                                 .xsize = copy->width,
                                                 .ysize = rows};
    parameters->extent = (struct cudaExtent){copy->width, copy->height, copy->depth};
    parameters->kind = copy->kind;
}
