// Everything is in cuda_bf16.h; some programs name this file.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_CUDA_BF16_HPP
#define VGPU_CUDA_BF16_HPP
#include "cuda_bf16.h"
#endif
