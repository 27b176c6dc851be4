// The older name of the pipeline functions. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_CUDA_PIPELINE_H
#define VGPU_CUDA_PIPELINE_H
#include "cuda_pipeline_primitives.h"
#endif
