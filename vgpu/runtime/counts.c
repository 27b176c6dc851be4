// The scheduler's counters. SPDX-License-Identifier: Apache-2.0
#include "counts.h"

#include "launch.h"

atomic_ullong vgpu_counted_barriers[VGPU_MAX_DEVICES];
atomic_ullong vgpu_counted_launches[VGPU_MAX_DEVICES];
atomic_bool vgpu_counted_kernels;
atomic_bool vgpu_counted_code;

void vgpu_count_barrier(const struct vgpu_device *device)
{
    atomic_fetch_add_explicit(&vgpu_counted_barriers[device->ordinal], 1, memory_order_relaxed);
}

void vgpu_count_launch(const struct vgpu_launch *launch)
{
    atomic_fetch_add_explicit(&vgpu_counted_launches[launch->operation.device->ordinal], 1,
                              memory_order_relaxed);
    if (launch->kernel) {
        atomic_store_explicit(&vgpu_counted_kernels, true, memory_order_relaxed);
    }
}

void vgpu_count_compiled(void)
{
    atomic_store_explicit(&vgpu_counted_code, true, memory_order_relaxed);
}
