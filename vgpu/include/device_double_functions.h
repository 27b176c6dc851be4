// The double intrinsics: part of device_functions.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_DOUBLE_FUNCTIONS_H
#define VGPU_DEVICE_DOUBLE_FUNCTIONS_H
#include "device_functions.h"
#endif
