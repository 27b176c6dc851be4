// A piece of memory that can be shared: one sealed memfd with a label.
//
// The memfd is a page longer than the memory: that last page is its label, which says what it is to
// whoever gets the descriptor, over a socket or through /proc. Its size is sealed, so no process
// can
// take memory away under another. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_BACKING_H
#define VGPU_RUNTIME_BACKING_H

#include "device.h"

#include <sys/types.h>

enum { VGPU_PAGE_BYTES = 4096 };

enum vgpu_backing_kind {
    VGPU_BACKING_SEGMENT = 1, // of cudaMalloc
    VGPU_BACKING_VIRTUAL = 2, // of cuMemCreate
    VGPU_BACKING_MULTICAST = 3,
    VGPU_BACKING_EVENT = 4, // of cudaEventInterprocess
};

// Fixed layout: other processes read it.
struct vgpu_label {
    char magic[8];
    uint32_t version;
    uint32_t kind;          // enum vgpu_backing_kind
    uint64_t bytes;         // of memory, without this page
    uint64_t object_bytes;  // multicast: the object's size
    unsigned char key[16];  // random
    unsigned char uuid[16]; // of the device; zero for host memory
    uint32_t handle_types;  // CUmemAllocationHandleType, as given at creation
    uint32_t location_type; // CUmemLocationType
    int32_t location_id;
    uint32_t gpu_direct; // allocFlags.gpuDirectRDMACapable
};

struct vgpu_backing {
    struct vgpu_backing *next; // all of this process
    int fd;
    dev_t filesystem;
    ino_t inode;
    int device; // CUDA ordinal of the owner; -1: host memory or not visible here
    bool imported;
    unsigned references;
    struct vgpu_label label;
};

// Makes a backing; label: everything but magic, version and key. One reference. Under the lock.
// cudaErrorMemoryAllocation naming the limit that was reached.
cudaError_t vgpu_backing_create(const char *function, const char *name,
                                const struct vgpu_label *label, int device,
                                struct vgpu_backing **out);
// Makes a backing of another process's descriptor, or finds the one that this process has of the
// same memory: one more reference. `fd` stays the caller's. Under the lock. cudaErrorInvalidValue
// where it is no memory of ours.
cudaError_t vgpu_backing_import(const char *function, int fd, struct vgpu_backing **out);
// Opens descriptor `fd` of process `pid` and imports it, if it is the memory `inode` with `key`.
// Under the lock. cudaErrorInvalidResourceHandle where it is not there (any more).
cudaError_t vgpu_backing_open(const char *function, int pid, int fd, uint64_t inode,
                              const unsigned char key[16], struct vgpu_backing **out);
// Whether this process has a backing of that memory. Under the lock.
bool vgpu_backing_exists(uint64_t inode, const unsigned char key[16]);
void vgpu_backing_retain(struct vgpu_backing *backing);
void vgpu_backing_release(struct vgpu_backing *backing);
// Maps [offset, offset + bytes) anywhere (at == NULL) or exactly at `at`, replacing what is there.
// NULL: no room; errno is set.
void *vgpu_backing_map(struct vgpu_backing *backing, void *at, size_t bytes, size_t offset,
                       int protection);
// Says why a descriptor or a mapping could not be had: names the limit behind errno value `number`.
// Always returns cudaErrorMemoryAllocation.
cudaError_t vgpu_fail_limit(const char *function, const char *what, int number);

// ---- The host's memory ------------------------------------------------------------------------
// Asks for `bytes` of the host's memory before anything touches them; cudaErrorMemoryAllocation
// where host or device have not that much. For memory in backings; device: NULL for host memory.
// Under the lock.
cudaError_t vgpu_budget_take(const char *function, struct vgpu_device *device, size_t bytes);
void vgpu_budget_return(struct vgpu_device *device, size_t bytes);
// The same for pinned memory, which the caller touches at once.
cudaError_t vgpu_budget_take_pinned(const char *function, size_t bytes);
void vgpu_budget_return_pinned(size_t bytes);
// Bytes that could still be taken for `device`. Under the lock.
size_t vgpu_budget_left(struct vgpu_device *device);
// Bytes of all backings of this process that have been touched. Under the lock.
size_t vgpu_backing_touched(void);

#endif
