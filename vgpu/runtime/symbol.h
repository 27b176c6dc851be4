// What the runtime asks about __device__ and __constant__ variables. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_SYMBOL_H
#define VGPU_RUNTIME_SYMBOL_H

#include <stdbool.h>

// Whether the address lies in a __constant__ variable: in the running device's copy, or in the
// variable itself, which constants without copies are. Goes through all variables.
bool vgpu_symbol_is_constant(const void *address);

// The host image of a variable with this name that `accepts` takes; NULL: none. Any thread.
const void *vgpu_symbol_named(const char *name, bool (*accepts)(const void *image, void *context),
                              void *context);

#endif
