// All-to-all exchange of small values whose arrival is seen in the data itself: one way over the
// link, no barrier. For teams inside the LSA team.
//
// A block of each rank has `nSlots` slots of 8 bytes (a value of more bytes takes several, see
// ncclLLA2ACalcSlots) that its peers write and it reads. Values are sent and received in *epochs*:
// in each one a rank sends at least one value to every member of the team (itself too) and receives
// at least one from every member, by any threads of the group; then all threads of the group call
// endEpoch. Within an epoch a slot is written once.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_LL_A2A_H_
#define NCCL_DEVICE_LL_A2A_H_

#include "core.h"
#include "impl/ll_a2a__types.h"

// Host: slots for maxElts elements of at most maxEltSize bytes; -1 where there is no such number.
NCCL_EXTERN_C __host__ int ncclLLA2ACalcSlots(int maxElts, int maxEltSize);
// Host: describes nBlocks blocks of nSlots slots for the list of ncclDevCommRequirements.
// *outHandle is complete once ncclDevCommCreate has ended, and goes to the kernel. Errors:
// ncclInvalidArgument.
NCCL_EXTERN_C __host__ ncclResult_t ncclLLA2ACreateRequirement(
    int nBlocks, int nSlots, ncclLLA2AHandle_t *outHandle, ncclDevResourceRequirements_t *outReq);

#if NCCL_CHECK_CUDACC
template <typename Coop> struct ncclLLA2ASession : ncclLLA2ASession_internal<Coop> {
    // block: as a barrier's index, the same on all ranks and one for each group that runs at the
    // same time. maxElts: the session's slots are 0 to maxElts - 1, as in ncclLLA2ACalcSlots.
    // multimem: bcast with multicast stores; needs compute capability 9.0 and a handle of the team
    // with an address, else each member is written.
    NCCL_DEVICE_INLINE ncclLLA2ASession(Coop coop, ncclDevComm const &comm, ncclTeam team,
                                        ncclLLA2AHandle handle, uint32_t block, int maxElts,
                                        bool multimem = false, ncclMultimemHandle mmHandle = {});
    // Keeps the count of epochs for the next session. All threads of the group end it together,
    // after endEpoch.
    NCCL_DEVICE_INLINE ~ncclLLA2ASession();
    ncclLLA2ASession(ncclLLA2ASession const &) = delete;

    // Writes a value into a slot of team rank `peer`; of all members. Value: trivially copyable.
    template <typename Value> NCCL_DEVICE_INLINE void send(int peer, int slot, Value data);
    template <typename Value> NCCL_DEVICE_INLINE void bcast(int slot, Value data);
    // Waits for this rank's slot to be written in this epoch. Zero when the communicator is
    // aborted.
    template <typename Value> NCCL_DEVICE_INLINE Value recv(int slot);
    // The same for slots eltStart, eltStart + eltStride, ...: eltCount of them, MinEltCount to
    // MaxEltCount, all in flight at once.
    template <int MinEltCount, int MaxEltCount, typename Value>
    NCCL_DEVICE_INLINE void recvUnrolled(int eltStart, int eltCount, int eltStride,
                                         Value (&vals)[MaxEltCount]);
    // Receives eltCount values of type Elt, Unroll at a time, and combines eltToAcc of each in
    // order: red(red(first, second), third) ...; Acc{} of no values.
    template <int Unroll, typename Elt, typename EltToAcc, typename Reduce>
    NCCL_DEVICE_INLINE auto recvReduce(int eltStart, int eltCount, int eltStride, EltToAcc eltToAcc,
                                       Reduce red) -> decltype(eltToAcc(*(Elt *)nullptr));
    NCCL_DEVICE_INLINE void endEpoch(Coop coop);
};
#endif

#endif
