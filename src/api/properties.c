// What a communicator can do, and its teams.
// SPDX-License-Identifier: Apache-2.0
#include "api/function.h"
#include "base/log.h"
#include "comm/comm.h"
#include "window/register.h"

TT_FUNCTION(ncclResult_t, CommQueryProperties, (ncclComm_t comm, ncclCommProperties_t *props))
{
    TRY(tt_comm_check(comm, "ncclCommQueryProperties"));
    if (props == NULL) {
        return tt_fail(ncclInvalidArgument,
                       "ncclCommQueryProperties: props is NULL, expected a structure from "
                       "NCCL_COMM_PROPERTIES_INITIALIZER");
    }
    return tt_query_properties(comm, props);
}

static const ncclTeam_t no_team = {0, 0, 1};

TT_FUNCTION(ncclTeam_t, TeamWorld, (ncclComm_t comm))
{
    if (tt_comm_check(comm, "ncclTeamWorld") != ncclSuccess) {
        return no_team;
    }
    return (ncclTeam_t){comm->nranks, comm->rank, 1};
}

TT_FUNCTION(ncclTeam_t, TeamLsa, (ncclComm_t comm))
{
    if (tt_comm_check(comm, "ncclTeamLsa") != ncclSuccess) {
        return no_team;
    }
    return (ncclTeam_t){comm->lsa_size, comm->lsa_rank, 1};
}

TT_FUNCTION(ncclTeam_t, TeamRail, (ncclComm_t comm))
{
    if (tt_comm_check(comm, "ncclTeamRail") != ncclSuccess) {
        return no_team;
    }
    return (ncclTeam_t){comm->nranks / comm->lsa_size, comm->rank / comm->lsa_size, comm->lsa_size};
}

TT_FUNCTION(int, TeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank))
{
    if (tt_comm_check(comm, "ncclTeamRankToWorld") != ncclSuccess) {
        return -1;
    }
    return comm->rank + team.stride * (rank - team.rank);
}

TT_FUNCTION(int, TeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank))
{
    if (tt_comm_check(comm, "ncclTeamRankToLsa") != ncclSuccess) {
        return -1;
    }
    return comm->lsa_rank + team.stride * (rank - team.rank);
}
