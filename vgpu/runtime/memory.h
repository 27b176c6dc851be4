// What is known of an address: every mapping of device, pinned and multicast memory in this process.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_MEMORY_H
#define VGPU_RUNTIME_MEMORY_H

#include "device.h"

enum vgpu_memory_kind {
    VGPU_MEMORY_NONE,      // not ours: ordinary host memory
    VGPU_MEMORY_DEVICE,    // cudaMalloc, an opened IPC handle, or a mapped cuMemCreate allocation
    VGPU_MEMORY_PINNED,    // cudaHostAlloc, cudaHostRegister
    VGPU_MEMORY_MANAGED,   // cudaMallocManaged
    VGPU_MEMORY_MULTICAST, // a mapped multicast object: only multimem accesses are legal
};

struct vgpu_memory_range {
    enum vgpu_memory_kind kind;
    uintptr_t base;        // of the allocation or mapping
    size_t bytes;
    int device;            // CUDA ordinal of the owner; -1 where the owner is not visible here
};

// Looks `address` up: a range with kind VGPU_MEMORY_NONE where it is not ours. Lock-free for readers, cheap enough to call
// per kernel access when counting.
struct vgpu_memory_range vgpu_memory_find(const void *address);

#endif
