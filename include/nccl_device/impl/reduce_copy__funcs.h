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

template <typename T, typename Coop, typename SrcLambda, typename DstLambda, typename RedOp,
          typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceLsaCopy(Coop coop, SrcLambda srcLambda, int nSrc,
                                             DstLambda dstLambda, int nDst, RedOp const &redOp,
                                             IntCount count)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::functionArrays<T const *>(srcLambda, nSrc),
        nccl::utility::functionArrays<T *>(dstLambda, nDst), redOp, count);
}
template <typename T, typename Coop, typename SrcLambda, typename DstLambda, typename RedOp,
          typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceMultimemCopy(Coop coop, SrcLambda srcLambda, int nSrc,
                                                  DstLambda dstLambda, int nDst, RedOp const &redOp,
                                                  IntCount count)
{
    nccl::utility::reduceCopy<T, false, true, UNROLL>(
        coop, nccl::utility::functionArrays<T const *>(srcLambda, nSrc),
        nccl::utility::functionArrays<T *>(dstLambda, nDst), redOp, count);
}
template <typename T, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSumLsaCopy(Coop coop, SrcLambda srcLambda, int nSrc,
                                                DstLambda dstLambda, int nDst, IntCount count)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::functionArrays<T const *>(srcLambda, nSrc),
        nccl::utility::functionArrays<T *>(dstLambda, nDst), nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSumMultimemCopy(Coop coop, SrcLambda srcLambda, int nSrc,
                                                     DstLambda dstLambda, int nDst, IntCount count)
{
    nccl::utility::reduceCopy<T, false, true, UNROLL>(
        coop, nccl::utility::functionArrays<T const *>(srcLambda, nSrc),
        nccl::utility::functionArrays<T *>(dstLambda, nDst), nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumLsaCopy(Coop coop, SrcLambda srcLambda, int nSrc,
                                                     DstLambda dstLambda, int nDst, IntCount count)
{
    nccl::utility::reduceCopy<T, true, false, UNROLL>(
        coop, nccl::utility::functionArrays<T const *>(srcLambda, nSrc),
        nccl::utility::functionArrays<T *>(dstLambda, nDst), nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumMultimemCopy(Coop coop, SrcLambda srcLambda, int nSrc,
                                                          DstLambda dstLambda, int nDst,
                                                          IntCount count)
{
    nccl::utility::reduceCopy<T, true, true, UNROLL>(
        coop, nccl::utility::functionArrays<T const *>(srcLambda, nSrc),
        nccl::utility::functionArrays<T *>(dstLambda, nDst), nccl::utility::OpSum<T>(), count);
}

// ---- Several sources, one destination

template <typename T, typename Coop, typename SrcLambda, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop coop, SrcLambda srcLambda, int nSrc, T *dst,
                                         IntCount count)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::functionArrays<T const *>(srcLambda, nSrc),
        nccl::utility::oneArray(dst), nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop coop, ncclSymPtr<T> src, T *dst, IntCount count,
                                         ncclTeam team)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::memberArrays(src, team, count), nccl::utility::oneArray(dst),
        nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop coop, ncclSymPtr<T> src, T *dst, IntCount count,
                                         ncclDevComm_t comm)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::memberArrays(src, ncclTeamLsa(comm), count),
        nccl::utility::oneArray(dst), nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop coop, ncclWindow_t src, size_t srcOffset, T *dst,
                                         IntCount count, ncclTeam team)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::memberArrays(ncclSymPtr<T>(src, srcOffset), team, count),
        nccl::utility::oneArray(dst), nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop coop, ncclWindow_t src, size_t srcOffset, T *dst,
                                         IntCount count, ncclDevComm_t comm)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::memberArrays(ncclSymPtr<T>(src, srcOffset), ncclTeamLsa(comm), count),
        nccl::utility::oneArray(dst), nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop coop, ncclSymPtr<T> src, T *dst, IntCount count,
                                              ncclMultimemHandle multimem)
{
    nccl::utility::reduceCopy<T, true, false, UNROLL>(
        coop, nccl::utility::multimemArray(src, multimem, count), nccl::utility::oneArray(dst),
        nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop coop, T *mcSrc, T *dst, IntCount count)
{
    nccl::utility::reduceCopy<T, true, false, UNROLL>(coop, nccl::utility::oneArray(mcSrc),
                                                      nccl::utility::oneArray(dst),
                                                      nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop coop, ncclWindow_t src, size_t srcOffset, T *dst,
                                              IntCount count, ncclMultimemHandle multimem)
{
    nccl::utility::reduceCopy<T, true, false, UNROLL>(
        coop, nccl::utility::multimemArray(ncclSymPtr<T>(src, srcOffset), multimem, count),
        nccl::utility::oneArray(dst), nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename SrcLambda, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLocalReduceSum(Coop coop, SrcLambda srcLambda, int nSrc, T *dst,
                                           IntCount count)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::functionArrays<T const *>(srcLambda, nSrc),
        nccl::utility::oneArray(dst), nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLocalReduceSum(Coop coop, int nSrc, T *src, size_t displacement, T *dst,
                                           IntCount count)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::stridedArrays(src, displacement, nSrc), nccl::utility::oneArray(dst),
        nccl::utility::OpSum<T>(), count);
}

// ---- One source, several destinations

template <typename T, typename Coop, typename DstLambda, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE typename std::enable_if<std::is_integral<IntCount>::value>::type
ncclLsaCopy(Coop coop, T *src, DstLambda dstLambda, int nDst, IntCount count)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::oneArray(src), nccl::utility::functionArrays<T *>(dstLambda, nDst),
        nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop coop, T *src, ncclSymPtr<T> dst, IntCount count,
                                    ncclTeam team)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::oneArray(src), nccl::utility::memberArrays(dst, team, count),
        nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop coop, T *src, ncclSymPtr<T> dst, IntCount count,
                                    ncclDevComm_t comm)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::oneArray(src),
        nccl::utility::memberArrays(dst, ncclTeamLsa(comm), count), nccl::utility::OpSum<T>(),
        count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop coop, T *src, ncclWindow_t dst, size_t dstOffset,
                                    IntCount count, ncclTeam team)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::oneArray(src),
        nccl::utility::memberArrays(ncclSymPtr<T>(dst, dstOffset), team, count),
        nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop coop, T *src, ncclWindow_t dst, size_t dstOffset,
                                    IntCount count, ncclDevComm_t comm)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::oneArray(src),
        nccl::utility::memberArrays(ncclSymPtr<T>(dst, dstOffset), ncclTeamLsa(comm), count),
        nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop coop, T *src, ncclSymPtr<T> dst, IntCount count,
                                         ncclMultimemHandle multimem)
{
    nccl::utility::reduceCopy<T, false, true, UNROLL>(
        coop, nccl::utility::oneArray(src), nccl::utility::multimemArray(dst, multimem, count),
        nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop coop, T *src, T *mcDst, IntCount count)
{
    nccl::utility::reduceCopy<T, false, true, UNROLL>(coop, nccl::utility::oneArray(src),
                                                      nccl::utility::oneArray(mcDst),
                                                      nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop coop, T *src, ncclWindow_t dst, size_t dstOffset,
                                         IntCount count, ncclMultimemHandle multimem)
{
    nccl::utility::reduceCopy<T, false, true, UNROLL>(
        coop, nccl::utility::oneArray(src),
        nccl::utility::multimemArray(ncclSymPtr<T>(dst, dstOffset), multimem, count),
        nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename DstLambda, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLocalCopy(Coop coop, T *src, DstLambda dstLambda, int nDst,
                                      IntCount count)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::oneArray(src), nccl::utility::functionArrays<T *>(dstLambda, nDst),
        nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLocalCopy(Coop coop, T *src, int nDst, T *dst, size_t displacement,
                                      IntCount count)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::oneArray(src), nccl::utility::stridedArrays(dst, displacement, nDst),
        nccl::utility::OpSum<T>(), count);
}

// ---- Several sources, several destinations

template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop coop, ncclSymPtr<T> src, ncclSymPtr<T> dst,
                                             IntCount count, ncclTeam team)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::memberArrays(src, team, count),
        nccl::utility::memberArrays(dst, team, count), nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop coop, ncclSymPtr<T> src, ncclSymPtr<T> dst,
                                             IntCount count, ncclDevComm_t comm)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::memberArrays(src, ncclTeamLsa(comm), count),
        nccl::utility::memberArrays(dst, ncclTeamLsa(comm), count), nccl::utility::OpSum<T>(),
        count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop coop, ncclWindow_t src, size_t srcOffset,
                                             ncclWindow_t dst, size_t dstOffset, IntCount count,
                                             ncclTeam team)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::memberArrays(ncclSymPtr<T>(src, srcOffset), team, count),
        nccl::utility::memberArrays(ncclSymPtr<T>(dst, dstOffset), team, count),
        nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop coop, ncclWindow_t src, size_t srcOffset,
                                             ncclWindow_t dst, size_t dstOffset, IntCount count,
                                             ncclDevComm_t comm)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::memberArrays(ncclSymPtr<T>(src, srcOffset), ncclTeamLsa(comm), count),
        nccl::utility::memberArrays(ncclSymPtr<T>(dst, dstOffset), ncclTeamLsa(comm), count),
        nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop coop, ncclSymPtr<T> src, ncclTeam srcTeam,
                                             ncclSymPtr<T> dst, ncclTeam dstTeam, IntCount count)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::memberArrays(src, srcTeam, count),
        nccl::utility::memberArrays(dst, dstTeam, count), nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumCopy(Coop coop, ncclSymPtr<T> src,
                                                  ncclMultimemHandle srcMultimem, ncclSymPtr<T> dst,
                                                  ncclMultimemHandle dstMultimem, IntCount count)
{
    nccl::utility::reduceCopy<T, true, true, UNROLL>(
        coop, nccl::utility::multimemArray(src, srcMultimem, count),
        nccl::utility::multimemArray(dst, dstMultimem, count), nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumCopy(Coop coop, T *mcSrc, T *mcDst, IntCount count)
{
    nccl::utility::reduceCopy<T, true, true, UNROLL>(coop, nccl::utility::oneArray(mcSrc),
                                                     nccl::utility::oneArray(mcDst),
                                                     nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumCopy(Coop coop, ncclWindow_t src, size_t srcOffset,
                                                  ncclMultimemHandle srcMultimem, ncclWindow_t dst,
                                                  size_t dstOffset, ncclMultimemHandle dstMultimem,
                                                  IntCount count)
{
    nccl::utility::reduceCopy<T, true, true, UNROLL>(
        coop, nccl::utility::multimemArray(ncclSymPtr<T>(src, srcOffset), srcMultimem, count),
        nccl::utility::multimemArray(ncclSymPtr<T>(dst, dstOffset), dstMultimem, count),
        nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSumMultimemCopy(Coop coop, ncclSymPtr<T> src, ncclTeam srcTeam,
                                                     ncclSymPtr<T> dst,
                                                     ncclMultimemHandle dstMultimem, IntCount count)
{
    nccl::utility::reduceCopy<T, false, true, UNROLL>(
        coop, nccl::utility::memberArrays(src, srcTeam, count),
        nccl::utility::multimemArray(dst, dstMultimem, count), nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLsaReduceSumMultimemCopy(Coop coop, ncclSymPtr<T> src, ncclTeam srcTeam,
                                                     T *mcDst, IntCount count)
{
    nccl::utility::reduceCopy<T, false, true, UNROLL>(
        coop, nccl::utility::memberArrays(src, srcTeam, count), nccl::utility::oneArray(mcDst),
        nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void
ncclMultimemReduceSumLsaCopy(Coop coop, ncclSymPtr<T> src, ncclMultimemHandle srcMultimem,
                             ncclSymPtr<T> dst, ncclTeam dstTeam, IntCount count)
{
    nccl::utility::reduceCopy<T, true, false, UNROLL>(
        coop, nccl::utility::multimemArray(src, srcMultimem, count),
        nccl::utility::memberArrays(dst, dstTeam, count), nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumLsaCopy(Coop coop, T *mcSrc, ncclSymPtr<T> dst,
                                                     ncclTeam dstTeam, IntCount count)
{
    nccl::utility::reduceCopy<T, true, false, UNROLL>(
        coop, nccl::utility::oneArray(mcSrc), nccl::utility::memberArrays(dst, dstTeam, count),
        nccl::utility::OpSum<T>(), count);
}
template <typename T, typename Coop, typename IntCount, int UNROLL>
NCCL_DEVICE_INLINE void ncclLocalReduceSumCopy(Coop coop, int nSrc, T *src, size_t srcDisplacement,
                                               int nDst, T *dst, size_t dstDisplacement,
                                               IntCount count)
{
    nccl::utility::reduceCopy<T, false, false, UNROLL>(
        coop, nccl::utility::stridedArrays(src, srcDisplacement, nSrc),
        nccl::utility::stridedArrays(dst, dstDisplacement, nDst), nccl::utility::OpSum<T>(), count);
}
#endif

#endif
