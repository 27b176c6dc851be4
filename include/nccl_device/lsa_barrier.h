// Barriers of the ranks of a team whose memory can be loaded and stored.
//
// One barrier serves one group of threads on each rank: the same index on all ranks, a different
// one for each group that runs at the same time (blockIdx.x as a rule). Barriers count rounds; the
// count lives in the resource window, so a barrier can be used by kernel after kernel. arrive()
// announces this rank's group, wait() waits for the others': what a rank wrote before an arrive
// with release order can be read after a wait with acquire order.
// SPDX-License-Identifier: Apache-2.0
#ifndef NCCL_DEVICE_LSA_BARRIER_H_
#define NCCL_DEVICE_LSA_BARRIER_H_

#include "core.h"
#include "impl/lsa_barrier__types.h"

// Host: describes nBarriers barriers of `team` for the list of ncclDevCommRequirements. *outHandle
// is complete once ncclDevCommCreate has ended, and goes to the kernel. Errors:
// ncclInvalidArgument.
NCCL_EXTERN_C __host__ ncclResult_t
ncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t *outHandle,
                                ncclDevResourceRequirements_t *outReq);

#if NCCL_CHECK_CUDACC
template <typename Coop> struct ncclLsaBarrierSession : ncclLsaBarrierSession_internal<Coop> {
    // Of any team inside the LSA team, with a handle from ncclLsaBarrierCreateRequirement.
    // multimem: arrive with one multicast add instead of a store to each peer; needs compute
    // capability 9.0 and a handle of the team with an address, else stores are used.
    NCCL_DEVICE_INLINE ncclLsaBarrierSession(Coop coop, ncclDevComm const &comm, ncclTeam team,
                                             ncclLsaBarrierHandle handle, uint32_t index,
                                             bool multimem = false,
                                             ncclMultimemHandle mmHandle = {});
    // Of the whole LSA team, with the barriers of ncclDevCommRequirements::lsaBarrierCount.
    NCCL_DEVICE_INLINE ncclLsaBarrierSession(Coop coop, ncclDevComm const &comm, ncclTeamTagLsa,
                                             uint32_t index, bool multimem = false);
    // Keeps the count for the next session. All threads of the group end the session together.
    NCCL_DEVICE_INLINE ~ncclLsaBarrierSession();
    ncclLsaBarrierSession(ncclLsaBarrierSession const &) = delete;

    // order: of arrive its release part counts, of wait its acquire part; relaxed orders nothing
    // but the barrier itself. A wait of an aborted communicator ends, whatever the peers do.
    NCCL_DEVICE_INLINE void arrive(Coop coop, cuda::memory_order order);
    NCCL_DEVICE_INLINE void wait(Coop coop, cuda::memory_order order);
    NCCL_DEVICE_INLINE void sync(Coop coop, cuda::memory_order order);
    // ncclTimeout, in all threads of the group, when a peer has not come after timeoutCycles of
    // clock64(); the wait may then be repeated.
    NCCL_DEVICE_INLINE ncclResult_t wait(Coop coop, cuda::memory_order order,
                                         uint64_t timeoutCycles);
    NCCL_DEVICE_INLINE ncclResult_t sync(Coop coop, cuda::memory_order order,
                                         uint64_t timeoutCycles);
};
#endif

#endif
