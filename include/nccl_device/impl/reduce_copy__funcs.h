// The reductions and copies in this version: each use is refused by the compiler.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_REDUCE_COPY__FUNCS_H_
#define NCCL_DEVICE_REDUCE_COPY__FUNCS_H_

#include "../reduce_copy.h"
#include "gin__funcs.h"

#if NCCL_CHECK_CUDACC
template <typename T, typename Coop, typename SrcLambda, typename DstLambda, typename RedOp,
          typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceLsaCopy(Coop, SrcLambda, int, DstLambda, int, RedOp const &,
                                             IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceLsaCopy");
}
template <typename T, typename Coop, typename SrcLambda, typename DstLambda, typename RedOp,
          typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceMultimemCopy(Coop, SrcLambda, int, DstLambda, int,
                                                  RedOp const &, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceMultimemCopy");
}
template <typename T, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSumLsaCopy(Coop, SrcLambda, int, DstLambda, int, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSumLsaCopy");
}
template <typename T, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSumMultimemCopy(Coop, SrcLambda, int, DstLambda, int, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSumMultimemCopy");
}
template <typename T, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumLsaCopy(Coop, SrcLambda, int, DstLambda, int, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSumLsaCopy");
}
template <typename T, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumMultimemCopy(Coop, SrcLambda, int, DstLambda, int,
                                                          IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSumMultimemCopy");
}
template <typename T, typename Coop, typename SrcLambda, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, SrcLambda, int, T *, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSum");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, ncclSymPtr<T>, T *, IntCount, ncclTeam)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSum");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, ncclSymPtr<T>, T *, IntCount, ncclDevComm_t)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSum");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, ncclWindow_t, size_t, T *, IntCount, ncclTeam)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSum");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, ncclWindow_t, size_t, T *, IntCount, ncclDevComm_t)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSum");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop, ncclSymPtr<T>, T *, IntCount,
                                              ncclMultimemHandle)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSum");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop, T *, T *, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSum");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop, ncclWindow_t, size_t, T *, IntCount,
                                              ncclMultimemHandle)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSum");
}
template <typename T, typename Coop, typename SrcLambda, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLocalReduceSum(Coop, SrcLambda, int, T *, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLocalReduceSum");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLocalReduceSum(Coop, int, T *, size_t, T *, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLocalReduceSum");
}
template <typename T, typename Coop, typename DstLambda, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, T *, DstLambda, int, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, T *, ncclSymPtr<T>, IntCount, ncclTeam)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, T *, ncclSymPtr<T>, IntCount, ncclDevComm_t)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, T *, ncclWindow_t, size_t, IntCount, ncclTeam)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, T *, ncclWindow_t, size_t, IntCount, ncclDevComm_t)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop, T *, ncclSymPtr<T>, IntCount, ncclMultimemHandle)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop, T *, T *, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop, T *, ncclWindow_t, size_t, IntCount,
                                         ncclMultimemHandle)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemCopy");
}
template <typename T, typename Coop, typename DstLambda, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLocalCopy(Coop, T *, DstLambda, int, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLocalCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLocalCopy(Coop, T *, int, T *, size_t, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLocalCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclSymPtr<T>, ncclSymPtr<T>, IntCount, ncclTeam)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSumCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclSymPtr<T>, ncclSymPtr<T>, IntCount,
                                             ncclDevComm_t)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSumCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclWindow_t, size_t, ncclWindow_t, size_t,
                                             IntCount, ncclTeam)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSumCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclWindow_t, size_t, ncclWindow_t, size_t,
                                             IntCount, ncclDevComm_t)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSumCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclSymPtr<T>, ncclTeam, ncclSymPtr<T>, ncclTeam,
                                             IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSumCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumCopy(Coop, ncclSymPtr<T>, ncclMultimemHandle,
                                                  ncclSymPtr<T>, ncclMultimemHandle, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSumCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumCopy(Coop, T *, T *, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSumCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumCopy(Coop, ncclWindow_t, size_t, ncclMultimemHandle,
                                                  ncclWindow_t, size_t, ncclMultimemHandle,
                                                  IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSumCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSumMultimemCopy(Coop, ncclSymPtr<T>, ncclTeam, ncclSymPtr<T>,
                                                     ncclMultimemHandle, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSumMultimemCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSumMultimemCopy(Coop, ncclSymPtr<T>, ncclTeam, T *, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSumMultimemCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumLsaCopy(Coop, ncclSymPtr<T>, ncclMultimemHandle,
                                                     ncclSymPtr<T>, ncclTeam, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSumLsaCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumLsaCopy(Coop, T *, ncclSymPtr<T>, ncclTeam, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSumLsaCopy");
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLocalReduceSumCopy(Coop, int, T *, size_t, int, T *, size_t, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLocalReduceSumCopy");
}
#endif

#endif
