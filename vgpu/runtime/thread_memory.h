// Larger memory of a thread: kept off thread-local storage, of which a library that is loaded while
// the program runs (dlopen, as Python does) gets a few hundred bytes at most.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_THREAD_MEMORY_H
#define VGPU_RUNTIME_THREAD_MEMORY_H

#include <stddef.h>

enum vgpu_thread_slot {
    VGPU_THREAD_ERROR_TEXT,
    VGPU_THREAD_LAUNCHES, // pushed and not yet taken
    VGPU_THREAD_CONTEXTS, // of cuCtxPushCurrent
    VGPU_THREAD_SLOTS,
};

// The calling thread's memory for a slot: `bytes` bytes, always as many, zero at first; freed when
// the thread ends. NULL: no memory.
void *vgpu_thread_memory(enum vgpu_thread_slot slot, size_t bytes);

#endif
