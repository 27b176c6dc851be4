// How driver functions (cu*) report errors: by value only; cudaGetLastError never shows them.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_DRIVER_ERROR_H
#define VGPU_RUNTIME_DRIVER_ERROR_H

#include "cuda.h"
#include "driver_types.h"

// Every driver function that can fail inside the runtime is written as
//     cudaError_t before = vgpu_driver_begin();
//     return vgpu_driver_end(before, <a function of the runtime>(...));
// begin remembers the thread's last error; end restores it and gives the driver's number of
// `error`.
cudaError_t vgpu_driver_begin(void);
CUresult vgpu_driver_end(cudaError_t before, cudaError_t error);

#endif
