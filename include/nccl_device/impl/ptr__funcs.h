// Bodies of ptr.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_PTR__FUNCS_H_
#define NCCL_DEVICE_PTR__FUNCS_H_

#include "../ptr.h"
#include "core__funcs.h"

#if NCCL_CHECK_CUDACC
template <typename Value> NCCL_DEVICE_INLINE Value *ncclSymPtr<Value>::localPtr() const
{
    return (Value *)(window == nullptr ? (void *)offset : ncclGetLocalPointer(window, offset));
}
template <typename Value> NCCL_DEVICE_INLINE Value *ncclSymPtr<Value>::lsaPtr(int peer) const
{
    return (Value *)ncclGetLsaPointer(window, offset, peer);
}
template <typename Value> NCCL_DEVICE_INLINE Value *ncclSymPtr<Value>::peerPtr(int peer) const
{
    return (Value *)ncclGetPeerPointer(window, offset, peer);
}
template <typename Value>
NCCL_DEVICE_INLINE Value *ncclSymPtr<Value>::peerPtr(ncclTeam team, int peer) const
{
    return (Value *)ncclGetPeerPointer(window, offset, team, peer);
}
template <typename Value>
NCCL_DEVICE_INLINE Value *ncclSymPtr<Value>::multimemPtr(ncclMultimemHandle mmHandle) const
{
    return (Value *)ncclGetMultimemPointer(window, offset, mmHandle);
}
template <typename Value>
NCCL_DEVICE_INLINE Value *ncclSymPtr<Value>::lsaMultimemPtr(ncclDevComm const &comm) const
{
    return (Value *)ncclGetLsaMultimemPointer(window, offset, comm);
}
#endif

#endif
