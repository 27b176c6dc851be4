// Functions of the model return the first error, as those of the library do.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_TRY_H
#define GPT_TRY_H

#include <tutti.h>

// Returns on error. Only in functions that own nothing at that point.
#define TRY(call)                                                                                  \
    do {                                                                                           \
        ncclResult_t try_result = (call);                                                          \
        if (try_result != ncclSuccess) {                                                           \
            return try_result;                                                                     \
        }                                                                                          \
    } while (0)
#define TRY_CUDA(call) TRY(gpt_cuda_result((call), #call))

static inline ncclResult_t gpt_cuda_result(cudaError_t error, const char *call)
{
    return error == cudaSuccess
               ? ncclSuccess
               : tuttiFail(ncclUnhandledCudaError, "%s: %s", call, cudaGetErrorString(error));
}

#endif
