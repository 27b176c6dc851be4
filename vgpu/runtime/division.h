// Integer division as GPUs do it. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_DIVISION_H
#define VGPU_RUNTIME_DIVISION_H

#include <stdbool.h>

// Called in a handler of SIGFPE with its context. Where the instruction is a division, gives it the
// result that a GPU would (unspecified, but no trap) and goes on behind it: true. False: it is
// something else, and nothing was changed.
bool vgpu_step_over_division(void *context);

#endif
