// A runtime for tests of device headers: one thread that plays any lane of a warp, and a multicast
// range on demand.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_TESTS_FAKE_RUNTIME_H
#define VGPU_TESTS_FAKE_RUNTIME_H

#include "vgpu/device_runtime.h"

#include <setjmp.h>

#ifdef __cplusplus
extern "C" {
#endif

// What the next warp exchanges answer: the values of all lanes (in slots of 16 bytes) and which of
// them take part. The caller's own value is checked against its slot.
extern unsigned char fake_lanes[32][16];
extern unsigned fake_mask;
extern int fake_mismatches;
// How often vgpu_yield was called by this thread.
extern __thread int fake_yields;
// The multicast range that vgpu_multimem_find finds, and how often it was asked; counted loads and
// stores.
extern struct vgpu_multimem_range fake_range;
extern int fake_finds, fake_loads, fake_stores;
extern size_t fake_counted_bytes;
// Runs call(argument); returns the error of the fault that it ended with, or cudaSuccess.
cudaError_t fake_catch(void (*call)(void *argument), void *argument);
// Becomes the thread of this number in a block of 32.
void fake_become(unsigned lane);

#ifdef __cplusplus
}
#endif
#endif
