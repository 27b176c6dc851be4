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

template <class Group, class V, class F>
inline typename std::decay<V>::type inclusive_scan(const Group &group, V &&value, F &&combine)
{
    typedef typename std::decay<V>::type T;
    vgpu_detail::gathered<T> values(group.mask(), value);
    T sum = values[0];
    for (unsigned i = 1; i <= values.own; i++)
        sum = combine(sum, values[i]);
    return sum;
}
template <class Group, class V>
inline typename std::decay<V>::type inclusive_scan(const Group &group, V &&value)
{
    return inclusive_scan(group, value, plus<>());
}

// The first thread gets T().
template <class Group, class V, class F>
inline typename std::decay<V>::type exclusive_scan(const Group &group, V &&value, F &&combine)
{
    typedef typename std::decay<V>::type T;
    vgpu_detail::gathered<T> values(group.mask(), value);
    T sum = T();
    for (unsigned i = 0; i < values.own; i++)
        sum = i == 0 ? values[0] : combine(sum, values[i]);
    return sum;
}
template <class Group, class V>
inline typename std::decay<V>::type exclusive_scan(const Group &group, V &&value)
{
    return exclusive_scan(group, value, plus<>());
}

namespace vgpu_detail
{
// What the atomic object held before the group's values were combined with it. By the last thread.
template <class Group, class Destination, class T, class F>
inline T update_by_last(const Group &group, Destination &destination, const T &inclusive,
                        F &combine)
{
    T old = T();
    unsigned last = group.num_threads() - 1;
    if (group.thread_rank() == last)
        old = atomic_combine(destination, inclusive, combine);
    return group.shfl(old, static_cast<int>(last));
}
} // namespace vgpu_detail

// The scan goes on from an atomic object's value, to which all the group's values are added.
template <class Group, class Destination, class V, class F>
inline typename std::decay<V>::type
inclusive_scan_update(const Group &group, Destination &&destination, V &&value, F &&combine)
{
    auto own = inclusive_scan(group, value, combine);
    auto before = vgpu_detail::update_by_last(group, destination, own, combine);
    return combine(before, own);
}
template <class Group, class Destination, class V>
inline typename std::decay<V>::type inclusive_scan_update(const Group &group,
                                                          Destination &&destination, V &&value)
{
    return inclusive_scan_update(group, destination, value, plus<>());
}
template <class Group, class Destination, class V, class F>
inline typename std::decay<V>::type
exclusive_scan_update(const Group &group, Destination &&destination, V &&value, F &&combine)
{
    auto all = inclusive_scan(group, value, combine);
    auto before = vgpu_detail::update_by_last(group, destination, all, combine);
    auto own = exclusive_scan(group, value, combine);
    return group.thread_rank() == 0 ? before : combine(before, own);
}
template <class Group, class Destination, class V>
inline typename std::decay<V>::type exclusive_scan_update(const Group &group,
                                                          Destination &&destination, V &&value)
{
    return exclusive_scan_update(group, destination, value, plus<>());
}

} // namespace cooperative_groups
} // extern "C++"
#endif
#endif
