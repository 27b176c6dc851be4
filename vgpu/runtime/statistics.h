// Counting, for the runtime's own files. Callers look at vgpu_counting first.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_STATISTICS_H
#define VGPU_RUNTIME_STATISTICS_H

#include "vgpu/device_runtime.h"
#include "vgpu/stats.h"

#include <stddef.h>

// A copy engine's copy between memory of devices; host memory counts for nobody.
void vgpu_statistics_copy(const void *destination, const void *source, size_t bytes);

// A load or store of the running block, for code compiled with `tutticc --count`: counts device
// memory only, and only inside kernels. Exported.
void vgpu_count_access(const void *address, size_t bytes, int is_store);

#endif
