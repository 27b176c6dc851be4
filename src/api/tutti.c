// The small functions of tutti.h.
// SPDX-License-Identifier: Apache-2.0
#include "tutti.h"

#include "api/function.h"
#include "base/log.h"
#include "base/split.h"
#include "comm/group.h"

#include <stdarg.h>
#include <stdio.h>

TT_EXPORT ncclResult_t tuttiVersion(int *version)
{
    if (version == NULL) {
        return tt_fail(ncclInvalidArgument, "tuttiVersion: version is NULL");
    }
    *version = TUTTI_VERSION_CODE;
    return ncclSuccess;
}

TT_EXPORT ncclResult_t tuttiFail(ncclResult_t result, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return tt_fail(result, "%s", text);
}

TT_EXPORT ncclResult_t tuttiRefuseGroup(const char *call)
{
    return tt_group_is_open()
               ? tt_group_latch(tt_fail(ncclInvalidUsage,
                                        "%s: not between ncclGroupStart and ncclGroupEnd: it waits "
                                        "for what the group's end begins",
                                        call))
               : ncclSuccess;
}

TT_EXPORT ncclResult_t tuttiSplitCounts(size_t total, int nranks, size_t *counts,
                                        size_t *displacements)
{
    if (nranks < 1) {
        return tt_fail(ncclInvalidArgument, "tuttiSplitCounts: nranks is %d, must be at least 1",
                       nranks);
    }
    if (counts == NULL && displacements == NULL) {
        return tt_fail(ncclInvalidArgument,
                       "tuttiSplitCounts: counts and displacements are both NULL");
    }
    size_t parts = (size_t)nranks;
    for (size_t rank = 0; rank < parts; rank++) {
        size_t first = tt_split_first(total, parts, rank);
        if (counts != NULL) {
            counts[rank] = tt_split_first(total, parts, rank + 1) - first;
        }
        if (displacements != NULL) {
            displacements[rank] = first;
        }
    }
    return ncclSuccess;
}
