// The library itself: version, error texts, parameters. SPDX-License-Identifier: Apache-2.0
#include "api/function.h"
#include "base/log.h"
#include "nccl.h"

TT_FUNCTION(ncclResult_t, GetVersion, (int *version))
{
    if (version == NULL) {
        return tt_fail(ncclInvalidArgument,
                       "ncclGetVersion: version is NULL, must be where to write the version");
    }
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

TT_FUNCTION(const char *, GetErrorString, (ncclResult_t result))
{
    static const char *const texts[] = {
        [ncclSuccess] = "no error",
        [ncclUnhandledCudaError] = "a CUDA call failed (ncclGetLastError names it)",
        [ncclSystemError] = "a system call or a library call failed (ncclGetLastError names it)",
        [ncclInternalError] =
            "internal error, or the communicator was aborted (see ncclGetLastError)",
        [ncclInvalidArgument] = "invalid argument (ncclGetLastError names it)",
        [ncclInvalidUsage] = "invalid usage (ncclGetLastError explains it)",
        [ncclRemoteError] = "another rank failed or ended (ncclGetLastError names it)",
        [ncclInProgress] = "the operation is still in progress",
        [ncclTimeout] = "a time limit was reached (ncclGetLastError names what was waited for)",
    };
    return (unsigned)result < sizeof texts / sizeof texts[0] ? texts[result]
                                                             : "unknown result code";
}

TT_FUNCTION(const char *, GetLastError, (ncclComm_t comm))
{
    (void)comm;
    return tt_last_error();
}

TT_FUNCTION(void, ResetDebugInit, (void))
{
    // Settings are read once; there is nothing to read again.
}
