// Bodies of ptr.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_PTR__FUNCS_H_
#define NCCL_DEVICE_PTR__FUNCS_H_

#include "../ptr.h"
#include "core__funcs.h"

#if NCCL_CHECK_CUDACC
template <typename T> NCCL_DEVICE_INLINE T *ncclSymPtr<T>::localPtr() const
{
    return (T *)(window == nullptr ? (void *)offset : ncclGetLocalPointer(window, offset));
}
template <typename T> NCCL_DEVICE_INLINE T *ncclSymPtr<T>::lsaPtr(int peer) const
{
    return (T *)ncclGetLsaPointer(window, offset, peer);
}
template <typename T> NCCL_DEVICE_INLINE T *ncclSymPtr<T>::peerPtr(int peer) const
{
    return (T *)ncclGetPeerPointer(window, offset, peer);
}
template <typename T> NCCL_DEVICE_INLINE T *ncclSymPtr<T>::peerPtr(ncclTeam team, int peer) const
{
    return (T *)ncclGetPeerPointer(window, offset, team, peer);
}
template <typename T>
NCCL_DEVICE_INLINE T *ncclSymPtr<T>::multimemPtr(ncclMultimemHandle mmHandle) const
{
    return (T *)ncclGetMultimemPointer(window, offset, mmHandle);
}
template <typename T>
NCCL_DEVICE_INLINE T *ncclSymPtr<T>::lsaMultimemPtr(ncclDevComm const &comm) const
{
    return (T *)ncclGetLsaMultimemPointer(window, offset, comm);
}
#endif

#endif
