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

// One meeting of a block at a barrier; one launch of a kernel or native function.
void vgpu_count_barrier(const struct vgpu_device *device);
void vgpu_count_launch(const struct vgpu_device *device);

#endif
