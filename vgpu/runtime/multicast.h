// Multicast objects: devices of any processes join, bind memory, and share one range of addresses.
//
// An object is a memfd that holds a control page: the members (devices, in the order in which they
// were added) and the bindings (whose memory, which part). Every process finds the members' memory
// by itself, when a multimem access first needs it. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_MULTICAST_H
#define VGPU_RUNTIME_MULTICAST_H

#include "virtual_memory.h"

#include "vgpu/device_runtime.h"

// A range of an object that is bound alike by all members, with their memory in this process.
struct vgpu_resolved {
    struct vgpu_resolved *next;
    struct vgpu_multimem_range range; // member[] is followed by the members' device numbers
};

// Fills *resolved_out for the piece around `address`, which lies in `mapping` (of a multicast
// object). Under the lock. Otherwise cudaErrorIllegalAddress and a text that says what is missing.
cudaError_t vgpu_multicast_resolve(const struct vgpu_mapping *mapping, uintptr_t address,
                                   const struct vgpu_resolved **resolved_out);

// Makes a physical allocation that has a multicast object's backing into that object.
cudaError_t vgpu_multicast_attach(const char *function, struct vgpu_physical *physical);
// Ends this process's part: its bindings are undone.
void vgpu_multicast_destroy(struct vgpu_multicast *multicast);
// Waits until all devices of an object have been added, at most 30 s (then cudaErrorIllegalState).
// cudaSuccess at once for handles that name no multicast object. Not under the lock.
cudaError_t vgpu_multicast_wait(const char *function, CUmemGenericAllocationHandle handle);

#endif
