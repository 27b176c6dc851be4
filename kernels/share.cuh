// What kernels share that has nothing to do with elements: marks for pictures, and how work is
// shared out.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_KERNELS_SHARE_CUH
#define TUTTI_KERNELS_SHARE_CUH

#include <cuda_runtime.h>
#include <stddef.h>

// Marks a phase of the running block for the picture of a run; nothing on real GPUs.
#ifdef VGPU_DEVICE_RUNTIME_H
#define TUTTI_MARK(phase)                                                                          \
    do {                                                                                           \
        if (threadIdx.x == 0) {                                                                    \
            vgpu_mark(phase);                                                                      \
        }                                                                                          \
    } while (0)
#else
#define TUTTI_MARK(phase) ((void)0)
#endif

namespace tutti
{

// The first of `total` things that part `index` of `parts` has; the first parts get one more.
__device__ __forceinline__ size_t split_first(size_t total, size_t parts, size_t index)
{
    size_t extra = total % parts;
    return index * (total / parts) + (index < extra ? index : extra);
}

} // namespace tutti
#endif
