// The multicast view of a window: one object per team (the LSA team, or a part of it), made by the
// team's first rank, to which all members add their device and bind their memory, mapped once per
// process.
//
// Devices are added, and memory is bound, in rank order: virtual devices then reduce in rank
// order. Neighbouring ranks of one process take one turn; between turns all ranks meet.
// SPDX-License-Identifier: Apache-2.0
#include "comm/comm.h"
#include "comm/local.h"
#include "comm/meet.h"
#include "window/window_internal.h"

#include <string.h>

void tt_multicast_destroy(struct tt_flat *flat)
{
    if (flat->alias_mapped) {
        (void)cuMemUnmap(flat->alias, flat->span);
    }
    if (flat->alias != 0) {
        (void)cuMemAddressFree(flat->alias, flat->span);
    }
    for (int i = 0; i < flat->bound; i++) {
        (void)cuMulticastUnbind(flat->multicast, flat->local_device[i], 0, flat->span);
    }
    if (flat->multicast != 0) {
        (void)cuMemRelease(flat->multicast);
    }
}

// Whether two members of one team share a device.
static bool have_shared_devices(const struct ncclComm *comm)
{
    for (int a = 0; a < comm->nranks; a++) {
        int end = (a / comm->lsa_size + 1) * comm->lsa_size;
        for (int b = a + 1; b < end; b++) {
            if (tt_peer_same_device(&comm->peers[a], &comm->peers[b])) {
                return true;
            }
        }
    }
    return false;
}

// Whether this rank's device may be a member of a multicast object twice: tried on an object that
// is thrown away.
static bool may_be_added_twice(const struct ncclComm *comm)
{
    struct tt_verdict ignored = {0};
    CUmulticastObjectProp properties = {0};
    properties.numDevices = (unsigned int)comm->lsa_size;
    properties.size = tt_memory_granularity(comm->cuda_device, comm->lsa_size, &ignored);
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle object = 0;
    if (properties.size == 0 || cuMulticastCreate(&object, &properties) != CUDA_SUCCESS) {
        return false;
    }
    // NOLINTNEXTLINE(misc-redundant-expression): may a device be a member twice?
    bool added = cuMulticastAddDevice(object, comm->cuda_device) == CUDA_SUCCESS &&
                 cuMulticastAddDevice(object, comm->cuda_device) == CUDA_SUCCESS;
    (void)cuMemRelease(object);
    return added;
}

bool tt_multicast_possible(const struct ncclComm *comm)
{
    for (int r = 0; r < comm->nranks; r++) {
        if (!comm->peers[r].multicast) {
            return false;
        }
    }
    return !have_shared_devices(comm) || may_be_added_twice(comm);
}

// Turn of `rank` in its team: how often the process changes from the team's first rank to it.
static int turn_of(const struct ncclComm *comm, const ncclTeam_t *teams, int rank)
{
    int turn = 0;
    for (int m = 1; m <= teams[rank].rank; m++) {
        turn += comm->peers[tt_team_member(teams, rank, m)].process !=
                comm->peers[tt_team_member(teams, rank, m - 1)].process;
    }
    return turn;
}

// Turns that the longest team needs; equal on all ranks.
static int turn_count(const struct ncclComm *comm, const ncclTeam_t *teams)
{
    int count = 1;
    for (int r = 0; r < comm->nranks; r++) {
        int turns = turn_of(comm, teams, r) + 1;
        count = turns > count ? turns : count;
    }
    return count;
}

enum turn_work { ADD_DEVICES, BIND_MEMORY };

static const struct tt_share_slot *slot_of(const struct tt_share *share, int world_rank)
{
    for (int i = 0; i < share->size; i++) {
        if (share->slot[i].filled && share->slot[i].world_rank == world_rank) {
            return &share->slot[i];
        }
    }
    return NULL;
}

// What all steps of one view have in common.
struct view {
    struct ncclComm *comm;
    const ncclTeam_t *teams; // [nranks]
    struct tt_share *share;
    struct tt_flat *flat;
};

// What the first rank of a run of neighbours in one process does for all of the run.
static void work_for_run(const struct view *view, enum turn_work work, struct tt_verdict *verdict)
{
    const struct ncclComm *comm = view->comm;
    const struct tt_share *share = view->share;
    struct tt_flat *flat = view->flat;
    for (int m = view->teams[comm->rank].rank; m < flat->members; m++) {
        int r = tt_team_member(view->teams, comm->rank, m);
        if (comm->peers[r].process != comm->peers[comm->rank].process) {
            return;
        }
        const struct tt_share_slot *slot = slot_of(share, r);
        if (slot == NULL) {
            tt_verdict_fail(verdict, ncclInternalError, "rank %d is missing in its process", r);
            return;
        }
        if (work == ADD_DEVICES) {
            if (!tt_verdict_driver(verdict, cuMulticastAddDevice(flat->multicast, slot->device),
                                   "cuMulticastAddDevice")) {
                return;
            }
        } else {
            if (!tt_verdict_driver(
                    verdict, cuMulticastBindMem(flat->multicast, 0, slot->memory, 0, flat->span, 0),
                    "cuMulticastBindMem")) {
                return;
            }
            flat->bound++;
        }
    }
}

static ncclResult_t take_turns(const struct view *view, enum turn_work work,
                               struct tt_verdict *verdict)
{
    struct ncclComm *comm = view->comm;
    int turns = turn_count(comm, view->teams);
    int number = view->teams[comm->rank].rank;
    bool first_of_run =
        number == 0 || comm->peers[comm->rank].process !=
                           comm->peers[tt_team_member(view->teams, comm->rank, number - 1)].process;
    for (int turn = 0; turn < turns; turn++) {
        if (first_of_run && turn_of(comm, view->teams, comm->rank) == turn &&
            verdict->result == ncclSuccess && view->share != NULL) {
            work_for_run(view, work, verdict);
        }
        ncclResult_t result = turns > 1 ? tt_meet_barrier(comm) : tt_local_barrier(comm);
        if (result != ncclSuccess) {
            return result;
        }
    }
    return ncclSuccess;
}

// The first rank of a team: a new object for `span` bytes of each member.
static CUmemGenericAllocationHandle create_object(int members, size_t span,
                                                  struct tt_verdict *verdict)
{
    CUmulticastObjectProp properties = {0};
    properties.numDevices = (unsigned int)members;
    properties.size = span;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle object = 0;
    return tt_verdict_driver(verdict, cuMulticastCreate(&object, &properties), "cuMulticastCreate")
               ? object
               : 0;
}

// The leader: gives each team's object to its flat range here, imported where its first rank is
// elsewhere.
static void take_objects(struct tt_share *share, const int *descriptors)
{
    for (int i = 0; i < share->size; i++) {
        struct tt_flat *flat = share->slot[i].flat;
        if (flat == NULL || flat->multicast != 0) {
            continue;
        }
        const struct tt_share_slot *first = slot_of(share, flat->first_rank);
        if (first != NULL) {
            flat->multicast = first->multicast;
        } else if (descriptors != NULL && descriptors[flat->first_rank] >= 0) {
            void *descriptor = (void *)(intptr_t)descriptors[flat->first_rank];
            (void)tt_verdict_driver(
                &share->verdict,
                cuMemImportFromShareableHandle(&flat->multicast, descriptor,
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                "cuMemImportFromShareableHandle (multicast)");
        }
        if (flat->multicast == 0) {
            tt_verdict_fail(&share->verdict, ncclSystemError,
                            "the multicast object of rank %d did not arrive", flat->first_rank);
        }
    }
}

static void map_aliases(struct tt_share *share)
{
    struct tt_verdict *verdict = &share->verdict;
    for (int i = 0; i < share->size; i++) {
        struct tt_flat *flat = share->slot[i].flat;
        if (flat == NULL || flat->alias != 0) {
            continue;
        }
        size_t alignment = tt_flat_alignment(flat->stride);
        if (!tt_verdict_driver(verdict,
                               cuMemAddressReserve(&flat->alias, flat->span, alignment, 0, 0),
                               "cuMemAddressReserve (multicast)") ||
            !tt_verdict_driver(verdict, cuMemMap(flat->alias, flat->span, 0, flat->multicast, 0),
                               "cuMemMap (multicast)")) {
            return;
        }
        flat->alias_mapped = true;
        if (!tt_flat_open(flat, flat->alias, flat->span, verdict)) {
            return;
        }
    }
}

// Steps inside one share; see tt_multicast_create.
static ncclResult_t build(const struct view *view, CUmemGenericAllocationHandle object,
                          struct tt_verdict *verdict)
{
    struct ncclComm *comm = view->comm;
    struct tt_share *share = view->share;
    bool leads = tt_local_rank(comm) == 0;
    int *descriptors = NULL;
    ncclResult_t result = tt_descriptors_exchange(comm, object, &descriptors, verdict);
    if (result == ncclSuccess) {
        result = tt_local_barrier(comm);
    }
    if (result == ncclSuccess && share != NULL && leads) {
        take_objects(share, descriptors);
    }
    tt_descriptors_close(comm, descriptors);
    if (result == ncclSuccess) {
        result = tt_local_barrier(comm);
    }
    if (result != ncclSuccess) {
        return result;
    }
    if (share != NULL && share->verdict.result != ncclSuccess) {
        tt_verdict_fail(verdict, (ncclResult_t)share->verdict.result, "%s", share->verdict.text);
    }
    result = take_turns(view, ADD_DEVICES, verdict);
    if (result == ncclSuccess) {
        result = tt_agree(comm, verdict,
                          "multicast"); // all devices are added before any memory is bound
    }
    if (result == ncclSuccess) {
        result = take_turns(view, BIND_MEMORY, verdict);
    }
    if (result == ncclSuccess && leads && share != NULL) {
        map_aliases(share);
    }
    if (result == ncclSuccess) {
        result = tt_local_barrier(comm);
    }
    if (result == ncclSuccess && share != NULL && share->verdict.result != ncclSuccess) {
        tt_verdict_fail(verdict, (ncclResult_t)share->verdict.result, "%s", share->verdict.text);
    }
    return result;
}

ncclResult_t tt_multicast_create(struct ncclComm *comm, const ncclTeam_t *teams,
                                 CUmemGenericAllocationHandle memory, struct tt_flat *flat,
                                 struct tt_verdict *verdict)
{
    CUmemGenericAllocationHandle object = 0;
    if (teams[comm->rank].rank == 0) {
        object = create_object(teams[comm->rank].nRanks, flat->span, verdict);
    }
    struct tt_share_slot mine = {
        .world_rank = comm->rank,
        .device = comm->cuda_device,
        .memory = memory,
        .multicast = object,
        .flat = tt_flat_hold(flat),
    };
    struct view view = {comm, teams, NULL, flat};
    view.share = tt_share_enter(comm, comm->windows->sequence++, &mine);
    if (view.share == NULL) {
        tt_flat_drop(mine.flat);
        tt_verdict_fail(verdict, ncclSystemError,
                        "no memory to share a multicast object between the ranks of the process");
    }
    ncclResult_t result = build(&view, object, verdict);
    if (object != 0 && flat->multicast != object) {
        (void)cuMemRelease(object); // nobody took it over
    }
    tt_share_leave(view.share);
    return result;
}
