// How things are shared out over ranks: the first total % parts ranks get one more. The one place
// that says so on the host.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BASE_SPLIT_H
#define TT_BASE_SPLIT_H

#include <stddef.h>

// The first thing of part `index` (0 .. parts; index == parts gives total). parts >= 1.
static inline size_t tt_split_first(size_t total, size_t parts, size_t index)
{
    size_t extra = total % parts;
    return index * (total / parts) + (index < extra ? index : extra);
}

#endif
