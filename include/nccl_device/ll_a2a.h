// All-to-all exchange of small values whose arrival is seen in the data itself. Declared for source
// compatibility; using it in this version does not compile ("not implemented yet").
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_LL_A2A_H_
#define NCCL_DEVICE_LL_A2A_H_

#include "core.h"
#include "impl/ll_a2a__types.h"

// Host: slots for maxElts elements of at most maxEltSize bytes; what nBlocks blocks of nSlots slots
// need.
NCCL_EXTERN_C __host__ int ncclLLA2ACalcSlots(int maxElts, int maxEltSize);
NCCL_EXTERN_C __host__ ncclResult_t ncclLLA2ACreateRequirement(
    int nBlocks, int nSlots, ncclLLA2AHandle_t *outHandle, ncclDevResourceRequirements_t *outReq);

#if NCCL_CHECK_CUDACC
template <typename Coop> struct ncclLLA2ASession {
    NCCL_DEVICE_INLINE ncclLLA2ASession(Coop, ncclDevComm const &, ncclTeam, ncclLLA2AHandle,
                                        uint32_t block, int maxElts, bool multimem = false,
                                        ncclMultimemHandle mmHandle = {});
    NCCL_DEVICE_INLINE ~ncclLLA2ASession();
    ncclLLA2ASession(ncclLLA2ASession const &) = delete;

    template <typename Value> NCCL_DEVICE_INLINE void send(int peer, int slot, Value data);
    template <typename Value> NCCL_DEVICE_INLINE void bcast(int slot, Value data);
    template <typename Value> NCCL_DEVICE_INLINE Value recv(int slot);
    template <int MinEltCount, int MaxEltCount, typename Value>
    NCCL_DEVICE_INLINE void recvUnrolled(int eltStart, int eltCount, int eltStride,
                                         Value (&vals)[MaxEltCount]);
    template <int Unroll, typename Elt, typename EltToAcc, typename Reduce>
    NCCL_DEVICE_INLINE auto recvReduce(int eltStart, int eltCount, int eltStride, EltToAcc eltToAcc,
                                       Reduce red) -> decltype(eltToAcc(*(Elt *)nullptr));
    NCCL_DEVICE_INLINE void endEpoch(Coop);
};
#endif

#endif
