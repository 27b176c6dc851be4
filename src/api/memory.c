// Memory for windows.
// SPDX-License-Identifier: Apache-2.0
#include "window/memory.h"

#include "api/function.h"
#include "base/log.h"
#include "base/params.h"

TT_FUNCTION(ncclResult_t, MemAlloc, (void **ptr, size_t size))
{
    tt_call_begin("ncclMemAlloc", -1);
    ncclResult_t result = tt_mem_alloc(ptr, size, tt_param_int(TT_PARAM_CUMEM_ENABLE) != 0);
    tt_call_end();
    return result;
}

TT_FUNCTION(ncclResult_t, MemFree, (void *ptr))
{
    tt_call_begin("ncclMemFree", -1);
    ncclResult_t result = tt_mem_free(ptr);
    tt_call_end();
    return result;
}
