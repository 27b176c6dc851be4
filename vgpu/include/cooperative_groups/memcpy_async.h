// cooperative_groups::memcpy_async: a copy by a group. It is done when the first thread's call
// returns; wait() makes it visible to the group, as it must be called anyway.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_COOPERATIVE_GROUPS_MEMCPY_ASYNC_H
#define VGPU_COOPERATIVE_GROUPS_MEMCPY_ASYNC_H

#include "../cooperative_groups.h"

#if defined(__cplusplus) && defined(__CUDACC__)
extern "C++" {
namespace cooperative_groups
{

// `bytes`: a number or a cuda::aligned_size_t.
template <class Group, class To, class From, class Size>
inline void memcpy_async(const Group &group, To *to, const From *from, const Size &bytes)
{
    if (group.thread_rank() == 0)
        memcpy(static_cast<void *>(to), static_cast<const void *>(from),
               static_cast<size_t>(bytes));
}
// Room for to_count elements, and from_count of them: the smaller number is copied.
template <class Group, class Value, class ToSize, class FromSize>
inline void memcpy_async(const Group &group, Value *to, const ToSize &to_count, const Value *from,
                         const FromSize &from_count)
{
    size_t room = static_cast<size_t>(to_count), have = static_cast<size_t>(from_count);
    if (group.thread_rank() == 0)
        memcpy(static_cast<void *>(to), static_cast<const void *>(from),
               (room < have ? room : have) * sizeof(Value));
}

// All copies of the group are done, or all but the last Stages.
template <class Group> inline void wait(const Group &group)
{
    group.sync();
}
template <unsigned Stages, class Group> inline void wait_prior(const Group &group)
{
    group.sync();
}

} // namespace cooperative_groups
} // extern "C++"
#endif
#endif
