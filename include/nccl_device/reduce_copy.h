// Reductions and copies between arrays on several members of a team, called by a group of threads.
// There is no barrier inside: before a call its sources are ready and its destinations free (an LSA
// barrier says so), after it another barrier tells the readers.
//
// Sources and destinations
//   Lsa        memory that is loaded and stored directly: a lambda `Value *(int i)` that gives the
//              address of array i of nSrc or nDst, or the same place of a window on every member of
//              a team (of the LSA team, where a device communicator is given)
//   Multimem   a multicast address, which means all members at once: a window's place and a handle,
//              or an address from ncclGetMultimemPointer, or a lambda that gives such
//   Local      this rank's memory: `displacement` elements from one array to the next
//
// count: elements, any integer type, 0 or more. Addresses and offsets are multiples of the element
// size; accesses have 16 bytes where all addresses are equal modulo 16. A destination may be a
// source. Every thread of coop calls with the same arguments. Unroll: elements that each thread
// keeps in flight.
//
// Result: ((source 0 + source 1) + source 2) + ..., in float for half and bfloat16 and in half for
// fp8, rounded once at the end; integers wrap. A single source is copied bit by bit. RedOp: any
// `Value operator()(Value const &sum, Value const &next) const`, on values of type Value. What a
// multimem source adds is rounded to Value by the load, in the hardware's order (on virtual devices
// in rank order).
//
// Value: float, double, __half, __nv_bfloat16, integers of 8 to 64 bits, __nv_fp8_e4m3,
// __nv_fp8_e5m2. Limits of the hardware, told when a program is compiled: multimem needs sm_90; a
// multimem source is added only, has no integers below 32 bits, and fp8 only for
// architecture-specific targets from sm_100a on. An element of 1 or 2 bytes at an edge that is no
// multiple of 4 bytes costs a multimem destination two atomic operations. On virtual devices a
// count, team or address that is not possible ends the kernel with a text.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_REDUCE_COPY_H_
#define NCCL_DEVICE_REDUCE_COPY_H_

#include "comm.h"
#include "ptr.h"

#if NCCL_CHECK_CUDACC
#include <type_traits>

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
NCCL_DEVICE_INLINE typename std::enable_if<std::is_integral<IntCount>::value>::type
ncclLsaCopy(Coop, Value *src, DstLambda, int nDst, IntCount count);
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
