// cooperative_groups::reduce: combines one value per thread of a tile, or of lanes that are
// together; every thread gets the result. Values are combined along a binary tree over ranks, the
// lower rank on the left: the same expression in every thread and run.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_COOPERATIVE_GROUPS_REDUCE_H
#define VGPU_COOPERATIVE_GROUPS_REDUCE_H

#include "functional.h"

#if defined(__cplusplus) && defined(__CUDACC__)
extern "C++" {
namespace cooperative_groups
{

template <class Group, class Vector, class Function>
inline typename std::decay<Vector>::type reduce(const Group &group, Vector &&value,
                                                Function &&combine)
{
    typedef typename std::decay<Vector>::type Value;
    vgpu_detail::gathered<Value> values(group.mask(), value);
    for (unsigned distance = 1; distance < values.count; distance *= 2) {
        for (unsigned i = 0; i + distance < values.count; i += 2 * distance) {
            Value sum = combine(values[i], values[i + distance]);
            memcpy(values.slot[i].byte, static_cast<const void *>(&sum), sizeof(Value));
        }
    }
    return values[0];
}

// Combines the group's result with an atomic object, or stores it there; the group's first thread
// does. Complete when the call returns.
template <class Group, class Destination, class Vector, class Function>
inline void reduce_update_async(const Group &group, Destination &destination, Vector &&value,
                                Function &&combine)
{
    auto result = reduce(group, value, combine);
    if (group.thread_rank() == 0)
        vgpu_detail::atomic_combine(destination, result, combine);
}
template <class Group, class Destination, class Vector, class Function>
inline void reduce_store_async(const Group &group, Destination &destination, Vector &&value,
                               Function &&combine)
{
    auto result = reduce(group, value, combine);
    if (group.thread_rank() == 0)
        destination = result;
}

} // namespace cooperative_groups
} // extern "C++"
#endif
#endif
