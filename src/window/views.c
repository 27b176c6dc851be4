// Multicast views of teams inside the LSA team: which ones a communicator has, and each window's
// alias range in them. SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "comm/comm.h"
#include "comm/local.h"
#include "comm/meet.h"
#include "window/window_internal.h"

#include <stdlib.h>
#include <string.h>

ncclMultimemHandle_t tt_view_handle(int view)
{
    uintptr_t base = NCCL_MULTIMEM_ANCHOR + (uintptr_t)NCCL_MULTIMEM_VIEW_STEP * (view + 1);
    return (ncclMultimemHandle_t){(void *)base};
}

ncclTeam_t *tt_lsa_teams(const struct ncclComm *comm)
{
    ncclTeam_t *teams = calloc((size_t)comm->nranks, sizeof *teams);
    for (int r = 0; teams != NULL && r < comm->nranks; r++) {
        teams[r] = (ncclTeam_t){comm->lsa_size, r % comm->lsa_size, 1};
    }
    return teams;
}

// ---- The alias range of one window
// -------------------------------------------------------------------------------------

static struct tt_flat *new_range(const struct ncclComm *comm, const ncclTeam_t *teams, int rank,
                                 const struct tt_flat *like)
{
    const ncclTeam_t *team = &teams[rank];
    struct tt_flat *flat = calloc(1, sizeof *flat);
    int *devices = calloc((size_t)team->nRanks, sizeof *devices);
    if (flat == NULL || devices == NULL) {
        free(flat);
        free(devices);
        return NULL;
    }
    atomic_init(&flat->users, 1);
    flat->first_rank = tt_team_member(teams, rank, 0);
    flat->members = team->nRanks;
    flat->stride = like->stride;
    flat->span = like->span;
    flat->local_device = devices;
    for (int m = 0; m < team->nRanks; m++) {
        const struct tt_peer *peer = &comm->peers[tt_team_member(teams, rank, m)];
        if (peer->process == comm->peers[comm->rank].process) {
            devices[flat->local_count++] = peer->cuda_device;
        }
    }
    return flat;
}

static bool same_team(const ncclTeam_t *teams, int a, int b)
{
    return tt_team_member(teams, a, 0) == tt_team_member(teams, b, 0);
}

// The leader's part: one range per team that has ranks here, left in those ranks' slots.
static void make_ranges(const struct ncclComm *comm, const ncclTeam_t *teams,
                        const struct tt_flat *like, struct tt_share *share)
{
    for (int i = 0; i < share->size; i++) {
        if (!share->slot[i].filled || share->slot[i].flat != NULL) {
            continue;
        }
        int rank = share->slot[i].world_rank;
        struct tt_flat *flat = new_range(comm, teams, rank, like);
        if (flat == NULL) {
            tt_verdict_fail(&share->verdict, ncclSystemError,
                            "no memory for the description of a multicast view");
            return;
        }
        share->slot[i].flat = flat;
        for (int k = i + 1; k < share->size; k++) {
            if (share->slot[k].filled && same_team(teams, share->slot[k].world_rank, rank)) {
                share->slot[k].flat = tt_flat_hold(flat);
            }
        }
    }
}

// One range for the ranks of a team in this process.
static ncclResult_t share_range(struct ncclComm *comm, const ncclTeam_t *teams,
                                struct tt_registered *registered, int number,
                                struct tt_verdict *verdict)
{
    struct tt_share_slot mine = {.world_rank = comm->rank, .device = comm->cuda_device};
    struct tt_share *share = tt_share_enter(comm, comm->windows->sequence++, &mine);
    if (share == NULL) {
        tt_verdict_fail(verdict, ncclSystemError,
                        "no memory to share a multicast view between the ranks of the process");
    }
    ncclResult_t result = tt_local_barrier(comm);
    if (result == ncclSuccess && share != NULL && tt_local_rank(comm) == 0) {
        make_ranges(comm, teams, registered->flat, share);
    }
    if (result == ncclSuccess) {
        result = tt_local_barrier(comm);
    }
    if (result == ncclSuccess && share != NULL) {
        if (share->verdict.result != ncclSuccess) {
            tt_verdict_fail(verdict, (ncclResult_t)share->verdict.result, "%s",
                            share->verdict.text);
        } else {
            registered->view[number] = tt_flat_hold(share->slot[tt_local_rank(comm)].flat);
        }
    }
    tt_share_leave(share);
    return result;
}

// Collective.
static ncclResult_t add_view(struct ncclComm *comm, struct tt_registered *registered, int number)
{
    static const char *const what = "a multicast view";
    const ncclTeam_t *teams = comm->windows->view_teams[number];
    struct tt_verdict verdict = {0};
    TRY(share_range(comm, teams, registered, number, &verdict));
    TRY(tt_agree(comm, &verdict, what));
    TRY(tt_multicast_create(comm, teams, registered->memory, registered->view[number], &verdict));
    if (verdict.result == ncclSuccess) {
        uint64_t address = registered->view[number]->alias + registered->offset;
        char *views = (char *)registered->window.handle + sizeof registered->image;
        (void)tt_windows_upload(comm->windows, views + (size_t)number * sizeof address, &address,
                                sizeof address, &verdict);
    }
    return tt_agree(comm, &verdict, what);
}

ncclResult_t tt_views_add(struct ncclComm *comm, struct tt_registered *registered)
{
    for (int v = 0; v < comm->windows->view_count; v++) {
        TRY(add_view(comm, registered, v));
    }
    return ncclSuccess;
}

// ---- The views of a communicator
// ---------------------------------------------------------------------------------------

// What a rank tells the others: its team, and which windows it has.
struct claim {
    ncclTeam_t team;
    int windows;
    uint64_t signature;
};

static ncclResult_t compare(const struct ncclComm *comm, const struct claim *all,
                            const ncclTeam_t *teams)
{
    for (int r = 0; r < comm->nranks; r++) {
        if (all[r].windows != all[0].windows || all[r].signature != all[0].signature) {
            return tt_fail(ncclInvalidUsage,
                           "a multicast view: rank 0 has %d windows, rank %d has %d, or others; "
                           "register and deregister the same ones on all ranks before "
                           "ncclDevCommCreate",
                           all[0].windows, r, all[r].windows);
        }
        for (int m = 0; m < teams[r].nRanks; m++) {
            int other = tt_team_member(teams, r, m);
            bool fits = other >= 0 && other < comm->nranks && teams[other].rank == m &&
                        teams[other].nRanks == teams[r].nRanks &&
                        (teams[other].stride == teams[r].stride || teams[r].nRanks == 1);
            if (!fits) {
                return tt_fail(ncclInvalidArgument,
                               "a multicast view: rank %d asks for a team of %d ranks with stride "
                               "%d in which rank %d is number %d, but that rank asks for another "
                               "team; all members must give their own view of one team",
                               r, teams[r].nRanks, teams[r].stride, other, m);
            }
        }
    }
    return ncclSuccess;
}

// Number of the view with just these teams; -1: none.
static int find_view(const struct ncclComm *comm, const ncclTeam_t *teams)
{
    const struct tt_windows *windows = comm->windows;
    for (int v = 0; v < windows->view_count; v++) {
        if (memcmp(windows->view_teams[v], teams, (size_t)comm->nranks * sizeof *teams) == 0) {
            return v;
        }
    }
    return -1;
}

// Takes over `teams`.
static ncclResult_t new_view(struct ncclComm *comm, ncclTeam_t *teams, struct tt_registered **list,
                             int count)
{
    struct tt_windows *windows = comm->windows;
    int number = windows->view_count;
    windows->view_teams[windows->view_count++] = teams;
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < count && result == ncclSuccess; i++) {
        result = add_view(comm, list[i], number);
    }
    if (result != ncclSuccess) {
        for (int i = 0; i < count; i++) {
            tt_flat_drop(list[i]->view[number]);
            list[i]->view[number] = NULL;
        }
        windows->view_count--;
        free(teams);
    }
    return result;
}

// All ranks' teams: [nranks], freed by the caller.
static ncclResult_t gather(struct ncclComm *comm, ncclTeam_t team, struct tt_registered **list,
                           int count, ncclTeam_t **teams_out)
{
    struct claim *all = calloc((size_t)comm->nranks, sizeof *all);
    ncclTeam_t *teams = calloc((size_t)comm->nranks, sizeof *teams);
    if (all == NULL || teams == NULL) {
        free(all);
        free(teams);
        return tt_fail(ncclSystemError, "rank %d: no memory for %d teams", comm->rank,
                       comm->nranks);
    }
    struct claim *mine = &all[comm->rank];
    mine->team = team;
    mine->windows = count;
    for (int i = 0; i < count; i++) {
        mine->signature = mine->signature * 31 + (uint64_t)list[i]->sequence + 1;
    }
    ncclResult_t result = tt_meet_allgather(comm, all, sizeof *all);
    for (int r = 0; r < comm->nranks; r++) {
        teams[r] = all[r].team;
    }
    if (result == ncclSuccess) {
        result = compare(comm, all, teams);
    }
    free(all);
    if (result != ncclSuccess) {
        free(teams);
        return result;
    }
    *teams_out = teams;
    return ncclSuccess;
}

ncclResult_t tt_view_obtain(struct ncclComm *comm, ncclTeam_t team, int *view_out)
{
    struct tt_registered **list = NULL;
    ncclTeam_t *teams = NULL;
    int count = tt_handles_of(comm->windows, &list);
    if (count < 0) {
        return tt_fail(ncclSystemError, "rank %d: no memory for a list of windows", comm->rank);
    }
    ncclResult_t result = gather(comm, team, list, count, &teams);
    if (result == ncclSuccess) {
        *view_out = find_view(comm, teams);
        if (*view_out >= 0) {
            free(teams);
        } else if (comm->windows->view_count == NCCL_MULTIMEM_VIEWS) {
            free(teams);
            result = tt_fail(ncclInvalidUsage,
                             "a multicast view: this communicator has %d already, which is the "
                             "most; use the LSA team's, or load and store through "
                             "ncclGetLsaPointer",
                             NCCL_MULTIMEM_VIEWS);
        } else {
            *view_out = comm->windows->view_count;
            result = new_view(comm, teams, list, count);
        }
    }
    free(list);
    return result;
}
