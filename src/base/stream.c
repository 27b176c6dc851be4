// See stream.h. SPDX-License-Identifier: Apache-2.0
#include "base/stream.h"

#include "base/log.h"

#include <cuda_runtime_api.h>

ncclResult_t tt_stream_error(int rank, cudaStream_t stream, int cuda_error, const char *call)
{
    if (cuda_error != cudaErrorInvalidResourceHandle) {
        return tt_cuda(cuda_error, call);
    }
    (void)cudaGetLastError();
    return tt_fail(ncclInvalidArgument,
                   "rank %d: stream %p is no stream of this process, or was destroyed", rank,
                   (void *)stream);
}

ncclResult_t tt_stream_capture(int rank, cudaStream_t stream, unsigned long long *capture_out)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long capture = 0;
    cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, &capture, NULL, NULL, NULL, NULL);
    TRY(tt_stream_error(rank, stream, (int)error, "cudaStreamGetCaptureInfo"));
    if (status == cudaStreamCaptureStatusInvalidated) {
        return tt_fail(ncclUnhandledCudaError,
                       "rank %d: the capture of stream %p is invalidated (%d): a call before this "
                       "one failed in it, or broke its rules; end it with cudaStreamEndCapture",
                       rank, (void *)stream, (int)cudaErrorStreamCaptureInvalidated);
    }
    *capture_out = status == cudaStreamCaptureStatusNone ? 0 : capture;
    return ncclSuccess;
}
