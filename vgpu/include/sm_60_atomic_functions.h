// Atomics with a scope: part of device_functions.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_SM_60_ATOMIC_FUNCTIONS_H
#define VGPU_SM_60_ATOMIC_FUNCTIONS_H
#include "device_functions.h"
#endif
