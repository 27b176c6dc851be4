// The CUDA runtime for C++ and kernels: cuda_runtime_api.h with types instead of void pointers,
// and, for code that tutticc compiles, everything that a kernel may use without a further include:
// built-in variables, intrinsics, mathematics.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_CUDA_RUNTIME_H
#define VGPU_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"
#include "driver_functions.h"
#include "vector_functions.h"

#ifdef __cplusplus

#ifdef __CUDACC__
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmath>
#include <cstdlib>
#include <new>
#include <utility>

#include "device_functions.h"
#endif
#include "vgpu/runtime_templates.h"

#endif
#endif
