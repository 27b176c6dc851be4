// Sizes of LSA teams for even, odd and interleaved placements.
// SPDX-License-Identifier: Apache-2.0
#include "topology/lsa_team.h"

#include "expect.h"

#include <string.h>

enum { MAX_RANKS = 64 };

// hosts: one letter per rank, its host. Returns the team size, having checked every rank's place.
static int team_size(const char *hosts, int forced)
{
    struct tt_peer peers[MAX_RANKS];
    int nranks = (int)strlen(hosts);
    memset(peers, 0, sizeof peers);
    for (int r = 0; r < nranks; r++) {
        peers[r].host = hosts[r] - 'a';
    }
    int first_size = 0;
    for (int r = 0; r < nranks; r++) {
        int lsa_rank = -1;
        int lsa_size = -1;
        tt_lsa_team(peers, nranks, r, forced, &lsa_rank, &lsa_size);
        if (r == 0) {
            first_size = lsa_size;
        }
        EXPECT_EQ(lsa_size, first_size);
        EXPECT_EQ(lsa_rank, r % lsa_size);
        EXPECT_EQ(nranks % lsa_size, 0);
        // No team crosses a host.
        EXPECT_EQ(hosts[r], hosts[r - lsa_rank]);
    }
    return first_size;
}

static void one_host(void)
{
    EXPECT_EQ(team_size("a", 0), 1);
    EXPECT_EQ(team_size("aaa", 0), 3);
    EXPECT_EQ(team_size("aaaaaaaa", 0), 8);
}

static void several_hosts(void)
{
    EXPECT_EQ(team_size("aaaabbbb", 0), 4);
    EXPECT_EQ(team_size("aaaaaaabbbbbbbb", 0), 1); // 7 + 8
    EXPECT_EQ(team_size("aaabbbc", 0), 1);         // 3 + 3 + 1
    EXPECT_EQ(team_size("aaaaaabbb", 0), 3);       // 6 + 3
    EXPECT_EQ(team_size("aaaabbbbbb", 0), 2);      // 4 + 6
}

static void interleaved(void)
{
    EXPECT_EQ(team_size("abababab", 0), 1);
    EXPECT_EQ(team_size("aabbaabb", 0), 2);
    EXPECT_EQ(team_size("aaaabbaa", 0), 2);
}

static void forced(void)
{
    EXPECT_EQ(team_size("aaaaaaaa", 2), 2);
    EXPECT_EQ(team_size("aaaaaaaa", 3), 1); // does not divide 8
    EXPECT_EQ(team_size("aaaabbbb", 8), 4); // cannot grow beyond a host
    EXPECT_EQ(team_size("aaaaaa", 4), 2);
}

// The same host name on two machines: memory cannot be shared.
static void two_machines_one_name(void)
{
    struct tt_peer peers[4];
    memset(peers, 0, sizeof peers);
    peers[2].machine_hash = peers[3].machine_hash = 1;
    int lsa_rank = -1;
    int lsa_size = -1;
    tt_lsa_team(peers, 4, 3, 0, &lsa_rank, &lsa_size);
    EXPECT_EQ(lsa_size, 2);
    EXPECT_EQ(lsa_rank, 1);
}

int main(void)
{
    RUN(one_host);
    RUN(several_hosts);
    RUN(interleaved);
    RUN(forced);
    RUN(two_machines_one_name);
    return expect_result();
}
