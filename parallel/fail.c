// See fail.h. SPDX-License-Identifier: Apache-2.0
#include "fail.h"

#include <cuda_runtime_api.h>

ncclResult_t parallel_cuda(int cuda_error, const char *call)
{
    cudaError_t error = (cudaError_t)cuda_error;
    return error == cudaSuccess ? ncclSuccess
                                : tuttiFail(ncclUnhandledCudaError, "%s: %s (%d)", call,
                                            cudaGetErrorString(error), cuda_error);
}
