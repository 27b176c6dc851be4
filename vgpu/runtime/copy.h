// Copies and fills, for the functions of the runtime and the driver and for nodes of graphs. They
// name `function` in messages. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_COPY_H
#define VGPU_RUNTIME_COPY_H

#include "cuda_runtime_api.h"

#include <stdbool.h>
#include <stdint.h>

// A copy of `depth` slices of `height` rows of `width` bytes. Rows follow each other `pitch` bytes
// apart, slices `slice` bytes.
struct vgpu_copy {
    char *destination;
    const char *source; // NULL: the bytes follow this structure, one row behind the other
    size_t destination_pitch, source_pitch;
    size_t destination_slice, source_slice;
    size_t width, height, depth;
    enum cudaMemcpyKind kind;
};

struct vgpu_fill {
    char *destination;
    size_t pitch, width, height; // bytes
    uint32_t value;
    unsigned element_bytes; // 1, 2 or 4; width is a multiple of it
};

struct vgpu_copy vgpu_flat_copy(void *destination, const void *source, size_t bytes,
                                enum cudaMemcpyKind kind);
// Checks that both sides are memory of the kind that the direction says. *pageable_out (may be
// NULL): one of them is ordinary host memory. A copy of nothing passes.
cudaError_t vgpu_copy_check(const char *function, const struct vgpu_copy *copy, bool *pageable_out);
// Checks the copy and enqueues it on `stream`, or makes it a node where that is being captured;
// waits for its end where `wait` or CUDA's rules for pageable memory want that.
cudaError_t vgpu_copy_submit(const char *function, const struct vgpu_copy *copy,
                             cudaStream_t stream, bool wait);
// A flat copy, submitted.
cudaError_t vgpu_copy(const char *function, void *destination, const void *source, size_t bytes,
                      enum cudaMemcpyKind kind, cudaStream_t stream, bool wait);
// What cudaMemcpy3D is given, as a copy. cudaErrorInvalidValue, cudaErrorNotSupported (arrays).
cudaError_t vgpu_copy_from_3d(const char *function, const struct cudaMemcpy3DParms *parameters,
                              struct vgpu_copy *copy_out);

cudaError_t vgpu_fill_check(const char *function, const struct vgpu_fill *fill, bool *pinned_out);
// synchronous: waits where the memory is the host's.
cudaError_t vgpu_fill_submit(const char *function, const struct vgpu_fill *fill,
                             cudaStream_t stream, bool synchronous);
// Sets `count` elements of 1, 2 or 4 bytes.
cudaError_t vgpu_fill(const char *function, void *pointer, uint32_t value, unsigned element_bytes,
                      size_t count, cudaStream_t stream, bool synchronous);

#endif
