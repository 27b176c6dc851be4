// Copies and fills: cudaMemcpy, cudaMemset and their 2D and asynchronous forms.
//
// Each is checked at the call and carried out by the stream. From and to pageable host memory a
// copy follows CUDA's rules: a small source is taken over at the call, otherwise the call waits.
// SPDX-License-Identifier: Apache-2.0
#include "copy.h"

#include "error.h"
#include "memory.h"
#include "statistics.h"
#include "stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAGED_BYTES = 64 << 10 }; // pageable sources up to this size are taken over at the call

// A copy of `height` rows of `width` bytes. Rows follow each other `pitch` bytes apart.
struct copy {
    char *destination;
    const char *source; // NULL: the bytes follow this structure, rows one behind the other
    size_t destination_pitch, source_pitch;
    size_t width, height;
};

struct fill {
    char *destination;
    size_t pitch, width, height;
    uint32_t value;
    unsigned element_bytes; // 1, 2 or 4; width is a multiple of it
};

// ---- What the stream does ----------------------------------------------------------------------

static cudaError_t run_copy(void *argument)
{
    const struct copy *copy = argument;
    const char *source = copy->source ? copy->source : (const char *)(copy + 1);
    if (vgpu_counting && copy->source) {
        vgpu_statistics_copy(copy->destination, source, copy->width * copy->height);
    }
    if (copy->width == copy->destination_pitch && copy->width == copy->source_pitch) {
        memmove(copy->destination, source, copy->width * copy->height);
        return cudaSuccess;
    }
    for (size_t row = 0; row < copy->height; row++) {
        memmove(copy->destination + row * copy->destination_pitch,
                source + row * copy->source_pitch, copy->width);
    }
    return cudaSuccess;
}

static void fill_row(char *row, const struct fill *fill)
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
    const struct fill *fill = argument;
    for (size_t row = 0; row < fill->height; row++) {
        fill_row(fill->destination + row * fill->pitch, fill);
    }
    return cudaSuccess;
}

// ---- Checks ------------------------------------------------------------------------------------

// Bytes from the first to the last that rows take; 0 for nothing. False: they wrap.
static bool extent(size_t pitch, size_t width, size_t height, size_t *bytes)
{
    *bytes = 0;
    if (width == 0 || height == 0) {
        return true;
    }
    return !__builtin_mul_overflow(pitch, height - 1, bytes) &&
           !__builtin_add_overflow(*bytes, width, bytes);
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
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s %p is memory of device %d; the direction says host", what, address,
                         range.device);
    }
    *kind_out = range.kind;
    return cudaSuccess;
}

struct kinds {
    enum vgpu_memory_kind destination, source;
};

static cudaError_t check_copy(const char *function, const struct copy *copy,
                              enum cudaMemcpyKind kind, struct kinds *kinds)
{
    size_t written, read;
    if ((unsigned)kind > cudaMemcpyDefault) {
        return vgpu_fail(cudaErrorInvalidMemcpyDirection, "%s: no direction %d (cudaMemcpyKind)",
                         function, (int)kind);
    }
    if (copy->height > 1 &&
        (copy->width > copy->destination_pitch || copy->width > copy->source_pitch)) {
        return vgpu_fail(cudaErrorInvalidPitchValue, "%s: rows of %zu bytes, %zu and %zu apart",
                         function, copy->width, copy->destination_pitch, copy->source_pitch);
    }
    if (!extent(copy->destination_pitch, copy->width, copy->height, &written) ||
        !extent(copy->source_pitch, copy->width, copy->height, &read)) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: %zu x %zu bytes are too many", function,
                         copy->width, copy->height);
    }
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool to_host = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    bool from_host = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
    cudaError_t error = check_side(function, true, copy->destination, written, to_device, to_host,
                                   &kinds->destination);
    if (error == cudaSuccess) {
        error =
            check_side(function, false, copy->source, read, from_device, from_host, &kinds->source);
    }
    return error;
}

// ---- Submitting --------------------------------------------------------------------------------

static cudaError_t submit_staged(const char *function, const struct copy *copy, cudaStream_t stream)
{
    size_t bytes = copy->width * copy->height;
    struct copy *staged = malloc(sizeof(*staged) + bytes);
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
    cudaError_t error =
        vgpu_stream_submit(stream, function, run_copy, staged, sizeof(*staged) + bytes);
    free(staged);
    return error;
}

// Checks and enqueues a copy; waits for it where the caller or CUDA's rules want that.
static cudaError_t submit_copy(const char *function, struct copy copy, enum cudaMemcpyKind kind,
                               cudaStream_t stream, bool wait)
{
    struct kinds kinds = {VGPU_MEMORY_NONE, VGPU_MEMORY_NONE};
    struct vgpu_device *device = vgpu_stream_device(stream);
    if (!device && vgpu_current_device()) {
        return vgpu_fail(cudaErrorInvalidResourceHandle, "%s: %p is no stream", function,
                         (void *)stream);
    }
    cudaError_t error = vgpu_device_ready(device);
    if (error != cudaSuccess) {
        return error;
    }
    if (copy.width == 0 || copy.height == 0) {
        return wait ? vgpu_stream_wait(stream) : cudaSuccess;
    }
    error = check_copy(function, &copy, kind, &kinds);
    if (error != cudaSuccess) {
        return error;
    }
    bool pageable = kinds.source == VGPU_MEMORY_NONE || kinds.destination == VGPU_MEMORY_NONE;
    bool small = copy.width <= STAGED_BYTES && copy.width * copy.height <= STAGED_BYTES;
    if (!wait && small && kinds.source == VGPU_MEMORY_NONE &&
        kinds.destination != VGPU_MEMORY_NONE) {
        return submit_staged(function, &copy, stream);
    }
    error = vgpu_stream_submit(stream, function, run_copy, &copy, sizeof(copy));
    if (error == cudaSuccess && (wait || pageable)) {
        error = vgpu_stream_wait(stream);
    }
    return error;
}

static struct copy flat(void *destination, const void *source, size_t bytes)
{
    struct copy copy = {.destination = destination,
                        .source = source,
                        .destination_pitch = bytes,
                        .source_pitch = bytes,
                        .width = bytes,
                        .height = 1};
    return copy;
}

cudaError_t vgpu_copy(const char *function, void *destination, const void *source, size_t bytes,
                      enum cudaMemcpyKind kind, cudaStream_t stream, bool wait)
{
    return submit_copy(function, flat(destination, source, bytes), kind, stream, wait);
}

cudaError_t cudaMemcpy(void *destination, const void *source, size_t bytes,
                       enum cudaMemcpyKind kind)
{
    return vgpu_copy("cudaMemcpy", destination, source, bytes, kind, 0, true);
}

cudaError_t cudaMemcpyAsync(void *destination, const void *source, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return vgpu_copy("cudaMemcpyAsync", destination, source, bytes, kind, stream, false);
}

static cudaError_t copy_peer(const char *function, struct copy copy, int destination_device,
                             int source_device, cudaStream_t stream)
{
    struct vgpu_device *device = NULL;
    cudaError_t error = vgpu_device_get(function, destination_device, &device);
    if (error == cudaSuccess) {
        error = vgpu_device_get(function, source_device, &device);
    }
    if (error != cudaSuccess) {
        return error;
    }
    return submit_copy(function, copy, cudaMemcpyDefault, stream, false);
}

cudaError_t cudaMemcpyPeer(void *destination, int destination_device, const void *source,
                           int source_device, size_t bytes)
{
    cudaError_t error = copy_peer("cudaMemcpyPeer", flat(destination, source, bytes),
                                  destination_device, source_device, 0);
    return error == cudaSuccess ? vgpu_stream_wait(0) : error;
}

cudaError_t cudaMemcpyPeerAsync(void *destination, int destination_device, const void *source,
                                int source_device, size_t bytes, cudaStream_t stream)
{
    return copy_peer("cudaMemcpyPeerAsync", flat(destination, source, bytes), destination_device,
                     source_device, stream);
}

cudaError_t cudaMemcpy2D(void *destination, size_t destination_pitch, const void *source,
                         size_t source_pitch, size_t width, size_t height, enum cudaMemcpyKind kind)
{
    struct copy copy = {destination, source, destination_pitch, source_pitch, width, height};
    return submit_copy("cudaMemcpy2D", copy, kind, 0, true);
}

// NOLINTNEXTLINE(readability-function-size): CUDA's parameters
cudaError_t cudaMemcpy2DAsync(void *destination, size_t destination_pitch, const void *source,
                              size_t source_pitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
    struct copy copy = {destination, source, destination_pitch, source_pitch, width, height};
    return submit_copy("cudaMemcpy2DAsync", copy, kind, stream, false);
}

// ---- Fills -------------------------------------------------------------------------------------

// wait: unlike copies, CUDA's fills of device memory do not wait for their end; those of pinned
// memory do. On a GPU a fill that nothing precedes has all but ended when the call returns, and
// programs whose other ranks then write there count on it: such a one is waited for. It cannot
// depend on what the program would do next.
static cudaError_t submit_fill(const char *function, struct fill fill, cudaStream_t stream,
                               bool synchronous)
{
    size_t bytes;
    char what[80];
    struct vgpu_memory_range range;
    struct vgpu_device *device = vgpu_stream_device(stream);
    if (!device && vgpu_current_device()) {
        return vgpu_fail(cudaErrorInvalidResourceHandle, "%s: %p is no stream", function,
                         (void *)stream);
    }
    cudaError_t error = vgpu_device_ready(device);
    if (error != cudaSuccess || fill.width == 0 || fill.height == 0) {
        return error;
    }
    if (fill.height > 1 && fill.width > fill.pitch) {
        return vgpu_fail(cudaErrorInvalidPitchValue, "%s: rows of %zu bytes, %zu apart", function,
                         fill.width, fill.pitch);
    }
    if (!extent(fill.pitch, fill.width, fill.height, &bytes)) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: %zu x %zu bytes are too many", function,
                         fill.width, fill.height);
    }
    (void)snprintf(what, sizeof(what), "%s: destination", function);
    error = vgpu_memory_check(what, fill.destination, bytes, true, &range);
    if (error != cudaSuccess) {
        return error;
    }
    if (range.kind == VGPU_MEMORY_NONE) {
        return vgpu_fail(cudaErrorInvalidValue, "%s %p is neither device memory nor pinned", what,
                         (void *)fill.destination);
    }
    if ((uintptr_t)fill.destination % fill.element_bytes != 0) {
        return vgpu_fail(cudaErrorInvalidValue, "%s %p is not a multiple of %u", what,
                         (void *)fill.destination, fill.element_bytes);
    }
    bool waits = synchronous && (range.kind != VGPU_MEMORY_DEVICE || vgpu_stream_is_idle(stream));
    error = vgpu_stream_submit(stream, function, run_fill, &fill, sizeof(fill));
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
    struct fill fill = {pointer, bytes, bytes, 1, value, element_bytes};
    return submit_fill(function, fill, stream, synchronous);
}

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
    struct fill fill = {pointer, pitch, width, height, (uint32_t)value & 0xff, 1};
    return submit_fill("cudaMemset2D", fill, 0, true);
}

cudaError_t cudaMemset2DAsync(void *pointer, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream)
{
    struct fill fill = {pointer, pitch, width, height, (uint32_t)value & 0xff, 1};
    return submit_fill("cudaMemset2DAsync", fill, stream, false);
}
