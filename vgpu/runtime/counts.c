// The scheduler's counters. SPDX-License-Identifier: Apache-2.0
#include "counts.h"

atomic_ullong vgpu_counted_barriers[VGPU_MAX_DEVICES];
atomic_ullong vgpu_counted_launches[VGPU_MAX_DEVICES];

void vgpu_count_barrier(const struct vgpu_device *device)
{
    atomic_fetch_add_explicit(&vgpu_counted_barriers[device->ordinal], 1, memory_order_relaxed);
}

void vgpu_count_launch(const struct vgpu_device *device)
{
    atomic_fetch_add_explicit(&vgpu_counted_launches[device->ordinal], 1, memory_order_relaxed);
}
