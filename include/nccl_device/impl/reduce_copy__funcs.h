// Bodies of reduce_copy.h: each names its sources and destinations to one function.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_REDUCE_COPY__FUNCS_H_
#define NCCL_DEVICE_REDUCE_COPY__FUNCS_H_

#include "../reduce_copy.h"
#include "core__funcs.h"
#include "ptr__funcs.h"
#include "reduce_copy__impl.h"

#if NCCL_CHECK_CUDACC
// ---- Lambdas to lambdas

template <typename Value, typename Coop, typename SrcLambda, typename DstLambda, typename RedOp,
          typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceLsaCopy(Coop coop, SrcLambda srcLambda, int nSrc,
                                             DstLambda dstLambda, int nDst, RedOp const &redOp,
                                             IntCount count)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::functionArrays<Value const *>(srcLambda, nSrc),
        nccl::utility::functionArrays<Value *>(dstLambda, nDst), redOp, count);
}
template <typename Value, typename Coop, typename SrcLambda, typename DstLambda, typename RedOp,
          typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceMultimemCopy(Coop coop, SrcLambda srcLambda, int nSrc,
                                                  DstLambda dstLambda, int nDst, RedOp const &redOp,
                                                  IntCount count)
{
    nccl::utility::reduceCopy<Value, false, true, Unroll>(
        coop, nccl::utility::functionArrays<Value const *>(srcLambda, nSrc),
        nccl::utility::functionArrays<Value *>(dstLambda, nDst), redOp, count);
}
template <typename Value, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSumLsaCopy(Coop coop, SrcLambda srcLambda, int nSrc,
                                                DstLambda dstLambda, int nDst, IntCount count)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::functionArrays<Value const *>(srcLambda, nSrc),
        nccl::utility::functionArrays<Value *>(dstLambda, nDst), nccl::utility::OpSum<Value>(),
        count);
}
template <typename Value, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSumMultimemCopy(Coop coop, SrcLambda srcLambda, int nSrc,
                                                     DstLambda dstLambda, int nDst, IntCount count)
{
    nccl::utility::reduceCopy<Value, false, true, Unroll>(
        coop, nccl::utility::functionArrays<Value const *>(srcLambda, nSrc),
        nccl::utility::functionArrays<Value *>(dstLambda, nDst), nccl::utility::OpSum<Value>(),
        count);
}
template <typename Value, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumLsaCopy(Coop coop, SrcLambda srcLambda, int nSrc,
                                                     DstLambda dstLambda, int nDst, IntCount count)
{
    nccl::utility::reduceCopy<Value, true, false, Unroll>(
        coop, nccl::utility::functionArrays<Value const *>(srcLambda, nSrc),
        nccl::utility::functionArrays<Value *>(dstLambda, nDst), nccl::utility::OpSum<Value>(),
        count);
}
template <typename Value, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumMultimemCopy(Coop coop, SrcLambda srcLambda, int nSrc,
                                                          DstLambda dstLambda, int nDst,
                                                          IntCount count)
{
    nccl::utility::reduceCopy<Value, true, true, Unroll>(
        coop, nccl::utility::functionArrays<Value const *>(srcLambda, nSrc),
        nccl::utility::functionArrays<Value *>(dstLambda, nDst), nccl::utility::OpSum<Value>(),
        count);
}

// ---- Several sources, one destination

template <typename Value, typename Coop, typename SrcLambda, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop coop, SrcLambda srcLambda, int nSrc, Value *dst,
                                         IntCount count)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::functionArrays<Value const *>(srcLambda, nSrc),
        nccl::utility::oneArray(dst), nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop coop, ncclSymPtr<Value> src, Value *dst,
                                         IntCount count, ncclTeam team)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::memberArrays(src, team, count), nccl::utility::oneArray(dst),
        nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop coop, ncclSymPtr<Value> src, Value *dst,
                                         IntCount count, ncclDevComm_t comm)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::memberArrays(src, ncclTeamLsa(comm), count),
        nccl::utility::oneArray(dst), nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop coop, ncclWindow_t src, size_t srcOffset, Value *dst,
                                         IntCount count, ncclTeam team)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::memberArrays(ncclSymPtr<Value>(src, srcOffset), team, count),
        nccl::utility::oneArray(dst), nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop coop, ncclWindow_t src, size_t srcOffset, Value *dst,
                                         IntCount count, ncclDevComm_t comm)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop,
        nccl::utility::memberArrays(ncclSymPtr<Value>(src, srcOffset), ncclTeamLsa(comm), count),
        nccl::utility::oneArray(dst), nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop coop, ncclSymPtr<Value> src, Value *dst,
                                              IntCount count, ncclMultimemHandle multimem)
{
    nccl::utility::reduceCopy<Value, true, false, Unroll>(
        coop, nccl::utility::multimemArray(src, multimem, count), nccl::utility::oneArray(dst),
        nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop coop, Value *mcSrc, Value *dst, IntCount count)
{
    nccl::utility::reduceCopy<Value, true, false, Unroll>(coop, nccl::utility::oneArray(mcSrc),
                                                          nccl::utility::oneArray(dst),
                                                          nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop coop, ncclWindow_t src, size_t srcOffset,
                                              Value *dst, IntCount count,
                                              ncclMultimemHandle multimem)
{
    nccl::utility::reduceCopy<Value, true, false, Unroll>(
        coop, nccl::utility::multimemArray(ncclSymPtr<Value>(src, srcOffset), multimem, count),
        nccl::utility::oneArray(dst), nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename SrcLambda, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLocalReduceSum(Coop coop, SrcLambda srcLambda, int nSrc, Value *dst,
                                           IntCount count)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::functionArrays<Value const *>(srcLambda, nSrc),
        nccl::utility::oneArray(dst), nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLocalReduceSum(Coop coop, int nSrc, Value *src, size_t displacement,
                                           Value *dst, IntCount count)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::stridedArrays(src, displacement, nSrc), nccl::utility::oneArray(dst),
        nccl::utility::OpSum<Value>(), count);
}

// ---- One source, several destinations

template <typename Value, typename Coop, typename DstLambda, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE typename std::enable_if<std::is_integral<IntCount>::value>::type
ncclLsaCopy(Coop coop, Value *src, DstLambda dstLambda, int nDst, IntCount count)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::oneArray(src), nccl::utility::functionArrays<Value *>(dstLambda, nDst),
        nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop coop, Value *src, ncclSymPtr<Value> dst, IntCount count,
                                    ncclTeam team)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::oneArray(src), nccl::utility::memberArrays(dst, team, count),
        nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop coop, Value *src, ncclSymPtr<Value> dst, IntCount count,
                                    ncclDevComm_t comm)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::oneArray(src),
        nccl::utility::memberArrays(dst, ncclTeamLsa(comm), count), nccl::utility::OpSum<Value>(),
        count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop coop, Value *src, ncclWindow_t dst, size_t dstOffset,
                                    IntCount count, ncclTeam team)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::oneArray(src),
        nccl::utility::memberArrays(ncclSymPtr<Value>(dst, dstOffset), team, count),
        nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop coop, Value *src, ncclWindow_t dst, size_t dstOffset,
                                    IntCount count, ncclDevComm_t comm)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::oneArray(src),
        nccl::utility::memberArrays(ncclSymPtr<Value>(dst, dstOffset), ncclTeamLsa(comm), count),
        nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop coop, Value *src, ncclSymPtr<Value> dst,
                                         IntCount count, ncclMultimemHandle multimem)
{
    nccl::utility::reduceCopy<Value, false, true, Unroll>(
        coop, nccl::utility::oneArray(src), nccl::utility::multimemArray(dst, multimem, count),
        nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop coop, Value *src, Value *mcDst, IntCount count)
{
    nccl::utility::reduceCopy<Value, false, true, Unroll>(coop, nccl::utility::oneArray(src),
                                                          nccl::utility::oneArray(mcDst),
                                                          nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop coop, Value *src, ncclWindow_t dst, size_t dstOffset,
                                         IntCount count, ncclMultimemHandle multimem)
{
    nccl::utility::reduceCopy<Value, false, true, Unroll>(
        coop, nccl::utility::oneArray(src),
        nccl::utility::multimemArray(ncclSymPtr<Value>(dst, dstOffset), multimem, count),
        nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename DstLambda, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLocalCopy(Coop coop, Value *src, DstLambda dstLambda, int nDst,
                                      IntCount count)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::oneArray(src), nccl::utility::functionArrays<Value *>(dstLambda, nDst),
        nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLocalCopy(Coop coop, Value *src, int nDst, Value *dst,
                                      size_t displacement, IntCount count)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::oneArray(src), nccl::utility::stridedArrays(dst, displacement, nDst),
        nccl::utility::OpSum<Value>(), count);
}

// ---- Several sources, several destinations

template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop coop, ncclSymPtr<Value> src,
                                             ncclSymPtr<Value> dst, IntCount count, ncclTeam team)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::memberArrays(src, team, count),
        nccl::utility::memberArrays(dst, team, count), nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop coop, ncclSymPtr<Value> src,
                                             ncclSymPtr<Value> dst, IntCount count,
                                             ncclDevComm_t comm)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::memberArrays(src, ncclTeamLsa(comm), count),
        nccl::utility::memberArrays(dst, ncclTeamLsa(comm), count), nccl::utility::OpSum<Value>(),
        count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop coop, ncclWindow_t src, size_t srcOffset,
                                             ncclWindow_t dst, size_t dstOffset, IntCount count,
                                             ncclTeam team)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::memberArrays(ncclSymPtr<Value>(src, srcOffset), team, count),
        nccl::utility::memberArrays(ncclSymPtr<Value>(dst, dstOffset), team, count),
        nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop coop, ncclWindow_t src, size_t srcOffset,
                                             ncclWindow_t dst, size_t dstOffset, IntCount count,
                                             ncclDevComm_t comm)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop,
        nccl::utility::memberArrays(ncclSymPtr<Value>(src, srcOffset), ncclTeamLsa(comm), count),
        nccl::utility::memberArrays(ncclSymPtr<Value>(dst, dstOffset), ncclTeamLsa(comm), count),
        nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop coop, ncclSymPtr<Value> src, ncclTeam srcTeam,
                                             ncclSymPtr<Value> dst, ncclTeam dstTeam,
                                             IntCount count)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::memberArrays(src, srcTeam, count),
        nccl::utility::memberArrays(dst, dstTeam, count), nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void
ncclMultimemReduceSumCopy(Coop coop, ncclSymPtr<Value> src, ncclMultimemHandle srcMultimem,
                          ncclSymPtr<Value> dst, ncclMultimemHandle dstMultimem, IntCount count)
{
    nccl::utility::reduceCopy<Value, true, true, Unroll>(
        coop, nccl::utility::multimemArray(src, srcMultimem, count),
        nccl::utility::multimemArray(dst, dstMultimem, count), nccl::utility::OpSum<Value>(),
        count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumCopy(Coop coop, Value *mcSrc, Value *mcDst,
                                                  IntCount count)
{
    nccl::utility::reduceCopy<Value, true, true, Unroll>(coop, nccl::utility::oneArray(mcSrc),
                                                         nccl::utility::oneArray(mcDst),
                                                         nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumCopy(Coop coop, ncclWindow_t src, size_t srcOffset,
                                                  ncclMultimemHandle srcMultimem, ncclWindow_t dst,
                                                  size_t dstOffset, ncclMultimemHandle dstMultimem,
                                                  IntCount count)
{
    nccl::utility::reduceCopy<Value, true, true, Unroll>(
        coop, nccl::utility::multimemArray(ncclSymPtr<Value>(src, srcOffset), srcMultimem, count),
        nccl::utility::multimemArray(ncclSymPtr<Value>(dst, dstOffset), dstMultimem, count),
        nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSumMultimemCopy(Coop coop, ncclSymPtr<Value> src,
                                                     ncclTeam srcTeam, ncclSymPtr<Value> dst,
                                                     ncclMultimemHandle dstMultimem, IntCount count)
{
    nccl::utility::reduceCopy<Value, false, true, Unroll>(
        coop, nccl::utility::memberArrays(src, srcTeam, count),
        nccl::utility::multimemArray(dst, dstMultimem, count), nccl::utility::OpSum<Value>(),
        count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLsaReduceSumMultimemCopy(Coop coop, ncclSymPtr<Value> src,
                                                     ncclTeam srcTeam, Value *mcDst, IntCount count)
{
    nccl::utility::reduceCopy<Value, false, true, Unroll>(
        coop, nccl::utility::memberArrays(src, srcTeam, count), nccl::utility::oneArray(mcDst),
        nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void
ncclMultimemReduceSumLsaCopy(Coop coop, ncclSymPtr<Value> src, ncclMultimemHandle srcMultimem,
                             ncclSymPtr<Value> dst, ncclTeam dstTeam, IntCount count)
{
    nccl::utility::reduceCopy<Value, true, false, Unroll>(
        coop, nccl::utility::multimemArray(src, srcMultimem, count),
        nccl::utility::memberArrays(dst, dstTeam, count), nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumLsaCopy(Coop coop, Value *mcSrc, ncclSymPtr<Value> dst,
                                                     ncclTeam dstTeam, IntCount count)
{
    nccl::utility::reduceCopy<Value, true, false, Unroll>(
        coop, nccl::utility::oneArray(mcSrc), nccl::utility::memberArrays(dst, dstTeam, count),
        nccl::utility::OpSum<Value>(), count);
}
template <typename Value, typename Coop, typename IntCount, int Unroll>
NCCL_DEVICE_INLINE void ncclLocalReduceSumCopy(Coop coop, int nSrc, Value *src,
                                               size_t srcDisplacement, int nDst, Value *dst,
                                               size_t dstDisplacement, IntCount count)
{
    nccl::utility::reduceCopy<Value, false, false, Unroll>(
        coop, nccl::utility::stridedArrays(src, srcDisplacement, nSrc),
        nccl::utility::stridedArrays(dst, dstDisplacement, nDst), nccl::utility::OpSum<Value>(),
        count);
}
#endif

#endif
