// What kernels share that has nothing to do with elements: marks for pictures, how work is shared
// out, and how launches of one stream follow each other.
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

// A launch with cudaLaunchAttributeProgrammaticStreamSerialization may begin before what stands
// before it in its stream has ended: its blocks come to their multiprocessors earlier, and wait
// here until that is over and seen. Without the attribute there is nothing to wait for.
__device__ __forceinline__ void await_stream()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next launch of the stream, if it has that attribute, may begin once all blocks have come
// here. Its blocks hold their places while they wait: nothing that a block of this launch still
// waits for may need them.
__device__ __forceinline__ void let_next_begin()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

} // namespace tutti
#endif
