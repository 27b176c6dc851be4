// Copies and fills for the runtime's and the driver's functions. They name `function` in messages.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_COPY_H
#define VGPU_RUNTIME_COPY_H

#include "cuda_runtime_api.h"

#include <stdbool.h>
#include <stdint.h>

// Copies in the order of `stream`; wait: returns when it is done.
cudaError_t vgpu_copy(const char *function, void *destination, const void *source, size_t bytes,
                      enum cudaMemcpyKind kind, cudaStream_t stream, bool wait);

// Sets `count` elements of 1, 2 or 4 bytes. synchronous: waits where the memory is the host's.
cudaError_t vgpu_fill(const char *function, void *pointer, uint32_t value, unsigned element_bytes,
                      size_t count, cudaStream_t stream, bool synchronous);

#endif
