// Everything is in cuda_fp8.h; some programs name this file.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_CUDA_FP8_HPP
#define VGPU_CUDA_FP8_HPP
#include "cuda_fp8.h"
#endif
