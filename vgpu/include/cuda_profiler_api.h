// cudaProfilerStart and cudaProfilerStop: declared by cuda_runtime_api.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_CUDA_PROFILER_API_H
#define VGPU_CUDA_PROFILER_API_H
#include "cuda_runtime_api.h"
#endif
