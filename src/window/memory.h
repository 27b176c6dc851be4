// Device memory that other ranks can map.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_WINDOW_MEMORY_H
#define TT_WINDOW_MEMORY_H

#include "nccl.h"

#include <stdbool.h>
#include <stddef.h>

// Memory of the current device for windows: an allocation of its own with a shareable handle, open
// to every device that can reach this one, rounded up to the device's granularity. Plain cudaMalloc
// where virtual_memory is false (NCCL_CUMEM_ENABLE=0), where the device has none, and for size 0.
ncclResult_t tt_mem_alloc(void **pointer_out, size_t bytes, bool virtual_memory);
// Frees memory of tt_mem_alloc or of cudaMalloc, whatever the current device is; NULL does nothing.
// No work may use the memory any more, and no window may hold it on a peer that still does.
ncclResult_t tt_mem_free(void *pointer);

#endif
