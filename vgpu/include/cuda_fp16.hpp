// Everything is in cuda_fp16.h; some programs name this file.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_CUDA_FP16_HPP
#define VGPU_CUDA_FP16_HPP
#include "cuda_fp16.h"
#endif
