// What a session of the hybrid barrier holds: the barrier inside the LSA team, the one between the
// teams, or both. SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_BARRIER__TYPES_H_
#define NCCL_DEVICE_BARRIER__TYPES_H_

#include "../gin_barrier.h"
#include "../lsa_barrier.h"

#if NCCL_CHECK_CUDACC
namespace nccl
{
namespace utility
{

struct Absent {
};
struct Present {
};
// A thing that is made with its holder, or never. For sessions, which cannot be moved.
template <typename Value> struct Optional {
    bool present;
    union {
        Value thing;
    };
    NCCL_DEVICE_INLINE Optional(Absent) : present(false) {}
    template <typename... Arguments>
    NCCL_DEVICE_INLINE Optional(Present, Arguments const &...arguments)
        : present(true), thing(arguments...)
    {
    }
    NCCL_DEVICE_INLINE ~Optional()
    {
        if (present) {
            thing.~Value();
        }
    }
    Optional(Optional const &) = delete;
};

} // namespace utility
} // namespace nccl

template <typename Coop> struct ncclBarrierSession_internal {
    Coop coop;
    nccl::utility::Optional<ncclLsaBarrierSession<Coop>> inner;
    nccl::utility::Optional<ncclGinBarrierSession<Coop>> outer;
};
#endif

#endif
