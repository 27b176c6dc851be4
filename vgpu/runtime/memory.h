// What is known of an address: every mapping of device, pinned and multicast memory in this
// process.
//
// memory.c keeps one table of mappings; the kinds of memory (segments of cudaMalloc, virtual
// memory, IPC, pinned, multicast) add to it and remove from it under one lock.
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
    uintptr_t base; // of the allocation or mapping
    size_t bytes;
    int device; // CUDA ordinal of the owner; -1 where the owner is not visible here
};

// Looks `address` up: a range with kind VGPU_MEMORY_NONE where it is not ours. Lock-free for
// readers, cheap enough to call per kernel access when counting.
struct vgpu_memory_range vgpu_memory_find(const void *address);

// Changes whenever a mapping is added or removed: what was remembered of vgpu_memory_find before is
// then out of date.
extern atomic_uint vgpu_memory_generation;

// ---- For the kinds of memory -------------------------------------------------------------------

struct vgpu_backing;
struct vgpu_pool;
struct vgpu_advice;

enum vgpu_mapping_source {
    VGPU_FROM_MALLOC,    // owner: struct vgpu_block (segment.h)
    VGPU_FROM_VIRTUAL,   // owner: struct vgpu_physical (virtual_memory.h); multicast mappings too
    VGPU_FROM_IPC,       // owner: ipc.c's record
    VGPU_FROM_HOST,      // cudaHostAlloc
    VGPU_FROM_REGISTER,  // cudaHostRegister
    VGPU_FROM_MULTICAST, // another process's memory, mapped for a multicast object
    VGPU_FROM_SHARE,     // another process's memory, mapped as a whole (vgpu/share.h)
};

// A mapping. Allocated and freed by its kind; in the table from vgpu_mapping_add to
// vgpu_mapping_remove. Read and written under the memory lock.
struct vgpu_mapping {
    enum vgpu_memory_kind kind;
    enum vgpu_mapping_source source;
    uintptr_t base;
    size_t bytes;
    int device;
    bool no_access; // mapped but cuMemSetAccess has allowed nothing yet
    bool read_only;
    size_t closed_before, closed_behind; // bytes that the checking mode has closed around a window
    unsigned flags;               // host memory: as given to cudaHostAlloc or cudaHostRegister
    struct vgpu_backing *backing; // NULL for host memory
    size_t backing_offset;
    uint64_t number;            // unique in the process (CU_POINTER_ATTRIBUTE_BUFFER_ID)
    struct vgpu_pool *pool;     // of cudaMallocAsync; NULL: none
    struct vgpu_advice *advice; // of managed memory; NULL: none was given
    bool serves_multimem;       // a multicast table points into it: removal makes it look again
    void *owner;
};

// One lock for all bookkeeping of memory. Never held while work of users runs.
void vgpu_memory_lock(void);
void vgpu_memory_unlock(void);

// Under the lock. False: no memory, or the range overlaps a known one.
bool vgpu_mapping_add(struct vgpu_mapping *mapping);
void vgpu_mapping_remove(struct vgpu_mapping *mapping);
// Tells the table that no_access or read_only changed.
void vgpu_mapping_update(struct vgpu_mapping *mapping);
// The mapping that holds `address`, or that ends first above it; NULL where none does.
struct vgpu_mapping *vgpu_mapping_find(uintptr_t address);
struct vgpu_mapping *vgpu_mapping_next(uintptr_t address);

// Checks that [address, address + bytes) can be read (or written) by a copy. Memory that is not
// ours passes unless it is NULL or reserved without a mapping; of ours it must lie in one
// allocation (or in adjoining mappings of virtual memory) that allows access. what: "cudaMemcpy:
// destination" and such. range_out: what the first byte is; may be NULL. cudaErrorInvalidValue with
// a text.
cudaError_t vgpu_memory_check(const char *what, const void *address, size_t bytes, bool writes,
                              struct vgpu_memory_range *range_out);

// Reserved addresses (cuMemAddressReserve), under the lock.
bool vgpu_reservation_add(uintptr_t base, size_t bytes);
bool vgpu_reservation_remove(uintptr_t base);
// Whether [address, address + bytes) lies in one reservation; it is stored in *base_out, *bytes_out
// (either may be NULL). Any thread, no lock.
bool vgpu_reservation_find(uintptr_t address, size_t bytes, uintptr_t *base_out, size_t *bytes_out);

// Frees everything that cudaMalloc and its like gave out on a device (cudaDeviceReset).
void vgpu_memory_free_device(int device);
// Forgets a device's copies of __device__ variables, which have been freed: they are made anew.
void vgpu_symbols_forget(int device);

#endif
