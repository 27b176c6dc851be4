// The reductions and copies in this version: each use is refused by the compiler.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_REDUCE_COPY__FUNCS_H_
#define NCCL_DEVICE_REDUCE_COPY__FUNCS_H_

#include "../reduce_copy.h"
#include "gin__funcs.h"

#if NCCL_CHECK_CUDACC
template <typename Value, typename Coop, typename SrcLambda, typename DstLambda, typename RedOp,
          typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceLsaCopy(Coop, SrcLambda, int, DstLambda, int, RedOp const &,
                                             IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceLsaCopy");
}
template <typename Value, typename Coop, typename SrcLambda, typename DstLambda, typename RedOp,
          typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceMultimemCopy(Coop, SrcLambda, int, DstLambda, int,
                                                  RedOp const &, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceMultimemCopy");
}
template <typename Value, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSumLsaCopy(Coop, SrcLambda, int, DstLambda, int, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSumLsaCopy");
}
template <typename Value, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSumMultimemCopy(Coop, SrcLambda, int, DstLambda, int, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSumMultimemCopy");
}
template <typename Value, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumLsaCopy(Coop, SrcLambda, int, DstLambda, int, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSumLsaCopy");
}
template <typename Value, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumMultimemCopy(Coop, SrcLambda, int, DstLambda, int,
                                                          IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSumMultimemCopy");
}
template <typename Value, typename Coop, typename SrcLambda, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, SrcLambda, int, Value *, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSum");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, ncclSymPtr<Value>, Value *, IntCount, ncclTeam)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSum");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, ncclSymPtr<Value>, Value *, IntCount, ncclDevComm_t)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSum");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, ncclWindow_t, size_t, Value *, IntCount, ncclTeam)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSum");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, ncclWindow_t, size_t, Value *, IntCount,
                                         ncclDevComm_t)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSum");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop, ncclSymPtr<Value>, Value *, IntCount,
                                              ncclMultimemHandle)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSum");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop, Value *, Value *, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSum");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop, ncclWindow_t, size_t, Value *, IntCount,
                                              ncclMultimemHandle)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSum");
}
template <typename Value, typename Coop, typename SrcLambda, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLocalReduceSum(Coop, SrcLambda, int, Value *, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLocalReduceSum");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLocalReduceSum(Coop, int, Value *, size_t, Value *, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLocalReduceSum");
}
template <typename Value, typename Coop, typename DstLambda, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, Value *, DstLambda, int, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, Value *, ncclSymPtr<Value>, IntCount, ncclTeam)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, Value *, ncclSymPtr<Value>, IntCount, ncclDevComm_t)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, Value *, ncclWindow_t, size_t, IntCount, ncclTeam)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, Value *, ncclWindow_t, size_t, IntCount, ncclDevComm_t)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop, Value *, ncclSymPtr<Value>, IntCount,
                                         ncclMultimemHandle)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop, Value *, Value *, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop, Value *, ncclWindow_t, size_t, IntCount,
                                         ncclMultimemHandle)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemCopy");
}
template <typename Value, typename Coop, typename DstLambda, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLocalCopy(Coop, Value *, DstLambda, int, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLocalCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLocalCopy(Coop, Value *, int, Value *, size_t, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLocalCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclSymPtr<Value>, ncclSymPtr<Value>, IntCount,
                                             ncclTeam)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSumCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclSymPtr<Value>, ncclSymPtr<Value>, IntCount,
                                             ncclDevComm_t)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSumCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclWindow_t, size_t, ncclWindow_t, size_t,
                                             IntCount, ncclTeam)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSumCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclWindow_t, size_t, ncclWindow_t, size_t,
                                             IntCount, ncclDevComm_t)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSumCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclSymPtr<Value>, ncclTeam, ncclSymPtr<Value>,
                                             ncclTeam, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSumCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumCopy(Coop, ncclSymPtr<Value>, ncclMultimemHandle,
                                                  ncclSymPtr<Value>, ncclMultimemHandle, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSumCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumCopy(Coop, Value *, Value *, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSumCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumCopy(Coop, ncclWindow_t, size_t, ncclMultimemHandle,
                                                  ncclWindow_t, size_t, ncclMultimemHandle,
                                                  IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSumCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSumMultimemCopy(Coop, ncclSymPtr<Value>, ncclTeam,
                                                     ncclSymPtr<Value>, ncclMultimemHandle,
                                                     IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSumMultimemCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSumMultimemCopy(Coop, ncclSymPtr<Value>, ncclTeam, Value *,
                                                     IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLsaReduceSumMultimemCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumLsaCopy(Coop, ncclSymPtr<Value>, ncclMultimemHandle,
                                                     ncclSymPtr<Value>, ncclTeam, IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSumLsaCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumLsaCopy(Coop, Value *, ncclSymPtr<Value>, ncclTeam,
                                                     IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclMultimemReduceSumLsaCopy");
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLocalReduceSumCopy(Coop, int, Value *, size_t, int, Value *, size_t,
                                               IntCount)
{
    NCCL_NOT_IMPLEMENTED(Coop, "ncclLocalReduceSumCopy");
}
#endif

#endif
