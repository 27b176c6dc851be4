// Flat ranges: the copies of one window of all members of an LSA team, mapped at equal distances,
// once per process.
// SPDX-License-Identifier: Apache-2.0
#include "base/holdings.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/local.h"
#include "window/window_internal.h"

#include <stdlib.h>
#include <unistd.h>

struct tt_flat *tt_flat_hold(struct tt_flat *flat)
{
    if (flat != NULL) {
        (void)atomic_fetch_add_explicit(&flat->users, 1, memory_order_relaxed);
    }
    return flat;
}

void tt_flat_drop(struct tt_flat *flat)
{
    if (flat == NULL || atomic_fetch_sub_explicit(&flat->users, 1, memory_order_acq_rel) > 1) {
        return;
    }
    tt_multicast_destroy(flat);
    for (int m = 0; m < flat->mapped; m++) {
        (void)cuMemUnmap(flat->base + (size_t)m * flat->stride, flat->span);
    }
    tt_holdings_remove(TT_HOLD_MAPPINGS, (size_t)flat->mapped * flat->span);
    if (flat->base != 0) {
        (void)cuMemAddressFree(flat->base, (size_t)flat->members * flat->stride);
    }
    free(flat->local_device);
    free(flat);
}

// A use of a new, empty range for the team of `rank`, with the devices of the team's ranks in this
// process.
static struct tt_flat *new_flat(const struct ncclComm *comm, int rank,
                                const struct tt_agreement *agreement)
{
    struct tt_flat *flat = calloc(1, sizeof *flat);
    int *devices = calloc((size_t)comm->lsa_size, sizeof *devices);
    if (flat == NULL || devices == NULL) {
        free(flat);
        free(devices);
        return NULL;
    }
    atomic_init(&flat->users, 1);
    flat->first_rank = rank / comm->lsa_size * comm->lsa_size;
    flat->members = comm->lsa_size;
    flat->stride = agreement->stride;
    flat->span = agreement->span;
    flat->local_device = devices;
    for (int m = 0; m < flat->members; m++) {
        const struct tt_peer *peer = &comm->peers[flat->first_rank + m];
        if (peer->process == comm->peers[comm->rank].process) {
            devices[flat->local_count++] = peer->cuda_device;
        }
    }
    return flat;
}

// Read and write access for each of the team's devices in this process.
bool tt_flat_open(const struct tt_flat *flat, CUdeviceptr pointer, size_t bytes,
                  struct tt_verdict *verdict)
{
    CUmemAccessDesc *access = calloc((size_t)flat->local_count, sizeof *access);
    if (access == NULL) {
        tt_verdict_fail(verdict, ncclSystemError, "no memory for %d access descriptions",
                        flat->local_count);
        return false;
    }
    size_t count = 0;
    for (int i = 0; i < flat->local_count; i++) {
        bool seen = false;
        for (size_t k = 0; k < count; k++) {
            seen = seen || access[k].location.id == flat->local_device[i];
        }
        if (!seen) {
            access[count].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            access[count].location.id = flat->local_device[i];
            access[count++].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        }
    }
    bool opened =
        tt_verdict_driver(verdict, cuMemSetAccess(pointer, bytes, access, count), "cuMemSetAccess");
    free(access);
    return opened;
}

// Maps the next member's memory: from its slot where it lives here, else from the descriptor that
// its process sent.
static bool map_member(const struct ncclComm *comm, const struct tt_share *share,
                       const int *descriptors, struct tt_flat *flat, struct tt_verdict *verdict)
{
    int rank = flat->first_rank + flat->mapped;
    CUmemGenericAllocationHandle handle = 0;
    bool imported = false;
    if (comm->peers[rank].process == comm->peers[comm->rank].process) {
        for (int i = 0; i < share->size; i++) {
            handle = share->slot[i].filled && share->slot[i].world_rank == rank
                         ? share->slot[i].memory
                         : handle;
        }
    } else if (descriptors != NULL && descriptors[rank] >= 0) {
        imported = tt_verdict_driver(
            verdict,
            cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)descriptors[rank],
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            "cuMemImportFromShareableHandle");
    }
    if (handle == 0) {
        tt_verdict_fail(verdict, ncclSystemError, "the memory of rank %d did not arrive", rank);
        return false;
    }
    CUdeviceptr pointer = flat->base + (size_t)flat->mapped * flat->stride;
    bool mapped =
        tt_verdict_driver(verdict, cuMemMap(pointer, flat->span, 0, handle, 0), "cuMemMap");
    flat->mapped += mapped;
    tt_holdings_add(TT_HOLD_MAPPINGS, mapped ? flat->span : 0);
    if (imported) {
        (void)cuMemRelease(handle);
    }
    return mapped && tt_flat_open(flat, pointer, flat->span, verdict);
}

// The leader's part: one range per team that has ranks here, left in those ranks' slots.
static void map_teams(const struct ncclComm *comm, struct tt_share *share, const int *descriptors,
                      const struct tt_agreement *agreement)
{
    struct tt_verdict *verdict = &share->verdict;
    size_t alignment = tt_flat_alignment(agreement->stride);
    for (int i = 0; i < share->size && verdict->result == ncclSuccess; i++) {
        if (!share->slot[i].filled || share->slot[i].flat != NULL) {
            continue;
        }
        int rank = share->slot[i].world_rank;
        struct tt_flat *flat = new_flat(comm, rank, agreement);
        if (flat == NULL) {
            tt_verdict_fail(verdict, ncclSystemError,
                            "no memory for the description of a flat range");
            return;
        }
        share->slot[i].flat = flat;
        for (int k = i + 1; k < share->size; k++) {
            bool same_team = share->slot[k].filled &&
                             share->slot[k].world_rank / comm->lsa_size == rank / comm->lsa_size;
            if (same_team) {
                share->slot[k].flat = tt_flat_hold(flat);
            }
        }
        if (!tt_verdict_driver(verdict,
                               cuMemAddressReserve(&flat->base,
                                                   (size_t)flat->members * flat->stride, alignment,
                                                   0, 0),
                               "cuMemAddressReserve")) {
            return;
        }
        while (flat->mapped < flat->members &&
               map_member(comm, share, descriptors, flat, verdict)) {
        }
    }
}

static bool spans_processes(const struct ncclComm *comm, int first, int count)
{
    for (int r = first + 1; r < first + count; r++) {
        if (comm->peers[r].process != comm->peers[first].process) {
            return true;
        }
    }
    return false;
}

// Gives this rank's memory (or multicast object) to the team's other processes. descriptors:
// [nranks] to fill, or NULL where the communicator is one process.
static ncclResult_t pass_handle(struct ncclComm *comm, CUmemGenericAllocationHandle handle,
                                int *descriptors, struct tt_verdict *verdict)
{
    if (descriptors == NULL) {
        return ncclSuccess;
    }
    int descriptor = -1;
    if (handle != 0 && verdict->result == ncclSuccess &&
        spans_processes(comm, comm->rank - comm->lsa_rank, comm->lsa_size)) {
        (void)tt_verdict_driver(
            verdict,
            cuMemExportToShareableHandle(&descriptor, handle,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            "cuMemExportToShareableHandle");
    }
    ncclResult_t result = tt_local_pass_descriptors(comm, descriptor, descriptors);
    if (descriptor >= 0) {
        (void)close(descriptor);
    }
    return result;
}

ncclResult_t tt_descriptors_exchange(struct ncclComm *comm, CUmemGenericAllocationHandle handle,
                                     int **descriptors_out, struct tt_verdict *verdict)
{
    *descriptors_out = NULL;
    if (!spans_processes(comm, 0, comm->nranks)) {
        return ncclSuccess;
    }
    int *descriptors = malloc((size_t)comm->nranks * sizeof *descriptors);
    if (descriptors == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for %d descriptors", comm->rank,
                       comm->nranks);
    }
    for (int r = 0; r < comm->nranks; r++) {
        descriptors[r] = -1;
    }
    ncclResult_t result = pass_handle(comm, handle, descriptors, verdict);
    if (result != ncclSuccess) {
        tt_descriptors_close(comm, descriptors);
        return result;
    }
    *descriptors_out = descriptors;
    return ncclSuccess;
}

void tt_descriptors_close(const struct ncclComm *comm, int *descriptors)
{
    for (int r = 0; descriptors != NULL && r < comm->nranks; r++) {
        if (descriptors[r] >= 0) {
            (void)close(descriptors[r]);
        }
    }
    free(descriptors);
}

ncclResult_t tt_flat_create(struct ncclComm *comm, struct tt_registered *registered,
                            const struct tt_agreement *agreement, struct tt_verdict *verdict)
{
    struct tt_share_slot mine = {
        .world_rank = comm->rank, .device = comm->cuda_device, .memory = registered->memory};
    struct tt_share *share = tt_share_enter(comm, comm->windows->sequence++, &mine);
    if (share == NULL) {
        tt_verdict_fail(verdict, ncclSystemError,
                        "no memory to share a window between the ranks of the process");
    }
    int *descriptors = NULL;
    ncclResult_t result = tt_descriptors_exchange(comm, registered->memory, &descriptors, verdict);
    if (result == ncclSuccess) {
        result = tt_local_barrier(comm);
    }
    if (result == ncclSuccess && share != NULL && tt_local_rank(comm) == 0) {
        map_teams(comm, share, descriptors, agreement);
    }
    tt_descriptors_close(comm, descriptors);
    if (result == ncclSuccess) {
        result = tt_local_barrier(comm);
    }
    if (result == ncclSuccess && share != NULL) {
        if (share->verdict.result != ncclSuccess) {
            tt_verdict_fail(verdict, (ncclResult_t)share->verdict.result, "%s",
                            share->verdict.text);
        } else {
            registered->flat = tt_flat_hold(share->slot[tt_local_rank(comm)].flat);
        }
    }
    tt_share_leave(share);
    return result;
}
