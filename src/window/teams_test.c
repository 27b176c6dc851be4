// Arithmetic of teams, on the host, against sets of world ranks.
// SPDX-License-Identifier: Apache-2.0
#include <nccl_device.h>

#include "expect.h"

static int world_rank(ncclTeam_t world, ncclTeam_t team, int rank)
{
    return world.rank + (rank - team.rank) * team.stride;
}

static bool has(ncclTeam_t world, ncclTeam_t team, int rank_of_world)
{
    for (int i = 0; i < team.nRanks; i++) {
        if (world_rank(world, team, i) == rank_of_world) {
            return true;
        }
    }
    return false;
}

static void check_difference(ncclTeam_t world, ncclTeam_t parent, ncclTeam_t subset)
{
    int index = 0;
    for (int i = 0; i < parent.nRanks; i++) {
        if (!has(world, subset, world_rank(world, parent, i))) {
            EXPECT_EQ(ncclTeamRankInDifference(parent, subset, index), i);
            index++;
        }
    }
    EXPECT_EQ(index, parent.nRanks - subset.nRanks);
}

static void check_members(ncclTeam_t world, ncclTeam_t a, ncclTeam_t b)
{
    for (int i = 0; i < b.nRanks; i++) {
        int rank = world_rank(world, b, i);
        EXPECT_EQ(ncclTeamRankIsMember(a, b, i), has(world, a, rank));
        if (has(world, a, rank)) {
            EXPECT_EQ(world_rank(world, a, ncclTeamRankToTeam(a, b, i)), rank);
        }
    }
}

static void all_teams_of_24(void)
{
    for (int rank = 0; rank < 24; rank++) {
        ncclTeam_t world = {24, rank, 1};
        ncclTeam_t inner = ncclTeamInnerFactor(world, 6);
        ncclTeam_t outer = ncclTeamOuterFactor(world, 6);
        ncclTeam_t inner_inner = ncclTeamInnerFactor(inner, 2);
        ncclTeam_t inner_outer = ncclTeamOuterFactor(inner, 2);
        EXPECT(inner.nRanks == 6 && inner.rank == rank % 6 && inner.stride == 1);
        EXPECT(outer.nRanks == 4 && outer.rank == rank / 6 && outer.stride == 6);
        EXPECT(inner_outer.nRanks == 3 && inner_outer.stride == 2);
        EXPECT_EQ(world_rank(world, inner, inner.rank), rank);
        EXPECT_EQ(world_rank(world, inner_outer, inner_outer.rank), rank);
        check_difference(world, world, inner);
        check_difference(world, world, outer);
        check_difference(world, inner, inner_inner);
        check_difference(world, inner, inner_outer);
        check_difference(world, world, inner_outer);
        check_difference(world, world, world);
        const ncclTeam_t teams[] = {world, inner, outer, inner_inner, inner_outer};
        for (int a = 0; a < 5; a++) {
            for (int b = 0; b < 5; b++) {
                check_members(world, teams[a], teams[b]);
            }
        }
    }
}

static void handles(void)
{
    EXPECT_EQ(ncclGetResourceBufferOffset(3), 384);
    EXPECT_EQ(ncclGetResourceBufferOffset(UINT32_MAX), (size_t)UINT32_MAX * 128);
}

int main(void)
{
    RUN(all_teams_of_24);
    RUN(handles);
    return expect_result();
}
