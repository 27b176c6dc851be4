// cooperative_groups' scans: each thread gets the values of all lower ranks combined from the left,
// with its own (inclusive) or without (exclusive).
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_COOPERATIVE_GROUPS_SCAN_H
#define VGPU_COOPERATIVE_GROUPS_SCAN_H

#include "functional.h"

#if defined(__cplusplus) && defined(__CUDACC__)
extern "C++" {
namespace cooperative_groups
{

template <class Group, class Vector, class Function>
inline typename std::decay<Vector>::type inclusive_scan(const Group &group, Vector &&value,
                                                        Function &&combine)
{
    typedef typename std::decay<Vector>::type Value;
    vgpu_detail::gathered<Value> values(group.mask(), value);
    Value sum = values[0];
    for (unsigned i = 1; i <= values.own; i++)
        sum = combine(sum, values[i]);
    return sum;
}
template <class Group, class Vector>
inline typename std::decay<Vector>::type inclusive_scan(const Group &group, Vector &&value)
{
    return inclusive_scan(group, value, plus<>());
}

// The first thread gets Value().
template <class Group, class Vector, class Function>
inline typename std::decay<Vector>::type exclusive_scan(const Group &group, Vector &&value,
                                                        Function &&combine)
{
    typedef typename std::decay<Vector>::type Value;
    vgpu_detail::gathered<Value> values(group.mask(), value);
    Value sum = Value();
    for (unsigned i = 0; i < values.own; i++)
        sum = i == 0 ? values[0] : combine(sum, values[i]);
    return sum;
}
template <class Group, class Vector>
inline typename std::decay<Vector>::type exclusive_scan(const Group &group, Vector &&value)
{
    return exclusive_scan(group, value, plus<>());
}

namespace vgpu_detail
{
// What the atomic object held before the group's values were combined with it. By the last thread.
template <class Group, class Destination, class Value, class Function>
inline Value update_by_last(const Group &group, Destination &destination, const Value &inclusive,
                            Function &combine)
{
    Value old = Value();
    unsigned last = group.num_threads() - 1;
    if (group.thread_rank() == last)
        old = atomic_combine(destination, inclusive, combine);
    return group.shfl(old, static_cast<int>(last));
}
} // namespace vgpu_detail

// The scan goes on from an atomic object's value, to which all the group's values are added.
template <class Group, class Destination, class Vector, class Function>
inline typename std::decay<Vector>::type inclusive_scan_update(const Group &group,
                                                               Destination &&destination,
                                                               Vector &&value, Function &&combine)
{
    auto own = inclusive_scan(group, value, combine);
    auto before = vgpu_detail::update_by_last(group, destination, own, combine);
    return combine(before, own);
}
template <class Group, class Destination, class Vector>
inline typename std::decay<Vector>::type
inclusive_scan_update(const Group &group, Destination &&destination, Vector &&value)
{
    return inclusive_scan_update(group, destination, value, plus<>());
}
template <class Group, class Destination, class Vector, class Function>
inline typename std::decay<Vector>::type exclusive_scan_update(const Group &group,
                                                               Destination &&destination,
                                                               Vector &&value, Function &&combine)
{
    auto all = inclusive_scan(group, value, combine);
    auto before = vgpu_detail::update_by_last(group, destination, all, combine);
    auto own = exclusive_scan(group, value, combine);
    return group.thread_rank() == 0 ? before : combine(before, own);
}
template <class Group, class Destination, class Vector>
inline typename std::decay<Vector>::type
exclusive_scan_update(const Group &group, Destination &&destination, Vector &&value)
{
    return exclusive_scan_update(group, destination, value, plus<>());
}

} // namespace cooperative_groups
} // extern "C++"
#endif
#endif
