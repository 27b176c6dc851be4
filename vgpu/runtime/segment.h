// Memory of cudaMalloc: blocks in sparse segments, one memfd each.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_SEGMENT_H
#define VGPU_RUNTIME_SEGMENT_H

#include "backing.h"
#include "memory.h"

// Allocates `bytes` (at least 1) on the device: at a page boundary from 4 KiB on, else at 256
// bytes. kind: VGPU_MEMORY_DEVICE or VGPU_MEMORY_MANAGED. Takes the memory lock. The memory is in
// the table of mappings. cudaErrorMemoryAllocation.
cudaError_t vgpu_block_allocate(const char *function, struct vgpu_device *device, size_t bytes,
                                enum vgpu_memory_kind kind, void **out);
// Frees what vgpu_block_allocate returned. cudaErrorInvalidValue in the name of `function` for any
// other address. Takes the memory lock.
cudaError_t vgpu_block_free(const char *function, void *address);
// Whether the address lies in memory that blocks are cut from. Takes the memory lock.
bool vgpu_segment_holds(uintptr_t address);

#endif
