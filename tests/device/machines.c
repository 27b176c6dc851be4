// What windows and device communicators are on other machines. The argument names the case; the
// environment that it needs is set by the test list.
// SPDX-License-Identifier: Apache-2.0
#include "../support/expect.h"
#include "../support/member.h"
#include "../support/ranks.h"

#include <nccl.h>
#include <nccl_device.h>

#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, BYTES = 65536 };

struct expected {
    const char *name;
    bool windows, multimem;
    int lsa_teams;
    const char *reason; // of a refused device communicator with lsaMultimem, or ""
};
static const struct expected machines[] = {
    {"whole", true, true, 1, ""},
    {"no-multicast", true, false, 1, "ncclGetLsaPointer"},
    {"no-peers", false, false, 1, "device API"},
    {"switched-off", false, false, 1, "device API"},
    {"two-hosts", true, true, 2, ""},
};

static const struct expected *machine(void)
{
    const char *name = getenv("TUTTI_TEST_MACHINE");
    for (size_t i = 0; name != NULL && i < sizeof machines / sizeof machines[0]; i++) {
        if (strcmp(machines[i].name, name) == 0) {
            return &machines[i];
        }
    }
    return NULL;
}

// Of the LSA team, and of a part of it: both there, or both refused with the reason.
static void ask_for_multimem(ncclComm_t comm, const struct expected *expected)
{
    ncclMultimemHandle_t view = {NULL};
    ncclTeamRequirements_t alone = {
        .team = {1, 0, 1}, .multimem = true, .outMultimemHandle = &view};
    for (int part = 0; part < 2; part++) {
        ncclDevCommRequirements_t needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
        ncclDevComm_t device_comm;
        needs.lsaMultimem = part == 0;
        needs.teamRequirementsList = part == 0 ? NULL : &alone;
        ncclResult_t result = ncclDevCommCreate(comm, &needs, &device_comm);
        EXPECT_EQ(result, expected->multimem ? ncclSuccess : ncclInvalidUsage);
        if (result == ncclSuccess) {
            EXPECT_OK(ncclDevCommDestroy(comm, &device_comm));
        } else {
            EXPECT_CONTAINS(ncclGetLastError(comm), expected->reason);
        }
    }
    EXPECT_EQ(view.mcBasePtr != NULL, expected->multimem);
}

// window: NULL where there are none.
static void ask_for_pointers(ncclComm_t comm, ncclWindow_t window, const struct expected *expected)
{
    ncclResult_t result = window != NULL ? ncclSuccess : ncclInvalidArgument;
    void *pointer = &window;
    EXPECT_EQ(ncclGetLsaMultimemDevicePointer(window, 0, &pointer), result);
    EXPECT_EQ(pointer != NULL, expected->multimem);
    EXPECT_EQ(ncclGetLsaDevicePointer(window, 0, 0, &pointer), result);
    EXPECT_EQ(pointer != NULL, expected->windows);
    if (window == NULL) {
        EXPECT_CONTAINS(ncclGetLastError(NULL), "not supported");
        EXPECT_OK(ncclWinGetUserPtr(comm, window, &pointer));
        EXPECT(pointer == NULL);
    }
}

static void look(int rank, int size)
{
    const struct expected *expected = machine();
    struct member me;
    void *memory = NULL;
    if (!member_join(&me, rank, size) || !EXPECT(expected != NULL) ||
        !EXPECT_OK(ncclMemAlloc(&memory, BYTES))) {
        return;
    }
    ncclComm_t comm = me.comm;
    ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
    EXPECT_OK(ncclCommQueryProperties(comm, &properties));
    EXPECT_EQ(properties.deviceApiSupport, expected->windows);
    EXPECT_EQ(properties.multimemSupport, expected->multimem);
    EXPECT_EQ(properties.nLsaTeams, expected->lsa_teams);
    EXPECT_EQ(properties.rank, rank);
    EXPECT_EQ(properties.nRanks, size);
    EXPECT_EQ(properties.ginType, NCCL_GIN_TYPE_NONE);
    properties.magic = 1;
    EXPECT_EQ(ncclCommQueryProperties(comm, &properties), ncclInvalidUsage);

    int team = size / expected->lsa_teams;
    ncclTeam_t lsa = ncclTeamLsa(comm);
    ncclTeam_t rail = ncclTeamRail(comm);
    EXPECT(lsa.nRanks == team && lsa.rank == rank % team && lsa.stride == 1);
    EXPECT(rail.nRanks == size / team && rail.rank == rank / team && rail.stride == team);

    ncclWindow_t window = (ncclWindow_t)(uintptr_t)1;
    EXPECT_OK(ncclCommWindowRegister(comm, memory, BYTES, &window, NCCL_WIN_COLL_SYMMETRIC));
    EXPECT_EQ(window != NULL, expected->windows);
    for (int peer = 0; window != NULL && peer < size; peer++) {
        void *pointer = NULL;
        EXPECT_OK(ncclGetPeerDevicePointer(window, 0, peer, &pointer));
        EXPECT_EQ(pointer != NULL, peer / team == rank / team);
    }
    ask_for_multimem(comm, expected);
    ask_for_pointers(comm, window, expected);
    ncclDevCommRequirements_t needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    ncclDevComm_t device_comm;
    needs.lsaBarrierCount = 1;
    ncclResult_t result = ncclDevCommCreate(comm, &needs, &device_comm);
    EXPECT_EQ(result, expected->windows ? ncclSuccess : ncclInvalidUsage);
    EXPECT_OK(ncclCommWindowDeregister(comm, window));
    EXPECT_OK(ncclMemFree(memory));
    member_leave(&me);
}

static void as_threads(void)
{
    run_thread_ranks(RANKS, look, 60);
}

static void as_processes(void)
{
    run_ranks(RANKS, look, 60);
}

int main(void)
{
    RUN(as_threads);
    RUN(as_processes);
    return expect_result();
}
