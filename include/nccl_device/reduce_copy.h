// Reductions and copies over the members of a team, called by a group of threads; no barrier
// inside. Value: element type; Unroll: elements each thread keeps in flight. Declared for source
// compatibility; calling one in this version does not compile ("not implemented yet").
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_REDUCE_COPY_H_
#define NCCL_DEVICE_REDUCE_COPY_H_

#include "comm.h"
#include "ptr.h"

#if NCCL_CHECK_CUDACC
// Reductions with an operator of the caller's, from lambdas that give sources to lambdas that give
// destinations.
template <typename Value, typename Coop, typename SrcLambda, typename DstLambda, typename RedOp,
          typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaReduceLsaCopy(Coop, SrcLambda, int nSrc, DstLambda, int nDst,
                                             RedOp const &, IntCount count);
template <typename Value, typename Coop, typename SrcLambda, typename DstLambda, typename RedOp,
          typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaReduceMultimemCopy(Coop, SrcLambda, int nSrc, DstLambda, int nDst,
                                                  RedOp const &, IntCount count);

// Sums, the same way.
template <typename Value, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaReduceSumLsaCopy(Coop, SrcLambda, int nSrc, DstLambda, int nDst,
                                                IntCount count);
template <typename Value, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaReduceSumMultimemCopy(Coop, SrcLambda, int nSrc, DstLambda, int nDst,
                                                     IntCount count);
template <typename Value, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumLsaCopy(Coop, SrcLambda, int nSrc, DstLambda, int nDst,
                                                     IntCount count);
template <typename Value, typename Coop, typename SrcLambda, typename DstLambda, typename IntCount,
          int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumMultimemCopy(Coop, SrcLambda, int nSrc, DstLambda,
                                                          int nDst, IntCount count);

// Sum of all members' elements into this rank's memory.
template <typename Value, typename Coop, typename SrcLambda, typename IntCount,
          int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, SrcLambda, int nSrc, Value *dst, IntCount count);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, ncclSymPtr<Value> src, Value *dst, IntCount count,
                                         ncclTeam team);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, ncclSymPtr<Value> src, Value *dst, IntCount count,
                                         ncclDevComm_t comm);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, ncclWindow_t src, size_t srcOffset, Value *dst,
                                         IntCount count, ncclTeam team);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaReduceSum(Coop, ncclWindow_t src, size_t srcOffset, Value *dst,
                                         IntCount count, ncclDevComm_t comm);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop, ncclSymPtr<Value> src, Value *dst,
                                              IntCount count, ncclMultimemHandle multimem);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop, Value *mcSrc, Value *dst, IntCount count);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclMultimemReduceSum(Coop, ncclWindow_t src, size_t srcOffset, Value *dst,
                                              IntCount count, ncclMultimemHandle multimem);
template <typename Value, typename Coop, typename SrcLambda, typename IntCount,
          int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLocalReduceSum(Coop, SrcLambda, int nSrc, Value *dst, IntCount count);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLocalReduceSum(Coop, int nSrc, Value *src, size_t displacement,
                                           Value *dst, IntCount count);

// Copies of this rank's elements to all members.
template <typename Value, typename Coop, typename DstLambda, typename IntCount,
          int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, Value *src, DstLambda, int nDst, IntCount count);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, Value *src, ncclSymPtr<Value> dst, IntCount count,
                                    ncclTeam team);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, Value *src, ncclSymPtr<Value> dst, IntCount count,
                                    ncclDevComm_t comm);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, Value *src, ncclWindow_t dst, size_t dstOffset,
                                    IntCount count, ncclTeam team);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaCopy(Coop, Value *src, ncclWindow_t dst, size_t dstOffset,
                                    IntCount count, ncclDevComm_t comm);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop, Value *src, ncclSymPtr<Value> dst, IntCount count,
                                         ncclMultimemHandle multimem);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop, Value *src, Value *mcDst, IntCount count);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclMultimemCopy(Coop, Value *src, ncclWindow_t dst, size_t dstOffset,
                                         IntCount count, ncclMultimemHandle multimem);
template <typename Value, typename Coop, typename DstLambda, typename IntCount,
          int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLocalCopy(Coop, Value *src, DstLambda, int nDst, IntCount count);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLocalCopy(Coop, Value *src, int nDst, Value *dst, size_t displacement,
                                      IntCount count);

// Sum of all members' elements, stored to all members.
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclSymPtr<Value> src, ncclSymPtr<Value> dst,
                                             IntCount count, ncclTeam team);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclSymPtr<Value> src, ncclSymPtr<Value> dst,
                                             IntCount count, ncclDevComm_t comm);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclWindow_t src, size_t srcOffset,
                                             ncclWindow_t dst, size_t dstOffset, IntCount count,
                                             ncclTeam team);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclWindow_t src, size_t srcOffset,
                                             ncclWindow_t dst, size_t dstOffset, IntCount count,
                                             ncclDevComm_t comm);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaReduceSumCopy(Coop, ncclSymPtr<Value> src, ncclTeam srcTeam,
                                             ncclSymPtr<Value> dst, ncclTeam dstTeam,
                                             IntCount count);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void
ncclMultimemReduceSumCopy(Coop, ncclSymPtr<Value> src, ncclMultimemHandle srcMultimem,
                          ncclSymPtr<Value> dst, ncclMultimemHandle dstMultimem, IntCount count);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumCopy(Coop, Value *mcSrc, Value *mcDst, IntCount count);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumCopy(Coop, ncclWindow_t src, size_t srcOffset,
                                                  ncclMultimemHandle srcMultimem, ncclWindow_t dst,
                                                  size_t dstOffset, ncclMultimemHandle dstMultimem,
                                                  IntCount count);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void
ncclLsaReduceSumMultimemCopy(Coop, ncclSymPtr<Value> src, ncclTeam srcTeam, ncclSymPtr<Value> dst,
                             ncclMultimemHandle dstMultimem, IntCount count);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLsaReduceSumMultimemCopy(Coop, ncclSymPtr<Value> src, ncclTeam srcTeam,
                                                     Value *mcDst, IntCount count);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void
ncclMultimemReduceSumLsaCopy(Coop, ncclSymPtr<Value> src, ncclMultimemHandle srcMultimem,
                             ncclSymPtr<Value> dst, ncclTeam dstTeam, IntCount count);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclMultimemReduceSumLsaCopy(Coop, Value *mcSrc, ncclSymPtr<Value> dst,
                                                     ncclTeam dstTeam, IntCount count);
template <typename Value, typename Coop, typename IntCount, int Unroll = 4 * 16 / sizeof(Value)>
NCCL_DEVICE_INLINE void ncclLocalReduceSumCopy(Coop, int nSrc, Value *src, size_t srcDisplacement,
                                               int nDst, Value *dst, size_t dstDisplacement,
                                               IntCount count);

#endif

#endif
