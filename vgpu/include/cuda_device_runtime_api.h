// Launches from kernels are not supported; the host's API is what programs find here.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_CUDA_DEVICE_RUNTIME_API_H
#define VGPU_CUDA_DEVICE_RUNTIME_API_H
#include "cuda_runtime_api.h"
#endif
