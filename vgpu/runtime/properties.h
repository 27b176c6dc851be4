// Attributes of a device, for the runtime's and the driver's functions.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_PROPERTIES_H
#define VGPU_RUNTIME_PROPERTIES_H

#include "cuda.h"
#include "device.h"

// The value of CUdevice_attribute `attribute` (the runtime's numbers are the same); false where
// CUDA 13 has no such number.
bool vgpu_attribute(const struct vgpu_device *device, int attribute, int *value);

#endif
