// What is asked of a user's stream before anything is put on it.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BASE_STREAM_H
#define TT_BASE_STREAM_H

#include "nccl.h"

// A call of CUDA on the stream gave `cuda_error` (cudaSuccess: ncclSuccess). ncclInvalidArgument
// where it is no stream, or none any more; else as tt_cuda.
ncclResult_t tt_stream_error(int rank, cudaStream_t stream, int cuda_error, const char *call);
// The number of the capture that the stream is in; 0: of none. Also ncclUnhandledCudaError where
// that capture has failed, so that nothing can be added to it.
ncclResult_t tt_stream_capture(int rank, cudaStream_t stream, unsigned long long *capture_out);

#endif
