// The types that device code knows without an include: those of driver_types.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_BUILTIN_TYPES_H
#define VGPU_BUILTIN_TYPES_H
#include "driver_types.h"
#endif
