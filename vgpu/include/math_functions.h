// The mathematical functions: part of device_functions.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_MATH_FUNCTIONS_H
#define VGPU_MATH_FUNCTIONS_H
#include "device_functions.h"
#endif
