// The virtual machine's devices: what they are (machine.c) and their state (device.c).
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_DEVICE_H
#define VGPU_RUNTIME_DEVICE_H

#include "driver_types.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vgpu_stream;

// What a device is. Filled once by machine.c from VGPU_MACHINE and CUDA_VISIBLE_DEVICES; constant afterwards.
struct vgpu_device_info {
    char name[256];
    unsigned char uuid[16];
    int pci_domain, pci_bus, pci_device;
    int major, minor;         // compute capability
    int multiprocessors;
    size_t memory_bytes;      // as announced
    bool multicast;           // CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED
    bool nvlink;              // connected to every other device by NVLink
    int physical;             // index in the machine, before CUDA_VISIBLE_DEVICES
};

struct vgpu_device {
    struct vgpu_device_info info;
    int ordinal;              // CUDA's number in this process
    _Atomic int sticky_error; // cudaError_t; once set every call that touches the device returns it
    atomic_size_t memory_used;
    struct vgpu_stream *legacy_stream; // owned by stream.c, made on first use
};

// Number of visible devices; 0 is legal (cudaErrorNoDevice from calls that need one).
int vgpu_device_count(void);
// NULL where `ordinal` is out of range.
struct vgpu_device *vgpu_device(int ordinal);
// The calling thread's current device: inside a kernel the running block's, else as set by cudaSetDevice. NULL: no device.
struct vgpu_device *vgpu_current_device(void);
// Whether devices a and b can map each other's memory.
bool vgpu_peer_access(const struct vgpu_device *a, const struct vgpu_device *b);
// cudaSuccess, or the device's sticky error (recorded as last error), or cudaErrorNoDevice where device is NULL.
cudaError_t vgpu_device_ready(const struct vgpu_device *device);

#endif
