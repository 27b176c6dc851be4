// What this version declares but does not do yet. SPDX-License-Identifier: Apache-2.0
#ifndef TT_API_UNAVAILABLE_H
#define TT_API_UNAVAILABLE_H

#include "base/log.h"

// ncclInvalidUsage with the text "not implemented yet: NAME".
static inline ncclResult_t tt_unavailable(const char *call)
{
    return tt_fail(ncclInvalidUsage, "not implemented yet: %s", call);
}

#endif
