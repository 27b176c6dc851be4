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

// What a device is. Filled once by machine.c from VGPU_MACHINE and CUDA_VISIBLE_DEVICES; constant
// afterwards.
struct vgpu_device_info {
    char name[256];
    unsigned char uuid[16];
    int pci_domain, pci_bus, pci_device;
    int major, minor; // compute capability
    int multiprocessors;
    size_t memory_bytes; // as announced
    bool multicast;      // CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED
    bool nvlink;         // connected to every other device by NVLink
    int physical;        // index in the machine, before CUDA_VISIBLE_DEVICES
};

struct vgpu_device {
    struct vgpu_device_info info;
    int ordinal;                       // CUDA's number in this process
    _Atomic int sticky_error;          // cudaError_t; once set every call that touches the device
                                       // returns it
    atomic_size_t memory_used;         // bytes allocated by this process
    struct vgpu_stream *legacy_stream; // owned by stream.c, made on first use
    // Streams with operations that are not done. Written under the graph's lock (release); whoever
    // finds 0 (acquire) sees what all operations did.
    atomic_int busy_streams;
};

// The device whose block the calling thread runs; NULL outside kernels. Written by the scheduler at
// every switch to a block and back.
extern __thread struct vgpu_device *vgpu_running_device;

// Number of visible devices; 0 is legal (cudaErrorNoDevice from calls that need one).
int vgpu_device_count(void);
// NULL where `ordinal` is out of range.
struct vgpu_device *vgpu_device(int ordinal);
// The calling thread's current device: inside a kernel the running block's, else as set by
// cudaSetDevice. NULL: no device.
struct vgpu_device *vgpu_current_device(void);
// Whether devices a and b can map each other's memory. True for a == b.
bool vgpu_peer_access(const struct vgpu_device *a, const struct vgpu_device *b);
// Around users' code in which CUDA forbids its own calls, on the calling thread.
void vgpu_host_function_begins(void);
void vgpu_host_function_ends(void);
// cudaErrorNotPermitted with a text inside such code. vgpu_device_ready asks it.
cudaError_t vgpu_calls_allowed(void);
// cudaSuccess, or the device's sticky error (recorded as last error), or, where device is NULL,
// why there is none: cudaErrorNoDevice or, with a bad VGPU_MACHINE, cudaErrorInitializationError.
cudaError_t vgpu_device_ready(const struct vgpu_device *device);
// cudaSuccess and the device in *device_out, or cudaErrorInvalidDevice (cudaErrorNoDevice, ...) in
// the name of `function`. Does not look at sticky errors.
cudaError_t vgpu_device_get(const char *function, int ordinal, struct vgpu_device **device_out);
// A device as messages name it: "device 0 (physical 3)"; "device 9" where there is none of that
// number. To be used as an argument: vgpu_device_name(0).text lives until the call returns.
struct vgpu_device_name {
    char text[48];
};
struct vgpu_device_name vgpu_device_name(int ordinal);
// The visible device with this uuid; NULL where there is none.
struct vgpu_device *vgpu_device_by_uuid(const unsigned char uuid[16]);
// What cudaDeviceSetLimit set (or the default) for `limit`, in bytes or a count; 0 for an unknown
// limit. The stack limit is what a fiber needs at least; its default is CUDA's 1024.
size_t vgpu_device_limit(const struct vgpu_device *device, enum cudaLimit limit);
// Whether the calling thread has chosen a device or made a call that needs one (its context is
// current).
bool vgpu_thread_has_context(void);

#endif
