// Memory pools, for the allocator. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_MEMORY_POOL_H
#define VGPU_RUNTIME_MEMORY_POOL_H

#include <stddef.h>

struct vgpu_pool;

// An allocation of `bytes` bytes of the pool has been freed. Under the memory lock.
void vgpu_pool_returned(struct vgpu_pool *pool, size_t bytes);

#endif
