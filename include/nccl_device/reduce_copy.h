// Reductions and copies over the members of a team, called by a group of threads; no barrier
// inside. T: element type; UNROLL: elements each thread keeps in flight. Declared for source
// compatibility; calling one in this version does not compile ("not implemented yet").
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_REDUCE_COPY_H_
#define NCCL_DEVICE_REDUCE_COPY_H_

#include "comm.h"
#include "ptr.h"

#if NCCL_CHECK_CUDACC
// Reductions with an operator of the caller's, from lambdas that give sources to lambdas that give
// destinations.
template <typename T, typename Coop, typename SrcLambda, typename DstLambda, typename RedOp,
          typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaReduceLsaCopy(Coop, SrcLambda, int nSrc, DstLambda, int nDst,
                                             RedOp const &, IntCount count);
template <typename T, typename Coop, typename SrcLambda, typename DstLambda, typename RedOp,
          typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaReduceMultimemCopy(Coop, SrcLambda, int nSrc, DstLambda, int nDst,
                                                  RedOp const &, IntCount count);

// Sums, the same way.
template <typename T, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaReduceSumLsaCopy(Coop, SrcLambda, int nSrc, DstLambda, int nDst,
                                                IntCount count);
template <typename T, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaReduceSumMultimemCopy(Coop, SrcLambda, int nSrc, DstLambda, int nDst,
                                                     IntCount count);
template <typename T, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumLsaCopy(Coop, SrcLambda, int nSrc, DstLambda, int nDst,
                                                     IntCount count);
template <typename T, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumMultimemCopy(Coop, SrcLambda, int nSrc, DstLambda,
                                                          int nDst, IntCount count);

// Sum of all members' elements into this rank's memory.
template <typename T, typename Coop, typename SrcLambda, typename IntCount,
          int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, SrcLambda, int nSrc, T *dst, IntCount count);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, ncclSymPtr<T> src, T *dst, IntCount count,
                                         ncclTeam team);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, ncclSymPtr<T> src, T *dst, IntCount count,
                                         ncclDevComm_t comm);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, ncclWindow_t src, size_t srcOffset, T *dst,
                                         IntCount count, ncclTeam team);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, ncclWindow_t src, size_t srcOffset, T *dst,
                                         IntCount count, ncclDevComm_t comm);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop, ncclSymPtr<T> src, T *dst, IntCount count,
                                              ncclMultimemHandle multimem);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop, T *mcSrc, T *dst, IntCount count);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop, ncclWindow_t src, size_t srcOffset, T *dst,
                                              IntCount count, ncclMultimemHandle multimem);
template <typename T, typename Coop, typename SrcLambda, typename IntCount,
          int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLocalReduceSum(Coop, SrcLambda, int nSrc, T *dst, IntCount count);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLocalReduceSum(Coop, int nSrc, T *src, size_t displacement, T *dst,
                                           IntCount count);

// Copies of this rank's elements to all members.
template <typename T, typename Coop, typename DstLambda, typename IntCount,
          int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, T *src, DstLambda, int nDst, IntCount count);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, T *src, ncclSymPtr<T> dst, IntCount count, ncclTeam team);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, T *src, ncclSymPtr<T> dst, IntCount count,
                                    ncclDevComm_t comm);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, T *src, ncclWindow_t dst, size_t dstOffset,
                                    IntCount count, ncclTeam team);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, T *src, ncclWindow_t dst, size_t dstOffset,
                                    IntCount count, ncclDevComm_t comm);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop, T *src, ncclSymPtr<T> dst, IntCount count,
                                         ncclMultimemHandle multimem);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop, T *src, T *mcDst, IntCount count);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop, T *src, ncclWindow_t dst, size_t dstOffset,
                                         IntCount count, ncclMultimemHandle multimem);
template <typename T, typename Coop, typename DstLambda, typename IntCount,
          int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLocalCopy(Coop, T *src, DstLambda, int nDst, IntCount count);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLocalCopy(Coop, T *src, int nDst, T *dst, size_t displacement,
                                      IntCount count);

// Sum of all members' elements, stored to all members.
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclSymPtr<T> src, ncclSymPtr<T> dst,
                                             IntCount count, ncclTeam team);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclSymPtr<T> src, ncclSymPtr<T> dst,
                                             IntCount count, ncclDevComm_t comm);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclWindow_t src, size_t srcOffset,
                                             ncclWindow_t dst, size_t dstOffset, IntCount count,
                                             ncclTeam team);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclWindow_t src, size_t srcOffset,
                                             ncclWindow_t dst, size_t dstOffset, IntCount count,
                                             ncclDevComm_t comm);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclSymPtr<T> src, ncclTeam srcTeam,
                                             ncclSymPtr<T> dst, ncclTeam dstTeam, IntCount count);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumCopy(Coop, ncclSymPtr<T> src,
                                                  ncclMultimemHandle srcMultimem, ncclSymPtr<T> dst,
                                                  ncclMultimemHandle dstMultimem, IntCount count);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumCopy(Coop, T *mcSrc, T *mcDst, IntCount count);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumCopy(Coop, ncclWindow_t src, size_t srcOffset,
                                                  ncclMultimemHandle srcMultimem, ncclWindow_t dst,
                                                  size_t dstOffset, ncclMultimemHandle dstMultimem,
                                                  IntCount count);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void
ncclLsaReduceSumMultimemCopy(Coop, ncclSymPtr<T> src, ncclTeam srcTeam, ncclSymPtr<T> dst,
                             ncclMultimemHandle dstMultimem, IntCount count);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLsaReduceSumMultimemCopy(Coop, ncclSymPtr<T> src, ncclTeam srcTeam,
                                                     T *mcDst, IntCount count);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void
ncclMultimemReduceSumLsaCopy(Coop, ncclSymPtr<T> src, ncclMultimemHandle srcMultimem,
                             ncclSymPtr<T> dst, ncclTeam dstTeam, IntCount count);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumLsaCopy(Coop, T *mcSrc, ncclSymPtr<T> dst,
                                                     ncclTeam dstTeam, IntCount count);
template <typename T, typename Coop, typename IntCount, int UNROLL = 4 * 16 / sizeof(T)>
NCCL_DEVICE_INLINE void ncclLocalReduceSumCopy(Coop, int nSrc, T *src, size_t srcDisplacement,
                                               int nDst, T *dst, size_t dstDisplacement,
                                               IntCount count);

#endif

#endif
