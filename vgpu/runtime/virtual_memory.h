// Physical allocations of the driver's virtual memory: cuMemCreate's and multicast objects.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_VIRTUAL_MEMORY_H
#define VGPU_RUNTIME_VIRTUAL_MEMORY_H

#include "backing.h"
#include "cuda.h"
#include "memory.h"

enum { VGPU_GRANULARITY = 2 << 20 };

struct vgpu_multicast;

// Lives while a handle, a mapping or a multicast binding refers to it. Under the memory lock.
struct vgpu_physical {
    CUmemGenericAllocationHandle handle;
    unsigned references; // by cuMemCreate, import, cuMemRetainAllocationHandle
    unsigned uses;       // mappings, and bindings to multicast objects
    struct vgpu_backing *backing;
    struct vgpu_device *device; // of the memory; NULL: host memory, multicast, or not visible here
    size_t bytes;
    bool budgeted;                    // made here: vgpu_budget_return when it goes
    struct vgpu_multicast *multicast; // NULL: memory
};

// A new physical allocation with one reference, which takes over the caller's reference to
// `backing`. NULL: no memory for bookkeeping. Under the lock.
struct vgpu_physical *vgpu_physical_add(struct vgpu_backing *backing, size_t bytes);
// The allocation that a handle names; NULL where it names none. Under the lock.
struct vgpu_physical *vgpu_physical_find(CUmemGenericAllocationHandle handle);
// The allocation that this process has of a backing; NULL where none. Under the lock.
struct vgpu_physical *vgpu_physical_of(const struct vgpu_backing *backing);
// Says that `handle` is none; always cudaErrorInvalidValue.
cudaError_t vgpu_physical_unknown(const char *function, CUmemGenericAllocationHandle handle);
// Ends one use or reference (the caller has decremented it): frees the allocation with the last.
void vgpu_physical_drop(struct vgpu_physical *physical);

// Whether offset and size are multiples of the granularity inside an object of `limit` bytes.
cudaError_t vgpu_check_piece(const char *function, const char *what, size_t offset, size_t bytes,
                             size_t limit);

#endif
