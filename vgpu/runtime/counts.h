// What the scheduler counts where counting is on (vgpu/stats.h): kept by device, read by stats.c.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_COUNTS_H
#define VGPU_RUNTIME_COUNTS_H

#include "device.h"
#include "vgpu/device_runtime.h"
#include "vgpu/stats.h"

// Relaxed counters, by CUDA's device number, for whoever reads or clears them.
extern atomic_ullong vgpu_counted_barriers[VGPU_MAX_DEVICES];
extern atomic_ullong vgpu_counted_launches[VGPU_MAX_DEVICES];

// Whether a kernel has run that was compiled from CUDA, and whether any code was compiled with
// `tutticc --count` (vgpu_count_compiled, which its hooks call at the start; exported). Relaxed.
extern atomic_bool vgpu_counted_kernels;
extern atomic_bool vgpu_counted_code;
void vgpu_count_compiled(void);

// One meeting of a block at a barrier; one launch of a kernel or native function.
void vgpu_count_barrier(const struct vgpu_device *device);
struct vgpu_launch;
void vgpu_count_launch(const struct vgpu_launch *launch);

#endif
