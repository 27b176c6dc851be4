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
    return tt_result_text(result);
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
