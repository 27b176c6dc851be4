// Memory for windows.
// SPDX-License-Identifier: Apache-2.0
#include "window/memory.h"

#include "api/function.h"
#include "base/params.h"

TT_FUNCTION(ncclResult_t, MemAlloc, (void **ptr, size_t size))
{
    return tt_mem_alloc(ptr, size, tt_param_int(TT_PARAM_CUMEM_ENABLE) != 0);
}

TT_FUNCTION(ncclResult_t, MemFree, (void *ptr))
{
    return tt_mem_free(ptr);
}
