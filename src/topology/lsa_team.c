// Size of the LSA teams from where the ranks are.
// SPDX-License-Identifier: Apache-2.0
#include "topology/lsa_team.h"

static int greatest_common_divisor(int a, int b)
{
    while (b != 0) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool share_memory(const struct tt_peer *a, const struct tt_peer *b)
{
    return a->host == b->host && a->machine_hash == b->machine_hash;
}

void tt_lsa_team(const struct tt_peer *peers, int nranks, int rank, int forced, int *lsa_rank,
                 int *lsa_size)
{
    int size = forced > 0 ? forced : 0;
    int run = 1;
    for (int r = 1; r <= nranks; r++) {
        if (r < nranks && share_memory(&peers[r - 1], &peers[r])) {
            run++;
            continue;
        }
        size = greatest_common_divisor(size, run);
        run = 1;
    }
    *lsa_size = size;
    *lsa_rank = rank % size;
}
