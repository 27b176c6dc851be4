// The variables that tell a kernel's thread where it is: threadIdx, blockIdx, blockDim, gridDim,
// warpSize.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_DEVICE_LAUNCH_PARAMETERS_H
#define VGPU_DEVICE_LAUNCH_PARAMETERS_H

#include "vgpu/device_runtime.h"

#if defined(__cplusplus) && defined(__CUDACC__)
constexpr int warpSize = 32;
#endif

#endif
