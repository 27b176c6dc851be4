// Cached loads: part of device_functions.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_SM_35_INTRINSICS_H
#define VGPU_SM_35_INTRINSICS_H
#include "device_functions.h"
#endif
