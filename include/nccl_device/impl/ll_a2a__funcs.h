// The small-value all-to-all in this version: each use is refused by the compiler.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_LL_A2A__FUNCS_H_
#define NCCL_DEVICE_LL_A2A__FUNCS_H_

#include "../ll_a2a.h"
#include "gin__funcs.h"

#if NCCL_CHECK_CUDACC
template <typename Coop>
NCCL_DEVICE_INLINE ncclLLA2ASession<Coop>::ncclLLA2ASession(Coop, ncclDevComm const &, ncclTeam,
                                                            ncclLLA2AHandle, uint32_t, int, bool,
                                                            ncclMultimemHandle)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLLA2ASession");
}
template <typename Coop> NCCL_DEVICE_INLINE ncclLLA2ASession<Coop>::~ncclLLA2ASession() {}
template <typename Coop>
template <typename Value>
NCCL_DEVICE_INLINE void ncclLLA2ASession<Coop>::send(int, int, Value)
{
    NCCL_NOT_IMPLEMENTED(Value, "ncclLLA2ASession::send");
}
template <typename Coop>
template <typename Value>
NCCL_DEVICE_INLINE void ncclLLA2ASession<Coop>::bcast(int, Value)
{
    NCCL_NOT_IMPLEMENTED(Value, "ncclLLA2ASession::bcast");
}
template <typename Coop>
template <typename Value>
NCCL_DEVICE_INLINE Value ncclLLA2ASession<Coop>::recv(int)
{
    NCCL_NOT_IMPLEMENTED(Value, "ncclLLA2ASession::recv");
}
template <typename Coop>
template <int MinEltCount, int MaxEltCount, typename Value>
NCCL_DEVICE_INLINE void ncclLLA2ASession<Coop>::recvUnrolled(int, int, int, Value (&)[MaxEltCount])
{
    NCCL_NOT_IMPLEMENTED(Value, "ncclLLA2ASession::recvUnrolled");
}
template <typename Coop>
template <int Unroll, typename Elt, typename EltToAcc, typename Reduce>
NCCL_DEVICE_INLINE auto ncclLLA2ASession<Coop>::recvReduce(int, int, int, EltToAcc eltToAcc, Reduce)
    -> decltype(eltToAcc(*(Elt *)nullptr))
{
    NCCL_NOT_IMPLEMENTED(Elt, "ncclLLA2ASession::recvReduce");
}
template <typename Coop> NCCL_DEVICE_INLINE void ncclLLA2ASession<Coop>::endEpoch(Coop)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLLA2ASession::endEpoch");
}
#endif

#endif
