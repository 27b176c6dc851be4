// What a communicator can do, and its teams.
// SPDX-License-Identifier: Apache-2.0
#include "api/function.h"
#include "base/log.h"
#include "comm/comm.h"
#include "window/register.h"

#include <stdbool.h>

TT_FUNCTION(ncclResult_t, CommQueryProperties, (ncclComm_t comm, ncclCommProperties_t *props))
{
    TRY(tt_comm_enter(comm, "ncclCommQueryProperties"));
    ncclResult_t result =
        props != NULL ? tt_query_properties(comm, props)
                      : tt_fail(ncclInvalidArgument, "props is NULL, expected a structure from "
                                                     "NCCL_COMM_PROPERTIES_INITIALIZER");
    tt_comm_leave(comm);
    return result;
}

// What the teams are made of; one rank alone where the communicator cannot be asked.
struct place {
    bool is_known;
    int rank, nranks, lsa_rank, lsa_size;
};

static struct place ask(ncclComm_t comm, const char *call)
{
    struct place place = {.nranks = 0, .lsa_size = 1};
    if (tt_comm_enter(comm, call) == ncclSuccess) {
        place = (struct place){true, comm->rank, comm->nranks, comm->lsa_rank, comm->lsa_size};
        tt_comm_leave(comm);
    }
    return place;
}

static const ncclTeam_t no_team = {0, 0, 1};

TT_FUNCTION(ncclTeam_t, TeamWorld, (ncclComm_t comm))
{
    struct place place = ask(comm, "ncclTeamWorld");
    return place.is_known ? (ncclTeam_t){place.nranks, place.rank, 1} : no_team;
}

TT_FUNCTION(ncclTeam_t, TeamLsa, (ncclComm_t comm))
{
    struct place place = ask(comm, "ncclTeamLsa");
    return place.is_known ? (ncclTeam_t){place.lsa_size, place.lsa_rank, 1} : no_team;
}

TT_FUNCTION(ncclTeam_t, TeamRail, (ncclComm_t comm))
{
    struct place place = ask(comm, "ncclTeamRail");
    return place.is_known ? (ncclTeam_t){place.nranks / place.lsa_size, place.rank / place.lsa_size,
                                         place.lsa_size}
                          : no_team;
}

TT_FUNCTION(int, TeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank))
{
    struct place place = ask(comm, "ncclTeamRankToWorld");
    return place.is_known ? place.rank + team.stride * (rank - team.rank) : -1;
}

TT_FUNCTION(int, TeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank))
{
    struct place place = ask(comm, "ncclTeamRankToLsa");
    return place.is_known ? place.lsa_rank + team.stride * (rank - team.rank) : -1;
}
